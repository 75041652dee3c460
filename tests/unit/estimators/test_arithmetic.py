"""What the caller has set torch to, and in what type rows come, changes no result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch

from selfexpress import EnSC, SENet, make_subspaces, open_rows
from selfexpress.estimators.gap import objective_gap
from selfexpress.features import Scattering2D
from selfexpress.ops.precision import own_arithmetic

# Clean subspaces fall into pieces, and hardly trained networks leave rows alone.
pytestmark = pytest.mark.filterwarnings(
    "ignore::selfexpress.errors.DegenerateWarning",
)

SMALL = {"hidden_sizes": (32,), "n_embedding": 32, "max_iter": 20, "random_state": 0}
SMALL |= {"refine": None}


@pytest.fixture
def rows(seed):
    return make_subspaces(
        3, dimension=2, n_features=12, n_samples=40, random_state=seed
    ).X


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SURROUNDINGS = {
    "autocast": lambda: torch.autocast("cpu"),
    "float64": lambda: default_type(torch.float64),
    "float16": lambda: default_type(torch.float16),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_network_computes_as_always(name, rows, tmp_path):
    expected = SENet(3, **SMALL).fit(rows)
    gap = objective_gap(expected, rows, random_state=0)
    with SURROUNDINGS[name]():
        model = SENet(3, **SMALL).fit(rows)
        assert (model.labels_ == expected.labels_).all()
        assert (model.predict_proba(rows) == expected.predict_proba(rows)).all()
        difference = expected.self_expression(rows) - model.self_expression(rows)
        assert difference.nnz == 0
        assert objective_gap(model, rows, random_state=0) == gap
        model.save(tmp_path / "m.selfexpress")
        again = SENet.load(tmp_path / "m.selfexpress")
        blocks = []
        for block in again.predict_blocks(rows):
            # Between blocks the caller has what they have set.
            assert torch.is_autocast_enabled("cpu") == (name == "autocast")
            blocks.append(block)
        assert (np.concatenate(blocks) == model.predict(rows)).all()


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_solver_computes_as_always(name, rows):
    expected = EnSC(3, random_state=0).fit(rows)
    with SURROUNDINGS[name]():
        model = EnSC(3, random_state=0).fit(rows)
    assert (model.coefficients_ != expected.coefficients_).nnz == 0
    assert (model.labels_ == expected.labels_).all()


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_features_are_computed_as_always(name, seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (12, 3, 16, 16), dtype=np.uint8)
    scattering = Scattering2D(J=2, L=2)
    expected = scattering.fit_transform(images)
    with SURROUNDINGS[name]():
        found = scattering.fit_transform(images)
    assert found.dtype == expected.dtype
    assert (found == expected).all()


def test_threads_share_the_default_type():
    first, second = own_arithmetic(), own_arithmetic()
    with default_type(torch.float64):
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        # As another thread would see it, which is not done yet.
        assert torch.get_default_dtype() == torch.float32
        second.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize(
    "change", [np.ndarray.tolist, lambda X: X.astype(object), lambda X: X.astype(">f8")]
)
def test_rows_keep_their_precision_until_they_are_scaled(change, unit, rows):
    expected = SENet(3, **SMALL).fit(unit * rows).predict_proba(unit * rows)
    changed = change(unit * rows)
    found = SENet(3, **SMALL).fit(changed).predict_proba(changed)
    assert (found == expected).all()


def test_numbers_that_single_precision_holds_stay_in_it():
    integers = np.arange(12, dtype=np.uint8).reshape(4, 3)
    for rows in (integers, integers.astype(np.float16), integers > 3):
        for table in (rows, pd.DataFrame(rows), torch.from_numpy(rows)):
            source = EnSC(2)._source(table, reset=True, device=torch.device("cpu"))
            assert source.take(torch.arange(4)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_integers_keep_their_digits(dtype, tmp_path):
    integers = (2**30 + np.arange(12)).astype(dtype).reshape(4, 3)
    np.save(tmp_path / "rows.npy", integers)
    frame = pd.DataFrame(integers, columns=["a", "b", "c"])
    frame.to_parquet(tmp_path / "rows.parquet")
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for rows in (integers, frame, torch.from_numpy(integers.astype(np.int64)), mapped):
        source = EnSC(2)._source(rows, reset=True, device=torch.device("cpu"))
        assert (source.take(torch.arange(4)).numpy() == integers).all()
    for name in ("rows.npy", "rows.parquet"):
        found = open_rows(tmp_path / name).take(torch.arange(4))
        assert (found.numpy() == integers).all()


def test_views_that_torch_left_open_are_taken(rows):
    X = torch.from_numpy(rows)
    lazy = torch.complex(X, X).conj().imag
    assert lazy.is_neg()
    expected = SENet(3, **SMALL).fit(-rows).labels_
    assert (SENet(3, **SMALL).fit(lazy).labels_ == expected).all()


@pytest.mark.parametrize("n_steps", [1, 2])
def test_a_training_of_hardly_a_step_can_be_saved(n_steps, rows, tmp_path):
    model = SENet(3, **SMALL | {"max_iter": n_steps}).fit(rows)
    model.save(tmp_path / "m.selfexpress")
    again = SENet.load(tmp_path / "m.selfexpress")
    assert (again.predict(rows) == model.predict(rows)).all()
    assert again.n_iter_ == n_steps
