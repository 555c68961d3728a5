"""Run a command while every core is kept busy, and exit with its exit code.

usage: under_load.py COMMAND [ARGUMENT …]
"""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> int:
    """Start one busy process per core, run the command, and stop them."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(len(os.sched_getaffinity(0)))]
    try:
        return subprocess.run(sys.argv[1:], check=False).returncode
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
