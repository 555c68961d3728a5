"""The README runs: its Python, and its command lines with what they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run
from rekord.testing import damage, wire

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

# How long something took, as `1 ms`, `1.1 s` or `2 min 5 s`.
DURATION = re.compile(r"\b(?:less than )?(?:\d+ min )?\d+(?:\.\d+)? m?s\b")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def _commands(transcript: str) -> list[tuple[str, str]]:
    """Each command of a transcript, with what it prints."""
    pieces = re.split(r"^\$ (.*)\n", transcript, flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


TRANSCRIPT = [command for block in _blocks("console") for command in _commands(block)]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The files that the README speaks of."""
    rows = [{"label": [i], "name": [b"row %d" % i], "score": [i / 2]} for i in range(100)]
    intact = damage.frames(wire.example_bytes(row) for row in rows)
    (tmp_path / "train.tfrecord").write_bytes(intact)
    (tmp_path / "damaged.tfrecord").write_bytes(damage.corrupt_payload(intact, 40))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_has_python_and_a_transcript():
    assert _blocks("python")
    assert TRANSCRIPT


@pytest.mark.parametrize("code", _blocks("python"))
def test_the_python_of_the_readme_runs_and_prints_what_its_comments_say(code, data, capsys):
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    # A bar stands for the end of a line that the comment has no room for.
    promised = [line.strip() for said in re.findall(r"# prints: (.*)", code) for line in said.split("|")]
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == promised


@pytest.mark.parametrize(("command", "shown"), TRANSCRIPT, ids=[command for command, _ in TRANSCRIPT])
def test_a_command_of_the_readme_prints_what_is_shown(command, shown, data, capsys):
    program, *arguments = shlex.split(command)
    assert program == "rekord"
    run(arguments)
    printed = capsys.readouterr()
    assert DURATION.sub("TIME", printed.out + printed.err).strip() == DURATION.sub("TIME", shown).strip()


def test_the_error_that_the_readme_shows_is_the_one_that_is_raised(data):
    (shown,) = _blocks("text")
    with pytest.raises(rk.FrameError) as caught:
        list(rk.records("damaged.tfrecord"))
    assert (caught.value.code, caught.value.location.record) == ("F102", 40)
    assert caught.value.message == shown.rstrip()


def test_the_files_that_the_readme_links_to_exist():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (Path(__file__).parents[2] / link).exists()] == []
