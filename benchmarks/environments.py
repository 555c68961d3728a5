"""The Python environments of the peers: ours, and one for each package that cannot live beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / ".venvs"
# Torch alone and first, as in the Makefile, and pinned again after it: else pip would take the newest torchvision,
# and with it another build of torch.
_TORCH = ["torch==2.13.0"]
_VISION = [*_TORCH, "torchvision==0.28.0"]
_STEPS = {
    "tfrecord": [["tfrecord", "numpy"]],
    "dali": [["nvidia-dali-cuda120", "numpy"]],
    "litdata": [_TORCH, ["litdata", *_VISION, "numpy"]],
    "streaming": [_TORCH, ["mosaicml-streaming", *_VISION, "numpy"]],
}

OWN = "own"


class NotInstallableError(Exception):
    """An environment cannot be made on this machine."""


@cache
def python_of(environment: str) -> str:
    """The interpreter of an environment, which is made where it is missing."""
    if environment == OWN:
        return sys.executable
    folder = _FOLDER / environment
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {_STEPS[environment][-1][0]} …", file=sys.stderr)
        _run([sys.executable, "-m", "venv", str(folder)])
        for packages in _STEPS[environment]:
            _run([str(python), "-m", "pip", "install", "-q", *packages])
        ready.touch()
    return str(python)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise NotInstallableError("not installable here")
