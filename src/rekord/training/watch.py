"""What a training run tells while it runs, for whoever wants to show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rekord.training.result import Epoch
    from rekord.training.task import Task


class Watch:
    """Hears how a run goes; this one keeps it to itself."""

    def chosen(self, task: Task) -> None:
        """What will be learned from what."""

    def begun(self, task: Task, backend: str, parameters: int, epochs: int, steps: int) -> None:
        """The model is built, and an epoch will have so many steps."""

    def resumed(self, epoch: int, step: int) -> None:
        """The run goes on after this step of this epoch, both counted from 1; step 0 is an epoch's beginning."""

    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        """A step is done; loss and score are those of the epoch so far."""

    def waited(self, share: float) -> None:
        """The share of the epoch's time so far in which the model waited for data; told before each `step`."""

    def validating(self, epoch: int, steps: int) -> None:
        """The validation split is read, in so many steps."""

    def validated(self, step: int) -> None:
        """A step of the validation is done."""

    def epoch(self, epoch: Epoch) -> None:
        """An epoch is done."""

    def saved(self, path: str, epoch: int, step: int) -> None:
        """A checkpoint is on disk."""
