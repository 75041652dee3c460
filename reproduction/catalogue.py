"""All experiments by name, in the order of the paper; past it, our own study."""

from __future__ import annotations

import reproduction.benchmarks  # noqa: F401  which registers itself
from reproduction.ablations import ABLATIONS
from reproduction.algorithms import ALGORITHMS_EXPERIMENT
from reproduction.benchmark import BENCHMARKS
from reproduction.beyond import BEYOND
from reproduction.figure3 import FIGURE3
from reproduction.first_experiment import FIGURE2, LEARNING_CURVES_SYNTHETIC, SCHEDULES
from reproduction.learning_curves import LEARNING_CURVES
from reproduction.runner import Experiment
from reproduction.suite import SUITE
from reproduction.table1 import TABLE1
from reproduction.table2 import TABLE2
from reproduction.table3 import TABLE3
from reproduction.times import TIMES_EXPERIMENT
from selfexpress.config import require_choice

# The sections of docs/reproduction.md.
PAPER = {
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
EXPERIMENTS: dict[str, Experiment] = {
    **PAPER,
    SUITE.name: SUITE,
    SCHEDULES.name: SCHEDULES,
    **BENCHMARKS,
}
# Names that stand for several; "all" is what the paper has, and the study.
GROUPS = {
    "all": tuple(PAPER),
    "figures": (FIGURE2.name, FIGURE3.name),
    "ablations": tuple(each.name for each in ABLATIONS),
    "benchmarks": (SCHEDULES.name, *BENCHMARKS),
}


def experiments(names: list[str]) -> list[Experiment]:
    """Return experiments by name or group.

    Raises
    ------
    ConfigError
        If there is no such experiment.
    """
    for name in names:
        require_choice("experiment", name, (*GROUPS, *EXPERIMENTS))
    wanted = [each for name in names for each in GROUPS.get(name, (name,))]
    return [EXPERIMENTS[name] for name in dict.fromkeys(wanted)]
