"""What notebooks show: a fitted model as HTML."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest
from report_problems import fitted_model
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selfexpress import SENet, make_subspaces
from selfexpress.affinity.assignment import References
from selfexpress.estimators.html_summary import html_summary


@pytest.fixture
def model(seed):
    fitted = fitted_model(seed=seed)
    fitted.references_ = References(fitted.labels_, n_clusters=3)
    return fitted


class Balanced(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_summary_shows_what_was_found(model):
    text = html_summary(model)
    Balanced(text)
    assert "36 rows of 16 features in 3 clusters" in text
    assert "objective 15 to 5.027 in 60 steps" in text
    assert "hold to 0.0098; objective 1.20% above the least over all rows" in text
    assert "training 3.2 s, coefficients 0.5 s, spectral 0.0 s" in text
    assert text.count("<tr") == 3
    assert text.count(">12<") == 3


def test_a_notebook_gets_the_summary_below_the_settings(model):
    shown = model._repr_mimebundle_()["text/html"]
    assert shown.endswith(html_summary(model))
    assert "sk-container" in shown


def test_a_model_that_is_not_fitted_has_no_summary():
    assert html_summary(SENet()) == ""
    assert "sk-container" in SENet()._repr_mimebundle_()["text/html"]


def test_a_loaded_model_has_a_summary_too(tmp_path):
    data = make_subspaces(2, dimension=2, n_features=8, n_samples=20, random_state=0)
    model = SENet(
        2, gamma=50.0, hidden_sizes=(16,), n_embedding=16, max_iter=30, start="random",
        affinity="symmetric", n_init=2, random_state=0,
    ).fit(data.X)  # fmt: skip
    model.save(tmp_path / "m.selfexpress")
    loaded = SENet.load(tmp_path / "m.selfexpress", device="cpu")
    assert "40 rows of 8 features in 2 clusters" in html_summary(loaded)
    assert "training" not in html_summary(loaded)


def test_many_clusters_are_cut_short(model):
    model.references_ = References(None, n_clusters=50)
    model.labels_ = np.arange(50)
    assert "and 20 more clusters" in html_summary(model)


def test_pipelines_are_shown_as_before(model):
    shown = make_pipeline(StandardScaler(), model)._repr_mimebundle_()["text/html"]
    assert "StandardScaler" in shown
