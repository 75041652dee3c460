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
def fit(call):
    data = make_subspaces(2, dimension=2, n_features=9, n_samples=30, random_state=0)
    np.save("rows.npy", data.X)

    def run(*more):
        ran = call("fit", "rows.npy", "-k", 2, "-o", "m", *SMALL, *more)
        assert ran.exit_code == 0, ran.output
        return ran

    return run


def test_stages_are_named_on_stderr_with_rate_and_time_left(fit):
    ran = fit("--run", "run")
    for word in (*STAGES, "60/60", "steps/s", "left"):
        assert word in ran.stderr
    assert "60/60" not in ran.stdout
    for word in (*STAGES, "60 rows in 2 clusters", "after 60 steps", "gamma"):
        assert word in ran.stdout
    assert "selfexpress report" in ran.stdout


def test_quiet_says_nothing_on_stderr(fit, call):
    ran = fit("--quiet", "--json")
    assert ran.stderr == ""
    assert json.loads(ran.stdout)["settings"]["max_iter"] == 60
    words = ("predict", "m", "rows.npy", "-o", "l.npy", "--device", "cpu")
    assert call(*words, "--quiet", "--json").stderr == ""
    ran = call(*words)
    assert "60/60" in ran.stderr
    assert "60 labels written" in ran.stdout


def test_many_clusters_are_summed_up(fit):
    ran = fit("-k", 21, "--n-eigenvectors", 21, "--quiet")
    assert "21 clusters" in ran.stdout
    assert "cluster ┃" not in ran.stdout
    assert " rows, " in ran.stdout


def test_a_model_is_left_as_it_was():
    model = SENet(2)
    with shown_stages(model, quiet=False):
        assert "_timed" in vars(model)
    assert "_timed" not in vars(model)


@pytest.mark.parametrize(
    ("words", "offered"),
    [("selfexpress pre", "predict"), ("selfexpress fit --n-cl", "--n-clusters")],
)
def test_shell_completion_offers_sub_commands_and_options(words, offered):
    place = str(len(words.split()) - 1)
    asked = {"_SELFEXPRESS_COMPLETE": "complete_bash"}
    asked |= {"COMP_WORDS": words, "COMP_CWORD": place}
    ran = CliRunner().invoke(app, [], prog_name="selfexpress", env=asked)
    assert offered in ran.output.split()
