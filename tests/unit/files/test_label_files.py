from __future__ import annotations

import numpy as np
import pytest

from selfexpress.errors import DataError
from selfexpress.files.arrays import FORMATS, read_labels
from selfexpress.files.label_files import label_writer


@pytest.mark.parametrize("suffix", FORMATS)
def test_labels_appended_in_parts_are_read_as_one(tmp_path, suffix, seed):
    labels = np.random.default_rng(seed).integers(0, 9, 100)
    path = tmp_path / f"labels{suffix}"
    with label_writer(path, len(labels)) as append:
        for part in np.split(labels, [1, 40, 40]):
            append(part)
        assert not path.exists()
    np.testing.assert_array_equal(read_labels(path), labels)


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet"])
def test_a_failure_leaves_the_earlier_file(tmp_path, suffix):
    path = tmp_path / f"labels{suffix}"
    with label_writer(path, 3) as append:
        append(np.array([4, 5, 6]))
    with pytest.raises((AttributeError, TypeError)), label_writer(path, 3) as append:
        append(None)
    assert read_labels(path).tolist() == [4, 5, 6]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("n_written", [2, 4])
def test_a_wrong_number_of_labels_is_refused(tmp_path, n_written):
    path = tmp_path / "labels.npy"
    with (
        pytest.raises(DataError, match="3 rows"),
        label_writer(path, 3) as append,
    ):
        append(np.zeros(n_written, dtype=np.int64))
    assert not path.exists()
