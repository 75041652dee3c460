"""Where to compute."""

from __future__ import annotations

import torch

from selfexpress.errors import ConfigError


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Return the device asked for; a GPU if there is one for ``None`` or "auto"."""
    if device is None or device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device must name a torch device, got {device!r}. "
            "Use 'cpu', 'cuda', 'cuda:1' or 'auto'."
        ) from error
    if resolved.type not in ("cpu", "cuda"):
        raise ConfigError(
            f"device must be a CPU or a CUDA GPU, got {device!r}. Use 'cpu', 'cuda', "
            "'cuda:1' or 'auto'."
        )
    try:
        torch.empty(1, device=resolved)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"device must be present on this machine, but torch cannot use "
            f"{device!r}. Use device='cpu'."
        ) from error
    if resolved == torch.device("cuda"):
        # By number: the current device is another one in a thread that reads ahead.
        return torch.device("cuda", torch.cuda.current_device())
    return resolved
