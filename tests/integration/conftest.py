from __future__ import annotations

import sys

import pytest

from selfexpress.cli import main


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line; return exit code, stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["selfexpress", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        captured = capsys.readouterr()
        return leaving.value.code, captured.out, captured.err

    return run
