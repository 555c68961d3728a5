"""`rekord explain`: what a code means, and what to do about it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rekord.cli import out
from rekord.cli.render import clean, cut
from rekord.codes import CODES, page
from rekord.errors import RekordError, error

_MOST_SUGGESTED = 4


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]", show_default=False, help="Such as F102; without it, all are listed."
        ),
    ] = None,
) -> int:
    """Say what an error code means, how it comes about and what to do."""
    if code is None:
        for each, title in CODES.items():
            out.say((each, "bold"), f"  {title}")
        return 0
    known = code.strip().upper()
    if known not in CODES:
        raise _unknown(code.strip())
    text = page_of(known)
    if out.is_terminal(sys.stdout):
        from rich.markdown import Markdown

        out.console(sys.stdout).print(Markdown(text))
    else:
        out.say(text)
    return 0


def page_of(code: str) -> str:
    """The page about a code, without its last newline."""
    try:
        text = page(code)
    except FileNotFoundError:
        text = None
    return (
        text or f"# {code}: {CODES[code]}\n\nThere is no page about this code in this installation."
    ).rstrip()


def _unknown(code: str) -> RekordError:
    near = [each for each in CODES if _one_edit(code.upper(), each)][:_MOST_SUGGESTED]
    family = [each for each in CODES if each[0] == code[:1].upper()]
    expected = f"one from {family[0]} to {family[-1]}" if family and not near else None
    return error(
        "U603",
        f"there is no error code {cut(clean(repr(code)))}",
        expected=expected,
        likely=f"{' or '.join(near)} is meant" if near else None,
        do=f"rekord explain {near[0]}" if near else "rekord explain      (lists every code)",
    )


def _one_edit(a: str, b: str) -> bool:
    """Whether one slip of the hand makes `a` of `b`. Codes are so short that two would fit a hundred."""
    if abs(len(a) - len(b)) > 1:
        return False
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return b[same + 1 :] in (a[same:], a[same + 1 :]) or b[same:] == a[same + 1 :]
