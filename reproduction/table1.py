"""Table 1: how near SENet comes to the optimum that EnSC solves for."""

from __future__ import annotations

from dataclasses import replace

from reproduction.presets import POINTS_PER_SUBSPACE, SYNTHETIC, quick_recipe
from reproduction.published import TABLE_1, TABLE_1_METRICS, TABLE_1_SLIPS
from reproduction.runner import Cell, Experiment, Results
from reproduction.summary import Figure, Row, Summary, Table, least_to_most
from reproduction.synthetic import N_SUBSPACES, EquivalenceCell

_METHODS = {"ensc": "EnSC", "senet": "SENet", "unseen": "SENet, unseen"}
_PERCENT = ("accuracy", "sre")
# Points of a batch where it is not all of them.
_PARTS = {1000: 3500, 2000: 1500}
# Steps where it is.
_FULL_BATCH_STEPS = 50_000
_HEADINGS = ("L", "L_rec", "L_reg", "ACC %", "SRE %", "CONN, mean", "CONN, least")


def cell(n_samples: int, is_quick: bool) -> EquivalenceCell:
    """Return the cell of a number of points of each subspace."""
    recipe = SYNTHETIC
    if is_quick:
        recipe = quick_recipe(SYNTHETIC, max_iter=1500)
    elif n_samples <= 200:
        # Fewer steps are enough. More digits than bfloat16 has, where gaps of less
        # than 0.1 % are to be seen.
        recipe = replace(SYNTHETIC, max_iter=_FULL_BATCH_STEPS, precision="tf32")
    batch_size = _PARTS.get(n_samples, N_SUBSPACES * n_samples)
    recipe = replace(recipe, batch_size=batch_size)
    return EquivalenceCell(recipe=recipe, n_samples=n_samples)


def small_batches(n_samples: int) -> EquivalenceCell:
    """Return the cell with batches of 100, the size the paper uses for images."""
    return EquivalenceCell(recipe=SYNTHETIC, n_samples=n_samples)


def sizes(is_quick: bool) -> tuple[int, ...]:
    """Return the numbers of points of each subspace."""
    return (20, 40) if is_quick else POINTS_PER_SUBSPACE


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    full: list[Cell] = [cell(n_samples, is_quick) for n_samples in sizes(is_quick)]
    return full if is_quick else full + [small_batches(n) for n in POINTS_PER_SUBSPACE]


def summarize(results: Results, is_quick: bool) -> Summary:
    """Compare all six figures, and the gap to the optimum, with the paper's."""
    rows: list[Row] = [
        (str(n_samples), title, *_figures(results, n_samples, method, is_quick))
        for n_samples in sizes(is_quick)
        for method, title in _METHODS.items()
    ]
    gaps: list[Row] = [
        (
            str(n_samples),
            Figure(
                _percent(results, cell(n_samples, is_quick)),
                None if is_quick else _paper_gap(n_samples),
            ),
            least_to_most(_percent(results, cell(n_samples, is_quick)), digits=3),
            Figure(() if is_quick else _percent(results, small_batches(n_samples))),
        )
        for n_samples in sizes(is_quick)
    ]
    notes = () if is_quick else (*_NOTES, _range_of_accuracies(results))
    return Summary(
        (
            Table("Table 1", ("N_i", "method", *_HEADINGS), tuple(rows), notes),
            Table(
                "Gap of SENet to the optimum, (L - L_EnSC) / L_EnSC",
                ("N_i", "gap %", "least to most", "gap % with batches of 100"),
                tuple(gaps),
            ),
        ),
        remarks=_REMARKS,
    )


def _figures(
    results: Results, n_samples: int, method: str, is_quick: bool
) -> tuple[Figure, ...]:
    published = None if is_quick else TABLE_1.get(n_samples, {}).get(method)
    figures = []
    for place, metric in enumerate(TABLE_1_METRICS):
        scale = 100 if metric in _PERCENT else 1
        ours = results.metric(cell(n_samples, is_quick), method, metric, scale=scale)
        is_slip = (n_samples, method, metric) in TABLE_1_SLIPS
        figures.append(
            Figure(
                ours,
                None if published is None else published[place],
                digits=1 if metric == "accuracy" else 3,
                mark="†" if is_slip else "",
            )
        )
    least = results.metric(cell(n_samples, is_quick), method, "connectivity")
    return (*figures, Figure(least))


def _range_of_accuracies(results: Results) -> str:
    """Say how far apart draws of the fewest points end."""
    fewest = POINTS_PER_SUBSPACE[0]
    found = results.metric(cell(fewest, False), "ensc", "accuracy", scale=100)
    texts = least_to_most(found, digits=0)
    return f"ACC of EnSC over the draws of N_i = {fewest}: {texts} %."


def _percent(results: Results, chosen: EquivalenceCell) -> tuple[float, ...]:
    return results.metric(chosen, "gap", scale=100)


def _paper_gap(n_samples: int) -> float | None:
    if n_samples not in TABLE_1:
        return None
    optimum = TABLE_1[n_samples]["ensc"][0]
    return 100 * (TABLE_1[n_samples]["senet"][0] - optimum) / optimum


_NOTES = (
    "† cannot be right, as L is 25 L_rec + L_reg. The L_reg of N_i = 200 repeats "
    "SENet's (1039.936 would fit). The two L_rec of N_i = 100 repeat those of 200; "
    "0.077 and 0.078 would fit L and L_reg, which however are too large for such "
    "points, ours considered: the rows of N_i = 100 do not fit as a whole.",
)
_REMARKS = (
    "The paper says neither the size of a batch nor the number of steps here. Batches "
    "of 100, the size for images, end far above the paper's gaps. A batch is all "
    "points up to N_i = 200, for 50,000 steps; 3,500 of 5,000 and 1,500 of 10,000 "
    "beyond, for 100,000 steps, as many as for images. These were chosen for gaps like "
    "the paper's.",
    "On unseen points most of our figures are not the paper's. The paper's L_rec of an "
    "unseen point falls, rises and falls again with N_i, ours falls throughout: the "
    "settings behind the paper's rows may differ in more than we know.",
    "Products of training are in tf32 up to N_i = 200, and in bfloat16 above and with "
    "batches of 100, for 100,000 steps. At N_i = 20 a batch of 100 is all points: the "
    "two gaps there differ by steps and precision alone.",
    "Subspaces and points are drawn anew with every seed; the paper shows one draw. "
    "EnSC is solved in double precision until no optimality condition is violated by "
    "more than 1e-5. L, L_rec and L_reg are sums over all points.",
    "The paper defines CONN as the least over the classes; its figures for EnSC fit "
    "the mean over the classes, and stand beside that here. CONN of SENet "
    "grows with its gap, so that the size of a batch sets both.",
    "At N_i = 20 half of the optimum's weight lies on wrong classes, in the paper's "
    "table as in ours. What spectral clustering makes of such a graph depends on the "
    "draw, so that there are more draws of it; the paper's ACC of 72 % is above all of "
    "them, while its L and SRE agree.",
)

TABLE1 = Experiment(
    "table1", "SENet against the optimum of EnSC (synthetic)", cells, summarize
)
