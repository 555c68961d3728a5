"""How far a conversion is: a bar where a person watches, and now and then a line where nobody does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from rekord.conversion.tasks import ProgressCounts, sum_progress
from rekord.report.formatting import format_byte_size, format_count, format_duration
from rekord.storage.transaction import Staging

if TYPE_CHECKING:
    from rich.live import Live

LINE_SECONDS = 10.0
"""How long a log waits for its next line."""

_PHASE_TITLES = {"read": "reading", "write": "writing"}


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """One step of a conversion, and what was done before it began."""

    name: str  # "read" counts rows, "write" bytes
    folder: str
    total: int | None
    before: ProgressCounts
    began: float

    def title(self) -> str:
        """What begins: `reading 51,240 rows`."""
        if self.total is None:
            return "reading rows" if self.name == "read" else "writing shards"
        amount = format_count(self.total, "row") if self.name == "read" else format_byte_size(self.total)
        return f"{_PHASE_TITLES[self.name]} {amount}"

    def done(self, now: ProgressCounts) -> int:
        """How much of the step is done, what an earlier run did included."""
        so_far = now.rows if self.name == "read" else now.shard_bytes
        # A part that was begun, lost and begun again counts twice; nothing is more than done.
        return so_far if self.total is None else min(so_far, self.total)

    def words(self, now: ProgressCounts, seconds: float) -> str:
        """How far it is, how fast it goes, what went wrong, and how long it will take."""
        done = self.done(now)
        told = [format_count(done, "row") if self.name == "read" else format_byte_size(done)]
        if self.total is not None:
            told = [f"{done:,} of {format_count(self.total, 'row')}"] if self.name == "read" else told
            told = [f"{told[0]} of {format_byte_size(self.total)}"] if self.name == "write" else told
        moved = now.spilled_bytes - self.before.spilled_bytes
        gained = now.rows - self.before.rows
        if self.name == "write":
            moved = gained = now.shard_bytes - self.before.shard_bytes
        if seconds > 0 and moved:
            told.append(f"{format_byte_size(int(moved / seconds))}/s")
        if now.rejected:
            told.append(f"{now.rejected:,} rejected")
        # The first moments say little about the rest.
        if self.total is not None and gained and seconds >= 1 and done < self.total:
            told.append(f"{format_duration((self.total - done) * seconds / gained)} left")
        return " · ".join(told)


class ConversionProgress:
    """Tells how far a conversion is while it lasts. Whatever goes wrong in here, the conversion does not notice."""

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
        """A step begins: "read" counts rows, "write" bytes; `total` of them, where that is known."""
        with suppress(Exception):
            self._step = ProgressStep(name, staging.folder, total, sum_progress(staging.folder), time.monotonic())
            if self._stream is None or self._closed.is_set():
                return
            if self._stream.isatty():
                self._show_bar(self._stream)
            else:
                self._print(self._step.title())
                self._begin_lines()

    def close(self) -> None:
        """Take the bar away, or end the lines. It may be called again."""
        self._closed.set()
        with suppress(Exception):
            if self._live is not None:
                self._live.stop()
                self._live = None

    def say(self, lines: Iterable[str]) -> None:
        """Lines that stay."""
        with suppress(Exception):
            for line in lines:
                self._print("".join([letter if letter.isprintable() else "\ufffd" for letter in line]))

    def words(self) -> str:
        """How far the present step is."""
        step = self._step
        return "" if step is None else step.words(sum_progress(step.folder), time.monotonic() - step.began)

    # Lines.

    def _print(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()

    def _begin_lines(self) -> None:
        if self._lines is None:
            self._lines = threading.Thread(target=self._print_lines, name="rekord progress", daemon=True)
            self._lines.start()

    def _print_lines(self) -> None:
        while not self._closed.wait(self._line_seconds):
            with suppress(Exception):
                self._print(self.words())

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
