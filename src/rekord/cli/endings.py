"""How a verb that makes something ends where the data is bad, or somebody interrupts it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import typer

from rekord.cli import out as output
from rekord.cli.render import failure_lines
from rekord.errors import DataError, FormatError, RekordError

_ABOUT_RECORDS = ("X510", "X552", "X565")
"""What can be wrong with the records of a dataset that another one is made of, beside damage."""

_KEPT = "nothing was published; what is done is kept for the next run"


def is_about_records(failure: RekordError, codes: Collection[str] = _ABOUT_RECORDS) -> bool:
    """Whether the data is what went wrong, and not the command or the disk."""
    if isinstance(failure, DataError) or failure.code in codes:
        return True
    return isinstance(failure, FormatError) and failure.location.record is not None


@contextmanager
def bad_data_said(codes: Collection[str], *, as_json: bool, left: str) -> Iterator[None]:
    """End with exit code 1 where the data is bad; `left` says what came of it."""
    try:
        yield
    except RekordError as failure:
        if not is_about_records(failure, codes):
            raise
        for line in failure_lines(failure):
            output.tell(*line)
        output.tell(left)
        if as_json:
            output.say_json({"error": failure.to_dict()})
        raise typer.Exit(1) from None


@contextmanager
def resumable(codes: Collection[str] = _ABOUT_RECORDS, *, as_json: bool, left: str = _KEPT) -> Iterator[None]:
    """The same for what the next run goes on with, which may be interrupted at any time."""
    try:
        with bad_data_said(codes, as_json=as_json, left=left):
            yield
    except KeyboardInterrupt:
        output.tell("interrupted: run the same command again to continue")
        raise typer.Exit(130) from None
