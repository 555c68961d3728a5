"""Every code has a page, every page a code, and no page says what is not so."""

from __future__ import annotations

import ast
import errno
import io
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import commands, run_command_line
from rekord.codes import CODES
from rekord.storage.local import read_error, write_error
from rekord.testing import damage, wire

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in sorted((ROOT / "docs" / "errors").glob("*.md"))}
SECTIONS = ["## What it means", "## How it happens", "## What to do"]
CODE = re.compile(r"[SFWCEDXUH]\d{3}")

# A command: in an indented block, after a prompt, between backticks, or on the `do` line of a message.
COMMAND = re.compile(r"(?:^ {4,}|\$ |`| do {2,})rekord +(\S+)", re.MULTILINE)


def _text(code: str) -> str:
    if code not in PAGES:
        pytest.skip("has no page: the test of that says so")
    return PAGES[code].read_text(encoding="utf-8")


def _headings(text: str) -> list[str]:
    in_code = False
    found = []
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif line.startswith("#") and not in_code:
            found.append(line)
    return found


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_page(code):
    assert code in PAGES


@pytest.mark.parametrize("code", PAGES)
def test_a_page_has_a_registered_code(code):
    assert code in CODES


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_the_title_of_the_registry_and_three_sections_in_order(code):
    text = _text(code)
    assert _headings(text) == [f"# {code}: {CODES[code]}", *SECTIONS]
    assert text.startswith("# ")
    assert text.endswith("\n")


@pytest.mark.parametrize("code", CODES)
def test_no_section_of_a_page_is_empty(code):
    sections = re.split(r"^#.*$", _text(code), flags=re.MULTILINE)[2:]
    assert all(section.strip() for section in sections)


@pytest.mark.parametrize("code", CODES)
def test_a_page_names_only_codes_that_are_registered(code):
    assert set(re.findall(rf"\b{CODE.pattern}\b", _text(code))) <= set(CODES)


def _verbs(*, hidden: bool) -> set[str]:
    return {name for name, command in commands().commands.items() if hidden or not command.hidden}


@pytest.mark.parametrize("code", CODES)
def test_a_page_names_only_verbs_that_the_command_line_has(code):
    named = {word.strip("`") for word in COMMAND.findall(_text(code)) if not word.startswith("-")}
    assert named <= _verbs(hidden=code == "U604")  # "not available yet": what hidden verbs answer


def test_every_code_in_the_source_is_registered():
    used: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src" / "rekord").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                used.setdefault(node.value, set()).add(path.name)
    assert used, "the search itself must find something"
    assert {code: files for code, files in used.items() if code not in CODES} == {}


# Codes of usage whose title is a first line as it stands; the others cover several cases.
SPECIFIC = {"U605", "U618", "U621", "U680", "U682"}


def test_an_error_of_usage_says_which_case_it_is():
    silent = set()
    for path in sorted((ROOT / "src" / "rekord").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "error" and len(node.args) == 1:
                silent.add(ast.unparse(node.args[0]).strip("'"))
    assert {code for code in silent if CODE.fullmatch(code) and code[0] == "U"} <= SPECIFIC


def test_codes_of_usage_are_few():
    """A code is something to look up, not a place in the source."""
    assert len([code for code in CODES if code[0] == "U"]) <= 25


# What the examples on the pages are made of: a file of a hundred records, each time with one thing wrong.

PAYLOADS = [wire.example_bytes({"label": [i], "name": [b"row %d" % i], "score": [i / 2]}) for i in range(100)]
GOOD = damage.frames(PAYLOADS)
RIEGELI = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000")


def _gzip(data: bytes) -> bytes:
    """A gzip file of stored blocks, made by hand: what zlib writes differs from version to version."""
    blocks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    headers = [struct.pack("<BHH", block is blocks[-1], len(block), len(block) ^ 0xFFFF) for block in blocks]
    body = b"".join(header + block for header, block in zip(headers, blocks, strict=True))
    trailer = struct.pack("<II", zlib.crc32(data), len(data))
    return bytes.fromhex("1f8b08000000000000ff") + body + trailer


GZIPPED = _gzip(GOOD)
SECOND_BLOCK = 10 + 5 + 4096


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("train.tfrecord", GOOD)
    return file.getvalue()


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("train.tfrecord")
        member.size = len(GOOD)
        archive.addfile(member, io.BytesIO(GOOD))
    return file.getvalue()


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)

