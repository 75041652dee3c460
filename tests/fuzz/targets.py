"""Every reader of files that may come from anywhere, with small valid files for it.

A target writes its files into a folder, says which of them may be damaged and how, and
reads the folder as a user's program would, up to the first use of what was read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from fuzz import mutations
from scipy import sparse

from selfexpress.errors import CheckpointError
from selfexpress.estimators.senet import SENet
from selfexpress.features import Whitening
from selfexpress.files.arrays import (
    read_array,
    read_csr,
    read_labels,
    write_array,
    write_csr,
    write_labels,
)
from selfexpress.rows.opening import open_rows
from selfexpress.training.checkpoints import (
    Checkpoints,
    Progress,
    read_checkpoint,
)

SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".feather", ".mat", ".safetensors")
_KINDS: dict[str, mutations.Mutation] = {
    ".npz": mutations.in_zip,
    ".mat": mutations.in_mat,
    ".safetensors": mutations.in_safetensors,
    ".selfexpress": mutations.in_safetensors,
}


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes
    ----------
    name : str
    write : callable
        Writes valid files into a folder, by a seed.
    read : callable
        Reads that folder; may raise the package's own errors and nothing else.
    """

    name: str
    write: Callable[[Path, int], None]
    read: Callable[[Path], object]


def knowing(path: Path) -> mutations.Mutation:
    """Return the change that knows the form of a file, a blind one if none does."""
    return _KINDS.get(path.suffix, mutations.blind)


def targets() -> list[Target]:
    """Return all targets."""
    found = []
    for suffix in SUFFIXES:
        kind = suffix.removeprefix(".")
        found += [
            Target(f"rows-{kind}", _rows_writer(suffix), _rows_reader(suffix)),
            Target(f"labels-{kind}", _labels_writer(suffix), _labels_reader(suffix)),
            Target(f"opened-{kind}", _rows_writer(suffix), _open_reader(suffix)),
        ]
    found += [
        Target("mapped-npy", _rows_writer(".npy"), _read_mapped),
        Target("packed-npz", _write_packed_npz, _rows_reader(".npz")),
        Target("labels-csv-table", _write_label_table, _labels_reader(".csv")),
        Target("text-labels-npy", _write_text_labels, _labels_reader(".npy")),
        Target("sparse-npz", _write_sparse, _read_sparse),
        Target("shards", _write_shards, _read_shards),
        Target("model", _write_model, _read_model),
        Target("model-forged", _write_model, _forged(_read_model)),
        Target("checkpoint", _write_checkpoint, _read_checkpoint),
        Target("checkpoint-forged", _write_training, _forged(_resume)),
        Target("components", _write_components, _read_components),
    ]
    return found


def _rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(7, 4)).astype(np.float32)


def _rows_writer(suffix: str) -> Callable[[Path, int], None]:
    return lambda folder, seed: write_array(folder / f"rows{suffix}", _rows(seed))


def _rows_reader(suffix: str) -> Callable[[Path], object]:
    return lambda folder: read_array(folder / f"rows{suffix}").sum()


def _labels_writer(suffix: str) -> Callable[[Path, int], None]:
    labels = np.array([3, 1, 2, 1, 0, 2])
    return lambda folder, seed: write_labels(folder / f"rows{suffix}", labels + seed)


def _labels_reader(suffix: str) -> Callable[[Path], object]:
    return lambda folder: np.unique(read_labels(folder / f"rows{suffix}"))


def _open_reader(suffix: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        source = open_rows(folder / f"rows{suffix}")
        source.take(torch.tensor([0, len(source) - 1]))
        return [block.rows.sum() for block in source.blocks(3)]

    return read


def _read_mapped(folder: Path) -> object:
    return np.asarray(read_array(folder / "rows.npy", mmap=True)).sum()


def _write_packed_npz(folder: Path, seed: int) -> None:
    rows = {"X": _rows(seed), "labels": np.arange(7), "words": np.array(["a", "bc"])}
    np.savez_compressed(folder / "rows.npz", **rows)


def _write_label_table(folder: Path, seed: int) -> None:
    (folder / "rows.csv").write_text(
        "name,label,score\n" + "".join(f'"r{i}",c{i % 3},{seed}.5\n' for i in range(6))
    )


def _write_text_labels(folder: Path, seed: int) -> None:
    write_labels(folder / "rows.npy", ["cat", "dog", f"bird{seed}", "cat"])


def _write_sparse(folder: Path, seed: int) -> None:
    matrix = sparse.random_array((6, 5), density=0.4, rng=np.random.default_rng(seed))
    write_csr(folder / "matrix.npz", matrix)


def _read_sparse(folder: Path) -> object:
    matrix = read_csr(folder / "matrix.npz")
    # A false index would be followed here without a question.
    return matrix.sum() + matrix[:1].nnz


def _write_shards(folder: Path, seed: int) -> None:
    (folder / "shards").mkdir()
    for number, suffix in enumerate((".npy", ".parquet", ".safetensors")):
        write_array(folder / "shards" / f"{number}{suffix}", _rows(seed + number))


def _read_shards(folder: Path) -> object:
    source = open_rows(folder / "shards")
    source.take(torch.tensor([len(source) - 1, 0]))
    return [block.rows.sum() for block in source.blocks(5)]


@functools.cache
def _model(seed: int) -> SENet:
    settings = {"hidden_sizes": (6,), "n_embedding": 5, "max_iter": 30, "n_init": 2}
    model = SENet(2, **settings, gamma=500.0, random_state=seed, device="cpu")
    return model.fit(np.random.default_rng(seed).normal(size=(12, 4)))


def _write_model(folder: Path, seed: int) -> None:
    _model(seed).save(folder / "model.selfexpress")


def _read_model(folder: Path) -> object:
    model = SENet.load(folder / "model.selfexpress", device="cpu")
    return model.predict(np.ones((2, model.n_features_in_)))


def _write_checkpoint(folder: Path, seed: int) -> None:
    tensors = {"a": torch.arange(6.0) + seed, "b": torch.tensor([seed])}
    Checkpoints(folder / "checkpoints").save(Progress(4), tensors, torch.zeros(9, 5))


def _read_checkpoint(folder: Path) -> object:
    (path,) = (folder / "checkpoints").iterdir()
    return read_checkpoint(path)


def _training_state() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    return {"values": torch.ones(5), "first": torch.zeros(5)}, torch.zeros(9, 5)


def _write_training(folder: Path, seed: int) -> None:
    tensors, history = _training_state()
    checkpoints = Checkpoints(folder / "checkpoints")
    checkpoints.save(Progress(3 + seed), tensors, history)


def _resume(folder: Path) -> object:
    checkpoints = Checkpoints(folder / "checkpoints")
    if checkpoints.newest() is None:
        raise CheckpointError("none is intact")
    return checkpoints.begin({}, *_training_state())


def _write_components(folder: Path, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(9, 4))
    Whitening(2).fit(rows).save(folder / "components")


def _read_components(folder: Path) -> object:
    components = Whitening.load(folder / "components")
    return components.transform(np.ones((2, components.n_features_in_)))


def _forged(read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Let every checksum agree, as those of a file made on purpose would."""

    class Same(str):
        """A checksum that equals every other."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

    def read_forged(folder: Path) -> object:
        container = "selfexpress.files.container.checksum"
        with mock.patch(container, return_value=Same()):
            return read(folder)

    return read_forged
