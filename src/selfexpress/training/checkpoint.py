"""Training checkpoints: whole or absent, checked when read, never a pickle.

A checkpoint is one safetensors file, ``step-<number>.safetensors``, with JSON facts in
its header and a checksum over facts and tensors. It takes its name only once it is
safely on the disk, and older ones go only after that.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from selfexpress.errors import (
    CheckpointError,
    DamagedFileWarning,
    DataError,
)
from selfexpress.files.container import DamagedError, Kind

CHECKPOINT = Kind(
    "selfexpress-checkpoint",
    version=1,
    what="a whole training checkpoint",
    advice="Delete it.",
)

_NAME = re.compile(r"step-(\d{12})\.safetensors")
# What a killed process leaves of a file that was not yet whole.
_REMNANT = re.compile(r"\.[0-9a-f]{16}\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """Where a training stood.

    Attributes
    ----------
    step : int
        Steps done.
    tensors : dict of str to Tensor
        On the CPU.
    facts : dict of str to JSON value
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class CheckpointFolder:
    """The checkpoints of one training, the newest few of them.

    One process at a time may write to a folder.

    Parameters
    ----------
    folder : str or path-like
        Made if it is missing.
    keep : int
        Checkpoints left after a new one was written, itself included.

    Raises
    ------
    CheckpointError
        If the folder cannot be made.
    """

    def __init__(self, folder: str | PathLike[str], *, keep: int = 2) -> None:
        self.folder = Path(folder)
        self._keep = keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint must name a folder that can be made, got {self.folder} "
                f"({error.strerror or error}). Choose another place."
            ) from error

    def save(
        self, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> Path:
        """Write a checkpoint, then remove those it replaces.

        Checkpoints of later steps go as well: a training that writes this one has
        gone back behind them.

        Parameters
        ----------
        step : int
            Steps done.
        tensors : mapping of str to Tensor
            On any device.
        facts : mapping of str to JSON value

        Returns
        -------
        Path

        Raises
        ------
        CheckpointError
            If the disk is full, or the folder is gone or cannot be written to.
            Earlier checkpoints are then as they were.
        """
        path = self.folder / f"step-{step:012d}.safetensors"
        try:
            CHECKPOINT.write(path, {"step": step, "facts": dict(facts)}, tensors)
        except DataError as error:
            raise CheckpointError(
                f"The checkpoint of step {step} must be written, but cannot be: "
                f"{error} Then fit again with the same folder to go on; earlier "
                "checkpoints are intact."
            ) from error
        self._remove_others(step)
        return path

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is intact, or None if there is none at all.

        A damaged one is left out with a warning that names it.

        Raises
        ------
        CheckpointError
            If there are some, but all are damaged, or the newest cannot be read for
            another reason: to begin anew would be to delete them.
        """
        found = sorted(self._checkpoints(), reverse=True)
        for _, path in found:
            try:
                return read_checkpoint(path)
            except DamagedError as error:
                warnings.warn(
                    f"{error} An earlier checkpoint is used where there is one.",
                    DamagedFileWarning,
                    stacklevel=2,
                )
        if found:
            raise CheckpointError(
                f"The folder {self.folder} must hold a checkpoint that is intact, but "
                f"all of its {len(found)} are damaged. Delete them to begin anew, or "
                "name another folder."
            )
        return None

    def _checkpoints(self) -> list[tuple[int, Path]]:
        return [
            (int(found[1]), path)
            for path in self._files()
            if (found := _NAME.fullmatch(path.name))
        ]

    def _files(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except OSError as error:
            raise CheckpointError(
                f"The folder of checkpoints {self.folder} must be readable, but is not "
                f"({error.strerror or error}). Check that it is there."
            ) from error

    def _remove_others(self, step: int) -> None:
        found = sorted(self._checkpoints(), reverse=True)
        kept = {path for s, path in [c for c in found if c[0] <= step][: self._keep]}
        remnants = [p for p in self._files() if _REMNANT.fullmatch(p.name)]
        for path in [*(path for _, path in found if path not in kept), *remnants]:
            path.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint; a CheckpointError says what is wrong with it."""
    with CHECKPOINT.reading(path) as contents:
        step, facts = contents.facts["step"], contents.facts["facts"]
        if type(step) is not int or step < 0 or not isinstance(facts, dict):
            raise ValueError("its header is not that of a checkpoint")
        return Checkpoint(step, contents.tensors, facts)
