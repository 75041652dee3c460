from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from selfexpress import make_subspaces
from selfexpress.cli.config import config_text
from selfexpress.errors import ConfigError, DataError
from selfexpress.files.arrays import read_labels

ROWS = ("rows.npy", "-k", 3, "-o", "m")
SMALL = ("--hidden-sizes", "16", "--n-embedding", "8", "--max-iter", "7")


@pytest.fixture
def fit(call):
    data = make_subspaces(3, dimension=2, n_features=9, n_samples=20, random_state=0)
    np.save("rows.npy", data.X)
    return functools.partial(call, "fit")


@pytest.fixture
def shown(fit):
    def run(*words):
        ran = fit(*words, "--show-config")
        assert ran.exit_code == 0, ran.output
        return tomllib.loads(ran.stdout)

    return run


def test_the_command_line_goes_before_the_file(shown, tmp_path):
    Path("fit.toml").write_text(
        'data = "rows.npy"\nn-clusters = 3\noutput = "m"\ngamma = 40.0\nseed = 5\n'
    )
    options = shown("--config", "fit.toml", "-k", 4, "--seed", 0)
    assert options["n-clusters"] == 4
    assert options["seed"] == 0
    assert options["gamma"] == 40.0
    assert Path(options["data"]) == tmp_path / "rows.npy"


