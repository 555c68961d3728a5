"""The `rekord` command, and `python -m rekord`: an interrupt ends it with one word from its first line on."""

import sys

_INTERRUPTED = 130


def run() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        # Inside `try`: even the handler of interrupts takes a moment to load.
        from rekord.cli.start import run as start

        return start()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
