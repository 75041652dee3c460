"""Rows of three subspaces in place of images, for the cells of experiments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from reproduction import inputs
from reproduction.inputs import ImageRows
from reproduction.presets import ImagePreset, Recipe
from reproduction.runner import Cell, Context, Outcome
from selfexpress.datasets.synthetic import make_subspaces

SMALL = Recipe(
    gamma=50.0,
    hidden_sizes=(128,),
    n_embedding=128,
    max_iter=200,
    n_nonzero=50,
    affinity="symmetric",
    n_init=2,
)
PRESET = ImagePreset("toy", "Toy", n_clusters=3, recipe=SMALL, n_first=90)


def toy_context(folder: Path, seed: int) -> Context:
    """Return a context that has the rows, the last 30 of them for a test."""
    data = make_subspaces(
        3, dimension=2, n_features=20, n_samples=40, random_state=seed
    )
    order = np.random.default_rng(seed).permutation(len(data.X))
    lengths = np.random.default_rng(seed).uniform(0.5, 2, len(order)).astype(np.float32)
    rows = ImageRows(data.X[order].astype(np.float32), data.labels[order], 90, lengths)
    context = Context(torch.device("cpu"), folder)
    context.memory.update(preset=inputs._without_recipe(PRESET), rows=rows)
    return context


@dataclass(frozen=True, kw_only=True)
class Die(Cell):
    """A cell whose process is gone before it ends."""

    task: ClassVar[str] = "die"

    def label(self) -> str:
        return ""

    def run(self, context: Context) -> Outcome:
        os._exit(1)