def test_a_shown_config_gives_itself_again(shown):
    first = shown("rows.npy", "-k", 3, "-o", "a b", "--gamma", 1e-5, *SMALL)
    Path("again.toml").write_text(config_text(first))
    assert shown("--config", "again.toml") == first
    assert first["gamma"] == 1e-5
    assert first["hidden-sizes"] == [16]
    assert "config" not in first
    assert not Path("a b").exists()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("gama = 3", ConfigError, "must be an option of fit, such as n-clusters, got"),
        ("n_clusters = 3", ConfigError, "n_clusters"),
        ('config = "other.toml"', ConfigError, "config"),
        ("gamma = {a = 1}", ConfigError, "gamma in fit.toml must be a number"),
        ("gamma = ", DataError, "must be a TOML file of options"),
        (None, DataError, "must be a TOML file of options"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(fit, text, error, message):
    if text is not None:
        Path("fit.toml").write_text(text)
    with pytest.raises(error, match=message) as refusal:
        fit("--config", "fit.toml", *ROWS)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_clusters_can_be_counted(fit, shown, call):
    data = make_subspaces(4, dimension=2, n_features=30, n_samples=40, random_state=0)
    np.save("rows.npy", data.X)
    Path("fit.toml").write_text('n-clusters = "auto"\ndata = "rows.npy"\n')
    words = ("--config", "fit.toml", "-o", "m", "--hidden-sizes", "64", "--quiet")
    words = (*words, "--n-embedding", 64, "--max-iter", 200, "--device", "cpu")
    words = (*words, "--gamma", 100)
    assert shown(*words)["n-clusters"] == "auto"
    ran = fit(*words, "--run", "run", "--json")
    assert ran.exit_code == 0, ran.output
    summary = json.loads(ran.stdout)
    assert summary["n_clusters"] == summary["settings"]["n_clusters"] == 4
    assert len(summary["cluster_sizes"]) == 4
    kept = Path("run/config.toml").read_text()
    assert tomllib.loads(kept)["n-clusters"] == "auto"
    assert "# n-clusters = 4" in kept
    assert call("report", "run", "-o", "run.html").exit_code == 0
    page = Path("run.html").read_text()
    assert "160 samples in 4 clusters" in page
    assert "auto, here 4" in page
    assert "160 rows in 4 clusters (auto)" in fit(*words).output


def test_what_is_auto_by_default_can_be_said(fit, shown):
    names = [
        "gamma", "l1-ratio", "learning-rate", "max-iter", "n-train-samples",
        "batch-size", "hidden-sizes", "n-embedding", "n-eigenvectors",
        "n-cluster-samples", "start", "affinity", "precision",
    ]  # fmt: skip
    said = [word for name in names for word in (f"--{name}", "auto")]
    assert set(shown(*ROWS, *said)) >= set(names)
    given, left = (fit(*ROWS, "--json", "--quiet", *more) for more in (said, []))
    assert given.exit_code == 0, given.output
    found, expected = (json.loads(ran.stdout) for ran in (given, left))
    assert found["settings"] == expected["settings"]
    assert found["cluster_sizes"] == expected["cluster_sizes"]


@pytest.mark.parametrize("way", ["option", "file"])
@pytest.mark.parametrize(
    ("option", "text", "what"),
    [
        ("n-clusters", "2.5", "an integer"),
        ("n-clusters", "Auto", "an integer"),
        ("gamma", "much", "a number"),
        ("max-iter", "1.5", "an integer"),
        ("hidden-sizes", "a,b", "sizes such as 512,512"),
    ],
)
def test_values_that_are_none_are_refused(fit, way, option, text, what):
    Path("fit.toml").write_text(f"{option} = {text!r}\n")
    given = {"option": (f"--{option}", text), "file": ("--config", "fit.toml")}
    clusters = () if option == "n-clusters" else ROWS[1:3]
    ran = fit("rows.npy", "-o", "m", *clusters, *given[way])
    assert ran.exit_code == 2
    assert f"must be {what} or auto, got" in " ".join(
        ran.output.replace("│", "").split()
    )


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
@pytest.mark.parametrize("word", ["none", "0"])
def test_the_papers_way_can_be_typed(fit, shown, word):
    more = ("--refine", word, "--center", "true", "--gamma", 100, *SMALL)
    assert shown(*ROWS, *more)["refine"] == 0
    ran = fit(*ROWS, *more, "--run", "run", "--json", "--quiet")
    assert ran.exit_code == 0, ran.output
    facts = json.loads(ran.stdout)
    assert facts["n_iter"] == 7
    assert "certificate" not in facts["settings"]
    again = fit("--config", "run/config.toml", "--json", "--quiet")
    assert json.loads(again.stdout)["objective"] == facts["objective"]


def test_without_a_training_the_certificate_is_shown(fit):
    ran = fit(*ROWS, "--run", "run")
    assert "coefficients: optimality conditions hold to" in ran.stdout
    assert "objective 0.00% above the least over all rows, by 60" in ran.stdout
    assert "steps" not in ran.stdout
    assert "coefficients" in ran.stderr
    assert "# certificate = { violation = " in Path("run/config.toml").read_text()
    facts = json.loads(fit(*ROWS, "--json", "--quiet").stdout)
    assert facts["objective"] is None
    assert facts["settings"]["certificate"]["excess"] == 0


def test_a_word_that_is_no_way_to_refine_is_refused(fit):
    with pytest.raises(ConfigError, match="refine must be 'auto' or None, got 'x'"):
        fit(*ROWS, "--refine", "x", "--quiet")


@pytest.mark.parametrize("option", ["--log-csv", "--log-tensorboard"])
def test_a_log_without_a_training_is_refused(fit, option):
    with pytest.raises(ConfigError, match="must go with a training"):
        fit(*ROWS, option, "log.csv", "--quiet")
    assert not Path("m").exists()


def test_any_text_survives_being_written():
    options = {"name": 'a"b\\c\n\t\x7fé', "seed": 3, "gamma": float("inf"), "on": True}
    assert tomllib.loads(config_text(options)) == options


def test_settings_chosen_by_us_are_comments():
    text = config_text({"gamma": 1.0}, {"gamma": 1.0, "max_iter": 50})
    assert tomllib.loads(text) == {"gamma": 1.0}
    assert "# max-iter = 50" in text
    assert text.count("gamma") == 1


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_a_run_can_be_run_again_from_its_config(fit, monkeypatch):
    words = (*ROWS, "--run", "run", "--labels", "l.npy", "--quiet", *SMALL)
    ran = fit(*words, "--log-csv", "log.csv", "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["config"] == "run/config.toml"
    assert len(Path("log.csv").read_text().splitlines()) == 8

    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    ran = fit("--config", "../run/config.toml", "--labels", "again.npy", "--quiet")
    assert ran.exit_code == 0, ran.output
    again = read_labels(Path("again.npy"))
    np.testing.assert_array_equal(again, read_labels(Path("../l.npy")))
