from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from report_problems import fitted_model

from selfexpress.errors import DataError
from selfexpress.report import save_run, write_report
from selfexpress.report.notes import notes_on
from selfexpress.report.page import report_html
from selfexpress.report.words import number, seconds

SECTIONS = [
    "overview", "notes", "map", "gallery", "sizes", "confusion", "coefficients",
    "graph", "training", "time", "settings",
]  # fmt: skip
HOSTILE = [
    "</script><script>alert('x')</script>\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "<!-- <script>",
    "]]>{{ run }}{% raw %}",
    "&lt;b&gt;",
    "\u2028\u2029",
    "javascript:alert(1)",
    "\x00\x1b[31m\r",
    "\ud800",
    "\u202egnp.exe",
]
VOID = {"meta", "img", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """Reads a page and checks that every element is closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text = [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open:
            self.text[tag] = self.text.get(tag, "") + data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def saved(folder, *, seed=0, **given):
    model = fitted_model(seed=seed)
    return save_run(folder, model, **given)


@pytest.fixture
def with_images(tmp_path, seed):
    images = np.random.default_rng(seed).integers(256, size=(36, 6, 5), dtype=np.uint8)
    truth = np.roll(fitted_model(seed=seed).labels_, 3)
    return saved(tmp_path / "run", seed=seed, X=images, truth=truth, warnings=["oh"])


def test_every_section_is_there_and_can_be_reached(with_images):
    page = Page(report_html(with_images))
    assert [a["id"] for a in page.all("section")] == SECTIONS
    links = [a["href"] for a in page.all("a")]
    assert links == ["#report", *(f"#{name}" for name in SECTIONS)]
    identifiers = [a["id"] for _, a in page.tags if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    for _, attributes in page.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, identifiers[0]) in identifiers


def test_without_a_truth_there_is_no_confusion(tmp_path):
    page = Page(report_html(saved(tmp_path)))
    assert "confusion" not in [a["id"] for a in page.all("section")]
    assert "The true classes are not known" in page.text["main"]


def test_structure_is_what_screen_readers_need(with_images):
    page = Page(report_html(with_images))
    assert page.all("html") == [{"lang": "en"}]
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.all(landmark)) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
    assert all("alt" in attributes for attributes in page.all("img"))
    for attributes in page.all("svg"):
        is_named = attributes.get("role") == "img" and attributes["aria-label"]
        assert is_named or attributes.get("aria-hidden") == "true"
    assert all("scope" in attributes for attributes in page.all("th"))
    assert len(page.all("table")) == len(page.all("caption"))


def test_nothing_in_the_file_points_outside(with_images):
    text = report_html(with_images)
    page = Page(text)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            address = attributes.get(name, "#")
            assert address.startswith(("#", "data:")), (tag, address)
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|eval\(|innerHTML", text)


def test_only_the_scripts_of_the_report_may_run(with_images):
    text = report_html(with_images)
    (policy,) = [
        a["content"]
        for a in Page(text).all("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy


def test_hostile_text_from_anywhere_is_shown_as_text(tmp_path):
    model, text = fitted_model(), HOSTILE[0]
    model.affinity = text
    model.timings_ = {text: 1.0}
    truth = np.where(model.labels_ == 0, text, "b")
    given = {"title": text, "command": text, "warnings": [text]}
    run = save_run(tmp_path, model, X=np.zeros((36, 3)), truth=truth, **given)
    page = Page(report_html(run))
    assert len(page.all("script")) == 2
    assert page.all("img")[1:] == []
    assert not any(name.startswith("on") for _, a in page.tags for name in a)
    assert text in page.text["h1"]
    assert text in page.text["title"]
    assert page.text["main"].count(text) >= 6


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_page_cannot_hold_is_replaced_sign_by_sign(text, with_images):
    run = replace(with_images, title=text, class_names=(text, "b", "c"))
    html = report_html(run)
    page = Page(html)
    assert len(page.all("script")) == 2
    shown = page.text["h1"]
    assert len(shown) == len(text)
    kept = [new for new, old in zip(shown, text, strict=True) if new == old]
    assert len(kept) + shown.count("\ufffd") == len(text)
    html.encode("utf-8")
    inner = re.search(r'id="map-data">(.*?)</script>', html).group(1)
    assert "<" not in inner
    assert json.loads(inner)["class_names"][0] == text


def test_the_map_is_given_the_points_of_the_run(with_images):
    text = report_html(with_images)
    inner = re.search(r'id="map-data">(.*?)</script>', text).group(1)
    data = json.loads(inner)
    plane = np.frombuffer(base64.b64decode(data["plane"]), dtype="<u2").reshape(-1, 2)
    np.testing.assert_array_equal(plane, with_images.points.plane)
    labels = np.frombuffer(base64.b64decode(data["labels"]), dtype="<u2")
    np.testing.assert_array_equal(labels, with_images.labels)
    truth = np.frombuffer(base64.b64decode(data["truth"]), dtype="<u2")
    np.testing.assert_array_equal(truth, with_images.truth)
    assert data["pictures"]["height"] == 6
    assert data["pictures"]["width"] == 5


def test_confusion_puts_matched_clusters_on_the_diagonal(with_images):
    text = report_html(with_images)
    table = re.search(r'<table class="confusion">.*?</table>', text, re.DOTALL).group()
    counts = [
        [
            int(cell) if cell.isdigit() else 0
            for cell in re.findall(r">([\d·]+)</td>", row)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]
    ]
    right = with_images.scores["accuracy"] * len(with_images.labels)
    assert np.trace(counts) == round(right)
    assert np.sum(counts) == 36


def test_numbers_of_the_run_are_on_the_page(with_images):
    main = Page(report_html(with_images)).text["main"]
    for score in with_images.scores.values():
        assert f"{score:.3f}" in main
    assert "3.2 s" in main
    assert "77.0" in main
    assert "oh" in main


def test_odd_runs_can_be_shown(tmp_path):
    model = fitted_model()
    model.history_ = {}
    model.settings_["certificate"]["excess"] = 0.25
    model.coefficients_ = model.coefficients_ * 0
    model.labels_ = np.r_[np.zeros(35, dtype=int), 2]
    text = Page(report_html(save_run(tmp_path, model))).text["main"]
    assert "No network was trained" in text
    assert "objective 25.00% above the least over all rows, by 100 of them" in text
    assert "EnSC(n_candidates=None) may do better" in text
    assert "36 of 36 samples are expressed by no other one" in text
    assert "Less than a tenth of an even share is in cluster 1, 2." in text
    # One step and one cluster.
    model = fitted_model(n_clusters=1)
    model.history_ = {name: values[:1] for name, values in model.history_.items()}
    Page(report_html(save_run(tmp_path, model, truth=np.zeros(12, dtype=int))))


def test_notes_name_mixed_clusters_and_split_classes(tmp_path):
    model = fitted_model()
    truth = np.array(["a", "a", "b"])[model.labels_]
    truth[np.flatnonzero(model.labels_ == 2)[:6]] = "c"
    texts = [note.text for note in notes_on(save_run(tmp_path, model, truth=truth))]
    assert "Cluster 2 holds several classes: b (50%), c (50%)." in texts
    assert "Class a is spread over several clusters: 0 (50%), 1 (50%)." in texts


def test_many_mixed_clusters_are_one_note(tmp_path):
    model = fitted_model(n_clusters=8)
    truth = np.empty(96, dtype=int)
    truth[np.argsort(model.labels_, kind="stable")] = np.arange(96) % 2
    texts = [note.text for note in notes_on(save_run(tmp_path, model, truth=truth))]
    (mixed,) = [text for text in texts if "hold several classes" in text]
    assert mixed == (
        "8 of 8 clusters hold several classes. Cluster 0 holds several classes: "
        "0 (50%), 1 (50%)."
    )


def test_notes_name_what_the_graph_lacks(tmp_path):
    model = fitted_model()
    model.affinity_matrix_ = model.affinity_matrix_ * 0
    model.affinity_matrix_.eliminate_zeros()
    model.history_["objective"] = np.linspace(10, 1, 60)
    texts = " ".join(note.text for note in notes_on(save_run(tmp_path, model)))
    assert "falls into 36 pieces, more than the 3 clusters" in texts
    # From a mean of 2.30 over steps 49 to 54 to 1.38 over the last six.
    assert "still fell by 40%" in texts


def test_writing_reads_a_folder_and_replaces_the_file(tmp_path):
    saved(tmp_path / "run", title="from a folder")
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(tmp_path / "run", path)
    assert "from a folder" in path.read_text(encoding="utf-8")
    with pytest.raises(DataError, match="must exist"):
        write_report(tmp_path / "run", tmp_path / "no" / "report.html")


def test_numbers_and_durations_are_written_for_people():
    values = [0, 70_000, 0.5, 1 / 3, 12345.6, 1.5e-7, -2.5, float("nan"), float("inf")]
    assert list(map(number, values)) == [
        "0", "70,000", "0.5", "0.333", "12,346", "1.50e-07", "-2.5", "not a number",
        "infinite",
    ]  # fmt: skip
    durations = [0.004, 0.44, 42.4, 59.7, 185, 7384]
    assert list(map(seconds, durations)) == [
        "4 ms", "0.4 s", "42 s", "1 min 0 s", "3 min 5 s", "2 h 3 min",
    ]  # fmt: skip
