"""`rekord explain`."""

from __future__ import annotations

import io
import json

import pytest
from pages import messages

from rekord.cli.main import run_command_line
from rekord.codes import CODES
from rekord.errors import UsageError
from rekord.schema.interop.spec_file import load_spec


@pytest.mark.parametrize("written", ["F102", "f102", " f102 "])
def test_the_page_of_a_code_is_printed_whatever_its_case(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain", written]) == 0
    text = capsys.readouterr().out
    assert "F102" in text.splitlines()[0]
    assert len(text.splitlines()) > 5


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("F1O2", "do        rekord explain F102"),
        ("F10", "do        rekord explain F101"),
        ("F1021", "likely    a typo of F101 or F102"),
        ("102", "likely    a typo of S102 or F102"),
        ("Q1", "do        rekord explain"),
        ("", "do        rekord explain"),
        ("x\x1b[31m", "do        rekord explain"),
    ],
)
def test_an_unknown_code_suggests_the_nearest(written: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain", written]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("UsageError U603: ")
    assert hint in printed.err
    assert "\x1b" not in printed.err


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{code}  {title}" for code, title in CODES.items()]


MESSAGE = "Key: label.  Data types don't match. Data type: string but expected type: float"


def test_a_message_of_tensorflow_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain", MESSAGE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "`label` is stored as string but read as float"
    assert lines[1].startswith("  says      The record stores `label` as bytes_list")
    assert lines[2].startswith("  happens   ")
    assert any(line.startswith("  do        ") and "rekord doctor PATH --spec" in line for line in lines)
    assert lines[-1].startswith("  code      rekord explain D403 ")


def test_a_message_may_be_given_without_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain", *MESSAGE.split()]) == 0
    assert capsys.readouterr().out.startswith("`label` is stored as string")


def test_a_log_may_be_piped_in(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = ("step 1: loss 0.5\n" * 200_000 + f"InvalidArgumentError: {MESSAGE}\n\xff").encode("latin-1")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log)))
    assert run_command_line(["explain", "-"]) == 0
    assert capsys.readouterr().out.startswith("`label` is stored as string")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"f102\n")))
    assert run_command_line(["explain", "-"]) == 0
    assert capsys.readouterr().out.startswith("# F102: ")
    monkeypatch.setattr("sys.stdin", None)
    assert run_command_line(["explain", "-"]) == 2
    assert capsys.readouterr().err.startswith("UsageError U603: ")


def test_a_message_of_our_own_leads_to_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain", "FrameError F102: payload checksum does not match"]) == 0
    assert capsys.readouterr().out.startswith("# F102: ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("InvalidArgumentError: something else", "the error class InvalidArgumentError"),
        ("some words \x1b[31m", "some words \\x1b[31m"),
        ("word " * 50, "word word"),
    ],
)
def test_a_message_that_is_not_known_says_what_was_understood(
    text: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["explain", text]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("UsageError U603: unknown message\n")
    assert f"  found     {found}" in printed.err
    assert "  do        " in printed.err
    assert "\x1b" not in printed.err
    assert max(map(len, printed.err.splitlines())) < 140


def test_json_holds_code_title_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["explain", "--json", MESSAGE]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["code"] == "D403"
    assert document["title"] == "`label` is stored as string but read as float"
    assert document["text"].startswith("says: The record stores `label`")
    assert run_command_line(["explain", "f102", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["code"], document["title"]) == ("F102", CODES["F102"])
    assert document["text"].startswith("# F102: ")
    assert run_command_line(["explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"codes": [{"code": code, "title": title} for code, title in CODES.items()]}


def test_the_page_of_an_unknown_message_shows_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    shown = next(text for text in messages("U603") if "unknown message" in text).splitlines()
    prompt, verb, *arguments = shown[0].split()
    assert (prompt, verb) == ("$", "rekord")
    assert run_command_line(arguments) == 2
    assert capsys.readouterr().err.splitlines() == shown[1:]


def test_the_page_of_a_bad_argument_shows_what_is_said() -> None:
    with pytest.raises(UsageError) as caught:
        load_spec("reader.py:")
    assert caught.value.message in messages("U622")
