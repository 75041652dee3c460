"""Every code block of README and documentation does what it says.

The blocks of a page are run in order, in a folder of their own: ``python`` ones in one
namespace, lines of ``console`` ones that start with ``$ selfexpress`` by the command
line, ``toml`` ones parsed. A block that cannot be run here says why, in a comment in
front of it, ``<!-- not run: REASON -->``; the reasons are counted below.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from selfexpress import make_subspaces
from selfexpress.cli import main
from selfexpress.files.arrays import write_array

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
    ]
    if "_build" not in path.parts and "gallery" not in path.parts
)

# What may be wrong with running a block here.
REASONS = (
    "installs the project",
    "needs several processes",
    "needs a GPU",
    "needs a download",
    "takes minutes",
)
# Blocks of these kinds are not meant to be run.
SHOWN = ("text", "bibtex")
# The page that every change is tried on; `make test-slow` runs them all.
FAST = ("quickstart.md",)
# Starts of lines that are skipped: they start several processes, or say what is done.
SKIPPED_WORDS = ("torchrun ", "make ", "pip ", "#")


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    reason: str


def blocks(path):
    """Return the fenced blocks of a page; directives of Sphinx are not code."""
    found, reason = [], ""
    lines = iter(enumerate(path.read_text("utf-8").splitlines(), start=1))
    for number, line in lines:
        fence = re.fullmatch(r"(`{3,})(.*)", line)
        if fence:
            body = []
            for _, inner in lines:
                if inner.strip() == fence[1]:
                    break
                body.append(inner)
            if not fence[2].startswith("{"):
                found.append(Block(number, fence[2].strip(), "\n".join(body), reason))
        note = re.fullmatch(r"<!-- not run: (.*) -->", line)
        reason = note[1] if note else ("" if line.strip() else reason)
    return found


def commands(block):
    """Return the command lines of a block that are to be run."""
    joined = block.text.replace("\\\n", " ").splitlines()
    lines = [line.removeprefix("$ ") for line in joined]
    return [line for line in lines if line.startswith("selfexpress ")]


def call(line, monkeypatch):
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 0, line


def prepare(page, monkeypatch):
    """Put the files in place that a page speaks of as the reader's own."""
    if page.name == "large-data.md":
        data = make_subspaces(
            10, dimension=3, n_features=30, n_samples=60, random_state=0
        )
        Path("embeddings").mkdir()
        for number, part in enumerate(np.array_split(data.X, 3)):
            write_array(Path(f"embeddings/part-{number}.npy"), part)
        write_array(Path("more.parquet"), data.X[::7])


def run(block, page, namespace, monkeypatch):
    if block.reason or block.language in SHOWN:
        return
    if block.language == "python":
        # Lines of a traceback are those of the page.
        code = "\n" * block.line + block.text
        exec(compile(code, str(page), "exec"), namespace)
    elif block.language == "toml":
        tomllib.loads(block.text)
    else:
        for line in commands(block):
            call(line, monkeypatch)


RUN = [
    pytest.param(page, marks=[] if page.name in FAST else pytest.mark.slow)
    for page in PAGES
    if blocks(page)
]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, request):
    text = "".join(block.text for block in blocks(page) if not block.reason)
    if 'load_dataset("' in text:
        request.getfixturevalue("data_folder")
    monkeypatch.chdir(tmp_path)
    prepare(page, monkeypatch)
    namespace = {"__name__": "page"}
    for block in blocks(page):
        run(block, page, namespace, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_that_are_not_run_say_why(page):
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        assert not block.reason or block.reason.startswith(REASONS), where
        if block.language in ("python", "toml", *SHOWN) or block.reason:
            continue
        # A plain fence is a drawing or a listing, unless it has commands.
        assert block.language in ("", "console"), where
        if block.language == "console":
            for line in block.text.splitlines():
                words = line.removeprefix("$ ").startswith(("selfexpress ", "  "))
                assert words or line.startswith(SKIPPED_WORDS), f"{where}: {line}"


def test_a_block_is_found_with_its_language_and_reason(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n```python\nx = 1\n```\n<!-- not run: needs a GPU -->\n```console\n"
        "$ selfexpress fit a\n```\n\n```{toctree}\nb\n```\n\n```\nplain\n```\n"
    )
    assert blocks(page) == [
        Block(3, "python", "x = 1", ""),
        Block(7, "console", "$ selfexpress fit a", "needs a GPU"),
        Block(15, "", "plain", ""),
    ]


def test_relative_links_lead_somewhere():
    for page in PAGES:
        text = page.read_text("utf-8")
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text):
            # The gallery's pages are made by `make docs`.
            is_made = "gallery/" in target
            is_there = (page.parent / target).exists()
            assert is_made or is_there, f"{page.name}: {target}"
