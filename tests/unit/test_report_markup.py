from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from selfexpress.report.markup import Markup, element, json_script, number, seconds

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "]]>",
    "&lt;b&gt;",
    "\u2028\u2029",
    "javascript:alert(1)",
    "\x00\x1b[31m",
    "\ud800",
    "\u202egnp.exe",
]


class Reader(HTMLParser):
    """Collects the tags, attributes and text of a page, entities resolved."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text):
    page = read(element("p", text, title=text))
    (tag, attributes), *others = page.tags
    assert others == []
    assert tag == "p"
    assert set(attributes) == {"title"}
    # What HTML cannot carry is replaced, sign by sign; the rest is unchanged.
    assert len(page.text) == len(attributes["title"]) == len(text)
    kept = [new for new, old in zip(page.text, text, strict=True) if new == old]
    assert len(kept) + page.text.count("\ufffd") == len(text)
    page.text.encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_data_stays_inside_its_script(text):
    script = json_script("data", {"name": text, text: 1})
    page = read(script)
    assert [tag for tag, _ in page.tags] == ["script"]
    inner = script.removeprefix('<script type="application/json" id="data">')
    inner = inner.removesuffix("</script>")
    assert "<" not in inner
    assert json.loads(inner) == {"name": text, text: 1}


def test_markup_is_not_escaped_twice():
    inner = element("b", "a < b")
    assert element("p", inner, [" & ", Markup("<br>")]) == (
        "<p><b>a &lt; b</b> &amp; <br></p>"
    )


def test_attributes_are_spelled_as_in_html():
    written = element("img", class_="small", aria_label="x", hidden=True, alt=None)
    assert written == '<img class="small" aria-label="x" hidden>'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (70_000, "70,000"),
        (0.5, "0.5"),
        (1 / 3, "0.333"),
        (12345.6, "12,346"),
        (1.5e-7, "1.50e-07"),
        (-2.5, "-2.5"),
        (float("nan"), "not a number"),
        (float("inf"), "infinite"),
    ],
)
def test_numbers_are_written_for_people(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.004, "4 ms"),
        (0.44, "0.4 s"),
        (42.4, "42 s"),
        (59.7, "1 min 0 s"),
        (185, "3 min 5 s"),
        (7384, "2 h 3 min"),
    ],
)
def test_durations_have_a_unit(value, expected):
    assert seconds(value) == expected