UNREADABLE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "F101": ("train.tfrecord", lambda: damage.corrupt_length(GOOD, 40)),
    "F102": ("train.tfrecord", lambda: damage.corrupt_payload(GOOD, 40)),
    "F103": ("train.tfrecord", lambda: GOOD + bytes(5)),
    "F104": ("train.tfrecord", lambda: GOOD[:-20]),
    "F105": ("suspect.tfrecord", lambda: GOOD + damage.claim_length(1 << 40, b"abc")),
    "F110": ("train.tfrecord", lambda: LFS_POINTER),
    "F111": ("train.tfrecord", lambda: b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"),
    "F112": ("train.tfrecord", lambda: b"PAR1" + bytes(100) + b"PAR1"),
    "F113": ("archive.zip", _zip),
    "F114": ("archive.tar", _tar),
    "F115": ("train.array_record", lambda: RIEGELI + bytes(64) + bytes.fromhex("10dec0ebfe84cec3c971")),
    "F116": ("train.riegeli", lambda: RIEGELI + bytes(64)),
    "F117": ("train.tfrecord", lambda: b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(64)),
    "F118": ("train.tfrecord", lambda: b'{"label": 1}\n{"label": 2}\n'),
    "F119": ("train.tfrecord", lambda: b"\x93NUMPY\x01\0" + bytes(64)),
    "F120": ("train.tfrecord", lambda: bytes((i * 37 + 11) % 256 for i in range(400))),
    "C201": ("train.tfrecord.gz", lambda: _flipped(GZIPPED, SECOND_BLOCK + 1)),
    "C202": ("train.tfrecord.gz", lambda: GZIPPED[:SECOND_BLOCK]),
    "C203": ("train.tfrecord.gz", lambda: GZIPPED + b"hello world"),
    "C204": ("train.tfrecord.gz", lambda: _flipped(GZIPPED, len(GZIPPED) - 8)),
    "C205": ("train.tfrecord.zst", lambda: b"\x28\xb5\x2f\xfd" + bytes(64)),
}


def _ints(values: list[int], chunks: list[int] | None = None) -> bytes:
    return wire.feature(("int64", wire.int64_list(values, chunks=chunks)))


def _record(*entries: bytes) -> bytes:
    return wire.example(wire.features(entries))


def _nested(levels: int) -> bytes:
    body = b""
    for _ in range(levels):
        body = wire.group(9, body)
    return body


REFUSED: dict[str, bytes] = {
    "W201": _record(wire.entry("label", wire.feature(("int64", wire.length_delimited(1, b"\x05\xff\xff"))))),
    "W202": PAYLOADS[3][:-3],
    "W203": PAYLOADS[3] + bytes(8),
    "W204": PAYLOADS[3] + wire.tag(9, wire.SGROUP),
    "W205": _record(wire.entry("étiquette".encode("latin-1"), _ints([3]))),
    "W206": _record(wire.entry("score", wire.feature(("float", wire.length_delimited(1, bytes(6)))))),
    "W207": PAYLOADS[3] + _nested(101),
}


def _event(wall_time: float, step: int) -> bytes:
    return wire.tag(1, wire.I64) + struct.pack("<d", wall_time) + wire.tag(2, wire.VARINT) + wire.varint(step)


def _beside(payload: bytes) -> bytes:
    """A file of six Examples, the fourth of which is `payload`."""
    return damage.frames([*PAYLOADS[:3], payload, *PAYLOADS[3:5]])


RANKING = wire.length_delimited(1, PAYLOADS[0]) + wire.length_delimited(2, PAYLOADS[1])
TWO_KINDS = wire.feature(("int64", wire.int64_list([1])), ("float", wire.float_list([0.5])))

