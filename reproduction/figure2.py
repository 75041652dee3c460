"""Figure 2: |C| after 100, 300 and 500 steps, on the training and the unseen half."""

from __future__ import annotations

from reproduction.cells import Cell
from reproduction.presets import FIRST_EXPERIMENT, quick_recipe
from reproduction.published import FIGURE_2
from reproduction.runner import Experiment, Results
from reproduction.summary import Figure, Plot, Row, Summary, Table
from reproduction.synthetic import (
    HALVES,
    CurveCell,
    unpack_picture,
)

STEPS = (100, 300, 500)


def cell(is_quick: bool) -> CurveCell:
    """Return the experiment's only setting."""
    if not is_quick:
        return CurveCell(recipe=FIRST_EXPERIMENT, steps=STEPS, has_pictures=True)
    # Half the points and a quarter of the width; the steps are the figure's own.
    recipe = quick_recipe(FIRST_EXPERIMENT, max_iter=STEPS[-1])
    return CurveCell(recipe=recipe, steps=STEPS, n_samples=100, has_pictures=True)


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    return [cell(is_quick)]


def summarize(results: Results, is_quick: bool) -> Summary:
    """Compare SRE with the figure's captions and show the pictures."""
    records = results.of(cell(is_quick))
    published = {} if is_quick else FIGURE_2
    rows: list[Row] = []
    for half, name in HALVES.items():
        figures = [
            Figure(
                tuple(
                    100 * look[half]["sre"]
                    for record in records
                    for look in record["metrics"]["curve"]
                    if look["step"] == step
                ),
                published.get(half, {}).get(step),
                digits=1,
            )
            for step in STEPS
        ]
        accuracy = tuple(
            100 * record["metrics"]["curve"][-1][half]["accuracy"] for record in records
        )
        rows.append((name, *figures, Figure(accuracy, digits=1)))
    headings = ("points", *(f"SRE % at {step}" for step in STEPS), "ACC % at 500")
    table = Table("SRE after 100, 300 and 500 steps", headings, tuple(rows))
    pictures = tuple(
        (
            f"{name}, step {look['step']}, SRE {100 * look[half]['sre']:.0f} %",
            unpack_picture(look[half]["picture"]),
        )
        for half, name in HALVES.items()
        for record in records
        for look in record["metrics"]["curve"]
        if "picture" in look[half]
    )
    plots = (Plot("figure2", pictures=pictures),) if pictures else ()
    return Summary((table,), plots, _REMARKS)


_REMARKS = (
    "The paper gives the number of steps but not the size of a batch. A step is a full "
    "batch of the 500 training points here, as smaller batches stay far above the "
    "paper's SRE; the learning rate falls to 0 by a cosine, as the paper says. With a "
    "constant rate (`python -m reproduction first-experiment`) the unseen half comes "
    "closer to the paper's, and the training half ends below it.",
    "Pictures are of |C| with seed 0, points in the order of their subspaces, each "
    "with a brightness of its own: shapes can be compared, levels cannot.",
)

FIGURE2 = Experiment(
    "figure2",
    "Coefficients by step, on seen and unseen points (synthetic)",
    cells,
    summarize,
)
