from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from selfexpress.errors import DataError
from selfexpress.report import (
    plot_coefficients,
    plot_confusion,
    plot_embedding,
    plot_history,
)


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


def test_an_embedding_is_drawn_with_a_colour_for_each_label(seed):
    labels = np.repeat(["a", "b", "c"], 20)
    embedding = np.repeat(np.eye(3), 20, axis=0)
    axes = plot_embedding(embedding, labels, seed=seed)
    groups = axes.collections
    assert [group.get_label() for group in groups] == ["a", "b", "c"]
    assert [len(group.get_offsets()) for group in groups] == [20, 20, 20]
    assert len({tuple(group.get_facecolor()[0]) for group in groups}) == 3
    assert plot_embedding(embedding, labels, axes=axes) is axes


def test_confusion_has_matched_clusters_on_the_diagonal():
    labels = [5, 5, 5, 7, 7, 9]
    truth = ["y", "y", "x", "x", "x", "z"]
    axes = plot_confusion(labels, truth)
    # Clusters 7, 5, 9 are matched to x, y, z.
    expected = [[2, 0, 0], [1, 2, 0], [0, 0, 1]]
    np.testing.assert_allclose(axes.images[0].get_array() ** 2, expected)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["7", "5", "9"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["x", "y", "z"]
    assert [text.get_text() for text in axes.texts] == list("200120001")


def test_more_clusters_than_classes_come_last():
    axes = plot_confusion([0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1", "2", "0"]


def test_what_does_not_belong_together_is_refused():
    square = sparse.csr_array(np.eye(4))
    wide = sparse.csr_array(np.ones((2, 4)))
    with pytest.raises(DataError, match=r"one row and one column.*got shape \(4, 4\)"):
        plot_coefficients(square, [0, 1, 1])
    with pytest.raises(DataError, match=r"one column.*got shape \(2, 4\)"):
        plot_coefficients(wide, [0, 1])
    with pytest.raises(DataError, match=r"of the 3 labels.*labels_\[sample_indices_\]"):
        plot_embedding(np.eye(4), [0, 1, 1])
    with pytest.raises(DataError, match="truth must have one row for each of the 3"):
        plot_confusion([0, 1, 1], [7])
