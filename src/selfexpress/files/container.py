"""Our own files: named tensors beside JSON facts, whole or absent, never a pickle.

A file is safetensors. Its header holds facts as JSON, among them the kind of the file
and the version of its format, and a checksum over facts and tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from selfexpress.errors import CheckpointError, one_line
from selfexpress.files.atomic import replacing

# What the parsers called here, and checks of what they return, raise on damage. JSON
# that is nested too deeply is a RecursionError, which is a RuntimeError.
DAMAGE = (
    SafetensorError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
)


class DamagedError(CheckpointError):
    """A file is not what was written there, and never will be again."""


@dataclass(frozen=True)
class Contents:
    """What a file holds: facts that are JSON values, and tensors on the CPU."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    name : str
        Stands in the file as its ``format``.
    version : int
        Of the format; files of another are refused.
    what : str
        What such a file is called in messages, with its article.
    advice : str
        What to do about a damaged one, as a sentence.
    """

    name: str
    version: int
    what: str
    advice: str

    def write(
        self,
        path: Path,
        facts: Mapping[str, Any],
        tensors: Mapping[str, Tensor | NDArray[Any]],
    ) -> None:
        """Write a file; an older one stays until the new one is whole."""
        facts = {"format": self.name, "version": self.version, **facts}
        text = json.dumps(facts, default=plain_number, allow_nan=False)
        plain = {name: _plain(tensor) for name, tensor in tensors.items()}
        # One entry: the library writes several in any order, and what is equal should
        # be equal files.
        text = json.dumps({**json.loads(text), "checksum": checksum(text, plain)})
        with replacing(path) as target:
            write_tensors(target, plain, {"selfexpress": text})

    @contextmanager
    def reading(self, path: Path) -> Iterator[Contents]:
        """Yield what a file holds; what the block raises of it is damage, too.

        A file that is damaged or of another kind is a DamagedError; one that is
        missing, cannot be opened, does not fit into memory or is of another version a
        CheckpointError.
        """
        self._require_readable(path)
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = self._facts(metadata["selfexpress"], path)
            expected = facts.pop("checksum", metadata.get("checksum"))
            if expected not in (None, checksum(json.dumps(facts), tensors)):
                raise ValueError("its checksum differs")
            yield Contents(facts, tensors)
        except CheckpointError:
            raise
        except MemoryError as error:
            raise CheckpointError(
                f"{path} must fit into memory, but does not. Free some."
            ) from error
        except DAMAGE as error:
            lacks = "it lacks " if isinstance(error, KeyError) else ""
            raise DamagedError(
                f"{path} must be {self.what}, but is damaged or something else "
                f"({lacks}{one_line(error)}). {self.advice}"
            ) from error

    def _require_readable(self, path: Path) -> None:
        if not path.exists():
            raise CheckpointError(
                f"{path} must be {self.what}, but there is none. Check the path."
            )
        try:
            path.open("rb").close()
        except OSError as error:
            raise CheckpointError(
                f"{path} must be readable, but is not ({error.strerror or error}). "
                "Check its permissions and its disk; it is left as it is."
            ) from error

    def _facts(self, text: str, path: Path) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(text)
        if facts["format"] != self.name:
            raise ValueError(f"its format is {one_line(repr(facts['format']))}")
        version = facts["version"]
        if type(version) is not int or version != self.version:
            raise CheckpointError(
                f"The format version of {path} must be {self.version}, got "
                f"{one_line(repr(version))}. Update selfexpress, or read the file with "
                "the one that wrote it."
            )
        return facts


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write contiguous tensors of the CPU; whatever goes wrong is an OSError."""
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


def _plain(values: Tensor | NDArray[Any]) -> Tensor:
    """Return values on the CPU, in order and in memory of their own."""
    return torch.as_tensor(values).detach().to("cpu", copy=True).contiguous()
