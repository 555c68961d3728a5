"""What the steps of an epoch add up to, in a form that a checkpoint can keep to the last digit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.training import scores
from rekord.training.task import Task

MOST_MATRIX_CLASSES = 1000
"""Of more classes no matrix is kept, which would have millions of cells: only what is right, true and said."""


@dataclass
class Totals:
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
            return scores.mean_of_ious(right, true, said)
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
    def from_dict(cls, told: dict[str, Any], task: Task) -> Totals:
        """The sums that `to_dict` told of."""
        totals = cls(task)
        for name in ("loss", "weight", "error", "blind_error", "seconds", "waited_seconds"):
            setattr(totals, name, float(told[name]))
        for name in ("rows", "steps", "timed_rows"):
            setattr(totals, name, int(told[name]))
        totals.by_class = np.array(told["by_class"], np.int64).reshape(3, len(task.classes))
        return totals
