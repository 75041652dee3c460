"""A training that can be taken up again: what to save, when, and what must agree."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from selfexpress import distributed
from selfexpress.config import TrainConfig
from selfexpress.errors import CheckpointError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import RowSource, blocks_between
from selfexpress.training.checkpoint import Checkpoint, CheckpointFolder

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
