"""The training loop: steps, epochs, validation, interrupts."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.dataset.batches import Batches
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.training import result
from rekord.training.choose import untrainable_error
from rekord.training.inputs import BatchEncoder, TrainingStep, get_step
from rekord.training.model import ModelTrainer
from rekord.training.result import MAX_MATRIX_CLASSES, EpochResult, LabelScore, StepTotals

if TYPE_CHECKING:
    from rekord.training.task import Task


class TrainingListener:
    """Receives the progress of a run; this one ignores it."""

    def on_task(self, task: Task) -> None:
        """The task is chosen."""

    def on_begin(self, task: Task, backend: str, parameters: int, epochs: int, steps: int) -> None:
        """The model is built; an epoch has `steps` steps."""

    def resumed(self, epoch: int, step: int) -> None:
        """The run resumes after this step of this epoch, both counted from 1; step 0 is the start of an epoch."""

    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        """A step is done; loss and score are for the epoch so far."""

    def on_wait(self, share: float) -> None:
        """The share of the epoch's time spent waiting for data so far; called before each `step`."""

    def validating(self, epoch: int, steps: int) -> None:
        """Validation begins, with `steps` steps."""

    def validated(self, step: int) -> None:
        """A validation step is done."""

    def epoch(self, epoch: EpochResult) -> None:
        """An epoch is done."""

    def saved(self, path: str, epoch: int, step: int) -> None:
        """A checkpoint was written."""


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptGuard:
    """In a `with` block, the first signal is recorded for `check`; a second one interrupts immediately.

    Only the main thread of a process receives signals: in other threads this does nothing.
    """

    def __init__(self) -> None:
        self._stop_requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._on_signal) for each in _STOP_SIGNALS}
        return self

    def __exit__(self, *failure: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received since the block began."""
        if self._stop_requested:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop_requested:
            raise KeyboardInterrupt
        self._stop_requested = True


CountMatrix: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True)
class TrainingData:
    """How the splits are read."""

    train: Split
    val: Split | None
    batch_size: int
    seed: int
    threads: int | None


@dataclass
class TrainingProgress:
    """The progress of a run: everything in a checkpoint except the model's variables."""

    plan: dict[str, Any]  # what must be unchanged when the run is resumed
    epoch: int = 0  # the current one, from 0
    reader: dict[str, Any] | None = None  # the position in the epoch; None at its start
    totals: StepTotals | None = None  # of the epoch so far
    done: tuple[EpochResult, ...] = ()
    confusion: CountMatrix | None = None  # of the last epoch
    label_scores: tuple[LabelScore, ...] = ()  # of the last epoch
    chance: float | None = None
    compile_seconds: float = 0.0
    first_batch_seconds: float = 0.0
    worst: tuple[int, ...] = ()  # the records with the worst predictions after the last epoch, worst first


MAX_WORST_RECORDS = 24


@dataclass
class _Validation:
    """The result of predicting a split."""

    totals: StepTotals
    matrix: CountMatrix | None
    label_scores: tuple[LabelScore, ...] = ()
    worst: list[tuple[float, int]] = field(default_factory=list)  # (negative error, record), worst first

    def add_errors(self, errors: npt.NDArray[np.float64]) -> None:
        """Rank the records of the next batch among the worst ones."""
        first = self.totals.rows
        rows = np.argsort(-errors, kind="stable")[:MAX_WORST_RECORDS]
        found = [(-float(errors[row]), first + int(row)) for row in rows if errors[row] > 0]
        self.worst = sorted([*self.worst, *found])[:MAX_WORST_RECORDS]


class TrainingLoop:
    """Runs epochs from the position in `progress`."""

    def __init__(
        self,
        learner: ModelTrainer,
        encoder: BatchEncoder,
        reading: TrainingData,
        progress: TrainingProgress,
        *,
        save: Callable[[TrainingProgress], str],
        checkpoint_steps: int,
        watch: TrainingListener,
    ) -> None:
        self._learner = learner
        self._encoder = encoder
        self._reading = reading
        self.progress = progress
        self._save = save
        self._checkpoint_steps = checkpoint_steps
        self._watch = watch
        self._whole = True  # no step is in progress
        self._built: set[int] = set()  # the batch sizes for which the model has been compiled

    def run(self, epochs: int) -> None:
        """Train up to this number of epochs. If it ends early, a checkpoint of the last complete step is kept."""
        with InterruptGuard() as stopping:
            try:
                while self.progress.epoch < epochs:
                    self._train(stopping)
                    self._finish_epoch(stopping)
                    self._checkpoint()
            except BaseException as failure:
                is_broken = isinstance(failure, RekordError) and failure.code == "X576"
                if self._whole and self.progress.totals is not None and not is_broken:
                    self._checkpoint()
                raise

    def evaluate_classes(self, split: Split) -> None:
        """Compute the confusion matrix, or the scores per class, on a split, if there is no validation split."""
        progress = self.progress
        if progress.confusion is None and not progress.label_scores:
            with InterruptGuard() as stopping:
                self._keep_details(self._validated(split, stopping))

    def _keep_details(self, validation: _Validation) -> None:
        self.progress.confusion = validation.matrix
        self.progress.label_scores = validation.label_scores
        self.progress.worst = tuple(record for _, record in validation.worst)

    def _train(self, stopping: InterruptGuard) -> None:
        progress = self.progress
        totals = progress.totals = progress.totals or StepTotals(self._encoder.task)
        loader = self._batches(self._reading.train, epoch=progress.epoch, shuffle=True)
        if progress.reader is not None:
            loader.load_state_dict(progress.reader)
        with iter(loader) as batches:
            while True:
                began = time.perf_counter()
                batch = next(batches, None)
                arrived = time.perf_counter()
                if batch is None:
                    return
                step = get_step(batch)
                self._whole = False
                loss = self._learner.train(step, totals)
                ended = time.perf_counter()
                self._check_loss(loss, totals)
                self._count(totals, step.rows, arrived - began, ended - arrived)
                progress.reader = batches.state_dict()
                self._whole = True
                self._watch.on_wait(totals.waited_share)
                self._watch.step(progress.epoch + 1, totals.steps, totals.mean_loss, totals.score)
                if self._checkpoint_steps and totals.steps % self._checkpoint_steps == 0:
                    self._checkpoint()
                stopping.check()

    def _count(self, totals: StepTotals, rows: int, waited_seconds: float, trained_seconds: float) -> None:
        totals.steps += 1
        if not self._built:
            # The first batch opens files and starts threads.
            self.progress.first_batch_seconds = self.progress.first_batch_seconds or waited_seconds
        if rows not in self._built:
            # The first step of each batch size compiles the model, and does not show its speed.
            self._built.add(rows)
            self.progress.compile_seconds += trained_seconds
            return
        totals.timed_rows += rows
        totals.seconds += waited_seconds + trained_seconds
        totals.waited_seconds += waited_seconds

    def _check_loss(self, loss: float, totals: StepTotals) -> None:
        if math.isfinite(loss):
            return
        slower = min(1e-4, self._learner.learning_rate / 10)
        raise error(
            "X576",
            location=Location(path=self._reading.train.paths[0] if self._reading.train.paths else None),
            expected="a finite loss",
            found=f"{loss} in epoch {self.progress.epoch + 1}, step {totals.steps + 1}",
            do=f"learning_rate={slower:g}; find very large numbers with rekord stats PATH",
        )

    def _check_learned(self, totals: StepTotals) -> None:
        """Raise if all pixels of all masks are ignored."""
        task = self._encoder.task
        if task.kind == "segmentation" and not totals.by_class[1].any():
            raise untrainable_error(
                f"all pixels of `{task.target}` are ignored",
                column=task.target,
                expected=f"pixels of {len(task.classes):,} classes",
                found=f"only {task.ignore}, the ignored id",
                do="rekord stats PATH, to see the number of pixels per class",
            )

    def _finish_epoch(self, stopping: InterruptGuard) -> None:
        progress, totals = self.progress, self.progress.totals
        assert totals is not None
        self._check_learned(totals)
        held_out = None if self._reading.val is None else self._validated(self._reading.val, stopping)
        progress.chance = (totals if held_out is None else held_out.totals).chance
        progress.confusion, progress.label_scores, progress.worst = None, (), ()
        if held_out is not None:
            self._keep_details(held_out)
        epoch = EpochResult(
            number=progress.epoch + 1,
            loss=totals.mean_loss,
            score=totals.score,
            val_loss=None if held_out is None else held_out.totals.mean_loss,
            val_score=None if held_out is None else held_out.totals.score,
            steps=totals.steps,
            records=totals.rows,
            timed_records=totals.timed_rows,
            seconds=totals.seconds,
            waited_seconds=totals.waited_seconds,
        )
        progress.done += (epoch,)
        progress.epoch += 1
        progress.reader = progress.totals = None
        self._watch.epoch(epoch)

    def _validated(self, split: Split, stopping: InterruptGuard) -> _Validation:
        task = self._encoder.task
        totals = StepTotals(task)
        classes = len(task.classes)
        with_labels = task.kind == "multilabel"
        has_matrix = 0 < classes <= MAX_MATRIX_CLASSES and not with_labels
        matrix = np.zeros((classes, classes), np.int64) if has_matrix else None
        validation = _Validation(totals, matrix)
        kept: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []  # targets and logits
        keeps = with_labels and classes * len(split) <= result.MAX_SCORED_VALUES
        loader = self._batches(split, epoch=0, shuffle=False)
        self._watch.validating(self.progress.epoch + 1, len(loader))
        with iter(loader) as batches:
            for batch in batches:
                step = get_step(batch)
                predicted = self._learner.predict(step)
                validation.add_errors(result.measure_errors(task, predicted, step.y))
                totals.steps += 1
                totals.rows += step.rows
                if task.kind == "regression":
                    self._add_errors(totals, step, predicted)
                elif with_labels:
                    totals.loss += result.compute_binary_cross_entropy(predicted, step.y)
                    totals.weight += step.rows
                    totals.by_class += result.count_labels(step.y, predicted > 0)
                    if keeps:
                        kept.append((step.y.astype(np.bool_), predicted.astype(np.float32)))
                else:
                    # Weighted as in training, so that the two losses can be compared.
                    weights = self._learner.weights
                    loss, weight = result.compute_cross_entropy(
                        predicted, step.y, ignore=task.ignore, weights=weights
                    )
                    totals.loss += loss
                    totals.weight += weight
                    classified = predicted.argmax(-1)
                    totals.by_class += result.count_by_class(step.y, classified, classes, ignore=task.ignore)
                    if matrix is not None:
                        matrix += result.compute_confusion(step.y, classified, classes, ignore=task.ignore)
                self._watch.validated(totals.steps)
                stopping.check()
        if with_labels:
            validation.label_scores = tuple(result.compute_label_scores(totals.by_class, task.classes, kept))
        return validation

    def _add_errors(self, totals: StepTotals, step: TrainingStep, predicted: npt.NDArray[Any]) -> None:
        off = np.abs(predicted.reshape(-1).astype(np.float64) - step.y)
        totals.error += float(off.sum())
        totals.blind_error += float(np.abs(step.y.astype(np.float64) - self._encoder.target_mean).sum())
        totals.loss += float(((off / self._encoder.target_std) ** 2).sum())
        totals.weight += step.rows

    def _batches(self, split: Split, *, epoch: int, shuffle: bool) -> Batches:
        reading = self._reading
        return split.batches(
            reading.batch_size,
            shuffle=shuffle,
            seed=reading.seed,
            epoch=epoch,
            threads=reading.threads,
            **self._encoder.reading(),
        )

    def _checkpoint(self) -> None:
        path = self._save(self.progress)
        steps = 0 if self.progress.totals is None else self.progress.totals.steps
        self._watch.saved(path, self.progress.epoch + 1, steps)
