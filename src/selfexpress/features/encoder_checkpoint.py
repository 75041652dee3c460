"""Files of the image encoder: training checkpoints and saved models, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from selfexpress.errors import CheckpointError, ConfigError

_METADATA_KEY = "selfexpress"
_SETTINGS_FILE = "settings.json"
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write tensors and JSON metadata as one file, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    # Contiguous: safetensors refuses the channels-last layout.
    plain = {
        name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()
    }
    save_file(plain, partial, metadata={_METADATA_KEY: json.dumps(metadata)})
    partial.replace(path)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, on the CPU, and the metadata of a checkpoint.

    Raises
    ------
    CheckpointError
        If the file is damaged or was written by something else.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})[_METADATA_KEY])
        return load_file(path), metadata
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"The checkpoint must be a file written by this encoder, but {path} "
            f"cannot be read: {error}. Delete it to train from the start."
        ) from error


def save_model(
    folder: Path,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    dtype: str,
    max_file_bytes: int | None,
) -> None:
    """Write a model as a folder of ``settings.json`` and safetensors shards."""
    if dtype not in _DTYPES:
        raise ConfigError(
            f"dtype must be one of {sorted(_DTYPES)}, got {dtype!r}. "
            "float16 halves the files and rounds the weights."
        )
    # Vectors are few, and running variances may pass float16's largest number.
    stored = {
        name: tensor.detach()
        .to(device="cpu", dtype=_DTYPES[dtype] if tensor.ndim > 1 else torch.float32)
        .contiguous()
        for name, tensor in tensors.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("weights-*.safetensors"):
        stale.unlink()
    shards = _shards(stored, max_file_bytes)
    for number, shard in enumerate(shards, start=1):
        name = f"weights-{number}-of-{len(shards)}.safetensors"
        save_file(shard, folder / name)
    text = json.dumps({**settings, "n_files": len(shards)}, indent=2)
    (folder / _SETTINGS_FILE).write_text(text + "\n", encoding="utf-8")


def load_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, in single precision, and the settings of a saved model.

    Raises
    ------
    CheckpointError
        If a file is missing or damaged.
    """
    try:
        text = (folder / _SETTINGS_FILE).read_text(encoding="utf-8")
        settings: dict[str, Any] = json.loads(text)
        n_files = int(settings["n_files"])
        tensors: dict[str, Tensor] = {}
        for number in range(1, n_files + 1):
            name = f"weights-{number}-of-{n_files}.safetensors"
            tensors.update(load_file(folder / name))
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"A saved encoder must be a folder with {_SETTINGS_FILE} and all its "
            f"weight files, but {folder} cannot be read: {error}. Save it again."
        ) from error
    return {name: tensor.float() for name, tensor in tensors.items()}, settings


def _shards(
    tensors: Mapping[str, Tensor], max_file_bytes: int | None
) -> list[dict[str, Tensor]]:
    """Distribute tensors, in order, over files of a limited size."""
    # The header names every tensor; 256 bytes a tensor is more than it takes.
    sizes = {name: tensor.nbytes + 256 for name, tensor in tensors.items()}
    limit = sum(sizes.values()) if max_file_bytes is None else max_file_bytes
    if max(sizes.values()) > limit:
        raise ConfigError(
            f"max_file_bytes must hold the largest tensor with its header, "
            f"{max(sizes.values())} bytes, got {limit}. Raise it."
        )
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        if filled + sizes[name] > limit:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += sizes[name]
    return shards
