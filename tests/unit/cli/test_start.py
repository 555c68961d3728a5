"""Ctrl-C at any time from the first line of the command on: one word, exit code 130, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rekord.testing import example_bytes, frames

pytestmark = pytest.mark.concurrency

# Python imports this module at its start. From the first import of our entry point on, the process forks at every
# EVERY-th import of PACKAGES (of all, if there are none); the child interrupts itself there, and the parent notes how
# that ended and continues.
SITE = """
import json, os, signal, sys, tempfile

class Interrupt:
    started, counts, ends = False, {}, []

    def find_spec(self, name, path=None, target=None):
        if not self.started:
            self.started = name == "rekord.__main__"
            return
        package = name.partition(".")[0] if os.environ["PACKAGES"] else ""
        count = self.counts[package] = self.counts.get(package, -1) + 1
        if package not in os.environ["PACKAGES"].split(" ") or count % int(os.environ["EVERY"]):
            return
        if os.getpid() != self.process:
            return
        with tempfile.TemporaryFile() as messages:
            child = os.fork()
            if child == 0:
                os.dup2(messages.fileno(), 2)
                os.kill(os.getpid(), signal.SIGINT)
                return
            _, status = os.waitpid(child, 0)
            messages.seek(0)
            self.ends.append([name, os.waitstatus_to_exitcode(status), messages.read().decode()])
            with open(os.environ["ENDS"], "w") as file:
                json.dump(self.ends, file)

hook = Interrupt()
hook.process = os.getpid()
sys.meta_path.insert(0, hook)
"""

PROJECT = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
MODULE, FUNCTION = PROJECT["project"]["scripts"]["rekord"].split(":")
ENTRIES = {
    "module": [sys.executable, "-m", "rekord"],
    # What pip writes into the script `rekord`.
    "script": [sys.executable, "-c", f"import sys; from {MODULE} import {FUNCTION}; sys.exit({FUNCTION}())"],
}


def interrupted_everywhere(
    tmp_path: Path, command: list[str], *, every: int, packages: str = ""
) -> tuple[subprocess.CompletedProcess[str], dict[str, tuple[int, str]]]:
    """The whole run, and by the name of a module how the command ends that is interrupted as it imports it."""
    site, ends = tmp_path / "site", tmp_path / "ends.json"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    environment = {**os.environ, "PYTHONPATH": str(site), "ENDS": str(ends), "EVERY": str(every)}
    environment["PACKAGES"] = packages
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
    )
    assert ends.exists(), done.stderr
    return done, {name: (code, messages) for name, code, messages in json.loads(ends.read_text())}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_interrupt_at_any_import_of_the_start_is_one_word_and_130(entry: str, tmp_path: Path) -> None:
    done, ends = interrupted_everywhere(tmp_path, [*ENTRIES[entry], "--version"], every=17)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(ends) > 5
    assert {name: end for name, end in ends.items() if end != (130, "interrupted\n")} == {}


@pytest.mark.slow
def test_an_interrupt_at_any_import_of_a_verb_is_one_word_and_130(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frames([example_bytes({"label": [1]})]))
    command = [*ENTRIES["module"], "stats", "a.tfrecord"]
    done, ends = interrupted_everywhere(tmp_path, command, every=25, packages="numpy rekord")
    assert (done.returncode, done.stderr) == (0, "")
    assert {name.partition(".")[0] for name in ends} == {"numpy", "rekord"}
    assert {name: end for name, end in ends.items() if end != (130, "interrupted\n")} == {}


FRAGILE = """
import os, signal, sys
try:
    for _ in range(int(os.environ["TIMES"])):
        os.kill(os.getpid(), signal.SIGINT)
    print("loaded", flush=True)
except KeyboardInterrupt:
    raise ImportError("initialization failed") from None  # as many extension modules do
"""
PROGRAM = """
import sys
import rekord.cli.main
from rekord.__main__ import run

def verb():
    import fragile
    print("not interrupted")

rekord.cli.main.run_command_line = lambda leave: verb()
sys.exit(run())
"""


@pytest.mark.parametrize(("times", "printed"), [(1, "loaded\n"), (2, "")])
def test_an_interrupt_waits_for_the_import_that_is_under_way_and_a_second_one_does_not(
    times: int, printed: str, tmp_path: Path
) -> None:
    (tmp_path / "fragile.py").write_text(FRAGILE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TIMES": str(times)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, printed, "interrupted\n")


def test_an_interrupt_that_the_shell_ignores_stays_ignored(tmp_path: Path) -> None:
    """A shell without job control does so for what runs in the background."""
    program = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, {[*ENTRIES["module"], "--version"]!r})
"""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rekord ")
