"""Ctrl-C while files are checked or diagnosed: a word, the right exit code, and nothing that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rekord as rk
from rekord.testing import example_bytes, frames

# The reader waits inside the pass, so that the interrupt is sure to come in its middle.
PROGRAM = """
import os, signal, sys, threading, time
from rekord.cli.main import run_command_line
from rekord.health import scan

real = scan._FileScan._payloads
def slow(self, stretch):
    for item in real(self, stretch):
        yield item
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(1)
scan._FileScan._payloads = slow
code = run_command_line(sys.argv[1:])
def left():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rekord")]
deadline = time.monotonic() + 60
while left() and time.monotonic() < deadline:
    time.sleep(0.01)
print(code, *left())
"""


@pytest.mark.parametrize("verb", ["check", "doctor"])
@pytest.mark.parametrize("schema", [False, True])
@pytest.mark.slow
@pytest.mark.concurrency
def test_an_interrupt_ends_with_130_and_no_thread_is_left(tmp_path: Path, verb: str, schema: bool) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frames(example_bytes({"id": [i]}) for i in range(100)))
    rk.Schema({"id": rk.Int64()}).save(tmp_path / "s.json")
    declared = ["--schema", str(tmp_path / "s.json")] if schema else []
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, verb, str(tmp_path / "a.tfrecord"), *declared],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.stdout.split() == ["130"]
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert done.returncode == 0  # the program's own end, after the verb's
