"""Checkpoints of a training: what is saved, when, and how it goes on from there.

A checkpoint is one safetensors file, ``step-<number>.safetensors``, with JSON facts in
its header and a checksum over facts and tensors. It takes its name only once it is
safely on the disk, and older ones go only after that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from selfexpress import distributed
from selfexpress.config import TrainConfig
from selfexpress.errors import (
    CheckpointError,
    DamagedFileWarning,
    DataError,
)
from selfexpress.files.container import DamagedError, Kind
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import RowSource, blocks_between

logger = logging.getLogger(__name__)

# What may change between two parts of a training: both follow the memory at hand, and
# neither changes what is computed, only in which order it is summed up.
_FREE = ("algorithm", "block_size")
# A digest is of all rows up to so many numbers, which takes a second, and of some rows
# of more.
_MOST_DIGESTED = 2**26
_SAMPLED_ROWS = 4096
# None, where only numbers can be sent.
_NO_STEP = -1


@dataclass(frozen=True)
class Standing:
    """Where a training stands when it is taken up.

    Attributes
    ----------
    step : int
        Steps done.
    rate_factor : float
        What the learning rate is multiplied by, below 1 after a failure.
    is_finished : bool
        Whether it had come to its end.
    settled_at : int, optional
        Steps after which the objective had settled, if it has.
    """

    step: int = 0
    rate_factor: float = 1.0
    is_finished: bool = False
    settled_at: int | None = None


class Checkpoints:
    """Saves a training now and then and takes it up again.

    Many processes save once: the first writes, and gives the others what it reads.

    Parameters
    ----------
    folder : str or path-like
    seconds : float
        Least time between two checkpoints; one is written at the start and the end
        in any case.
    """

    def __init__(self, folder: str | PathLike[str], *, seconds: float = 10.0) -> None:
        self._folder = CheckpointFolder(folder)
        self._seconds = seconds
        self._saved_at = time.monotonic()
        self._fingerprint: dict[str, Any] = {}

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last checkpoint, by this clock."""
        return time.monotonic() - self._saved_at >= self._seconds

    def begin(
        self,
        fingerprint: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        history: Tensor,
    ) -> Standing:
        """Take up what the folder holds, or write a first checkpoint there.

        Parameters
        ----------
        fingerprint : mapping
            See :func:`fingerprint`; kept with every checkpoint.
        tensors : mapping of str to Tensor
            Overwritten by those of the newest checkpoint.
        history : Tensor of shape (max_iter, columns)
            Its first rows are overwritten likewise.

        Raises
        ------
        CheckpointError
            If the folder holds the checkpoints of another training, or cannot be
            written to.
        """
        self._fingerprint = json.loads(json.dumps(dict(fingerprint)))
        standing = self.restore(tensors, history)
        if standing.step == 0:
            self.save(standing, tensors, history)
        return standing

    def restore(self, tensors: Mapping[str, Tensor], history: Tensor) -> Standing:
        """Go back to the newest checkpoint; the very beginning if there is none."""
        standing = Standing()
        if distributed.is_main():
            newest = self._folder.newest()
            if newest is not None:
                self._require_same(newest.facts.get("fingerprint"))
                standing = _restored(newest, tensors, history)
                logger.info("taken up at step %d", standing.step)
        return _shared(standing, tensors, history)

    def save(
        self, standing: Standing, tensors: Mapping[str, Tensor], history: Tensor
    ) -> None:
        """Write a checkpoint.

        Raises
        ------
        CheckpointError
            If that fails; earlier ones are then intact.
        """
        if distributed.is_main():
            saved = {f"state.{name}": tensor for name, tensor in tensors.items()}
            saved["history"] = history[: standing.step]
            facts = {"standing": asdict(standing), "fingerprint": self._fingerprint}
            self._folder.save(standing.step, saved, facts)
            logger.info("checkpoint of step %d written", standing.step)
        self._saved_at = time.monotonic()

    def _require_same(self, found: Any) -> None:
        known = found if isinstance(found, dict) else {}
        names = sorted(known.keys() | self._fingerprint.keys())
        differing = [
            f"{name} ({_short(known.get(name))} there, "
            f"{_short(self._fingerprint.get(name))} here)"
            for name in names
            if known.get(name) != self._fingerprint.get(name)
        ]
        if differing:
            raise CheckpointError(
                f"The checkpoints in {self._folder.folder} must come from the same "
                f"data and settings, but differ in {', '.join(differing)}. Use those, "
                "or another folder."
            )


