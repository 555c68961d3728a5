"""Optional libraries that read formats of raw data: the error for a missing one names its extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rekord.errors import error


def import_reader(name: str, extra: str, what: str) -> Any:
    """A library that reads `what`; U602 if it is not installed."""
    try:
        return import_module(name)
    except ImportError as failure:
        raise error(
            "U602",
            f"{what} needs {name}, which is not installed",
            expected=f"the package {name}",
            found=str(failure)[:60],
            do=f"pip install 'rekord[{extra}]'",
        ) from failure
