"""A line on stderr that says how far a check is, where a person watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rekord.cli import out
from rekord.cli.render import byte_size, count, duration

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.live import Live
    from rich.text import Text

    from rekord.health.finding import Report


class Progress:
    """The line while it is shown. It only reads the report, which the check is filling."""

    def __init__(self, report: Report, *, files: int) -> None:
        self._report = report
        self._files = files
        self._began = time.monotonic()
        self._live: Live | None = None
        if out.is_terminal(sys.stderr):
            from rich.live import Live

            # Rich would send what is printed meanwhile to stderr; `aside` keeps the streams apart.
            self._live = Live(
                console=out.console(sys.stderr),
                get_renderable=self._line,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._live is not None:
            self._live.stop()

    def aside(self) -> AbstractContextManager[None]:
        """Take the line away while something else is printed."""
        return nullcontext() if self._live is None else self._paused(self._live)

    @staticmethod
    @contextmanager
    def _paused(live: Live) -> Iterator[None]:
        live.stop()
        yield
        live.start()

    def _line(self) -> Text:
        from rich.text import Text

        report = self._report
        parts = [
            f"file {report.files:,} of {self._files:,}",
            count(report.records, "record"),
            byte_size(report.payload_bytes),
            duration(time.monotonic() - self._began),
        ]
        return Text(" · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")
