"""Named tensors in a safetensors file, beside a line of text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
