"""`rekord explain`."""

from __future__ import annotations

import pytest

from rekord.cli.main import run
from rekord.codes import CODES


@pytest.mark.parametrize("written", ["F102", "f102", " f102 "])
def test_the_page_of_a_code_is_printed_whatever_its_case(
    written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", written]) == 0
    text = capsys.readouterr().out
    assert "F102" in text.splitlines()[0]
    assert len(text.splitlines()) > 5


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("F1O2", "do        rekord explain F102"),
        ("F10", "do        rekord explain F101"),
        ("F1021", "likely    F101 or F102 is meant"),
        ("102", "likely    S102 or F102 is meant"),
        ("Q1", "do        rekord explain"),
        ("", "do        rekord explain"),
        ("x\x1b[31m", "do        rekord explain"),
    ],
)
def test_an_unknown_code_suggests_the_nearest(
    written: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", written]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("UsageError U603: ")
    assert hint in printed.err
    assert "\x1b" not in printed.err


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{code}  {title}" for code, title in CODES.items()]
