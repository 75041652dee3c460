"""Files of the image encoder: training checkpoints and saved models, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from reproduction.encoder.resnet import Architecture, EncoderNetwork
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    one_line,
)
from selfexpress.files.atomic import replacing
from selfexpress.files.container import plain_number, write_tensors

# What the parsers called here raise on damage.
_DAMAGE = (
    safetensors.SafetensorError,
    OSError,
    KeyError,
    ValueError,
    TypeError,
    RuntimeError,
    OverflowError,
)
_METADATA_KEY = "selfexpress"
_SETTINGS_FILE = "settings.json"
_STATE: dict[str, Any] = {
    "step": int,
    "seconds": float | int,
    "history": list,
    "fingerprint": dict,
}
_MODEL: dict[str, Any] = {
    "parameters": dict,
    "architecture": dict,
    "n_steps": int,
    "seconds": float | int,
    "image_shape": list,
    "history": list,
}
_SIZES = ("width", "n_hidden", "n_projection")
# Weights of a projector that is not stored but made anew: 512 MiB.
_MOST_PROJECTOR = 2**27
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write tensors and JSON metadata as one file, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Contiguous: safetensors refuses the channels-last layout.
    plain = {
        name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()
    }
    with replacing(path) as target:
        text = json.dumps(metadata, default=plain_number)
        write_tensors(target, plain, {_METADATA_KEY: text})


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
        _require_kinds(metadata, _STATE)
        return load_file(path), metadata
    except _DAMAGE as error:
        raise CheckpointError(
            f"The checkpoint must be a file written by this encoder, but {path} "
            f"cannot be read: {one_line(error)}. Delete it to train from the start."
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
    # Whatever can be refused is refused before an older model is touched.
    shards = _shards(stored, max_file_bytes)
    facts = {**settings, "n_files": len(shards)}
    text = json.dumps(facts, indent=2, default=plain_number)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} must be a folder for the encoder, but cannot be made "
            f"({error.strerror}). Choose another place."
        ) from error
    written = set()
    for number, shard in enumerate(shards, start=1):
        path = folder / f"weights-{number}-of-{len(shards)}.safetensors"
        with replacing(path) as target:
            write_tensors(target, shard, {})
        written.add(path)
    with replacing(folder / _SETTINGS_FILE) as target:
        target.write_text(text + "\n", encoding="utf-8")
    for path in set(folder.glob("weights-*.safetensors")) - written:
        path.unlink()


def load_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, in single precision, and the settings of a saved model.

    Raises
    ------
    CheckpointError
        If a file is missing or damaged.
    """
    with reading_model(folder):
        text = (folder / _SETTINGS_FILE).read_text(encoding="utf-8")
        settings: Any = json.loads(text)
        _require_kinds(settings, {"n_files": int})
        n_files = settings["n_files"]
        tensors: dict[str, Tensor] = {}
        for number in range(1, n_files + 1):
            name = f"weights-{number}-of-{n_files}.safetensors"
            tensors.update(load_file(folder / name))
        plain = {name: tensor.float() for name, tensor in tensors.items()}
        return plain, dict(settings)


@contextmanager
def reading_model(folder: Path) -> Iterator[None]:
    """Turn whatever is wrong with a saved encoder into one clear line."""
    try:
        yield
    except CheckpointError:
        raise
    # Also the errors of settings, which show what they were given in full.
    except _DAMAGE as error:
        raise CheckpointError(
            f"A saved encoder must be a folder with {_SETTINGS_FILE} and all its "
            f"weight files, but {folder} cannot be read: {one_line(error)}. Save it "
            "again."
        ) from error


def stored_architecture(
    settings: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Architecture:
    """Return the sizes of a saved network, which must be those of its weights.

    Raises
    ------
    ValueError or TypeError
        If they are not; see :func:`reading_model`.
    """
    _require_kinds(settings, _MODEL)
    sizes = dict(settings["architecture"])
    architecture = Architecture(**{**sizes, "n_blocks": tuple(sizes["n_blocks"])})
    counts = (*architecture.n_blocks, *(sizes[name] for name in _SIZES))
    if not all(type(count) is int and 0 < count < 2**16 for count in counts):
        raise ValueError("the sizes of the network are not ordinary numbers")
    if len(architecture.n_blocks) > 8 or sum(architecture.n_blocks) > 256:
        raise ValueError("the network has too many blocks")
    # On the meta device nothing is allocated for a size that the file only claims.
    with torch.device("meta"):
        network = EncoderNetwork(architecture)
    claimed = {f"network.{name}": t.shape for name, t in network.state_dict().items()}
    stored = {n: t.shape for n, t in tensors.items() if n.startswith("network.")}
    projector = {n: shape for n, shape in claimed.items() if ".projector." in f".{n}"}
    needed = {n: shape for n, shape in claimed.items() if n not in projector}
    if stored not in (claimed, needed):
        raise ValueError("the weights do not fit the sizes of the network")
    if sum(shape.numel() for shape in projector.values()) > _MOST_PROJECTOR:
        raise ValueError("the projector is too large")
    n_features = architecture.n_features(settings["parameters"]["layer"])
    axes = (settings["parameters"]["n_components"], n_features)
    if (tensors["axes.mean"].shape, tensors["axes.axes"].shape) != (axes[1:], axes):
        raise ValueError("the axes do not fit the layer")
    return architecture


def _require_kinds(document: Any, kinds: Mapping[str, type]) -> None:
    """Refuse JSON that is no object with entries of these types."""
    if not isinstance(document, dict):
        raise TypeError("its facts are not a JSON object")
    for name, kind in kinds.items():
        if not isinstance(document[name], kind) or isinstance(document[name], bool):
            raise TypeError(f"its {name} is not of the right kind")


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
