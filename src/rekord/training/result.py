"""What a training run found: how each epoch went, how good the model is, and how long it waited for data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.training.task import Task

Matrix: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Epoch:
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
class Trained:
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
    epochs: tuple[Epoch, ...]
    confusion: Matrix | None  # true by said, of validation or, without it, of training
    chance: float | None  # the score, there, of who always says the most frequent class, or the mean
    compile_seconds: float  # of the steps that build the model's program, and are not timed
    first_batch_seconds: float
    advice: tuple[str, ...]  # what to change where the input is the bottleneck; empty where it is not

    @property
    def last(self) -> Epoch:
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
