"""How far a conversion is, as it is told."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rekord as rk
from rekord.conversion.tasks import ProgressCounts, ProgressTally, sum_progress
from rekord.storage.transaction import Staging
from rekord.verbs.progress import ConversionProgress, ProgressStep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("gone")

    def isatty(self) -> bool:
        raise ValueError("closed")


class Waiting(io.StringIO):
    """Tells when so many lines have come."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines = lines
        self.enough = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("\n") >= self.lines:
            self.enough.set()
        return written


def step(name: str = "read", total: int | None = 1000, before: ProgressCounts | None = None) -> ProgressStep:
    before = before or ProgressCounts()
    return ProgressStep(name, "", total, before, 0.0)


@pytest.mark.parametrize(
    ("one", "now", "seconds", "said"),
    [
        (step(), ProgressCounts(), 0.0, "0 of 1,000 rows"),
        (
            step(),
            ProgressCounts(250, 5_000_000, 2, 0),
            5.0,
            "250 of 1,000 rows · 1.0 MB/s · 2 rejected · 15.0 s left",
        ),
        (step(), ProgressCounts(250, 5_000_000, 0, 0), 0.5, "250 of 1,000 rows · 10 MB/s"),
        (step(), ProgressCounts(1000, 5_000_000, 0, 0), 5.0, "1,000 of 1,000 rows · 1.0 MB/s"),
        (step(total=None), ProgressCounts(250, 5_000_000, 0, 0), 5.0, "250 rows · 1.0 MB/s"),
        # What an earlier run did is done, and says nothing about the speed of this one.
        (
            step(before=ProgressCounts(500, 9, 0, 0)),
            ProgressCounts(600, 1009, 0, 0),
            2.0,
            "600 of 1,000 rows · 500 bytes/s · 8.0 s left",
        ),
        (step(), ProgressCounts(1200, 0, 0, 0), 5.0, "1,000 of 1,000 rows"),
        (
            step("write", 4_000_000),
            ProgressCounts(9, 9, 1, 1_000_000),
            2.0,
            "1.0 MB of 4.0 MB · 500 kB/s · 1 rejected · 6.0 s left",
        ),
    ],
)
def test_a_step_says_how_far_how_fast_and_how_long(
    one: ProgressStep, now: ProgressCounts, seconds: float, said: str
) -> None:
    assert one.words(now, seconds) == said


def test_titles_say_what_begins() -> None:
    assert step().title() == "reading 1,000 rows"
    assert step(total=None).title() == "reading rows"
    assert step("write", 12_000_000).title() == "writing 12 MB"
    assert step("write", None).title() == "writing shards"


def test_a_log_gets_one_line_a_step_and_then_some_when_it_takes_long(tmp_path: Path) -> None:
    stream = Waiting(3)
    tally = ProgressTally(str(tmp_path))
    with ConversionProgress(stream, line_seconds=0.01) as progress:
        progress.phase("read", Staging(str(tmp_path)), 100)
        tally.rows(40, 4000, 0)
        assert stream.enough.wait(30)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "reading 100 rows"
    assert lines[-1].startswith("40 of 100 rows") or lines[-1] == "0 of 100 rows"


def test_a_short_run_says_two_lines_and_its_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rk.write([{"x": i} for i in range(10)], tmp_path / "out", workers=1)
    told = capsys.readouterr()
    assert told.out == ""
    first, *steps = told.err.splitlines()
    assert first.startswith("forecast: 10 records")
    assert steps[0] == "reading 10 rows"
    assert [line.split()[0] for line in steps] == ["reading", "writing"]


def test_nothing_is_said_where_nobody_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rk.write([{"x": 1}], tmp_path / "out", workers=1, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    tally = ProgressTally(str(tmp_path))
    with ConversionProgress(stream) as progress:
        progress.phase("read", Staging(str(tmp_path)), 100)
        tally.rows(40, 4000, 3)
        assert progress._live is not None
        progress._live.refresh()
        progress.phase("write", Staging(str(tmp_path)), None)
        progress._live.refresh()
    text = stream.getvalue()
    assert "40 of 100 rows" in text
    assert "3 rejected" in text
    assert "━" in text
    assert progress._live is None


@pytest.mark.parametrize("stream", [Broken(), None])
def test_a_stream_that_fails_does_not_stop_the_conversion(tmp_path: Path, stream: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    dataset = rk.write([{"x": 1}], tmp_path / "out", workers=1)
    assert dataset["train"].to_arrow().num_rows == 1


@pytest.mark.concurrency
def test_after_an_error_the_bar_is_gone_and_no_thread_is_left(tmp_path: Path, capsys: Any) -> None:
    schema = rk.Schema({"x": rk.Int64()})
    with pytest.raises(rk.EncodeError):
        rk.write([{"x": "a"}], tmp_path / "out", schema=schema, workers=1)
    left = [thread for thread in threading.enumerate() if thread.name == "rekord progress"]
    for thread in left:
        thread.join(30)
    assert not any(thread.is_alive() for thread in left)


def test_what_steers_a_terminal_is_not_said(tmp_path: Path) -> None:
    stream = io.StringIO()
    with ConversionProgress(stream) as progress:
        progress.say(["a\x1b[2Jb"])
    assert stream.getvalue() == "a\ufffd[2Jb\n"


def test_progress_may_be_closed_twice_and_used_after(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = ConversionProgress(stream)
    progress.close()
    progress.close()
    progress.phase("read", Staging(str(tmp_path)), 1)
    assert stream.getvalue() == ""
    assert os.listdir(tmp_path) == []


def test_a_tally_that_cannot_be_kept_ends_nothing(tmp_path: Path) -> None:
    # A page of a mapped file that the disk has no room for ends the process, as one beyond its end does.
    program = (
        "import os, sys\n"
        "from rekord.conversion.tasks import ProgressTally, sum_progress\n"
        "tally = ProgressTally(sys.argv[1])\n"
        "for name in os.listdir(sys.argv[1]): os.truncate(os.path.join(sys.argv[1], name), 0)\n"
        "tally.rows(1, 2, 3)\n"
        "print(sum_progress(sys.argv[1]).rows)\n"
        "for name in os.listdir(sys.argv[1]): os.unlink(os.path.join(sys.argv[1], name))\n"
        "tally.rows(2, 3, 4)\n"
        "print(os.listdir(sys.argv[1]))"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()) == (0, ["1", "[]"])


@pytest.mark.parametrize("source", ["list", "table"])
def test_rows_are_counted_while_a_slow_function_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr("rekord.conversion.mapped_rows._CHUNK_SECONDS", 0.0)  # a chunk is one row
    seen: list[int] = []

    def look(row: Any) -> Any:
        seen.extend(sum_progress(str(folder)).rows for folder in tmp_path.glob(".out.rekord-*"))
        return row

    rows: Any = [{"x": i} for i in range(20)]
    if source == "table":
        rows = pa.table({"x": list(range(20))})
    rk.write(rows, tmp_path / "out", map=look, schema=rk.Schema({"x": rk.Int64()}), workers=1, progress=False)
    assert seen == list(range(20))
