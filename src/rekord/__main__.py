"""`python -m rekord` is the `rekord` command."""

import sys

from rekord.cli.start import run

if __name__ == "__main__":
    sys.exit(run())
