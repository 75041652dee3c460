from __future__ import annotations

import numpy as np
from scipy import sparse

from selfexpress.report import plot_coefficients, plot_history


def test_coefficients_are_drawn_sorted_by_label():
    coefficients = sparse.csr_array(
        np.array([[0, 0, 5.0, 0], [0, 0, 0, -2.0], [1.0, 0, 0, 0], [0, 3.0, 0, 0]])
    )
    axes = plot_coefficients(coefficients, [0, 1, 0, 1])
    expected = [[0, 5, 0, 0], [1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 3, 0]]
    np.testing.assert_allclose(axes.images[0].get_array(), expected)


def test_many_rows_are_averaged_into_few_pixels():
    ones = sparse.csr_array(np.ones((10, 10)))
    axes = plot_coefficients(ones, np.zeros(10), n_pixels=3)
    np.testing.assert_allclose(axes.images[0].get_array(), np.ones((3, 3)))


def test_a_matrix_of_zeros_can_be_drawn():
    axes = plot_coefficients(sparse.csr_array((3, 3)), [0, 1, 2])
    assert not axes.images[0].get_array().any()


def test_history_is_drawn_by_step():
    history = {"objective": np.array([3.0, 2.0]), "penalty": np.array([1.0, 1.5])}
    objective, penalty = plot_history(history).lines
    assert objective.get_xdata().tolist() == [1, 2]
    assert objective.get_ydata().tolist() == [3, 2]
    assert penalty.get_ydata().tolist() == [1, 1.5]