def fingerprint(
    network: SelfExpressiveNetwork,
    source: RowSource,
    config: TrainConfig,
    *,
    seed: int,
) -> dict[str, Any]:
    """Return what two trainings must share for one to take up the other.

    That is every setting that shapes training, the size of the data and a digest of
    its rows, or of some thousand where they are very many.
    """
    shaping = {k: v for k, v in asdict(config).items() if k not in _FREE}
    return {
        **shaping,
        "hidden_sizes": list(network.config.hidden_sizes),
        "n_embedding": network.config.n_embedding,
        "n_samples": len(source),
        "n_features": source.n_features,
        "rows": _digest(source),
        "random_state (seed)": seed,
    }


def _digest(source: RowSource) -> str:
    digest = hashlib.sha256()
    for rows in _digested(source):
        plain = rows.detach().cpu().contiguous()
        # Through bytes, as NumPy has no bfloat16.
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _digested(source: RowSource) -> Iterator[Tensor]:
    """Yield all rows in order, or some in one piece where they are very many."""
    n_all, size = len(source), _SAMPLED_ROWS
    if n_all <= size or n_all * source.n_features <= _MOST_DIGESTED:
        blocks = blocks_between(source, 0, n_all, block_size=size)
        return (block.rows for block in blocks)
    return iter([source.take(torch.arange(size) * n_all // size)])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _restored(
    checkpoint: Checkpoint, tensors: Mapping[str, Tensor], history: Tensor
) -> Standing:
    """Copy a checkpoint over what is there; shapes are checked, not trusted."""
    found = {
        name.removeprefix("state."): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("state.")
    }
    rows = checkpoint.tensors.get("history", torch.empty(0))
    standing = _standing(checkpoint, len(history))
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    is_same = {name: tensor.shape for name, tensor in found.items()} == shapes
    if standing is None or not is_same or rows.shape != history[: standing.step].shape:
        raise CheckpointError(
            f"The checkpoint of step {checkpoint.step} must hold the state of this "
            "training, but holds another's. Use another folder, or the version that "
            "wrote it."
        )
    for name, tensor in tensors.items():
        tensor.copy_(found[name])
    history[: standing.step].copy_(rows)
    return standing


def _standing(checkpoint: Checkpoint, max_iter: int) -> Standing | None:
    """Return the standing a checkpoint tells of, None if it cannot be."""
    facts = checkpoint.facts.get("standing")
    try:
        standing = Standing(**facts)  # type: ignore[arg-type]
    except TypeError:
        return None
    settled_at = standing.settled_at
    is_possible = (
        standing.step == checkpoint.step <= max_iter
        and type(standing.rate_factor) is float
        and 0 < standing.rate_factor <= 1
        and (
            settled_at is None
            or (type(settled_at) is int and 0 < settled_at <= standing.step)
        )
        and type(standing.is_finished) is bool
    )
    return standing if is_possible else None


def _shared(
    standing: Standing, tensors: Mapping[str, Tensor], history: Tensor
) -> Standing:
    """Give every process what the first one has read."""
    if distributed.n_ranks() == 1:
        return standing
    known = [_NO_STEP if fact is None else fact for fact in astuple(standing)]
    numbers = torch.tensor(known, dtype=torch.float64)
    step, factor, is_finished, settled_at = distributed.from_main(numbers).tolist()
    for tensor in (*tensors.values(), history):
        tensor.copy_(distributed.from_main(tensor.clone()))
    return Standing(
        int(step),
        factor,
        bool(is_finished),
        None if settled_at == _NO_STEP else int(settled_at),
    )


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


_HELD_BACK = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Which signal, if any, asks to leave.

    Attributes
    ----------
    number : int or None
        Of a signal that came here, or that another process tells of.
    has_come : bool
        Whether one came here.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.has_come = False


@contextmanager
def held_back(*, is_wanted: bool = True) -> Iterator[Interruption]:
    """Yield an :class:`Interruption` that tells of signals instead of leaving at once.

    A signal that came during the block takes effect at its end, as if nobody had held
    it back. A second one does not wait. Handlers are changed in the main thread only,
    and only for signals that are not ignored; they are put back in the end.

    Parameters
    ----------
    is_wanted : bool
        Whether to do anything at all.
    """
    interruption = Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    earlier = _earlier_handlers() if is_wanted and is_main else {}

    def note(number: int, _frame: FrameType | None) -> None:
        if interruption.has_come:
            _put_back(earlier)
            signal.raise_signal(number)
        interruption.number, interruption.has_come = number, True

    for number in earlier:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        _put_back(earlier)
    if interruption.number is not None:
        signal.raise_signal(interruption.number)


def _earlier_handlers() -> dict[int, Callable[..., Any] | int]:
    """Return the handlers in force; ignored signals and foreign handlers are left."""
    found = {number: signal.getsignal(number) for number in _HELD_BACK}
    return {
        int(number): handler
        for number, handler in found.items()
        if handler is not None and handler != signal.SIG_IGN
    }


def _put_back(earlier: dict[int, Callable[..., Any] | int]) -> None:
    for number, handler in earlier.items():
        signal.signal(number, handler)
