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
    "tfrecord_torch": [_TORCH, ["tfrecord", *_TORCH, "numpy"]],
    "dali": [["nvidia-dali-cuda120", "numpy"]],
    "litdata": [_TORCH, ["litdata", *_VISION, "numpy"]],
    # Without the clients of Google's cloud: they are not used here, and pip finds no end of versions to try.
    "tfdv": [
        [
            "tensorflow==2.16.2",
            "tensorflow-metadata==1.16.1",
            "apache-beam==2.57.0",
            "pyarrow<11",
            "pandas<2",
            "numpy<2",
            "protobuf>=4.25.2,<5",
            "absl-py<2",
            "joblib",
            "six",
            "pyfarmhash",
            "google-api-python-client<2",
        ],
        [
            "--no-deps",
            "tensorflow-data-validation==1.16.1",
            "tfx-bsl==1.16.1",
            "tensorflow-serving-api==2.16.1",
        ],
    ],
    "streaming": [_TORCH, ["mosaicml-streaming", *_VISION, "numpy"]],
    "s3fs": [["s3fs", "numpy"]],
    "webdataset": [_TORCH, ["webdataset", *_TORCH, "numpy", "pillow"]],
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
        print(f"installing {environment} …", file=sys.stderr)
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
