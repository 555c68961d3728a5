"""The README runs: its Python, and its command lines with what they print."""

from __future__ import annotations

import re
import shlex
import struct
import zlib
from pathlib import Path
from random import Random

import pytest
import typer

from rekord.cli.main import app, run_command_line
from rekord.testing import damage, wire

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# How long something took, as `1 ms`, `1.1 s` or `2 min 5 s`.
DURATION = re.compile(r"\b(?:less than )?(?:\d+ min )?\d+(?:\.\d+)? m?s\b")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def _commands(transcript: str) -> list[tuple[str, str]]:
    """Each command of a transcript, with what it prints."""
    pieces = re.split(r"^\$ (.*)\n", transcript, flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


TRANSCRIPTS = [_commands(block) for block in _blocks("console")]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The files that the README speaks of."""
    rows = [{"label": [i], "name": [b"row %d" % i], "score": [i / 2]} for i in range(100)]
    intact = damage.frames(wire.example_bytes(row) for row in rows)
    (tmp_path / "train.tfrecord").write_bytes(intact)
    (tmp_path / "damaged.tfrecord").write_bytes(damage.corrupt_payload(intact, 40))
    for kind in ("daisy", "rose"):
        (tmp_path / "flowers" / kind).mkdir(parents=True)
        for i in range(50):
            (tmp_path / "flowers" / kind / f"{i:02d}.png").write_bytes(_image(f"{kind} {i}"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _image(text: str) -> bytes:
    """A PNG of 16 × 16 pixels. Its data is not compressed: what zlib makes of it differs from version to version."""
    pixels = Random(text).randbytes(16 * 16 * 3)
    lines = b"".join(b"\0" + pixels[at : at + 48] for at in range(0, len(pixels), 48))
    stored = struct.pack("<BHH", 1, len(lines), len(lines) ^ 0xFFFF) + lines
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(lines))
    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def test_the_readme_has_python_and_a_transcript():
    assert _blocks("python")
    assert all(TRANSCRIPTS)


@pytest.mark.parametrize("code", _blocks("python"))
def test_the_python_of_the_readme_runs_and_prints_what_its_comments_say(code, data, capsys):
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    # A bar stands for the end of a line that the comment has no room for.
    promised = [line.strip() for said in re.findall(r"# prints: (.*)", code) for line in said.split("|")]
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == promised


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=[each[0][0] for each in TRANSCRIPTS])
def test_the_commands_of_the_readme_print_what_is_shown(transcript, data, capsys):
    for command, shown in transcript:
        program, *arguments = shlex.split(command)
        assert program == "rekord"
        run_command_line(arguments)
        printed = capsys.readouterr()
        # On a terminal the two streams are one: what is said while a person waits comes before the result, or after.
        orders = [DURATION.sub("TIME", one) for one in (printed.out + printed.err, printed.err + printed.out)]
        assert DURATION.sub("TIME", shown).strip() in [one.strip() for one in orders]


def test_tensorflow_says_of_the_damaged_file_what_the_readme_says_it_does(data):
    import tensorflow as tf

    (quoted,) = re.findall(r"For the file in the terminal above,\s+TensorFlow\s+only\s+reports `([^`]*)`", README)
    rows = [{"label": [i % 5], "name": [b"row %d" % i]} for i in range(1000)]  # as on docs/index.md
    intact = damage.frames(map(wire.example_bytes, rows))
    (data / "train.tfrecord").write_bytes(damage.corrupt_payload(intact, 421))
    with pytest.raises(tf.errors.DataLossError, match=quoted):
        list(tf.data.TFRecordDataset("train.tfrecord"))


def test_the_verbs_that_the_readme_lists_exist():
    (listed,) = re.findall(r"Verbs: (.*?)\.\n", README, re.DOTALL)
    verbs = typer.main.get_command(app).commands
    named = set(re.findall(r"`(\w+)`", listed))
    assert named == {name for name, verb in verbs.items() if not verb.hidden}


def test_the_files_that_the_readme_links_to_exist():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 100
    (example,) = _blocks("python")
    assert len([line for line in example.splitlines() if line]) <= 10
