"""The result of a training run: epochs, scores, and the time spent waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.training.task import Task

Array: TypeAlias = "npt.NDArray[Any]"
CountMatrix: TypeAlias = "npt.NDArray[np.int64]"


def count_by_class(true: Array, predicted: Array, classes: int, *, ignore: int | None = None) -> CountMatrix:
    """The number of correct predictions, occurrences and predictions of each class."""
    true, predicted = _drop_ignored(true, predicted, ignore)
    parts = (true[true == predicted], true, predicted)
    return np.stack([np.bincount(part, minlength=classes) for part in parts]).astype(np.int64)


def compute_confusion(true: Array, predicted: Array, classes: int, *, ignore: int | None = None) -> CountMatrix:
    """The confusion matrix: rows are true classes, columns are predictions."""
    true, predicted = _drop_ignored(true, predicted, ignore)
    return np.bincount(true * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def _drop_ignored(true: Array, predicted: Array, ignore: int | None) -> tuple[Array, Array]:
    true, predicted = true.reshape(-1).astype(np.int64), predicted.reshape(-1).astype(np.int64)
    if ignore is None:
        return true, predicted
    kept = true != ignore
    return true[kept], predicted[kept]


def compute_class_ious(matrix: CountMatrix) -> list[float | None]:
    """The intersection over union of each class; None for a class that does not occur."""
    return _compute_ious(np.diag(matrix), matrix.sum(1), matrix.sum(0))


def compute_mean_iou(correct: CountMatrix, true: CountMatrix, predicted: CountMatrix) -> float:
    """The mean over the classes that occur, from the number of correct predictions, occurrences and predictions."""
    found = [iou for iou in _compute_ious(correct, true, predicted) if iou is not None]
    return sum(found) / len(found) if found else 0.0


def _compute_ious(correct: CountMatrix, true: CountMatrix, predicted: CountMatrix) -> list[float | None]:
    union = true + predicted - correct
    return [int(c) / int(u) if u else None for c, u in zip(correct, union, strict=True)]


def compute_cross_entropy(
    logits: Array, true: Array, *, ignore: int | None = None, weights: Array | None = None
) -> tuple[float, int]:
    """The sum of the losses, and the number of values. `weights` has one weight per class."""
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


def compute_f1_scores(correct: CountMatrix, true: CountMatrix, predicted: CountMatrix) -> list[float | None]:
    """The F1 score of each class; None for a class that neither occurs nor is predicted."""
    sums = (true + predicted).tolist()
    return [2 * c / total if total else None for c, total in zip(correct.tolist(), sums, strict=True)]


def compute_mean_f1(correct: CountMatrix, true: CountMatrix, predicted: CountMatrix) -> float:
    """The mean over the classes that occur or are predicted."""
    found = [f1 for f1 in compute_f1_scores(correct, true, predicted) if f1 is not None]
    return sum(found) / len(found) if found else 0.0


def count_labels(true: Array, predicted: Array) -> CountMatrix:
    """The number of correct predictions, occurrences and predictions of each class, from multi-hot vectors."""
    true, predicted = true.astype(bool), predicted.astype(bool)
    return np.stack([(true & predicted).sum(0), true.sum(0), predicted.sum(0)]).astype(np.int64)


def compute_binary_cross_entropy(logits: Array, true: Array) -> float:
    """The sum over records of the mean loss over their classes."""
    logits = logits.astype(np.float64)
    losses = np.maximum(logits, 0) - logits * true + np.log1p(np.exp(-np.abs(logits)))
    return float(losses.mean(-1).sum())


def compute_average_precision(true: Array, scores: Array) -> float | None:
    """The mean precision over the recalls that scores as thresholds give; None for a class that does not occur."""
    occurrences = int(true.sum())
    if not occurrences:
        return None
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(true[order].astype(np.int64))
    # Records with equal scores are found together.
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    gained = np.diff(found[ends], prepend=0)
    return float((gained / occurrences * found[ends] / (ends + 1)).sum())


@dataclass(frozen=True, slots=True)
class LabelScore:
    """The scores of one class of a target with several classes per record, at the threshold 0.5."""

    name: str
    records: int  # that have the class
    precision: float | None
    recall: float | None
    f1: float | None
    average_precision: float | None  # over all thresholds; None for a split that is too large


MAX_SCORED_VALUES = 1 << 24
"""Predictions that are kept in memory for the average precision: 64 MiB."""


def compute_label_scores(
    counts: CountMatrix, names: Sequence[str], kept: list[tuple[Array, Array]]
) -> list[LabelScore]:
    """The scores of each class, from counts and from all targets and logits, if they were kept."""
    correct, true, predicted = counts
    both = [np.concatenate(parts) for parts in zip(*kept, strict=True)] if kept else []
    f1 = compute_f1_scores(correct, true, predicted)
    return [
        LabelScore(
            name=name,
            records=int(true[i]),
            precision=int(correct[i]) / int(predicted[i]) if predicted[i] else None,
            recall=int(correct[i]) / int(true[i]) if true[i] else None,
            f1=f1[i],
            average_precision=compute_average_precision(both[0][:, i], both[1][:, i]) if both else None,
        )
        for i, name in enumerate(names)
    ]


def compute_probabilities(logits: Array) -> Array:
    """The probability of each class, over the last axis."""
    scaled = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return np.asarray(scaled / scaled.sum(-1, keepdims=True))


def compute_label_probabilities(logits: Array) -> Array:
    """The probability of each class, if a record may have several."""
    return np.asarray(0.5 * (1 + np.tanh(logits.astype(np.float64) / 2)))


def measure_errors(task: Task, predicted: Array, true: Array) -> npt.NDArray[np.float64]:
    """How wrong the prediction of each record is; 0 if it is right.

    For classes, how much more probable the model considers its prediction than the truth; for masks, 1 - mIoU over
    the classes in the record; for numbers, the absolute error. With several classes per record, the probability that
    the model assigns to its worst answer, if that is wrong.
    """
    if task.kind == "regression":
        return np.abs(predicted.reshape(-1).astype(np.float64) - true)
    if task.kind == "segmentation":
        return np.array([1 - compute_record_iou(task, one, y) for one, y in zip(predicted, true, strict=True)])
    if task.kind == "multilabel":
        worst = np.abs(compute_label_probabilities(predicted) - true).max(-1)
        return np.where(worst > 0.5, worst, 0.0)
    shares = compute_probabilities(predicted)
    return np.asarray(shares.max(-1) - shares[np.arange(len(true)), true])


def compute_record_iou(task: Task, predicted: Array, true: Array) -> float:
    """The mIoU of one mask over the classes in it: a stray pixel of another class must not outweigh all others."""
    correct, occurring, counted = count_by_class(true, predicted.argmax(-1), len(task.classes), ignore=task.ignore)
    there = occurring > 0
    return compute_mean_iou(correct[there], occurring[there], counted[there]) if there.any() else 1.0


MAX_MATRIX_CLASSES = 1000
"""For more classes no matrix is kept, which would have millions of cells, only counts per class."""


@dataclass
class StepTotals:
    """Sums over steps."""

    task: Task
    loss: float = 0.0
    weight: float = 0.0  # of the losses
    error: float = 0.0  # for a regression: the sum of the absolute errors
    blind_error: float = 0.0  # the same for a constant prediction of the mean
    rows: int = 0
    steps: int = 0
    timed_rows: int = 0
    seconds: float = 0.0  # of the timed rows
    waited_seconds: float = 0.0
    by_class: npt.NDArray[np.int64] = field(init=False)  # correct predictions, occurrences and predictions

    def __post_init__(self) -> None:
        self.by_class = np.zeros((3, len(self.task.classes)), np.int64)

    @property
    def mean_loss(self) -> float:
        """The mean loss per value."""
        return self.loss / self.weight if self.weight else 0.0

    @property
    def waited_share(self) -> float:
        """The share of the time spent waiting for data."""
        return self.waited_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def score(self) -> float:
        """The task's metric."""
        correct, true, predicted = self.by_class
        if self.task.kind == "regression":
            return self.error / self.rows if self.rows else 0.0
        if self.task.kind == "segmentation":
            return compute_mean_iou(correct, true, predicted)
        if self.task.kind == "multilabel":
            return compute_mean_f1(correct, true, predicted)
        return int(correct.sum()) / max(int(true.sum()), 1)

    @property
    def chance(self) -> float:
        """The score of always predicting the most frequent class, all classes that occur, or the mean."""
        if self.task.kind == "regression":
            return self.blind_error / self.rows if self.rows else 0.0
        true = self.by_class[1]
        if self.task.kind == "multilabel":
            return compute_mean_f1(true, true, np.where(true > 0, self.rows, 0))
        share = int(true.max(initial=0)) / max(int(true.sum()), 1)
        # Of the classes that occur, one has this share and all others have 0.
        return share / max(int((true > 0).sum()), 1) if self.task.kind == "segmentation" else share

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON values: floats survive it to the last bit."""
        sums = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("task", "by_class")}
        return {**sums, "by_class": self.by_class.tolist()}

    @classmethod
    def from_dict(cls, state: dict[str, Any], task: Task) -> StepTotals:
        """The sums restored from the result of `to_dict`."""
        totals = cls(task)
        for one in fields(cls):
            if one.name not in ("task", "by_class"):
                convert = float if isinstance(one.default, float) else int
                setattr(totals, one.name, convert(state[one.name]))
        totals.by_class = np.array(state["by_class"], np.int64).reshape(3, len(task.classes))
        return totals


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One pass over the training split, and over the validation split after it."""

    number: int  # from 1
    loss: float
    score: float  # the task's metric
    val_loss: float | None
    val_score: float | None
    steps: int
    records: int
    timed_records: int  # in timed steps: those that compile the model are not
    seconds: float  # of the timed steps, waiting included, validation not
    waited_seconds: float  # of these, waiting for data

    @property
    def waited_share(self) -> float | None:
        """The share of the time spent waiting for data; None if no step was timed."""
        return compute_waited_share([self])

    @property
    def records_per_second(self) -> float:
        """The number of records trained on per second, waiting included."""
        return self.timed_records / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The epoch as JSON values."""
        values = {"epoch" if one.name == "number" else one.name: getattr(self, one.name) for one in fields(self)}
        return {
            **values,
            "seconds": round(self.seconds, 3),
            "waited_seconds": round(self.waited_seconds, 3),
        }


def compute_waited_share(epochs: Sequence[EpochResult]) -> float | None:
    """The share of the time of some epochs spent waiting for data; None if no step was timed."""
    seconds = sum(epoch.seconds for epoch in epochs)
    return sum(epoch.waited_seconds for epoch in epochs) / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong prediction: the record's number in its split, and what was expected and predicted.

    `probability` is that of the predicted class, or of the worst of several answers; `iou` is the mIoU of a mask,
    which has neither `true` nor `predicted`.
    """

    record: int
    true: str | float | None
    predicted: str | float | None
    probability: float | None = None
    iou: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The mistake as JSON values, without those that its task does not have."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


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
    confusion: CountMatrix | None  # true × predicted, on the validation split or, without it, the training split
    chance: float | None  # the score there of a constant prediction
    compile_seconds: float  # of the steps that compile the model, and are not timed
    first_batch_seconds: float
    advice: tuple[str, ...]  # what to change if the input is the bottleneck; empty if it is not
    label_scores: tuple[LabelScore, ...] = ()  # there, per class, if records may have several
    mistakes: tuple[Mistake, ...] = ()  # the worst ones on the split of `confusion`, worst first

    @property
    def last(self) -> EpochResult:
        """The last epoch."""
        return self.epochs[-1]

    @property
    def score(self) -> float:
        """The score on the validation split, or on the training split if there is none."""
        last = self.last
        return last.score if last.val_score is None else last.val_score

    @property
    def waited_share(self) -> float | None:
        """The share of the time of all epochs spent waiting for data; None if no step was timed."""
        return compute_waited_share(self.epochs)

    @property
    def records_per_second(self) -> float:
        """The number of records trained on per second, waiting included."""
        seconds = sum(epoch.seconds for epoch in self.epochs)
        return sum(epoch.timed_records for epoch in self.epochs) / seconds if seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON values."""
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
            **({"labels": [asdict(one) for one in self.label_scores]} if self.label_scores else {}),
            "compile_seconds": round(self.compile_seconds, 3),
            "first_batch_seconds": round(self.first_batch_seconds, 3),
            "advice": list(self.advice),
            "mistakes": [one.to_dict() for one in self.mistakes],
        }
