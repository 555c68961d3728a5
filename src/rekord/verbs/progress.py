"""What a conversion reports: its progress, as a bar on a terminal or a line now and then in a log, and guesses."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from rekord.conversion.tasks import ProgressCounts, sum_progress
from rekord.report.formatting import format_byte_size, format_count, format_duration
from rekord.sources.base import SourceGuess
from rekord.storage.transaction import Staging

if TYPE_CHECKING:
    from rich.live import Live

LINE_SECONDS = 10.0
"""Seconds between the lines of a log."""


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """One step of a conversion, and what was done before it started."""

    name: str  # "read" counts rows, "write" and "scan" bytes
    folder: str
    total: int | None
    before: ProgressCounts
    began: float

    def title(self) -> str:
        """The line that announces the step: `reading 51,240 rows`."""
        if self.name == "read":
            return "reading rows" if self.total is None else f"reading {format_count(self.total, 'row')}"
        verb = "reading" if self.name == "scan" else "writing"
        return f"{verb} shards" if self.total is None else f"{verb} {format_byte_size(self.total)}"

    def done(self, now: ProgressCounts) -> int:
        """The rows or bytes that are done, including those of earlier runs."""
        so_far = now.rows if self.name == "read" else now.shard_bytes
        # A part that was started, lost and started again counts twice; never report more than the total.
        return so_far if self.total is None else min(so_far, self.total)

    def words(self, now: ProgressCounts, seconds: float) -> str:
        """Amount done, throughput, rejected rows, and the estimated time left."""
        done = self.done(now)
        if self.name == "read":
            moved = now.spilled_bytes - self.before.spilled_bytes
            gained = now.rows - self.before.rows
            amount = format_count(done, "row")
            parts = [amount if self.total is None else f"{done:,} of {format_count(self.total, 'row')}"]
        else:
            moved = gained = now.shard_bytes - self.before.shard_bytes
            amount = format_byte_size(done)
            parts = [amount if self.total is None else f"{amount} of {format_byte_size(self.total)}"]
        if seconds > 0 and moved:
            parts.append(f"{format_byte_size(int(moved / seconds))}/s")
        if now.rejected:
            parts.append(f"{now.rejected:,} rejected")
        # The first second is too short for an estimate.
        if self.total is not None and gained and seconds >= 1 and done < self.total:
            parts.append(f"{format_duration((self.total - done) * seconds / gained)} left")
        return " · ".join(parts)


def print_line(stream: TextIO | None, line: str) -> None:
    """Print a line without control characters."""
    if stream is not None:
        stream.write("".join([one if one.isprintable() else "\ufffd" for one in line]) + "\n")
        stream.flush()


class ConversionProgress:
    """Reports the progress of a conversion. Failures in here never affect the conversion."""

    def __init__(self, stream: TextIO | None = None, *, line_seconds: float = LINE_SECONDS) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._line_seconds = line_seconds
        self._step: ProgressStep | None = None
        self._live: Live | None = None
        self._lines: threading.Thread | None = None
        self._closed = threading.Event()

    def __enter__(self) -> ConversionProgress:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.close()

    def phase(self, name: str, staging: Staging, total: int | None) -> None:
        """Start a step: "read" counts rows, "write" and "scan" bytes; `total` of them, if known."""
        folder = staging.progress_folder or staging.folder
        with suppress(Exception):
            self._step = ProgressStep(name, folder, total, sum_progress(folder), time.monotonic())
            if self._stream is None or self._closed.is_set():
                return
            if self._stream.isatty():
                self._show_bar(self._stream)
            else:
                print_line(self._stream, self._step.title())
                self._begin_lines()

    def close(self) -> None:
        """Remove the bar, or stop the lines. May be called again."""
        self._closed.set()
        with suppress(Exception):
            if self._live is not None:
                self._live.stop()
                self._live = None

    def say(self, lines: Iterable[str]) -> None:
        """Print lines that stay."""
        with suppress(Exception):
            for line in lines:
                print_line(self._stream, line)

    def words(self) -> str:
        """The progress of the current step."""
        step = self._step
        return "" if step is None else step.words(sum_progress(step.folder), time.monotonic() - step.began)

    # Lines.

    def _begin_lines(self) -> None:
        if self._lines is None:
            self._lines = threading.Thread(target=self._print_lines, name="rekord progress", daemon=True)
            self._lines.start()

    def _print_lines(self) -> None:
        while not self._closed.wait(self._line_seconds):
            with suppress(Exception):
                print_line(self._stream, self.words())

    # The bar.

    def _show_bar(self, stream: TextIO) -> None:
        if self._live is not None:
            return
        from rich.console import Console
        from rich.live import Live

        self._live = Live(
            console=Console(file=stream, highlight=False, markup=False, emoji=False),
            get_renderable=self._bar,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _bar(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        step = self._step
        if step is None:
            return Text("")
        now = sum_progress(step.folder)
        seconds = time.monotonic() - step.began
        bar = ProgressBar(total=step.total, completed=step.done(now), width=24, pulse=step.total is None)
        row = Table.grid(padding=(0, 1))
        row.add_row(step.name, bar, Text(step.words(now, seconds), no_wrap=True, overflow="ellipsis"))
        return row


_MAX_SHOWN_GUESSES = 12


def format_guesses(guesses: Sequence[SourceGuess]) -> Iterator[tuple[str, str | None]]:
    """What was guessed about raw data, one line each, with what changes it."""
    for guess in guesses[:_MAX_SHOWN_GUESSES]:
        yield f"guessed: {guess.what}", guess.do
    if len(guesses) > _MAX_SHOWN_GUESSES:
        yield f"guessed: … and {len(guesses) - _MAX_SHOWN_GUESSES:,} more", None


def report_guesses(guesses: Sequence[SourceGuess]) -> None:
    """Print what was guessed to stderr."""
    for what, do in format_guesses(guesses):
        print_line(sys.stderr, what if do is None else f"{what}; {do}")


def report_notes(notes: Sequence[str]) -> None:
    """Print what reading the source found to stderr."""
    for note in notes:
        print_line(sys.stderr, f"note: {note}")
