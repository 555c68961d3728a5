"""Keras on one of its backends; which one is settled once in a process, when Keras is imported."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rekord.errors import RekordError, error

BACKENDS = ("tensorflow", "torch", "jax")
_VARIABLE = "KERAS_BACKEND"


def load_keras(backend: str | None = None) -> Any:
    """Keras on the backend that is asked for, on that of KERAS_BACKEND, or on the first that is installed."""
    wanted = backend if backend is not None else os.environ.get(_VARIABLE) or None
    if wanted is not None and wanted not in BACKENDS:
        raise error(
            "U677",
            f"there is no backend {wanted[:60]!r}",
            expected=", ".join(BACKENDS),
            found=wanted[:60] if backend is not None else f"{_VARIABLE}={wanted[:60]}",
            do="--backend tensorflow",
        )
    if "keras" in sys.modules:
        return _already_running(wanted)
    chosen = wanted or next((name for name in BACKENDS if find_spec(name)), None)
    if chosen is None or find_spec(chosen) is None:
        raise _missing(chosen or "tensorflow")
    if find_spec("keras") is None:
        raise _missing("keras")
    os.environ[_VARIABLE] = chosen
    # What TensorFlow says of the processor and its own start is nothing that a user of ours asked for.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return _checked(_imported(chosen))


def _already_running(wanted: str | None) -> Any:
    keras = _checked(sys.modules["keras"])
    running = keras.backend.backend()
    if wanted not in (None, running):
        raise error(
            "U677",
            f"Keras runs on {running} in this process already",
            expected=f"{wanted}, which is asked for",
            found=f"{running}: something imported Keras before",
            do=f"set {_VARIABLE}={wanted} before Keras or TensorFlow is imported, or use the command line",
        )
    return keras


def _imported(backend: str) -> Any:
    try:
        return import_module("keras")
    except ImportError as failure:
        raise error(
            "U677",
            f"Keras cannot be imported on {backend}",
            expected=f"keras 3 and {backend}",
            found=str(failure).split("\n", 1)[0][:60],
            do=f"pip install --upgrade keras {backend}",
        ) from failure


def _checked(keras: Any) -> Any:
    version = str(getattr(keras, "__version__", "0"))
    if not hasattr(keras, "ops"):
        raise error(
            "U677",
            "training needs Keras 3",
            expected="keras 3 or newer",
            found=f"keras {version[:20]}",
            do="pip install --upgrade keras",
        )
    return keras


def _missing(package: str) -> RekordError:
    return error(
        "U602",
        f"training needs {package}, which is not installed",
        expected=f"the package {package}",
        found="not installed",
        do="pip install 'rekord[tensorflow]'"
        if package in ("tensorflow", "keras")
        else f"pip install 'rekord[{package},keras]'",
    )
