"""Past the paper: what helps SENet's defaults, and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from selfexpress.estimators.senet import SENet
from selfexpress.experiments.cells import Cell
from selfexpress.experiments.images import preset_of
from selfexpress.experiments.presets import MNIST, Recipe, quick_recipe
from selfexpress.experiments.runner import Experiment, Results
from selfexpress.experiments.study import Changes, GapCell, Preparation, StudyCell
from selfexpress.experiments.summary import Figure, Row, Summary, Table
from selfexpress.training.choices import RELATIVE_GAMMA, SIZES

# Where settings are varied; the smaller sets are shown with the defaults.
VARIED = ("mnist", "fashion-mnist", "cifar10")
DATASETS = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "ocr-letters": "OCR letters",
    "coil20": "COIL-20",
    "orl": "ORL",
}
_QUICK_ROWS = 300
_QUICK: Changes = (("max_iter", 100), ("n_embedding", 128))


_DEFAULTS = SENet().get_params() | asdict(SIZES["cuda"])


def _numbers(name: str, values: Sequence[int]) -> dict[str, Changes]:
    """Return changes of one argument; its default is none, and run once for all."""
    return {f"{n:,}": () if n == _DEFAULTS[name] else ((name, n),) for n in values}


# By what is changed, the values tried: arguments that go together. Without any it is
# the default, on a GPU.
SETTINGS: Mapping[str, Mapping[str, Changes]] = {
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
    "optimiser": {
        "Adam": (),
        "Muon": (("optimizer", "muon"), ("learning_rate", 2e-3)),
    },
    "gamma, times that of a first coefficient": {
        f"{n:g}": ()
        if n == RELATIVE_GAMMA["random"]
        else (("gamma", n), ("gamma_scale", "relative"))
        for n in (10.0, 30.0, 100.0, 300.0)
    },
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
    if not is_quick:
        return StudyCell(dataset=dataset, changes=changes)
    return StudyCell(dataset=dataset, changes=changes + _QUICK, n_rows=_QUICK_ROWS)


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    found: list[Cell] = [cell(name, is_quick=is_quick) for name in _shown(is_quick)]
    found += [gap_cell(recipe, is_quick) for recipe in _gaps(is_quick).values()]
    found += [
        replace(cell(dataset, is_quick=is_quick), preparation=how)
        for dataset in _varied(is_quick)
        for how in (_features(is_quick).values() if dataset != "cifar10" else ())
    ]
    found += [
        cell(dataset, changes, is_quick=is_quick)
        for dataset in _varied(is_quick)
        for values in _settings(is_quick).values()
        for changes in values.values()
    ]
    return list(dict.fromkeys(found))


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
    for name, values in _settings(is_quick).items():
        variants = {
            value: [cell(d, changes, is_quick=is_quick) for d in _varied(is_quick)]
            for value, changes in values.items()
        }
        tables.append(_variants_table(results, name, variants))
    return Summary(tuple(tables), remarks=_REMARKS)


def _features_table(results: Results, is_quick: bool) -> Table:
    bases = [cell(d, is_quick=is_quick) for d in _varied(is_quick) if d != "cifar10"]
    variants = {
        name: [replace(base, preparation=how) for base in bases]
        for name, how in _features(is_quick).items()
    }
    return _variants_table(results, "features", variants)


def _variants_table(
    results: Results, what: str, variants: Mapping[str, list[StudyCell]]
) -> Table:
    """Return ACC and NMI by variant, each on the same data sets."""
    rows: list[Row] = [
        (name, *(figure for each in cells for figure in _pair(results, each)))
        for name, cells in variants.items()
    ]
    shown = next(iter(variants.values()))
    headings = [f"{DATASETS[c.dataset]} {score}" for c in shown for score in _PAIR]
    return Table(what.capitalize(), (what, *headings), tuple(rows))


_PAIR = ("ACC", "NMI")


def _pair(results: Results, chosen: StudyCell) -> tuple[Figure, Figure]:
    return (
        Figure(results.metric(chosen, "accuracy")),
        Figure(results.metric(chosen, "normalized_mutual_info")),
    )


def _scores(results: Results, chosen: StudyCell) -> tuple[Figure, ...]:
    errors = results.metric(chosen, "sre")
    return (
        *_pair(results, chosen),
        Figure(results.metric(chosen, "adjusted_rand")),
        Figure(tuple(100 * error for error in errors), digits=1),
        Figure(results.metric(chosen, "seconds", "fit"), digits=1),
    )


def _gap_figures(results: Results, chosen: GapCell) -> tuple[Figure, ...]:
    gaps = results.metric(chosen, "gap")
    return (
        Figure(results.metric(chosen, "objective")),
        Figure(results.metric(chosen, "optimum")),
        Figure(tuple(100 * gap for gap in gaps), digits=1),
        Figure(results.metric(chosen, "full", "accuracy")),
    )


def _shown(is_quick: bool) -> tuple[str, ...]:
    return ("coil20",) if is_quick else tuple(DATASETS)


def _varied(is_quick: bool) -> tuple[str, ...]:
    return ("coil20",) if is_quick else VARIED


def _settings(is_quick: bool) -> Mapping[str, Mapping[str, Changes]]:
    if not is_quick:
        return SETTINGS
    return {name: SETTINGS[name] for name in ("eigenvectors", "number of clusters")}


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
)

BEYOND = Experiment(
    "beyond", "Past the paper: what helps, and what does not", cells, summarize
)
