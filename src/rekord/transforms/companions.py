"""The files that transforms keep beside a dataset: vocabularies, weights, tokenizers."""

from __future__ import annotations

from collections.abc import Iterable

from rekord.errors import error
from rekord.transforms.base import Transform


def companions_of(steps: Iterable[Transform]) -> dict[str, bytes]:
    """The files of all steps by name. Two steps may share one, but not its name alone."""
    files: dict[str, bytes] = {}
    for step in steps:
        made = getattr(step, "companions", None)
        for name, data in {} if made is None else made().items():
            if files.setdefault(name, data) != data:
                raise error(
                    "U605",
                    f"two transforms would keep different files called {name}",
                    expected="transforms of different columns",
                    found=f"`{step.name}` a second time",
                    do='give one result another name: into="…"',
                )
    return files
