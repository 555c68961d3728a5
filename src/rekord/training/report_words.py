"""How a training run is said in words, on a page and in a terminal alike."""

from __future__ import annotations

import os

from rekord.training.task import Task

_SHOWN_INPUTS = 4


def dataset_name(path: str) -> str:
    """What a person calls the dataset."""
    return os.path.basename(os.path.normpath(path)) or path


def learned(task: Task) -> str:
    """`image → label, 4 classes`."""
    names = [each.column for each in task.inputs]
    more = len(names) - _SHOWN_INPUTS + 1
    shown = ", ".join(names) if more < 2 else f"{', '.join(names[: _SHOWN_INPUTS - 1])} and {more:,} more"
    classes = f", {len(task.classes):,} classes" if task.classes else ""
    return f"{shown} → {task.target}{classes}"


def blind(task: Task) -> str:
    """Who it is that has the score of chance."""
    return "always the mean" if task.kind == "regression" else "always the most frequent class"


def figure(value: float | None) -> str:
    """A loss or a score: `0.953`, `12,345`."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
