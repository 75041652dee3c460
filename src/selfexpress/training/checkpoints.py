"""Checkpoints of a training: what is saved, when, and how it goes on from there.

A checkpoint is one file, ``step-<number>.safetensors``, in the form of
``files.container``. It takes its name only once it is safely on the disk, and older
ones go only after that.
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
from collections.abc import Iterator, Mapping
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
    ConfigError,
    DamagedFileWarning,
    DataError,
)
from selfexpress.files.container import DamagedError, Kind
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import RowSource, blocks_between

logger = logging.getLogger(__name__)

CHECKPOINT = Kind(
    "selfexpress-checkpoint",
    version=1,
    what="a whole training checkpoint",
    advice="Delete it.",
)
# The newest few are kept: the last may be damaged.
_N_KEPT = 2
_NAME = re.compile(r"step-(\d{12})\.safetensors")
# What a killed process leaves of a file that was not yet whole.
_REMNANT = re.compile(r"\.[0-9a-f]{16}\.safetensors")

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
class Progress:
    """How far a training has come.

    ``rate_factor`` multiplies the learning rate, and is below 1 after a failure;
    ``settled_at`` are the steps after which the objective had settled, if it has.
    """

    step: int = 0
    rate_factor: float = 1.0
    is_finished: bool = False
    settled_at: int | None = None


_FACT_TYPES = [[int, float, bool, last] for last in (int, type(None))]


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: the state of the steps and the history among its tensors."""

    progress: Progress
    fingerprint: dict[str, Any]
    tensors: dict[str, Tensor]


def require_checkpoint(checkpoint: object, random_state: object) -> Path | None:
    """Return the folder that an estimator's ``checkpoint`` names, and make it.

    A ConfigError refuses what names none, or a training that could not go on from
    there; a CheckpointError a folder that cannot be made.
    """
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | PathLike):
        raise ConfigError(
            f"checkpoint must be a folder's path, got {checkpoint!r}. Use for example "
            "'checkpoints'."
        )
    if random_state is None:
        raise ConfigError(
            "random_state must be fixed for a fit with checkpoints, which else could "
            "not go on from them, got None. Use random_state=0."
        )
    return _made(Path(checkpoint))


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint must name a folder that can be made, got {folder} "
            f"({error.strerror or error}). Choose another place."
        ) from error
    return folder


class Checkpoints:
    """Saves a training now and then and resumes it.

    One training at a time may write to a folder. Of many processes the first one
    writes, and gives the others what it reads.

    Parameters
    ----------
    folder : str or path-like
        Made if it is missing.
    seconds : float
        Least time between two checkpoints; one is written at the start and the end
        in any case.
    """

    def __init__(self, folder: str | PathLike[str], *, seconds: float = 10.0) -> None:
        self.folder = _made(Path(folder))
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
    ) -> Progress:
        """Resume what the folder holds, or write a first checkpoint there.

        Tensors and the first rows of ``history``, (max_iter, columns), are overwritten
        by those of the newest checkpoint; ``fingerprint`` is kept with every one.
        Checkpoints of another training are refused.
        """
        self._fingerprint = json.loads(json.dumps(dict(fingerprint)))
        progress = self.restore(tensors, history)
        if progress.step == 0:
            self.save(progress, tensors, history)
        return progress

    def restore(self, tensors: Mapping[str, Tensor], history: Tensor) -> Progress:
        """Go back to the newest checkpoint; the very beginning if there is none."""
        progress = Progress()
        if distributed.is_main():
            newest = self.newest()
            if newest is not None:
                self._require_same(newest.fingerprint)
                _copy(newest, tensors, history)
                progress = newest.progress
                logger.info("resumed at step %d", progress.step)
        return _shared(progress, tensors, history)

    def save(
        self, progress: Progress, tensors: Mapping[str, Tensor], history: Tensor
    ) -> None:
        """Write a checkpoint, then remove those it replaces.

        Checkpoints of later steps go as well: a training that writes this one has
        gone back behind them. Where it cannot be written, earlier ones stay intact.
        """
        if distributed.is_main():
            saved = {f"state.{name}": tensor for name, tensor in tensors.items()}
            saved["history"] = history[: progress.step]
            facts = {"standing": asdict(progress), "fingerprint": self._fingerprint}
            path = self.folder / f"step-{progress.step:012d}.safetensors"
            try:
                CHECKPOINT.write(path, {"facts": facts}, saved)
            except DataError as error:
                raise CheckpointError(
                    f"The checkpoint of step {progress.step} must be written, but "
                    f"cannot be: {error} Then fit again with the same folder to go on; "
                    "earlier checkpoints are intact."
                ) from error
            self._remove_others(progress.step)
            logger.info("checkpoint of step %d written", progress.step)
        self._saved_at = time.monotonic()

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is intact, or None if there is none at all.

        A damaged one is left out with a warning. It is a CheckpointError if all are
        damaged, or one cannot be read for another reason: to begin anew would be to
        delete them.
        """
        found = self._newest_first()
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

    def _newest_first(self) -> list[tuple[int, Path]]:
        names = ((_NAME.fullmatch(path.name), path) for path in self._files())
        return sorted(((int(name[1]), path) for name, path in names if name))[::-1]

    def _files(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except OSError as error:
            raise CheckpointError(
                f"The folder of checkpoints {self.folder} must be readable, but is not "
                f"({error.strerror or error}). Check that it is there."
            ) from error

    def _remove_others(self, step: int) -> None:
        found = self._newest_first()
        kept = [path for number, path in found if number <= step][:_N_KEPT]
        remnants = [path for path in self._files() if _REMNANT.fullmatch(path.name)]
        for path in [*(path for _, path in found if path not in kept), *remnants]:
            path.unlink(missing_ok=True)

    def _require_same(self, found: dict[str, Any]) -> None:
        own = self._fingerprint
        differing = [
            f"{name} ({_short(found.get(name))} there, {_short(own.get(name))} here)"
            for name in sorted(found.keys() | own.keys())
            if found.get(name) != own.get(name)
        ]
        if differing:
            raise CheckpointError(
                f"The checkpoints in {self.folder} must be of a training with the same "
                f"data and settings, but differ in {', '.join(differing)}. Use those, "
                "or another folder."
            )


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint; a CheckpointError says what is wrong with it."""
    with CHECKPOINT.reading(path) as contents:
        facts = contents.facts["facts"]
        progress, fingerprint = Progress(**facts["standing"]), facts["fingerprint"]
        if not isinstance(fingerprint, dict):
            raise ValueError("its fingerprint is none")
        settled_at = progress.settled_at
        is_possible = (
            [type(fact) for fact in astuple(progress)] in _FACT_TYPES
            and progress.step >= 0
            and 0 < progress.rate_factor <= 1
            and (settled_at is None or 0 < settled_at <= progress.step)
        )
        if not is_possible:
            raise ValueError(f"no training comes to {progress}")
        return Checkpoint(progress, fingerprint, contents.tensors)


