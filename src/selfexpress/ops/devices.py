"""Where to compute: on which device, and beside its main stream."""

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


class SideStream:
    """Runs what is inside ``with`` beside the main stream of a GPU, until ``join``.

    It starts when what was asked of the main stream before is done. Tensors that it
    reads must be kept until ``join``, or the main stream may write over their memory.
    An urgent one comes before other streams where the GPU must choose. Elsewhere than
    on a GPU everything runs in order.
    """

    def __init__(self, device: torch.device, *, is_urgent: bool = False) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device, priority=-1 if is_urgent else 0)

    def __enter__(self) -> None:
        if self._stream is not None:
            main = torch.cuda.current_stream(self._stream.device)
            self._stream.wait_stream(main)
            self._context = torch.cuda.stream(self._stream)
            self._context.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            self._context.__exit__(*error)

    def join(self) -> None:
        """Let the main stream wait."""
        if self._stream is not None:
            main = torch.cuda.current_stream(self._stream.device)
            main.wait_stream(self._stream)
