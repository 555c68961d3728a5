"""`rekord explain`: what an error code or a message of TensorFlow means, and what to do."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

from rekord.cli import console
from rekord.cli.console import escape_controls, format_detail_lines, truncate
from rekord.cli.options import JsonOption, argument
from rekord.codes import CODES, page
from rekord.errors import RekordError, error

if TYPE_CHECKING:
    from rekord.health.tensorflow.message_patterns import Explanation

_MAX_SUGGESTIONS = 4
_MAX_CODE_CHARACTERS = 12
_MAX_LOG_BYTES = 1 << 20
_CODE = re.compile(r"\b[A-Z]\d{3}\b")
_ERROR_CLASS = re.compile(r"\b[A-Z]\w{2,40}(?:Error|Exception|Loss)\b")


def explain(
    words: Annotated[
        list[str] | None,
        argument(
            "[CODE | MESSAGE]",
            "Error code such as F102, an error message, or - to read a log from stdin. Default: list all codes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Explain an error code, or an error message of TensorFlow. What it means, how it happens, and what to do."""
    if not words:
        _list_codes(as_json=as_json)
        return 0
    text = _read_input() if words == ["-"] else " ".join(words).strip()
    if text.upper() in CODES:
        _print_page(text.upper(), as_json=as_json)
    elif not any(letter.isspace() for letter in text) and len(text) <= _MAX_CODE_CHARACTERS:
        raise _unknown_code_error(text)
    else:
        _explain_message(text, as_json=as_json)
    return 0


def _read_input() -> str:
    """The end of what is piped in, where the message is."""
    if sys.stdin is None:
        return ""
    text = ""
    while chunk := sys.stdin.buffer.read(_MAX_LOG_BYTES):
        text = (text + chunk.decode("utf-8", "replace"))[-_MAX_LOG_BYTES:]
    return text.strip()


def read_error_page(code: str) -> str:
    """The page about a code, without the newline at its end."""
    try:
        text = page(code)
    except FileNotFoundError:
        text = None
    return (text or f"# {code}: {CODES[code]}\n\nThis installation has no page about this code.").rstrip()


def _list_codes(*, as_json: bool) -> None:
    if as_json:
        console.print_json({"codes": [{"code": each, "title": title} for each, title in CODES.items()]})
        return
    for each, title in CODES.items():
        console.print_line((each, "bold"), f"  {title}")


def _print_page(code: str, *, as_json: bool) -> None:
    text = read_error_page(code)
    if as_json:
        console.print_json({"code": code, "title": CODES[code], "text": text})
    elif console.is_terminal(sys.stdout):
        from rich.markdown import Markdown

        console.get_console(sys.stdout).print(Markdown(text))
    else:
        console.print_line(text)


def _explain_message(text: str, *, as_json: bool) -> None:
    from rekord.health.tensorflow.known_messages import explain_message

    explanation = explain_message(text)
    if explanation is not None:
        _print_explanation(explanation, as_json=as_json)
        return
    # A message of rekord contains its code.
    code = next((each for each in _CODE.findall(text[-100_000:]) if each in CODES), None)
    if code is None:
        raise _unknown_message_error(text)
    _print_page(code, as_json=as_json)


def _print_explanation(explanation: Explanation, *, as_json: bool) -> None:
    details = [("says", explanation.says), ("happens", explanation.how)]
    details += [("do", line) for line in explanation.do]
    details += [("code", f"rekord explain {explanation.code}      ({CODES[explanation.code]})")]
    if as_json:
        text = "\n".join([f"{label}: {line}" for label, line in details])
        console.print_json({"code": explanation.code, "title": explanation.title, "text": text})
        return
    console.print_line((escape_controls(explanation.title), "bold"))
    console.print_lines(format_detail_lines(*details))


def _unknown_message_error(text: str) -> RekordError:
    named = _ERROR_CLASS.search(text[-100_000:])
    understood = f"the error class {named[0]}, and nothing else that rekord knows" if named else None
    return error(
        "U603",
        "unknown message",
        expected="a code, or a message of TensorFlow about records, such as `Key: label.  Data types don't match`",
        found=understood or truncate(escape_controls(text)),
        do="pass the whole line that starts with the name of the error, or check the data: rekord check PATH",
    )


def _unknown_code_error(code: str) -> RekordError:
    near = [each for each in CODES if _is_one_edit_apart(code.upper(), each)][:_MAX_SUGGESTIONS]
    family = [each for each in CODES if each[0] == code[:1].upper()]
    expected = f"a code from {family[0]} to {family[-1]}" if family and not near else None
    return error(
        "U603",
        f"unknown error code {truncate(escape_controls(repr(code)))}",
        expected=expected,
        likely=f"a typo of {' or '.join(near)}" if near else None,
        do=f"rekord explain {near[0]}" if near else "rekord explain      (lists every code)",
    )


def _is_one_edit_apart(a: str, b: str) -> bool:
    """Whether `a` and `b` differ by one edit. Codes are so short that two edits would match a hundred."""
    if abs(len(a) - len(b)) > 1:
        return False
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return b[same + 1 :] in (a[same:], a[same + 1 :]) or b[same:] == a[same + 1 :]
