"""The command line: one file a sub-command, joined in ``app.py``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt is one line even while libraries load."""
    try:
        from selfexpress.cli.app import run

        code = run()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
