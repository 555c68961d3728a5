"""What the environment refuses a command is reported as such: no bug of rekord, no traceback, no crash."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.storage import portability

COUNT = "select label, count(*) from train group by 1"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("environment") / "data"
    rows = [{"label": i % 3, "text": f"row {i}"} for i in range(60)]
    rk.write(rows, out, schema=rk.Schema({"label": rk.Int64(), "text": rk.Text()}), progress=False, workers=1)
    return str(out)


def rekord(
    *words: object, before: Callable[[], object] | None = None, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, after `before` was called in it."""
    return subprocess.run(
        [sys.executable, "-m", "rekord", *map(str, words)],
        preexec_fn=before,
        cwd=cwd,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def limited(kind: int, most: int, *, hard: bool = False) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most if hard else resource.RLIM_INFINITY))


def assert_one_message(done: subprocess.CompletedProcess[str], first_line: str, do: str) -> None:
    assert "Traceback" not in done.stderr
    assert "bug of rekord" not in done.stderr
    lines = done.stderr.splitlines()
    at = lines.index(first_line)
    assert lines[-1].startswith(f"  do        {do}"), done.stderr
    assert at >= len(lines) - 7
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
@pytest.mark.parametrize("mebibytes", [100, 200, 300, 400, 500, 586, 700, 900])
def test_a_query_under_a_memory_limit_names_the_limit_and_does_not_crash(
    mebibytes: int, data: str, tmp_path: Path
) -> None:
    done = rekord("query", data, COUNT, before=limited(resource.RLIMIT_AS, mebibytes << 20), cwd=tmp_path)
    assert_one_message(done, "DatasetError X508: out of memory", "ulimit -v unlimited")
    assert f"`ulimit -v` limits this process to {mebibytes << 10:,} KB of memory" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_a_memory_limit_that_suffices_is_no_hindrance(data: str, tmp_path: Path) -> None:
    for words in (["show", data, "-n", "1"], ["check", data]):
        done = rekord(*words, before=limited(resource.RLIMIT_AS, 600 << 20), cwd=tmp_path)
        assert (done.returncode, "X508" in done.stderr) == (0, False)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_a_limit_that_cannot_be_raised_is_not_to_be_raised(data: str, tmp_path: Path) -> None:
    done = rekord("query", data, COUNT, before=limited(resource.RLIMIT_AS, 400 << 20, hard=True), cwd=tmp_path)
    assert_one_message(done, "DatasetError X508: out of memory", "run the same command in another shell")


class Fails:
    """A failure in the middle of a verb."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def __call__(self, *_: object) -> str:
        raise self.failure


ARROW = "malloc of size 320 failed"


@pytest.mark.parametrize(
    ("failure", "code", "found", "do"),
    [
        (MemoryError(), "X508", "MemoryError", "close other programs"),
        (MemoryError("std::bad_alloc"), "X508", "MemoryError: std::bad_alloc", "close other programs"),
        (
            OSError(errno.ENOMEM, "Cannot allocate memory"),
            "X508",
            "OSError: [Errno 12]",
            "close other programs",
        ),
        (ImportError("libx.so: failed to map segment"), "X508", "libx.so: failed to map", "close other"),
        (RuntimeError("can't start new thread"), "X509", "can't start new thread", "ulimit -u unlimited"),
        (BlockingIOError(errno.EAGAIN, "Try again"), "X509", "Try again", "ulimit -u unlimited"),
        (OSError(errno.EMFILE, "Too many open files"), "X509", "Too many open files", "ulimit -n 4096"),
        (
            OSError(errno.ENOSPC, "No space left"),
            "X509",
            "No space left",
            "export TMPDIR=FOLDER      (on a disk with free space)",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/a']"),
            *("X509", "No usable temporary directory", "export TMPDIR=FOLDER"),
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/y"),
            "X509",
            "Permission denied",
            "chmod u+wx /x",
        ),
    ],
)
def test_what_the_system_refuses_is_no_bug(
    failure: Exception,
    code: str,
    found: str,
    do: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("rekord.cli.health.read_error_page", Fails(failure))
    monkeypatch.setattr(portability, "address_space_limit", lambda: None)
    assert run_command_line(["explain", "F102"]) == 3
    printed = capsys.readouterr().err
    assert printed.startswith(f"DatasetError {code}: ")
    assert f"\n  found     {found}" in printed
    assert f"\n  do        {do}" in printed


def test_after_memory_ran_out_the_process_is_left_without_closing_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[int] = []
    monkeypatch.setattr("rekord.cli.health.read_error_page", Fails(MemoryError()))
    assert run_command_line(["explain", "F102"], leave=left.append) == 3
    assert left == [3]
    monkeypatch.setattr("rekord.cli.health.read_error_page", Fails(ZeroDivisionError()))
    assert run_command_line(["explain", "F102"], leave=left.append) == 70
    assert left == [3]


def test_memory_that_duckdb_may_not_have_is_x508(data: str) -> None:
    from rekord.feeds.sql.engine import explain_duckdb_error, import_duckdb

    failure = explain_duckdb_error(
        import_duckdb().OutOfMemoryException("Out of Memory Error: failed to pin 1.0 GiB"), {}
    )
    assert (failure.code, failure.found) == ("X508", "failed to pin 1.0 GiB")


@pytest.mark.parametrize(
    "words",
    [
        ["write", "DATA", "out"],
        ["rewrite", "DATA", "out"],
        ["query", "DATA", COUNT],
        ["split", "DATA", "out", "--split", "a=0.5,b=0.5"],
        ["export", "DATA", "out.csv"],
    ],
    ids=lambda words: words[0],
)
def test_a_working_directory_that_was_deleted_is_named(words: list[str], data: str, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    words = [data if word == "DATA" else word for word in words]
    done = rekord(*words, before=lambda: folder.rmdir(), cwd=folder, PWD=str(folder))
    assert_one_message(done, "DatasetError X511: working directory does not exist", 'cd "$PWD"')
    assert f"\n  where     {folder}\n" in done.stderr


@pytest.mark.parametrize("words", [["check", "DATA"], ["show", "DATA", "-n", "1"], ["explain", "F102"]])
def test_what_needs_no_working_directory_does_without(words: list[str], data: str, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    words = [data if word == "DATA" else word for word in words]
    done = rekord(*words, before=lambda: folder.rmdir(), cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        (lambda: os.close(0), {}),
        (None, {"HOME": "/nonexistent", "REKORD_CACHE": ""}),
        (None, {"HOME": "/dev/null", "REKORD_CACHE": ""}),
        (None, {"TMPDIR": "/nonexistent"}),
        (None, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        (limited(resource.RLIMIT_NOFILE, 16, hard=True), {}),
    ],
    ids=["no stdin", "no home", "home is no folder", "no TMPDIR", "C locale", "16 files"],
)
def test_a_bare_environment_is_enough(
    before: Callable[[], object] | None, environment: dict[str, str], data: str, tmp_path: Path
) -> None:
    done = rekord("query", data, COUNT + " order by 1", before=before, cwd=tmp_path, **environment)
    assert (done.returncode, done.stdout) == (0, "label,count_star()\n0,20\n1,20\n2,20\n"), done.stderr
