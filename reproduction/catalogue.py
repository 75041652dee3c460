"""All experiments by name, in the order of the paper; past it, our own study."""

from __future__ import annotations

from reproduction.ablations import ABLATIONS
from reproduction.algorithms import ALGORITHMS_EXPERIMENT
from reproduction.beyond import BEYOND
from reproduction.cells import Cell
from reproduction.figure2 import FIGURE2
from reproduction.figure3 import FIGURE3
from reproduction.learning_curves import LEARNING_CURVES
from reproduction.learning_curves_synthetic import (
    LEARNING_CURVES_SYNTHETIC,
)
from reproduction.runner import Experiment, select, with_seeds
from reproduction.table1 import TABLE1
from reproduction.table2 import TABLE2
from reproduction.table3 import TABLE3
from reproduction.times import TIMES_EXPERIMENT
from selfexpress.config import require_choice
from selfexpress.errors import ConfigError

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        FIGURE2,
        TABLE1,
        LEARNING_CURVES_SYNTHETIC,
        TABLE2,
        FIGURE3,
        TABLE3,
        *ABLATIONS,
        LEARNING_CURVES,
        TIMES_EXPERIMENT,
        ALGORITHMS_EXPERIMENT,
        BEYOND,
    )
}


def experiments(names: list[str]) -> list[Experiment]:
    """Return experiments by name; "all" stands for every one.

    Raises
    ------
    ConfigError
        If there is no such experiment.
    """
    for name in names:
        require_choice("experiment", name, ("all", *EXPERIMENTS))
    if "all" in names:
        return list(EXPERIMENTS.values())
    return [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def cells_of(
    chosen: list[Experiment], *, is_quick: bool, n_seeds: int, only: list[str]
) -> list[Cell]:
    """Return the cells of experiments, each once, all of one seed together.

    Raises
    ------
    ConfigError
        If ``only``, as for :func:`~reproduction.runner.select`, leaves none.
    """
    listed = [cell for experiment in chosen for cell in experiment.cells(is_quick)]
    cells = select(with_seeds(list(dict.fromkeys(listed)), n_seeds), only)
    if not cells:
        raise ConfigError(
            f"--only must leave a cell to run, but {' '.join(only)} leaves none. Use "
            "--plan to see what there is."
        )
    return cells
