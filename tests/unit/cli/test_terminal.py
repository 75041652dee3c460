from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from selfexpress import make_subspaces
from selfexpress.cli.app import app
from selfexpress.cli.terminal import shown_stages
from selfexpress.estimators.senet import SENet

STAGES = ("training", "coefficients", "affinity", "spectral", "references")
SMALL = (
    "--hidden-sizes", "32", "--n-embedding", "32", "--max-iter", "60", "--affinity",
    "symmetric", "--n-eigenvectors", "2", "--device", "cpu",
)  # fmt: skip


@pytest.fixture
def rows(tmp_path):
    data = make_subspaces(2, dimension=2, n_features=9, n_samples=30, random_state=0)
    np.save(tmp_path / "rows.npy", data.X)
    return tmp_path / "rows.npy"


def call(*words):
    ran = CliRunner().invoke(app, list(map(str, words)))
    assert ran.exit_code == 0, ran.output
    return ran


def fit(rows, *more):
    return call("fit", rows, "-k", 2, "-o", rows.with_name("m"), *SMALL, *more)


def test_stages_are_named_on_stderr_with_rate_and_time_left(rows):
    ran = fit(rows)
    for stage in STAGES:
        assert stage in ran.stderr
    assert "60/60" in ran.stderr
    assert "steps/s" in ran.stderr
    assert "left" in ran.stderr
    assert "60/60" not in ran.stdout


def test_the_closing_summary_says_what_was_done_and_where_it_is(rows):
    ran = fit(rows, "--run", rows.with_name("run"))
    text = " ".join(ran.stdout.split())
    assert "60 rows in 2 clusters" in text
    assert "after 60 steps" in text
    assert "gamma" in text
    assert "selfexpress report" in text
    for stage in STAGES:
        assert stage in text


def test_quiet_says_nothing_on_stderr(rows):
    ran = fit(rows, "--quiet", "--json")
    assert ran.stderr == ""
    assert json.loads(ran.stdout)["settings"]["max_iter"] == 60
    quiet = ("-o", rows.with_name("l.npy"), "--quiet", "--json", "--device", "cpu")
    assert call("predict", rows.with_name("m"), rows, *quiet).stderr == ""


def test_predict_counts_rows_on_stderr(rows):
    fit(rows, "--quiet")
    output = ("-o", rows.with_name("l.npy"), "--device", "cpu")
    ran = call("predict", rows.with_name("m"), rows, *output)
    assert "60/60" in ran.stderr
    assert "60 labels written" in " ".join(ran.stdout.split())


def test_many_clusters_are_summed_up(rows):
    ran = call(
        "fit", rows, "-k", 21, "-o", rows.with_name("m"), *SMALL[:-4],
        "--n-eigenvectors", 21, "--quiet",
    )  # fmt: skip
    assert "21 clusters" in ran.stdout
    assert "cluster ┃" not in ran.stdout
    assert " rows, " in ran.stdout


def test_a_model_is_left_as_it_was():
    model = SENet(2)
    with shown_stages(model, quiet=False):
        assert "_timed" in vars(model)
    assert "_timed" not in vars(model)


def test_shell_completion_offers_sub_commands_and_options(monkeypatch):
    def completed(words):
        environment = {
            "_SELFEXPRESS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        ran = CliRunner().invoke(app, [], prog_name="selfexpress", env=environment)
        return ran.output.split()

    assert "predict" in completed("selfexpress pre")
    assert "--n-clusters" in completed("selfexpress fit --n-cl")
