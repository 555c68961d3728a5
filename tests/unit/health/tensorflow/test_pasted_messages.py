"""Messages as people paste them: with tracebacks, logs, quotation marks and wrapped lines around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekord.cli.main import run_command_line
from rekord.health.tensorflow.known_messages import explain_message

PASTED = [
    (*section.split("\n", 1)[0].split(": ", 1), section.split("\n", 1)[1])
    for section in Path(__file__).with_name("pasted_messages.txt").read_text(encoding="utf-8").split("===== ")[1:]
]


def wrap(text: str, width: int) -> str:
    """The text as a narrow terminal wraps it: anywhere, also inside words."""
    return "\n".join(line[at : at + width] for line in text.splitlines() for at in range(0, max(len(line), 1), width))


def test_there_are_more_than_twenty_messages() -> None:
    assert len(PASTED) >= 20


@pytest.mark.parametrize(("code", "title", "text"), PASTED)
def test_a_pasted_message_is_explained(code: str, title: str, text: str) -> None:
    for form in (
        text,
        text.strip(),
        f"Hi,\nwhat does this mean?\n```\n{text}```\nThanks!",
        text.replace("\n", "\r\n"),
    ):
        explanation = explain_message(form)
        assert explanation is not None
        assert (explanation.code, title in explanation.title) == (code, True), explanation.title
        assert any("rekord " in line for line in explanation.do) or code == "D406"


@pytest.mark.parametrize("width", [80, 132])
@pytest.mark.parametrize(("code", "title", "text"), PASTED)
def test_a_message_that_a_terminal_wrapped_is_explained(code: str, title: str, text: str, width: int) -> None:
    explanation = explain_message(wrap(text, width))
    assert explanation is not None
    assert explanation.code == code


def test_the_command_explains_each_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    for code, title, text in PASTED:
        assert run_command_line(["explain", text]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert title in lines[0]
        assert [line.split()[0] for line in lines[1:]][:2] == ["says", "happens"]
        assert lines[-1].startswith(f"  code      rekord explain {code} ")
