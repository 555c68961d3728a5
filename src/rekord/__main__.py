"""The `rekord` command, and `python -m rekord`: an interrupt ends it with one word from its first line on."""

import os
import sys

_NO_ACCESS, _INTERRUPTED = 3, 130


def run() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        # Inside `try`: even the handler of interrupts takes a moment to load.
        from rekord.cli import run_process

        return run_process()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    except MemoryError:
        # Too little to load the command, or for its own message.
        if sys.stderr is not None:
            os.write(2, b"DatasetError X508: out of memory\n  do        ulimit -v unlimited\n")
        os._exit(_NO_ACCESS)


if __name__ == "__main__":
    sys.exit(run())
