"""Past the paper: what helps SENet's defaults, and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reproduction.presets import (
    DEFAULTS,
    MNIST,
    ON_A_GPU,
    RELATIVE_GAMMA,
    Recipe,
    preset_of,
    quick_recipe,
)
from reproduction.runner import Cell, Experiment, Results
from reproduction.study import (
    Changes,
    GapCell,
    Preparation,
    ReadingsCell,
    StudyCell,
    in_words,
)
from reproduction.summary import Figure, Row, Summary, Table

DATASETS = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "ocr-letters": "OCR letters",
    "coil20": "COIL-20",
    "orl": "ORL",
}
# Trained on all of their rows, from another start and with another gamma.
FEW_ROWS = ("coil20", "orl")
_QUICK_ROWS = 300
_QUICK: Changes = (("max_iter", 100), ("n_embedding", 128))


_DEFAULTS = DEFAULTS | ON_A_GPU


def _numbers(name: str, values: Sequence[int]) -> dict[str, Changes]:
    """Return changes of one argument; its default is none, and run once for all."""
    return {f"{n:,}": () if n == _DEFAULTS[name] else ((name, n),) for n in values}


def _gamma(relative: float) -> Changes:
    return (("gamma", relative), ("gamma_scale", "relative"))


Axes = Mapping[str, Mapping[str, Changes]]

# By what is changed, the values tried: arguments that go together. Without any it is
# the default, on a GPU. First those of training, then those of what comes after it.
TRAININGS: Axes = {
    "training rows": _numbers("n_train_samples", (1000, 2000, 5000, 10_000)),
    "rows of a batch": _numbers("batch_size", (100, 250, 500, 1000)),
    "steps": _numbers("max_iter", (500, 1000, 3000, 10_000)),
    "schedule": {
        "adaptive": (),
        "adaptive, up to five times the steps": (
            ("max_iter", 5 * _DEFAULTS["max_iter"]),
        ),
        "cosine": (("schedule", "cosine"),),
    },
    "optimiser": {"Adam": (), "Muon": (("optimizer", "muon"), ("learning_rate", 2e-3))},
    "gamma, times that of a first coefficient": {
        f"{n:g}": _gamma(n) for n in (10.0, 30.0, 100.0, 300.0)
    },
}
READINGS: Axes = {
    "coefficients kept": _numbers("n_nonzero", (10, 30, 100, 1000)),
    "graph": {
        "|C| + |C|^T": (),
        "3 nearest rows": (("affinity", "nearest_neighbors"), ("n_neighbors", 3)),
        "10 nearest, weighted": (
            ("affinity", "weighted_neighbors"),
            ("n_neighbors", 10),
        ),
    },
    "eigenvectors": {
        "auto": (),
        "as many as clusters": (("n_eigenvectors", None),),
        "15": (("n_eigenvectors", 15),),
        "30": (("n_eigenvectors", 30),),
    },
    "starts of k-means": _numbers("n_init", (1, 5, 20, 100)),
    "number of clusters": {"given": (), "auto": (("n_clusters", "auto"),)},
}
FEATURES: Mapping[str, Preparation] = {
    "scattering, 500 components (the paper's)": Preparation(
        projection="uncentred", n_components=500
    ),
    "scattering, centred, 500": Preparation(projection="centred", n_components=500),
    **{
        f"scattering, whitened, {n}": Preparation(n_components=n)
        for n in (100, 250, 500)
    },
    "pixels, whitened": Preparation(kind="pixels"),
}
_ADAM = MNIST.recipe
GAPS: Mapping[str, Recipe] = {
    "Adam, batches of 100, 100,000 steps (the paper's)": _ADAM,
    "Adam, all rows, 12,000 steps": replace(_ADAM, batch_size=2000, max_iter=12_000),
    "Muon, batches of 100, 12,000 steps": replace(
        _ADAM, optimizer="muon", max_iter=12_000
    ),
    "Muon, all rows, 3,000 steps": replace(
        _ADAM, optimizer="muon", learning_rate=2e-3, batch_size=2000, max_iter=3000
    ),
    "Muon, all rows, 12,000 steps": replace(
        _ADAM, optimizer="muon", learning_rate=2e-3, batch_size=2000, max_iter=12_000
    ),
}


def cell(dataset: str, changes: Changes = (), *, is_quick: bool) -> StudyCell:
    """Return SENet's defaults on a data set, with some settings changed."""
    start = "alike" if dataset in FEW_ROWS else "random"
    if changes == _gamma(RELATIVE_GAMMA[start]):
        changes = ()
    if not is_quick:
        return StudyCell(dataset=dataset, changes=changes)
    return StudyCell(dataset=dataset, changes=changes + _QUICK, n_rows=_QUICK_ROWS)


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0, those that share rows one after the other."""
    found: list[Cell] = []
    for dataset in _shown(is_quick):
        base = cell(dataset, is_quick=is_quick)
        found += [base, readings_cell(dataset, is_quick)]
        found += [
            cell(dataset, changes, is_quick=is_quick)
            for what, values in _trainings(is_quick).items()
            if dataset in _varied(what, is_quick)
            for changes in values.values()
        ]
        if dataset in _images(is_quick):
            features = _features(is_quick).values()
            found += [replace(base, preparation=how) for how in features]
    found += [gap_cell(recipe, is_quick) for recipe in _gaps(is_quick).values()]
    return list(dict.fromkeys(found))


def readings_cell(dataset: str, is_quick: bool) -> ReadingsCell:
    """Return the training with the defaults, clustered in every way tried."""
    ways = [way for values in _readings(is_quick).values() for way in values.values()]
    base = cell(dataset, is_quick=is_quick)
    return ReadingsCell(
        dataset=dataset,
        changes=base.changes,
        n_rows=base.n_rows,
        readings=tuple(dict.fromkeys(ways)),
    )


def gap_cell(recipe: Recipe, is_quick: bool) -> GapCell:
    """Return the cell of a way to train."""
    preset = replace(preset_of("mnist", is_quick), recipe=recipe)
    if not is_quick:
        return GapCell(preset=preset)
    small = quick_recipe(recipe, max_iter=100)
    return GapCell(preset=replace(preset, recipe=small), n_train=200)


def summarize(results: Results, is_quick: bool) -> Summary:
    """Show the defaults, the gaps, and one table for each setting that was varied."""
    base: list[Row] = [
        (title, *_scores(results, cell(name, is_quick=is_quick)))
        for name, title in DATASETS.items()
        if name in _shown(is_quick)
    ]
    tables = [
        Table(
            "Defaults",
            ("data", "ACC", "NMI", "ARI", "SRE of C %", "seconds of a fit"),
            tuple(base),
        ),
        Table(
            "Gap to the optimum, MNIST, 2,000 rows, the paper's features",
            ("training", "objective a row", "optimum", "gap %", "ACC of all images"),
            tuple(
                (name, *_gap_figures(results, gap_cell(recipe, is_quick)))
                for name, recipe in _gaps(is_quick).items()
            ),
        ),
        _features_table(results, is_quick),
    ]
    for what, values in {**_trainings(is_quick), **_readings(is_quick)}.items():
        variant = _reading if what in READINGS else _training
        variants = {
            value: [variant(d, changes, is_quick) for d in _varied(what, is_quick)]
            for value, changes in values.items()
        }
        tables.append(_variants_table(results, what, variants))
    tables.append(_counts_table(results, is_quick))
    return Summary(tuple(tables), remarks=_REMARKS)


class _Variant(NamedTuple):
    """A cell, and where in its metrics the scores are."""

    cell: StudyCell
    path: tuple[str, ...] = ()


def _training(dataset: str, changes: Changes, is_quick: bool) -> _Variant:
    return _Variant(cell(dataset, changes, is_quick=is_quick))


def _reading(dataset: str, changes: Changes, is_quick: bool) -> _Variant:
    return _Variant(readings_cell(dataset, is_quick), (in_words(changes),))


def _features_table(results: Results, is_quick: bool) -> Table:
    bases = [cell(d, is_quick=is_quick) for d in _images(is_quick)]
    variants = {
        name: [_Variant(replace(base, preparation=how)) for base in bases]
        for name, how in _features(is_quick).items()
    }
    return _variants_table(results, "features", variants)


def _variants_table(
    results: Results, what: str, variants: Mapping[str, list[_Variant]]
) -> Table:
    """Return ACC by variant, each on the same data sets."""
    rows: list[Row] = [
        (name, *(Figure(results.metric(v.cell, *v.path, "accuracy")) for v in several))
        for name, several in variants.items()
    ]
    shown = next(iter(variants.values()))
    headings = [f"{DATASETS[variant.cell.dataset]} ACC" for variant in shown]
    return Table(what.capitalize(), (what, *headings), tuple(rows))


def _counts_table(results: Results, is_quick: bool) -> Table:
    """Return the numbers of clusters that were found, seed by seed."""
    rows: list[Row] = []
    for dataset in _shown(is_quick):
        readings = readings_cell(dataset, is_quick)
        given, found = (
            [f"{n:.0f}" for n in results.metric(readings, in_words(way), "n_clusters")]
            for way in READINGS["number of clusters"].values()
        )
        rows.append((DATASETS[dataset], ", ".join(found), "".join(given[:1])))
    headings = ("data", "found, seed by seed", "classes")
    return Table("Clusters counted", headings, tuple(rows))


def _scores(results: Results, chosen: StudyCell) -> tuple[Figure, ...]:
    return (
        Figure(results.metric(chosen, "accuracy")),
        Figure(results.metric(chosen, "normalized_mutual_info")),
        Figure(results.metric(chosen, "adjusted_rand")),
        Figure(results.metric(chosen, "sre", scale=100), digits=1),
        Figure(results.metric(chosen, "seconds", "fit"), digits=1),
    )


def _gap_figures(results: Results, chosen: GapCell) -> tuple[Figure, ...]:
    return (
        Figure(results.metric(chosen, "objective")),
        Figure(results.metric(chosen, "optimum")),
        Figure(results.metric(chosen, "gap", scale=100), digits=1),
        Figure(results.metric(chosen, "full", "accuracy")),
    )


def _shown(is_quick: bool) -> tuple[str, ...]:
    return ("coil20",) if is_quick else tuple(DATASETS)


def _images(is_quick: bool) -> tuple[str, ...]:
    """Return the data sets that do not come as features."""
    return tuple(name for name in _shown(is_quick) if name != "cifar10")


def _varied(what: str, is_quick: bool) -> tuple[str, ...]:
    """Return the data sets on which a setting makes a difference."""
    has_enough = what != "training rows"
    return tuple(n for n in _shown(is_quick) if has_enough or n not in FEW_ROWS)


def _trainings(is_quick: bool) -> Axes:
    return {"optimiser": TRAININGS["optimiser"]} if is_quick else TRAININGS


def _readings(is_quick: bool) -> Axes:
    if not is_quick:
        return READINGS
    return {name: READINGS[name] for name in ("eigenvectors", "number of clusters")}


def _features(is_quick: bool) -> Mapping[str, Preparation]:
    names = [name for name in FEATURES if not is_quick or "whitened" not in name]
    return {name: FEATURES[name] for name in names}


def _gaps(is_quick: bool) -> Mapping[str, Recipe]:
    if not is_quick:
        return GAPS
    names = [name for name in GAPS if "all rows, 12,000" in name]
    return {name: GAPS[name] for name in names}


_REMARKS = (
    "`SENet(n_clusters)` with nothing else set, one thing changed at a time; means and "
    "standard deviations over seeds. No label enters a fit. CIFAR-10 comes as features "
    "of our own encoder.",
    "The tables from kept coefficients on cluster the coefficients of one network for "
    "each seed, trained with the defaults: nothing else differs between their rows. "
    "Pieces of a graph take a fifth of the starts of k-means, at least one, so that 1 "
    "and 5 are the same.",
    "Seconds are shown where nothing ran beside. The optimum of the gap is the mean "
    "over the seeds of its row, which draw different images.",
)

BEYOND = Experiment(
    "beyond", "Past the paper: what helps, and what does not", cells, summarize
)
