"""All experiments by name, in the order of the paper; past it, our own study."""

from __future__ import annotations

from selfexpress.config import require_choice
from selfexpress.errors import ConfigError
from selfexpress.experiments.ablations import ABLATIONS
from selfexpress.experiments.algorithms import ALGORITHMS_EXPERIMENT
from selfexpress.experiments.beyond import BEYOND
from selfexpress.experiments.cells import Cell
from selfexpress.experiments.figure2 import FIGURE2
from selfexpress.experiments.figure3 import FIGURE3
from selfexpress.experiments.learning_curves import LEARNING_CURVES
from selfexpress.experiments.learning_curves_synthetic import (
    LEARNING_CURVES_SYNTHETIC,
)
from selfexpress.experiments.runner import Experiment, select, with_seeds
from selfexpress.experiments.table1 import TABLE1
from selfexpress.experiments.table2 import TABLE2
from selfexpress.experiments.table3 import TABLE3
from selfexpress.experiments.times import TIMES_EXPERIMENT

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
        If ``only``, as for :func:`~selfexpress.experiments.runner.select`, leaves none.
    """
    listed = [cell for experiment in chosen for cell in experiment.cells(is_quick)]
    cells = select(with_seeds(list(dict.fromkeys(listed)), n_seeds), only)
    if not cells:
        raise ConfigError(
            f"--only must leave a cell to run, but {' '.join(only)} leaves none. Use "
            "--plan to see what there is."
        )
    return cells
