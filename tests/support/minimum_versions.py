"""Print the dependencies of the package at the oldest versions that pyproject.toml allows, as pip requirements."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_EXTRAS = ("sql",)
"""Extras that the tests of minimum versions use."""
_TOOLS = ("hypothesis", "pytest", "pytest-timeout")


def oldest(requirement: str) -> str:
    """The requirement with its lower bound as the only version: `numpy>=1.26` is `numpy==1.26`."""
    pinned, replaced = re.subn(r">=\s*([\w.]+)(\s*,\s*[<!][^;]*)?", r"==\1", requirement)
    if replaced != 1:
        raise SystemExit(f"{requirement!r} in pyproject.toml has no lower bound")
    return pinned


def pins() -> list[str]:
    """All pins, in the order of the file, and the tools that run the tests."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    extras = [one for extra in _EXTRAS for one in project["optional-dependencies"][extra]]
    return [*map(oldest, [*project["dependencies"], *extras]), *_TOOLS]


if __name__ == "__main__":
    print("\n".join(pins()))
