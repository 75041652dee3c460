"""Small problems whose results must not change, and the hashes of these results.

python tests/frozen/freeze.py [NAME ...]    writes hashes.json anew, or some of it

Every setting is given, so that other defaults change nothing: what holds for all
problems of ``SENet`` stands in ``SENET``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from selfexpress import ESC, SSCOMP, EnSC, SENet, distributed

HASHES = Path(__file__).with_name("hashes.json")

SENET: dict[str, Any] = {
    "n_clusters": 4,
    "refine": None,
    "center": False,
    "gamma": 1000.0,
    "gamma_scale": "absolute",
    "l1_ratio": 0.9,
    "hidden_sizes": (32,),
    "n_embedding": 32,
    "n_train_samples": 150,
    "max_iter": 50,
    "batch_size": 64,
    "block_size": 64,
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "optimizer": "adam",
    "start": "random",
    "algorithm": "two_pass",
    "n_nonzero": 20,
    "affinity": "symmetric",
    "n_neighbors": 5,
    "n_eigenvectors": 4,
    "n_init": 5,
    "n_references": 100,
    "n_cluster_samples": None,
    "precision": "float32",
    "device": "cpu",
    "random_state": 0,
}
# What the problems of SENet change of these.
VARIANTS: dict[str, dict[str, Any]] = {
    "two passes": {},
    "naive": {"algorithm": "naive", "start": "alike"},
    "muon, naive": {"algorithm": "naive", "optimizer": "muon", "schedule": "constant"},
    "muon, two passes": {"optimizer": "muon", "hidden_sizes": (32, 24)},
    "adaptive": {
        "schedule": "adaptive",
        "max_iter": 1000,
        "learning_rate": 1e-2,
        "gamma": 20.0,
        "algorithm": "naive",
    },
    "counted": {
        "n_clusters": "auto",
        "n_eigenvectors": "auto",
        "start": "alike",
        "gamma": 5.0,
        "gamma_scale": "relative",
    },
    "squared cosines": {"affinity": "squared_cosines", "start": "alike"},
    "weighted neighbours": {"affinity": "weighted_neighbors", "max_iter": 40},
    "nearest neighbours": {"affinity": "nearest_neighbors", "l1_ratio": 0.5},
    "sample": {"n_cluster_samples": 120, "n_eigenvectors": None, "start": "alike"},
}
GRAPH = {"n_neighbors": 5, "n_eigenvectors": 4, "n_init": 5}
SOLVER: dict[str, Any] = {"n_clusters": 4, "device": "cpu", "random_state": 0, **GRAPH}
SOLVERS = {
    "EnSC": (
        EnSC,
        {
            "gamma": 50.0,
            "l1_ratio": 0.9,
            "gamma_scale": "absolute",
            "tol": 1e-3,
            "max_iter": 100,
            "n_nonzero": None,
            "affinity": "nearest_neighbors",
            "batch_size": 64,
            "block_size": 128,
            "precision": "float64",
            "n_candidates": None,
            "n_cluster_samples": None,
            "center": False,
        },
    ),
    "SSC-OMP": (
        SSCOMP,
        {
            "n_nonzero": 5,
            "tol": 1e-6,
            "normalize": True,
            "affinity": "symmetric",
            "join": False,
            "batch_size": 64,
            "block_size": 128,
        },
    ),
    "ESC": (
        ESC,
        {
            "n_exemplars": 30,
            "gamma": 50.0,
            "l1_ratio": 1.0,
            "tol": 1e-3,
            "max_iter": 100,
            "affinity": "nearest_neighbors",
        },
    ),
}
RANKS = "two ranks"
PROBLEMS = (*VARIANTS, *SOLVERS)


def rows(n_samples: int, *, seed: int) -> np.ndarray:
    """Rows of four subspaces, in no order and of many lengths."""
    rng = np.random.default_rng(seed)
    bases = np.random.default_rng(0).standard_normal((4, 3, 12))
    owner = rng.integers(4, size=n_samples)
    found = np.einsum("nd,ndf->nf", rng.standard_normal((n_samples, 3)), bases[owner])
    return (found + 0.05 * rng.standard_normal(found.shape)).astype(np.float32)


def solve(name: str, folder: Path) -> dict[str, str]:
    """Return the hashes of everything that a problem gives."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # Few steps may leave rows without coefficients: that is the same, too.
        with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
            if name in SOLVERS:
                estimator, settings = SOLVERS[name]
                return hashes_of(estimator(**SOLVER | settings).fit(rows(240, seed=1)))
            return learned(SENET | VARIANTS[name], folder / "model.selfexpress")
    finally:
        torch.set_num_threads(threads)


def learned(settings: dict[str, Any], path: Path | None) -> dict[str, str]:
    model = SENet(**settings).fit(rows(240, seed=1))
    found = hashes_of(model)
    found["weights"] = digest(*model.network_.parameters())
    found["history"] = digest(*model.history_.values())
    new = rows(60, seed=2)
    found["predict"] = digest(model.predict(new))
    found["predict_proba"] = digest(model.predict_proba(new))
    found["self_expression"] = digest(*parts(model.self_expression(new)))
    if path is not None:
        model.save(path)
        loaded = SENet.load(path, device="cpu")
        found["loaded"] = digest(loaded.predict(new), loaded.predict_proba(new))
    return found


def hashes_of(model: Any) -> dict[str, str]:
    return {
        "coefficients": digest(*parts(model.coefficients_)),
        "affinity": digest(*parts(model.affinity_matrix_)),
        "labels": digest(model.labels_),
    }


def parts(matrix: Any) -> list[np.ndarray]:
    # How wide the positions are stored says nothing about the result.
    index = (matrix.indices, matrix.indptr)
    return [matrix.data, *(each.astype(np.int64) for each in index)]


def digest(*arrays: Any) -> str:
    """Return the hash of arrays: their types, shapes and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        if isinstance(array, torch.Tensor):
            array = array.detach().numpy()
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def solve_on_two_ranks(folder: Path) -> dict[str, str]:
    """Return the hashes of the first of two processes; the other must have the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    source = str(Path(distributed.__file__).parents[1])
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(folder)],
            env={
                **os.environ,
                "PYTHONPATH": source,
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in started:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    assert found[0] == found[1]
    return found[0]


def solve_as_rank(folder: Path) -> None:
    with distributed.process_group():
        found = learned(SENET | {"start": "alike"}, None)
        (folder / f"{distributed.rank()}.json").write_text(json.dumps(found))


def machine() -> dict[str, str]:
    """What the last bits of a result depend on beside our code."""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def main(names: list[str]) -> None:
    known = json.loads(HASHES.read_text()) if names else {"problems": {}}
    known["machine"] = machine()
    with tempfile.TemporaryDirectory() as folder:
        for name in names or (*PROBLEMS, RANKS):
            path = Path(folder)
            found = solve_on_two_ranks(path) if name == RANKS else solve(name, path)
            known["problems"][name] = found
    HASHES.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        torch.set_num_threads(1)
        solve_as_rank(Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
