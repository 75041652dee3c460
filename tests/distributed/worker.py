"""One of several processes: computes what the tests compare with a single process.

python worker.py FOLDER     with the variables that torchrun sets
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from problems import small_problem, unit_data

from selfexpress import EnSC, SENet, distributed, make_subspaces
from selfexpress.affinity.coefficients import embed_keys
from selfexpress.affinity.ring import ring_coefficients
from selfexpress.config import TrainConfig
from selfexpress.estimators.base import SelfExpressiveClusterer
from selfexpress.rows.shards import OwnRows
from selfexpress.rows.sources import ArraySource, RowBlock
from selfexpress.training import loop
from selfexpress.training.objective import two_pass_gradient

N_SAMPLES, N_NONZERO = 41, 6


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with distributed.process_group():
        results = {
            **exchanges(),
            **gradient(),
            **coefficients(),
            **labels(),
            **solved(),
            **ending(),
        }
        np.savez(folder / f"rank{distributed.rank()}.npz", **results)


def owned(source) -> OwnRows:
    start, stop = distributed.own_range(len(source))
    return OwnRows(source, start, stop, combine=distributed.add_up)


def exchanges() -> dict[str, np.ndarray]:
    """What each rank gets from every way to exchange tensors."""
    start, stop = distributed.own_range(N_SAMPLES)
    rows = torch.arange(2.0 * N_SAMPLES).view(N_SAMPLES, 2)
    index = torch.tensor([40, 0, 7, 7])
    visits = list(distributed.around_the_ring(rows[start:stop], N_SAMPLES))
    assert visits[0][0] == start
    ordered = [part for _, part in sorted(visits, key=lambda visit: visit[0])]
    return {
        "sum": distributed.add_up(torch.tensor([float(distributed.rank())])).numpy(),
        "first": distributed.from_main(torch.tensor([distributed.rank()])).numpy(),
        "gathered": distributed.gather_rows(rows[start:stop]).numpy(),
        "ring": torch.cat(ordered).numpy(),
        "taken": owned(ArraySource(rows)).take(index).numpy(),
    }


def gradient() -> dict[str, np.ndarray]:
    """Objective and gradient of a batch, added to a gradient that was there before."""
    network, batch, source = small_problem(seed=3, n_samples=N_SAMPLES)
    config = TrainConfig(gamma=20.0, block_size=7)
    shared = owned(source)
    batch = RowBlock(shared.take(batch.index), batch.index)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    objective = two_pass_gradient(network, batch, shared, config)
    gradients = [parameter.grad.flatten() for parameter in network.parameters()]
    return {
        "objective": objective.total(config.gamma).numpy(),
        "gradient": torch.cat(gradients).numpy(),
    }


def coefficients() -> dict[str, np.ndarray]:
    """All pairs, keys passed around the ring."""
    network, _, _ = small_problem(seed=4)
    source = owned(ArraySource(unit_data(N_SAMPLES, 5, seed=4), dtype=torch.float64))
    keys = embed_keys(network, source, block_size=5)
    found = ring_coefficients(network, source, keys, n_nonzero=N_NONZERO)
    return {"coefficients": found.toarray()}


def labels() -> dict[str, np.ndarray]:
    """Fit and predict, exactly and by a sample."""
    data = make_subspaces(3, dimension=2, n_features=30, n_samples=40, random_state=0)
    found = {}
    for name, n_clustered in (("exact", None), ("sampled", 60)):
        model = SENet(
            3,
            refine=None,
            hidden_sizes=(64,),
            n_embedding=64,
            max_iter=150,
            start="random",
            n_train_samples=90,
            batch_size=50,
            n_cluster_samples=n_clustered,
            affinity="symmetric",
            gamma=200.0,
            learning_rate=1e-3,
            n_eigenvectors=None,
            random_state=0,
            device="cpu",
        ).fit(data.X)
        found[f"{name}_labels"] = model.labels_
        found[f"{name}_predicted"] = model.predict(data.X)
        found[f"{name}_objective"] = model.history_["objective"]
    # A rank that counted otherwise than the first would part from it.
    count = SelfExpressiveClusterer._cluster
    SelfExpressiveClusterer._cluster = _misled(count)
    model.set_params(n_clusters="auto").fit(data.X)
    SelfExpressiveClusterer._cluster = count
    found["counted"] = np.array(model.n_clusters_)
    found["counted_width"] = np.array(model.predict_proba(data.X).shape[1])
    return found


def solved() -> dict[str, np.ndarray]:
    """Coefficients that are solved for, of all rows, of a sample, with a network."""
    data = make_subspaces(3, dimension=2, n_features=30, n_samples=40, random_state=0)
    trained = {"max_iter": 20, "hidden_sizes": (16,), "n_embedding": 16}
    models = {
        "solved": SENet(3),
        "solved_sampled": SENet(3, n_cluster_samples=61),
        "solved_candidates": EnSC(3, n_candidates=20),
        "solved_joined": SENet(3, **trained),
    }
    found = {}
    for name, model in models.items():
        model.set_params(random_state=0, device="cpu").fit(data.X)
        found[f"{name}_labels"] = model.labels_
        found[f"{name}_predicted"] = model.predict(data.X)
        found[f"{name}_excess"] = np.array(model.settings_["certificate"]["excess"])
        found[f"{name}_values"] = model.coefficients_.toarray()
    return found


def ending() -> dict[str, np.ndarray]:
    """A training that ends by itself; other ranks than the first would not end it."""
    data = make_subspaces(3, dimension=2, n_features=30, n_samples=40, random_state=0)
    settle = loop.has_settled
    loop.has_settled = lambda *rule, **zero: (
        distributed.is_main() and settle(*rule, **zero)
    )
    model = SENet(
        3,
        refine=None,
        hidden_sizes=(32,),
        n_embedding=32,
        max_iter=900,
        schedule="adaptive",
        learning_rate=3e-3,
        gamma=200.0,
        random_state=0,
        device="cpu",
    ).fit(data.X)
    loop.has_settled = settle
    return {
        "steps": np.array(model.n_iter_),
        "fall_start": np.array(model.settings_["fall_start"]),
        "rates": model.history_["learning_rate"],
    }


def _misled(cluster):
    """Let other ranks than the first count one cluster too many."""

    def _cluster(self, *arguments, **settings):
        has_joined = cluster(self, *arguments, **settings)
        self.n_clusters_ += distributed.rank()
        return has_joined

    return _cluster


if __name__ == "__main__":
    main(Path(sys.argv[1]))
