"""Where the command `rekord` begins: what can be interrupted before it is ready, too."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def run() -> int:
    """Run the command line of this process, and give its exit code."""
    try:
        # Here: loading takes a moment, in which somebody may change their mind.
        from rekord.cli.main import run as run_main

        return run_main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
