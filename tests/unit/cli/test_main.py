"""The command as a whole: exit codes, streams, and how it says no."""

from __future__ import annotations

import errno
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from rekord import __version__
from rekord.cli import main
from rekord.cli.main import EXAMPLES, run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames

ESCAPE = "\x1b"
VERBS = (
    *("write", "show", "view", "stats", "query", "infer", "check", "doctor", "salvage", "diff"),
    *("rewrite", "split", "balance", "append", "delete", "relabel", "sync", "trace", "export", "adopt"),
    *("index", "reader"),
    *("train", "demo", "explain", "help"),
)


@pytest.fixture
def good_file(tmp_path: Path) -> Path:
    path = tmp_path / "good.tfrecord"
    path.write_bytes(frames(example_bytes({"label": [i], "text": [b"row"]}) for i in range(3)))
    return path


def rekord(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rekord", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("arguments", "first_line", "hint"),
    [
        (["chekc", "x"], "UsageError U601: unknown command `chekc`", "do        rekord check --help"),
        (["nurse"], "UsageError U601: unknown command `nurse`", "do        rekord --help"),
        (["--frob"], "UsageError U601: `rekord` has no option `--frob`", "do        rekord --help"),
        (["check"], "UsageError U601: `rekord check` needs PATH", "do        rekord check --help"),
        (["check", "x", "--jsno"], "UsageError U601: `rekord check` has no option", "likely    a typo of `--json`"),
        (
            ["relabel", "x", "--map", "a=b"],
            "UsageError U601: `rekord relabel` has no",
            "likely    `--map-labels` was",
        ),
        (
            ["write", "x", "y", "--columns", "a"],
            "UsageError U601: `rekord write` has no option `--columns`\n  do",
            "do        rekord write --help",
        ),
        (
            ["show", "x", "y"],
            "UsageError U601: `rekord show`: unexpected argument `y`",
            "do        rekord show --help",
        ),
        (["show", "x", "-n"], "UsageError U601: `rekord show`: ", "do        rekord show --help"),
        (["show", "x", "-n", "many"], "UsageError U605: `-n` cannot be 'many'", "do        -n 5"),
        (["show", "x", "-n", "-1"], "UsageError U605: `-n` cannot be '-1'", "do        -n 5"),
        (["show", "x", "--record=-1"], "UsageError U605: `--record` cannot be '-1'", "do        --record 0"),
        (["show", "x", "--kind", "text"], "UsageError U605: `--kind` cannot be 'text'", "do        rekord show"),
        (
            ["check", "x", "--max-findings", "1.5"],
            "UsageError U605: `--max-findings`",
            "do        rekord check",
        ),
        (["view", "x", "y", "z"], "UsageError U601: `rekord view`: unexpected argument `z`", "do        rekord view"),
        (["view", "x", "--port", "many"], "UsageError U605: `--port` cannot be 'many'", "do        --port 8080"),
    ],
)
def test_wrong_usage_is_one_message_with_a_hint_and_exit_code_2(
    arguments: list[str], first_line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(first_line)
    assert f"\n  {hint}" in printed.err
    assert "Traceback" not in printed.err


def test_a_pattern_that_the_shell_expanded_is_proposed_in_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    for name in ("a", "b", "c"):
        Path("parts", f"{name}.csv").write_text("x\n1\n")
    assert run_command_line(["write", "parts/a.csv", "parts/b.csv", "parts/c.csv", "out", "--seed", "3"]) == 2
    do = capsys.readouterr().err.rpartition("do        ")[2].strip()
    assert do == "rekord write 'parts/*.csv' out --seed 3"
    assert run_command_line(shlex.split(do)[1:]) == 0


def test_no_command_at_all_shows_the_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "rekord check PATH..." in printed.err


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_the_verbs_that_exist_and_no_other(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple([line.split()[1] for line in lines if line.startswith("  rekord ")]) == VERBS
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: rekord {verb} ")
    assert max(map(len, text.splitlines())) <= 80
    assert ".  " not in text.split("\n\n")[1]  # sentences of one paragraph
    assert text.rstrip().endswith(EXAMPLES[verb][-1])


@pytest.mark.parametrize("example", [line for lines in EXAMPLES.values() for line in lines])
def test_each_example_is_a_command_line_that_is_understood(example: str) -> None:
    _, verb, *words = shlex.split(example)
    command: Any = typer.main.get_command(main.app).commands[verb]  # type: ignore[attr-defined]
    command.make_context(verb, words)


def test_one_option_is_called_and_explained_alike_by_all_verbs() -> None:
    commands: Any = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
    for option in ("--fresh", "--workers", "--dry-run", "--replace", "--shards"):
        told = {
            (param.metavar, param.help)
            for verb in VERBS
            for param in commands[verb].params
            if option in param.opts and (verb, option) != ("append", "--shards")  # of the new ones alone
        }
        assert len(told) == 1, (option, told)


def test_a_verb_that_is_not_there_yet_has_help_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["view", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: rekord view")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["--version"]) == 0
    assert capsys.readouterr().out == f"rekord {__version__}\n"


def test_under_json_a_failure_is_a_document_on_stdout_and_a_message_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.tfrecord"
    assert run_command_line(["check", str(missing), "--json"]) == 3
    printed = capsys.readouterr()
    failure = json.loads(printed.out)["error"]
    assert (failure["code"], failure["location"]) == ("X501", {"path": str(missing)})
    assert printed.err.startswith("DatasetError X501: ")


def test_wrong_usage_under_json_leaves_stdout_parseable(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["show", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "U601"


def test_a_bug_is_admitted_in_one_short_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(code: str) -> str:
        raise ZeroDivisionError("one by\x1b[31m nothing")

    monkeypatch.delenv("REKORD_TRACEBACK", raising=False)
    monkeypatch.setattr("rekord.cli.health.read_error_page", broken)
    assert run_command_line(["explain", "F102"]) == main.EXIT_BUG == 70
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("this is a bug in rekord: ZeroDivisionError: one by\\x1b[31m nothing\n")
    assert "REKORD_TRACEBACK=1" in printed.err
    assert "Traceback" not in printed.err

    monkeypatch.setenv("REKORD_TRACEBACK", "1")
    assert run_command_line(["explain", "F102"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_missing_path_is_exit_code_3_in_a_real_process(tmp_path: Path) -> None:
    ended = rekord("check", tmp_path / "missing")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith("DatasetError X501: no such file or folder\n  where     ")


@pytest.mark.slow
def test_an_unknown_verb_is_exit_code_2_in_a_real_process() -> None:
    ended = rekord("shwo", "x")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("UsageError U601: unknown command `shwo`\n  likely    a typo of `show`\n")


@pytest.mark.slow
def test_piped_output_has_no_escape_codes_even_if_colour_is_forced(good_file: Path) -> None:
    bad = good_file.with_name("bad.tfrecord")
    bad.write_bytes(corrupt_payload(good_file.read_bytes(), 1))
    environment = {**os.environ, "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"}
    for arguments in (["check", bad], ["show", good_file], ["explain", "F102"], ["--help"], ["chekc"]):
        ended = rekord(*arguments, env=environment)
        assert ESCAPE not in ended.stdout + ended.stderr


@pytest.mark.concurrency
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    path = tmp_path / "long.tfrecord"
    path.write_bytes(frames([example_bytes({"label": [1]})] * 5000))
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "rekord", "show", str(path), "-n", "5000"]
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert os.read(reading, 10)
    os.close(reading)
    _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["show"], ["check"], ["check", "--json"]])
def test_a_full_disk_behind_stdout_is_one_message_and_exit_code_3(arguments: list[str], good_file: Path) -> None:
    command = [sys.executable, "-m", "rekord", *arguments, str(good_file)]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ended.returncode == 3
    assert ended.stderr.startswith("DatasetError X504: cannot write to standard output\n")
    assert ended.stderr.count("X504") == 1
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def open_when_read(pipe: Path, process: subprocess.Popen[bytes]) -> int:
    """The writing end of a pipe, once the process has opened the other one."""
    while process.poll() is None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as failure:
            if failure.errno != errno.ENXIO:  # nobody reads yet
                raise
            time.sleep(0.01)
    raise AssertionError(process.communicate())


@pytest.mark.concurrency
def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "slow.tfrecord"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "rekord", "check", str(pipe)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    writing = open_when_read(pipe, process)  # from there on the command waits for bytes that do not come
    try:
        process.send_signal(signal.SIGINT)
        result, messages = process.communicate(timeout=60)
    finally:
        os.close(writing)
    assert (process.returncode, result, messages) == (130, b"", b"interrupted\n")


@pytest.mark.parametrize(
    "arguments", [["salvage", "IN", "out"], ["stats", "IN"], ["diff", "IN", "other"], ["diff", "other", "IN"]]
)
@pytest.mark.concurrency
def test_ctrl_c_during_a_slow_read_ends_at_once_and_leaves_nothing(tmp_path: Path, arguments: list[str]) -> None:
    pipe = tmp_path / "slow.tfrecord"
    os.mkfifo(pipe)
    (tmp_path / "other").write_bytes(frames([example_bytes({"x": [1]})]))
    words = [str(pipe) if word == "IN" else word for word in arguments]
    command = [sys.executable, "-m", "rekord", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    writing = open_when_read(pipe, process)
    try:
        os.write(writing, frames([example_bytes({"x": [i]}) for i in range(100)]))
        time.sleep(0.3)  # let the command take what is there: then it waits for bytes that do not come
        process.send_signal(signal.SIGINT)
        result, messages = process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
        os.close(writing)
    assert (process.returncode, result, messages) == (130, b"", b"interrupted\n")
    assert sorted(os.listdir(tmp_path)) == ["other", "slow.tfrecord"]


@pytest.mark.concurrency
def test_a_terminal_gets_colour_while_a_piped_result_stays_plain(good_file: Path) -> None:
    bad = good_file.with_name("bad.tfrecord")
    bad.write_bytes(corrupt_payload(good_file.read_bytes(), 1))
    watcher, terminal = pty.openpty()
    try:
        command = [sys.executable, "-m", "rekord", "check", str(bad)]
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment)
        result, _ = process.communicate(timeout=60)
    finally:
        os.close(terminal)
    seen = os.read(watcher, 65536)
    os.close(watcher)
    assert process.returncode == 1
    assert result.startswith(b"F102  ")
    assert ESCAPE.encode() not in result
    assert b"file 1 of 1" in seen
