"""
A streaming source of your own
==============================

Whatever has a length, a width, and can hand out rows in blocks or by position is a
source: a database, a detector, a simulation. This one computes its rows when they are
asked for, so that a million of them need no memory at all.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from selfexpress import SENet
from selfexpress.metrics import clustering_accuracy
from selfexpress.rows import RowBlock


class Sensors:
    """Rows on four subspaces; row i is a function of i."""

    def __init__(self, n_rows: int) -> None:
        rng = np.random.default_rng(0)
        self.bases = torch.from_numpy(rng.standard_normal((4, 3, 24), dtype="float32"))
        self.n_rows = n_rows
        self.n_features = 24

    def __len__(self) -> int:
        return self.n_rows

    def take(self, index: torch.Tensor) -> torch.Tensor:
        phase = index[:, None] * torch.tensor([0.37, 1.13, 2.71])
        weights = torch.sin(phase.double()).float()
        return torch.einsum("nd,ndf->nf", weights, self.bases[index % 4])

    def blocks(self, block_size: int):
        for start in range(0, self.n_rows, block_size):
            index = torch.arange(start, min(start + block_size, self.n_rows))
            yield RowBlock(self.take(index), index)


# %%
# The graph is built of a sample; all other rows are assigned as they stream by.
source = Sensors(20_000)
model = SENet(4, n_cluster_samples=1000, random_state=0)
model.fit(source)
print(f"{len(model.labels_)} rows, {model.coefficients_.shape[0]} in the graph")
print(f"accuracy {clustering_accuracy(model.labels_, np.arange(20_000) % 4):.4f}")

# %%
# A longer stream is assigned without fitting again, in memory that does not grow.
sizes = np.zeros(4, dtype=int)
for labels in model.predict_blocks(Sensors(40_000)):
    sizes += np.bincount(labels, minlength=4)
print(sizes)

# %%
# Seconds by stage: assigning is what grows with the rows.
figure, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
axes.barh(list(model.timings_), list(model.timings_.values()))
axes.set(xlabel="seconds")
plt.show()
