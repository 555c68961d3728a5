"""What a training run found: how each epoch went, how good the model is, and how long it waited for data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.training.task import Task

Array: TypeAlias = "npt.NDArray[Any]"
CountMatrix: TypeAlias = "npt.NDArray[np.int64]"


def count_by_class(true: Array, said: Array, classes: int, *, ignore: int | None = None) -> CountMatrix:
    """Of each class how often it was said rightly, how often it is true, and how often it was said."""
    true, said = _drop_ignored(true, said, ignore)
    parts = (true[true == said], true, said)
    return np.stack([np.bincount(part, minlength=classes) for part in parts]).astype(np.int64)


def compute_confusion(true: Array, said: Array, classes: int, *, ignore: int | None = None) -> CountMatrix:
    """How often each class was taken for each: rows are what is true, columns what is said."""
    true, said = _drop_ignored(true, said, ignore)
    return np.bincount(true * classes + said, minlength=classes * classes).reshape(classes, classes)


def _drop_ignored(true: Array, said: Array, ignore: int | None) -> tuple[Array, Array]:
    true, said = true.reshape(-1).astype(np.int64), said.reshape(-1).astype(np.int64)
    if ignore is None:
        return true, said
    kept = true != ignore
    return true[kept], said[kept]


def compute_class_ious(matrix: CountMatrix) -> list[float | None]:
    """Of each class, what is in both over what is in either; None of a class that occurs in neither."""
    return _compute_ious(np.diag(matrix), matrix.sum(1), matrix.sum(0))


def compute_mean_iou(matrix: CountMatrix) -> float:
    """The mean over the classes that occur."""
    return compute_mean_iou_of_counts(np.diag(matrix), matrix.sum(1), matrix.sum(0))


def compute_mean_iou_of_counts(right: CountMatrix, true: CountMatrix, said: CountMatrix) -> float:
    """The same from what is right, true and said of each class."""
    found = [iou for iou in _compute_ious(right, true, said) if iou is not None]
    return sum(found) / len(found) if found else 0.0


def _compute_ious(right: CountMatrix, true: CountMatrix, said: CountMatrix) -> list[float | None]:
    either = true + said - right
    return [int(r) / int(e) if e else None for r, e in zip(right, either, strict=True)]


def compute_cross_entropy(
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


MAX_MATRIX_CLASSES = 1000
"""Of more classes no matrix is kept, which would have millions of cells: only what is right, true and said."""


@dataclass
class StepTotals:
    """Sums over steps; counts are whole numbers."""

    task: Task
    loss: float = 0.0
    weight: float = 0.0  # of the losses
    error: float = 0.0  # of a regression: the sum of the absolute differences
    blind_error: float = 0.0  # the same of who always says the mean
    rows: int = 0
    steps: int = 0
    timed_rows: int = 0
    seconds: float = 0.0  # of the timed ones
    waited_seconds: float = 0.0
    by_class: npt.NDArray[np.int64] = field(init=False)  # of each class, how often: right, true, said

    def __post_init__(self) -> None:
        self.by_class = np.zeros((3, len(self.task.classes)), np.int64)

    @property
    def mean_loss(self) -> float:
        """The loss of a value, on average."""
        return self.loss / self.weight if self.weight else 0.0

    @property
    def waited_share(self) -> float:
        """The share of the time in which the model waited for data."""
        return self.waited_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def score(self) -> float:
        """The task's metric."""
        right, true, said = self.by_class
        if self.task.kind == "regression":
            return self.error / self.rows if self.rows else 0.0
        if self.task.kind == "segmentation":
            return compute_mean_iou_of_counts(right, true, said)
        return int(right.sum()) / max(int(true.sum()), 1)

    @property
    def chance(self) -> float:
        """The score of who always says the most frequent class, or the mean."""
        if self.task.kind == "regression":
            return self.blind_error / self.rows if self.rows else 0.0
        true = self.by_class[1]
        share = int(true.max(initial=0)) / max(int(true.sum()), 1)
        # Of the classes that occur, one has this share and all others have nothing.
        return share / max(int((true > 0).sum()), 1) if self.task.kind == "segmentation" else share

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON holds them: floats survive it to the last bit."""
        return {
            "loss": self.loss,
            "weight": self.weight,
            "error": self.error,
            "blind_error": self.blind_error,
            "rows": self.rows,
            "steps": self.steps,
            "timed_rows": self.timed_rows,
            "seconds": self.seconds,
            "waited_seconds": self.waited_seconds,
            "by_class": self.by_class.tolist(),
        }

    @classmethod
    def from_dict(cls, told: dict[str, Any], task: Task) -> StepTotals:
        """The sums that `to_dict` told of."""
        totals = cls(task)
        for name in ("loss", "weight", "error", "blind_error", "seconds", "waited_seconds"):
            setattr(totals, name, float(told[name]))
        for name in ("rows", "steps", "timed_rows"):
            setattr(totals, name, int(told[name]))
        totals.by_class = np.array(told["by_class"], np.int64).reshape(3, len(task.classes))
        return totals


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One pass over the training split, and over the validation split after it."""

    number: int  # from 1 on
    loss: float
    score: float  # of the task's metric
    val_loss: float | None
    val_score: float | None
    steps: int
    records: int
    timed_records: int  # those of the steps that are timed: not of those that build the model's program
    seconds: float  # of the timed steps, waiting included, validation not
    waited_seconds: float  # of these: for data

    @property
    def waited_share(self) -> float | None:
        """The share of the time in which the model waited for data; None where no step was timed."""
        return self.waited_seconds / self.seconds if self.seconds > 0 else None

    @property
    def records_per_second(self) -> float:
        """How many records were trained on in a second, waiting included."""
        return self.timed_records / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The epoch as JSON holds it."""
        return {
            "epoch": self.number,
            "loss": self.loss,
            "score": self.score,
            "val_loss": self.val_loss,
            "val_score": self.val_score,
            "steps": self.steps,
            "records": self.records,
            "timed_records": self.timed_records,
            "seconds": round(self.seconds, 3),
            "waited_seconds": round(self.waited_seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished run: `model`, `report` and `metrics` are the paths of files in `out`."""

    dataset: str
    out: str
    task: Task
    backend: str
    parameters: int
    batch_size: int
    train_split: str
    val_split: str | None
    train_records: int
    val_records: int
    epochs: tuple[EpochResult, ...]
    confusion: CountMatrix | None  # true by said, of validation or, without it, of training
    chance: float | None  # the score, there, of who always says the most frequent class, or the mean
    compile_seconds: float  # of the steps that build the model's program, and are not timed
    first_batch_seconds: float
    advice: tuple[str, ...]  # what to change where the input is the bottleneck; empty where it is not

    @property
    def last(self) -> EpochResult:
        """The last epoch."""
        return self.epochs[-1]

    @property
    def score(self) -> float:
        """The score on the validation split, or on the training split where there is none."""
        last = self.last
        return last.score if last.val_score is None else last.val_score

    @property
    def waited_share(self) -> float | None:
        """The share of the time of all epochs in which the model waited for data; None where no step was timed."""
        seconds = sum(epoch.seconds for epoch in self.epochs)
        return sum(epoch.waited_seconds for epoch in self.epochs) / seconds if seconds > 0 else None

    @property
    def records_per_second(self) -> float:
        """How many records were trained on in a second, waiting included."""
        seconds = sum(epoch.seconds for epoch in self.epochs)
        return sum(epoch.timed_records for epoch in self.epochs) / seconds if seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON holds it."""
        return {
            "dataset": self.dataset,
            "out": self.out,
            "task": self.task.to_dict(),
            "backend": self.backend,
            "parameters": self.parameters,
            "batch_size": self.batch_size,
            "splits": {"train": self.train_split, "val": self.val_split},
            "records": {"train": self.train_records, "val": self.val_records},
            "metric": self.task.metric,
            "score": self.score,
            "chance": self.chance,
            "epochs": [epoch.to_dict() for epoch in self.epochs],
            "waited_share": None if self.waited_share is None else round(self.waited_share, 4),
            "records_per_second": round(self.records_per_second, 1),
            "confusion": None if self.confusion is None else self.confusion.tolist(),
            "compile_seconds": round(self.compile_seconds, 3),
            "first_batch_seconds": round(self.first_batch_seconds, 3),
            "advice": list(self.advice),
        }
