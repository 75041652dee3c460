from __future__ import annotations

import pytest

from reproduction.summary import Figure, Table, line_of_points, line_over_seeds


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure((0.5, 0.7), 0.65), "0.600 ± 0.141 [0.650]"),
        (Figure((0.5,), 0.65, digits=2), "0.50 [0.65]"),
        (Figure((), 0.65, mark="†"), "[0.650†]"),
        (Figure((0.25,)), "0.250"),
        (Figure(()), "-"),
    ],
)
def test_figures_show_ours_then_the_papers_in_brackets(figure, text):
    assert str(figure) == text


def test_curves_are_averaged_over_seeds():
    line = line_over_seeds("a", [1, 2], [[0.0, 1.0], [2.0, 3.0]])
    assert line.y == (1.0, 2.0)
    assert line.spread == pytest.approx((2**0.5, 2**0.5))
    assert line_over_seeds("a", [1], [[4.0]]).spread == ()
    points = line_of_points("b", [(1.0, (2.0, 4.0)), (3.0, (5.0,))])
    assert (points.x, points.y) == ((1.0, 3.0), (3.0, 5.0))
    assert points.spread == pytest.approx((2**0.5, 0.0))


def test_what_seeds_do_not_explain_is_named():
    near, far = Figure((0.5, 0.6, 0.7), 0.65), Figure((0.50, 0.51, 0.52), 0.65)
    slip, twice = Figure(far.ours, 0.65, mark="†"), Figure((0.50, 0.52), 0.65)
    row = ("20", "SENet", near, far, slip, twice, Figure((0.5, 0.5, 0.5)))
    headings = ("N_i", "method", "a", "b", "c", "d", "e")
    table = Table("t", headings, (row,))
    assert table.differences() == ["20 SENet, b: -0.140"]
    assert Table("t", headings, (row,), is_compared=False).differences() == []
    assert Figure((), 0.65).difference() != Figure((), 0.65).difference()
