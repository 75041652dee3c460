from __future__ import annotations

import pytest
from typer.testing import CliRunner

from selfexpress.cli.app import app


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a command in an empty folder; our own errors are raised, others return 2."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        ran = CliRunner().invoke(app, list(map(str, words)))
        if not isinstance(ran.exception, (SystemExit, type(None))):
            raise ran.exception
        return ran

    return run