def fingerprint(
    network: SelfExpressiveNetwork,
    source: RowSource,
    config: TrainConfig,
    *,
    seed: int,
) -> dict[str, Any]:
    """Return what two trainings must share for one to go on from the other.

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
    """Return the digest of all rows in order, or of some where they are very many."""
    n_all, size = len(source), _SAMPLED_ROWS
    if n_all <= size or n_all * source.n_features <= _MOST_DIGESTED:
        blocks = blocks_between(source, 0, n_all, block_size=size)
        parts: Iterator[Tensor] = (block.rows for block in blocks)
    else:
        parts = iter([source.take(torch.arange(size) * n_all // size)])
    digest = hashlib.sha256()
    for rows in parts:
        # Through bytes, as NumPy has no bfloat16.
        plain = rows.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _copy(
    checkpoint: Checkpoint, tensors: Mapping[str, Tensor], history: Tensor
) -> None:
    """Copy a checkpoint over what is there; shapes are checked, not trusted."""
    step = checkpoint.progress.step
    targets = {f"state.{name}": tensor for name, tensor in tensors.items()}
    targets["history"] = history[:step]
    found = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    if found != {name: tensor.shape for name, tensor in targets.items()}:
        raise CheckpointError(
            f"The checkpoint of step {step} must hold the state of this training, but "
            "holds another's. Use another folder, or the version that wrote it."
        )
    for name, tensor in targets.items():
        tensor.copy_(checkpoint.tensors[name])


def _shared(
    progress: Progress, tensors: Mapping[str, Tensor], history: Tensor
) -> Progress:
    """Give every process what the first one has read."""
    if distributed.n_ranks() == 1:
        return progress
    known = [_NO_STEP if fact is None else fact for fact in astuple(progress)]
    numbers = torch.tensor(known, dtype=torch.float64)
    step, factor, is_finished, settled_at = distributed.from_main(numbers).tolist()
    for tensor in (*tensors.values(), history):
        tensor.copy_(distributed.from_main(tensor.clone()))
    settled = None if settled_at == _NO_STEP else int(settled_at)
    return Progress(int(step), factor, bool(is_finished), settled)


@dataclass
class Interruption:
    """The number of a signal that asks this or another process to leave, if any."""

    number: int | None = None


@contextmanager
def held_back(*, is_wanted: bool = True) -> Iterator[Interruption]:
    """Yield an :class:`Interruption`; Ctrl-C and SIGTERM only set its number.

    A signal that came during the block takes effect at its end, as if nobody had held
    it back. A second one does not wait. Handlers are changed in the main thread only,
    and only for signals that are not ignored; they are put back in the end.
    """
    interruption, has_come = Interruption(), False
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_wanted and is_main else ()
    handlers = {number: signal.getsignal(number) for number in signals}
    # None is a handler that Python did not set.
    ours = {n: h for n, h in handlers.items() if h not in (None, signal.SIG_IGN)}

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal has_come
        if has_come:
            put_back()
            signal.raise_signal(number)
        interruption.number, has_come = number, True

    def put_back() -> None:
        for number, handler in ours.items():
            signal.signal(number, handler)

    for number in ours:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        put_back()
    if interruption.number is not None:
        signal.raise_signal(interruption.number)
