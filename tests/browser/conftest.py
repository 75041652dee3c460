"""A browser, and reports of real runs to open in it."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from selfexpress import SENet
from selfexpress.report import recorded_warnings, save_run, write_report

NAMES = ("chromium", "chromium-browser", "google-chrome")


def unavailable(reason: str) -> None:
    """Skip, unless SELFEXPRESS_NEED_BROWSER says that there must be a browser."""
    if os.environ.get("SELFEXPRESS_NEED_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright is not installed; `make browser` installs it")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        unavailable("there is no Chromium on this machine; `make browser` installs it")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Small handwritten digits, clustered in a few seconds."""
    from sklearn.datasets import load_digits

    images, truth = load_digits(return_X_y=True)
    images, truth = images[:400], truth[:400]
    model = SENet(
        10, hidden_sizes=(64,), n_embedding=64, n_train_samples=200, max_iter=60,
        batch_size=100, affinity="symmetric", n_init=3, random_state=0,
    )  # fmt: skip
    with recorded_warnings() as warned:
        model.fit(images)
    folder = tmp_path_factory.mktemp("run")
    return save_run(
        folder,
        model,
        X=images,
        truth=truth,
        image_shape=(8, 8),
        title="400 handwritten digits",
        command="selfexpress fit digits -k 10",
        warnings=[*warned, "A warning with <angle brackets> & more."],
    )


@pytest.fixture(scope="session")
def report(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(run, path)
    return path


@pytest.fixture(scope="session")
def plain_report(tmp_path_factory):
    """Rows that are no images, of which no truth is known."""
    from selfexpress import make_subspaces

    data = make_subspaces(3, dimension=2, n_features=12, n_samples=40, random_state=0)
    model = SENet(
        3, gamma=50.0, hidden_sizes=(32,), n_embedding=32, max_iter=60,
        affinity="symmetric", n_init=3, random_state=0,
    ).fit(data.X)  # fmt: skip
    path = tmp_path_factory.mktemp("plain") / "report.html"
    saved = save_run(path.parent / "run", model, X=data.X)
    write_report(saved, path)
    return path


@pytest.fixture(scope="session")
def large_report(tmp_path_factory, data_folder):
    """All of MNIST, with an embedding and graph made from the truth and noise."""
    import time

    from scipy import sparse

    from selfexpress import load_dataset

    data = load_dataset("mnist", root=data_folder)
    rng = np.random.default_rng(0)
    n_samples, n_nonzero = len(data), 50
    order = np.argsort(data.labels, kind="stable")
    place = np.empty(n_samples, dtype=np.int64)
    place[order] = np.arange(n_samples)
    near = place[:, None] + rng.integers(-2000, 2001, size=(n_samples, n_nonzero))
    columns = order[np.clip(near, 0, n_samples - 1)].ravel()
    rows = np.repeat(np.arange(n_samples), n_nonzero)
    values = rng.exponential(size=len(rows)).astype(np.float32)
    matrix = sparse.csr_array((values, (rows, columns)), shape=(n_samples, n_samples))
    model = SENet(10)
    model.labels_ = data.labels
    model.coefficients_ = matrix
    is_edge = np.arange(len(rows)) % n_nonzero < 3
    places = (rows[is_edge], columns[is_edge])
    graph = sparse.csr_array((values[is_edge], places), shape=matrix.shape)
    model.affinity_matrix_ = sparse.csr_array((graph + graph.T) / 2)
    noise = rng.normal(size=(n_samples, 10)) * rng.exponential(0.2, size=(n_samples, 1))
    model.embedding_ = np.eye(10)[data.labels] + noise
    model.history_ = {"objective": np.geomspace(100, 3, 100_000)}
    path = tmp_path_factory.mktemp("large") / "report.html"
    start = time.perf_counter()
    save_run(path.parent / "run", model, X=data.samples, truth=data.labels)
    write_report(path.parent / "run", path)
    return path, time.perf_counter() - start
