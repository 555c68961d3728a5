"""How good predictions are: a matrix of counts, and what is computed from it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
Matrix: TypeAlias = "npt.NDArray[np.int64]"


def tallied(true: Array, said: Array, classes: int, *, ignore: int | None = None) -> Matrix:
    """Of each class how often it was said rightly, how often it is true, and how often it was said."""
    true, said = _learned(true, said, ignore)
    parts = (true[true == said], true, said)
    return np.stack([np.bincount(part, minlength=classes) for part in parts]).astype(np.int64)


def counted(true: Array, said: Array, classes: int, *, ignore: int | None = None) -> Matrix:
    """How often each class was taken for each: rows are what is true, columns what is said."""
    true, said = _learned(true, said, ignore)
    return np.bincount(true * classes + said, minlength=classes * classes).reshape(classes, classes)


def _learned(true: Array, said: Array, ignore: int | None) -> tuple[Array, Array]:
    true, said = true.reshape(-1).astype(np.int64), said.reshape(-1).astype(np.int64)
    if ignore is None:
        return true, said
    kept = true != ignore
    return true[kept], said[kept]


def accuracy(matrix: Matrix) -> float:
    """The share of what was said right."""
    total = int(matrix.sum())
    return int(np.trace(matrix)) / total if total else 0.0


def class_ious(matrix: Matrix) -> list[float | None]:
    """Of each class, what is in both over what is in either; None of a class that occurs in neither."""
    return _ious(np.diag(matrix), matrix.sum(1), matrix.sum(0))


def mean_iou(matrix: Matrix) -> float:
    """The mean over the classes that occur."""
    return mean_of_ious(np.diag(matrix), matrix.sum(1), matrix.sum(0))


def mean_of_ious(right: Matrix, true: Matrix, said: Matrix) -> float:
    """The same from what is right, true and said of each class."""
    found = [iou for iou in _ious(right, true, said) if iou is not None]
    return sum(found) / len(found) if found else 0.0


def _ious(right: Matrix, true: Matrix, said: Matrix) -> list[float | None]:
    either = true + said - right
    return [int(r) / int(e) if e else None for r, e in zip(right, either, strict=True)]


def cross_entropy(
    logits: Array, true: Array, *, ignore: int | None = None, weights: Array | None = None
) -> tuple[float, int]:
    """The sum of the losses, and over how many values it is. `weights` holds one weight a class."""
    logits = logits.reshape(-1, logits.shape[-1]).astype(np.float64)
    true = true.reshape(-1).astype(np.int64)
    if ignore is not None:
        kept = true != ignore
        logits, true = logits[kept], true[kept]
    if not len(true):
        return 0.0, 0
    top = logits.max(-1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
    losses = log_sum - np.take_along_axis(logits, true[:, None], -1)[:, 0]
    if weights is not None:
        losses = losses * weights[true]
    return float(losses.sum()), len(true)
