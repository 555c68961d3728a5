"""Where output goes: results to stdout, messages to stderr, colour only to a terminal."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from rekord.cli.render import Piece


class OutputError(OSError):
    """Standard output cannot be written."""


def say(*pieces: Piece) -> None:
    """One line of the result."""
    if sys.stdout is None:
        raise OutputError(errno.EBADF, "standard output is closed")
    with _to_stdout():
        _write(sys.stdout, pieces)


def say_json(document: dict[str, Any]) -> None:
    """The result as one JSON document. Only ASCII goes out: no terminal and no locale can misread it."""
    say(json.dumps(document, allow_nan=False, separators=(", ", ": ")))


def tell(*pieces: Piece) -> None:
    """One line for the person who waits. One that cannot be delivered is no failure."""
    if sys.stderr is not None:
        with suppress(OSError):
            _write(sys.stderr, pieces)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches this stream."""
    return stream is not None and stream.isatty()


@lru_cache(maxsize=4)
def console(stream: TextIO) -> Console:
    """The terminal behind a stream."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def prepare() -> None:
    """Let no character that a locale lacks stop a message."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush() -> None:
    """Bring out what is still in a buffer, so that a full disk is noticed while it can be said."""
    if sys.stdout is not None:
        with _to_stdout():
            sys.stdout.flush()


def abandon() -> None:
    """Give up on stdout: what is still in its buffer goes nowhere, and Python does not try again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def _to_stdout() -> Iterator[None]:
    """Tell a failure of stdout from those of files. A closed pipe is no failure."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise OutputError(failure.errno, failure.strerror or str(failure)) from None


def _write(stream: TextIO, pieces: tuple[Piece, ...]) -> None:
    if is_terminal(stream):
        from rich.text import Text

        console(stream).print(Text.assemble(*pieces), soft_wrap=True)
    else:
        stream.write("".join(piece if isinstance(piece, str) else piece[0] for piece in pieces) + "\n")