REPORTED: dict[str, tuple[str, bytes]] = {
    "H701": ("train.tfrecord.gz", GOOD),
    "H702": ("train.tfrecord", GZIPPED),
    "H703": ("train.tfrecord", b""),
    "H711": ("ranking.tfrecord", damage.frames([RANKING] * 3)),
    "H712": ("events.out.tfevents.1", damage.frames(_event(1.5, step) for step in range(3))),
    "H713": ("corpus.tfrecord", damage.frames([b"a line of text", b"and another"])),
    "H714": ("frames.tfrecord", damage.frames([b"\x08\x05\x12\x03abc\x1d\0\0\0\0"] * 3)),
    "H715": ("train.tfrecord", damage.frames([b"\xff\xd8\xff\xe0"] * 3)),
    "H716": ("train.tfrecord", _beside(_event(1.5, 3))),
    "H721": ("train.tfrecord", _beside(_record(wire.entry("label", _ints([1, 2, 3], chunks=[2, 1]))))),
    "H722": ("train.tfrecord", _beside(_record(wire.entry("label", TWO_KINDS)))),
    "H723": ("train.tfrecord", _beside(_record(wire.entry("label", None)))),
    "H724": (
        "train.tfrecord",
        _beside(_record(wire.entry("label", _ints([1])), wire.entry("label", _ints([2])))),
    ),
    "H725": (
        "train.tfrecord",
        _beside(_record(wire.entry("label", wire.unknown(9, wire.VARINT) + _ints([2])))),
    ),
}


def _example(code: str) -> str:
    """The message that a page shows: its first fenced block."""
    found = re.search(r"^```text\n(.*?)^```$", _text(code), re.MULTILINE | re.DOTALL)
    assert found, "no example"
    return found[1].rstrip("\n")


def _raised(call: Callable[[], object]) -> str:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value.message


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, so that messages name files as the pages do."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("code", UNREADABLE)
def test_the_example_of_a_file_that_cannot_be_read_is_what_is_said(code, here):
    name, content = UNREADABLE[code]
    (here / name).write_bytes(content())
    assert _raised(lambda: list(rk.records(name))) == _example(code)


@pytest.mark.parametrize("code", REFUSED)
def test_the_example_of_a_payload_that_is_refused_is_what_is_said(code):
    assert _raised(lambda: rk.decode(REFUSED[code])) == _example(code)


@pytest.mark.parametrize("code", REPORTED)
def test_the_example_of_a_finding_is_what_check_prints(code, here, capsys):
    name, content = REPORTED[code]
    (here / name).write_bytes(content)
    _assert_transcript(code, capsys)


@pytest.mark.parametrize("code", ["U601", "U603", "U604", "U606"])
def test_the_example_of_wrong_usage_is_what_the_command_line_says(code, here, capsys):
    (here / "train.tfrecord").write_bytes(GOOD)
    _assert_transcript(code, capsys)


def _assert_transcript(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command runs, and says the lines that the page shows (and perhaps more, such as how long it took)."""
    command, *shown = _example(code).splitlines()
    prompt, verb, *arguments = command.split()
    assert (prompt, verb) == ("$", "rekord")
    run_command_line(arguments)
    printed = "".join(capsys.readouterr()).splitlines()
    assert any(code in line for line in shown)
    assert [line for line in shown if line not in printed] == []


def test_the_examples_about_files_and_folders_are_what_is_said(here):
    (here / "data").mkdir()
    (here / "data" / "train.csv").write_bytes(b"label\n1\n")
    (here / "train.tfrecord").write_bytes(GOOD)
    assert _raised(lambda: rk.check("trian.tfrecord")) == _example("X501")
    assert _raised(lambda: rk.check("data")) == _example("X502")
    denied = read_error("train.tfrecord", OSError(errno.EACCES, os.strerror(errno.EACCES)))
    assert denied.message == _example("X503")
    full = write_error("train.tfrecord", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), left_bytes=524_288)
    assert full.message == _example("X504")


def test_the_example_of_a_wrong_argument_is_what_is_said():
    assert _raised(lambda: rk.decode(PAYLOADS[0], kind="sequnce")) == _example("U605")
