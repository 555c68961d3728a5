"""Optional libraries that read files of images and arrays."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rekord.errors import error

_EXTRAS = {
    "tifffile": "geo",
    "pydicom": "medical",
    "nibabel": "medical",
    "pillow_heif": "heif",
}


def import_library(name: str, files: str) -> Any:
    """A library by the name of its module; the error for a missing one names the extra to install."""
    try:
        return import_module(name)
    except ImportError as failure:
        name = name.partition(".")[0]
        raise error(
            "U602",
            f"reading {files} needs {name}, which is not installed",
            expected=f"the package {name.replace('_', '-')}",
            found=str(failure)[:60],
            do=f"pip install 'rekord[{_EXTRAS[name]}]'",
        ) from failure
