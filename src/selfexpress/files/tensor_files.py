"""Named tensors in a safetensors file, beside a line of text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write contiguous tensors of the CPU, and the text that a header holds of them.

    Raises
    ------
    OSError
        If that fails, as with any other file.
    """
    try:
        save_file(dict(tensors), path, metadata=dict(metadata))
    except SafetensorError as error:
        raise OSError(str(error)) from error


def checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of the text and of every tensor's name, type, shape, bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        described = json.dumps([name, str(tensor.dtype), list(tensor.shape)])
        digest.update(described.encode())
        # As bytes: NumPy has no bfloat16.
        # Cloned, as a tensor of one number may keep the stride of where it came from.
        flat = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
        digest.update(memoryview(flat.view(torch.uint8).numpy().data))
    return f"sha256:{digest.hexdigest()}"


def plain_number(value: Any) -> Any:
    """Let JSON take NumPy's numbers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
