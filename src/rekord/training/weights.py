"""How much each class weighs in the loss, so that rare ones are learned as well as frequent ones."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.dataset.split import Split
from rekord.errors import error
from rekord.training.encoder import Encoder, Step
from rekord.training.task import Task

Array: TypeAlias = "npt.NDArray[np.float64]"

_MASKS = 1000
"""The pixels of so many masks, chosen at random, tell how frequent the classes are."""

_MOST = 10.0
"""A class of a few pixels would otherwise weigh more than all others together."""


def refuse_numbers(task: Task) -> None:
    """A number has no classes that could be balanced."""
    if task.kind == "regression":
        raise error(
            "U605",
            "`class_weights` and `balance` need classes, and the target is a number",
            expected="a target of classes",
            found=f"`{task.target}`, a number",
            do="leave them out",
        )


def class_weights_of(split: Split, encoder: Encoder, *, seed: int, batch_size: int) -> Array:
    """One weight a class: records (or pixels) / (classes × those of the class); 1 of a class that does not occur."""
    task = encoder.task
    if task.kind == "segmentation":
        return _of_pixels(split, encoder, seed=seed, batch_size=batch_size)
    found = split.class_weights(by=task.target)
    ids: dict[Any, int] = {value: i for i, value in enumerate(task.values or range(len(task.classes)))}
    weights = np.ones(len(task.classes))
    for value, weight in found.items():
        weights[ids[value]] = weight
    return weights


def _of_pixels(split: Split, encoder: Encoder, *, seed: int, batch_size: int) -> Array:
    task = encoder.task
    counts = np.zeros(len(task.classes), np.int64)
    seen = 0
    loader = split.batches(
        batch_size, shuffle=True, seed=seed, map=lambda batch: {"step": encoder(batch)}, **encoder.reading()
    )
    with iter(loader) as batches:
        for batch in batches:
            step: Step = batch["step"]  # type: ignore[assignment]
            ids = step.y.reshape(-1)
            if task.ignore is not None:
                ids = ids[ids != task.ignore]
            counts += np.bincount(ids, minlength=len(counts))
            seen += step.rows
            if seen >= _MASKS:
                break
    present = counts > 0
    weights = np.ones(len(counts))
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return np.minimum(weights, _MOST)
