"""Settings of the documentation; `make docs` builds it, warnings being errors."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

import selfexpress

project = "selfexpress"
copyright = "the authors of selfexpress"
author = "the authors of selfexpress"
release = version = selfexpress.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "suite.md",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/**/*.zip",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Members are listed in api.md; types are in the docstrings.
numpydoc_show_class_members = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"selfexpress {release}"
html_show_sphinx = False

logging.getLogger("selfexpress").setLevel(logging.WARNING)
# One thread an example: many small products spend their time in hand-over otherwise.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 0,
    "remove_config_comments": True,
    "show_signature": False,
}
# The gallery writes functions into its configuration, which cannot be cached.
suppress_warnings = ["config.cache"]


def setup(app: Any) -> None:
    """Let Sphinx call us."""
    app.connect("autodoc-process-docstring", _escape_bars)


def _escape_bars(*event: Any) -> None:
    """Keep |C|, the sizes of coefficients, from being taken for a substitution."""
    lines = event[-1]
    lines[:] = [
        line if "``" in line else re.sub(r"\|C\|", r"\\|C\\|", line) for line in lines
    ]
