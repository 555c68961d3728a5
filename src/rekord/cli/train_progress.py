"""The progress of `rekord train`: a line per epoch, and a bar on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekord.cli import console
from rekord.cli.console import escape_controls, truncate
from rekord.report.formatting import format_count
from rekord.training.advice import format_percent
from rekord.training.loop import TrainingListener
from rekord.training.report import describe_task, format_score

if TYPE_CHECKING:
    from rekord.training.result import EpochResult
    from rekord.training.task import Task


MAX_SHOWN_LEFT_OUT = 4
_SHORT_METRIC_NAMES = {"mean absolute error": "error"}
_MIN_WIDTH = 7


@dataclass
class _RunStatus:
    """The state of the run."""

    doing: str = "inspecting the data"
    epochs: int = 0
    epoch: int = 0
    steps: int = 0
    step: int = 0
    total: int = 0  # steps of the current phase
    words: str = ""
    begun_at: float = 0.0
    begun_step: int = 0


class TrainingDisplay(console.LiveLine, TrainingListener):
    """Prints the progress of a run on the dataset `name`; with `as_json`, to stderr.

    `load` imports the framework, once the task is known.
    """

    def __init__(self, name: str, *, batch_size: int, as_json: bool, load: Callable[[], None]) -> None:
        super().__init__()
        self._name = name
        self._batch_size = batch_size
        self._load = load
        self._say = console.print_status if as_json else console.print_line
        self._now = _RunStatus()
        self._metric = ""
        self._waited = 0.0
        self._held_out: bool | None = None  # whether there is a validation split
        self._kept = False

    @property
    def kept(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return self._kept

    def place(self) -> str:
        """`epoch 2, step 31 of 60`."""
        now = self._now
        if now.epoch > now.epochs:
            return "the end of the last epoch"
        if now.step == 0:
            return f"the beginning of epoch {now.epoch:,} of {now.epochs:,}"
        return f"epoch {now.epoch:,} of {now.epochs:,}, step {now.step:,} of {now.steps:,}"

    # Called by the run.

    def on_task(self, task: Task) -> None:
        self._metric = _SHORT_METRIC_NAMES.get(task.metric, task.metric)
        with self.suspended():
            self._load()

    def on_begin(self, task: Task, backend: str, parameters: int, epochs: int, steps: int) -> None:
        from rekord.training.model import describe_model

        self._now = _RunStatus("epoch", epochs=epochs, epoch=1, steps=steps, total=steps, begun_at=time.monotonic())
        model = f"{describe_model(task)}, {format_count(parameters, 'parameter')}"
        self._print(
            f"{self._name}: {truncate(escape_controls(describe_task(task)), 100)} · {model} · keras on {backend}"
        )
        if task.left_out:
            self._print(f"left out: {format_left_out(task)}")

    def resumed(self, epoch: int, step: int) -> None:
        self._now.epoch, self._now.step, self._now.begun_step = epoch, step, step
        self._kept = True
        if epoch > self._now.epochs:
            self._print(f"{format_count(epoch - 1, 'epoch')} already done, and no more requested")
        else:
            self._print(f"resuming at {self.place()}")

    def on_wait(self, share: float) -> None:
        self._waited = share

    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        now = self._now
        now.epoch, now.step = epoch, step
        now.words = (
            f"loss {format_score(loss)} · {self._metric} {format_score(score)} · waiting "
            f"{format_percent(self._waited)}"
        )

    def validating(self, epoch: int, steps: int) -> None:
        now = self._now
        now.doing, now.total, now.words = "validation", steps, ""

    def validated(self, step: int) -> None:
        self._now.words = f"{step:,} of {self._now.total:,}"

    def epoch(self, epoch: EpochResult) -> None:
        if self._held_out is None:
            self._held_out = epoch.val_loss is not None
            self._print(format_table_line(format_headings(self._metric, held_out=self._held_out), self._widths()))
        self._print(format_table_line(format_epoch_cells(epoch, held_out=self._held_out), self._widths()))
        now = self._now
        now.doing, now.total, now.words = "epoch", now.steps, ""
        now.epoch, now.step, now.begun_at, now.begun_step = epoch.number + 1, 0, time.monotonic(), 0

    def saved(self, path: str, epoch: int, step: int) -> None:
        self._kept = True

    # Printing.

    def _widths(self) -> list[int]:
        names = format_headings(self._metric, held_out=bool(self._held_out))
        return [len(names[0]), *(max(len(name), _MIN_WIDTH) for name in names[1:])]

    def _print(self, line: str) -> None:
        with self.suspended():
            self._say(escape_controls(line))
            console.flush_stdout()

    def _render(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = self._now
        if now.epoch == 0:
            return Text(now.doing, style="dim")
        done = now.step if now.doing == "epoch" else now.total
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(now.total, 1), completed=done, width=12, pulse=now.doing != "epoch")
        row.add_row(
            f"epoch {min(now.epoch, now.epochs)}/{now.epochs}",
            bar,
            Text(" · ".join(self._words(now)), no_wrap=True, overflow="ellipsis"),
        )
        return row

    def _words(self, now: _RunStatus) -> list[str]:
        if now.doing != "epoch":
            return [f"validation {now.words}"]
        parts = [f"{now.step:,} of {now.steps:,}", *([now.words] if now.words else [])]
        seconds, steps = time.monotonic() - now.begun_at, now.step - now.begun_step
        if seconds > 1 and steps > 0:
            parts.append(f"{steps * self._batch_size / seconds:,.0f} records/s")
        return parts


def format_left_out(task: Task) -> str:
    """Columns that the model does not use, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in task.left_out.items():
        by_reason.setdefault(escape_controls(why), []).append(truncate(escape_controls(name), 30))
    return "; ".join([f"{_format_some(names)} ({why})" for why, names in by_reason.items()])


def _format_some(names: Sequence[str]) -> str:
    more = len(names) - MAX_SHOWN_LEFT_OUT
    return ", ".join(names[:MAX_SHOWN_LEFT_OUT]) + (f" and {more:,} more" if more > 0 else "")


def format_headings(metric: str, *, held_out: bool) -> list[str]:
    """The headings of the table."""
    validation = ["val loss", f"val {metric}"] if held_out else []
    return ["epoch", "loss", metric, *validation, "records/s", "waiting"]


def format_epoch_cells(epoch: EpochResult, *, held_out: bool) -> list[str]:
    """The cells of a line of the table."""
    validation = [format_score(epoch.val_loss), format_score(epoch.val_score)] if held_out else []
    rate = f"{epoch.records_per_second:,.0f}" if epoch.seconds > 0 else "–"
    waiting = format_percent(epoch.waited_share)
    return [
        f"{epoch.number}",
        format_score(epoch.loss),
        format_score(epoch.score),
        *validation,
        rate,
        waiting,
    ]


def format_table_line(texts: Sequence[str], widths: Sequence[int]) -> str:
    """One line of the table."""
    return "  ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
