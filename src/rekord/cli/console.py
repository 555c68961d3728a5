"""The terminal: results to stdout, messages to stderr, colour and progress only where a person watches."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias, TypeVar

from rekord.errors import RekordError, UsageError, error
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from rekord.health.finding import Report


T = TypeVar("T")


class OutputError(OSError):
    """Standard output cannot be written."""


def print_line(*pieces: StyledText) -> None:
    """One line of the result."""
    if sys.stdout is None:
        raise OutputError(errno.EBADF, "standard output is closed")
    with _wrap_stdout_errors():
        _write_line(sys.stdout, pieces)


def print_lines(lines: Iterable[Iterable[StyledText]]) -> None:
    """Some lines of the result."""
    for line in lines:
        print_line(*line)


def print_json(document: dict[str, Any]) -> None:
    """The result as one JSON document. Only ASCII goes out: no terminal and no locale can misread it."""
    print_line(json.dumps(document, allow_nan=False, separators=(", ", ": ")))


def print_status(*pieces: StyledText) -> None:
    """One line for the person who waits. One that cannot be delivered is no failure."""
    if sys.stderr is not None:
        with suppress(OSError):
            _write_line(sys.stderr, pieces)


def print_error(failure: RekordError, *, as_json: bool) -> None:
    """An error for the person who waits, and as a document where one was asked for."""
    for line in format_error_lines(failure):
        print_status(*line)
    if as_json:
        print_json({"error": failure.to_dict()})


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches this stream."""
    return stream is not None and stream.isatty()


@lru_cache(maxsize=4)
def get_console(stream: TextIO) -> Console:
    """The terminal behind a stream."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def configure_streams() -> None:
    """Let no character that a locale lacks stop a message."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush_stdout() -> None:
    """Bring out what is still in a buffer, so that a full disk is noticed while it can be said."""
    if sys.stdout is not None:
        with _wrap_stdout_errors():
            sys.stdout.flush()


def discard_stdout() -> None:
    """Give up on stdout: what is still in its buffer goes nowhere, and Python does not try again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def _wrap_stdout_errors() -> Iterator[None]:
    """Tell a failure of stdout from those of files. A closed pipe is no failure."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise OutputError(failure.errno, failure.strerror or str(failure)) from None


def _write_line(stream: TextIO, pieces: tuple[StyledText, ...]) -> None:
    if is_terminal(stream):
        from rich.text import Text

        get_console(stream).print(Text.assemble(*pieces), soft_wrap=True)
    else:
        stream.write("".join(piece if isinstance(piece, str) else piece[0] for piece in pieces) + "\n")


StyledText: TypeAlias = "str | tuple[str, str]"
"""Some text, or (text, style): the style is left out where the output is no terminal."""

MAX_SHOWN_CHARACTERS = 60

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    """Text from outside as it may go to a terminal: whatever could steer the terminal is spelled out.

    That is every character that is not printable: control characters and escape sequences, marks that turn
    the direction of writing, line separators, halves of a broken file name.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape_character(letter) for letter in text)


def truncate(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """The beginning of a text, with `…` where something is left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote_text(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """A text between quotes, cut, with nothing in it that could be taken for something else."""
    parts: list[str] = []
    length = 0
    for letter in text:
        shown = f"\\{letter}" if letter in '"\\' else letter if letter.isprintable() else _escape_character(letter)
        length += len(shown)
        if length > limit:
            return f'"{"".join(parts)}…"'
        parts.append(shown)
    return f'"{"".join(parts)}"'


def _escape_character(letter: str) -> str:
    number = ord(letter)
    if 0xDC80 <= number <= 0xDCFF:  # how Python keeps a byte of a file name that is not UTF-8
        number -= 0xDC00
    elif number > 0xFF:
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    return _SHORT_ESCAPES.get(letter, f"\\x{number:02x}")


class InvalidOption(Exception):
    """Carries a `UsageError` through typer, which would put its own words in place of any `ValueError`."""

    def __init__(self, failure: UsageError) -> None:
        super().__init__(failure)
        self.failure = failure


def option_parser(parse: Callable[[object], T]) -> Callable[[object], T]:
    """`parse` as typer takes it: whatever it refuses reaches `Command.parse_args` as it was raised."""

    def parsed(text: object) -> T:
        try:
            return parse(text)
        except UsageError as failure:
            raise InvalidOption(failure) from None

    return parsed


def parse_whole_number(text: object, option: str, do: str | None = None) -> int:
    """The value of an option that takes an integer ≥ 0. Without `do` the verb's help is named."""
    written = str(text)
    # Python refuses to read numbers of thousands of digits.
    if written.isascii() and written.isdigit() and len(written) < 1000:
        return int(written)
    raise invalid_option(option, written, "a whole number, 0 or more", do)


def make_integer_parser(option: str, *, do: str | None = None) -> Callable[[object], int]:
    """What typer reads the value of such an option with."""
    return option_parser(partial(parse_whole_number, option=option, do=do))


def invalid_option(
    option: str, text: str, expected: str, do: str | None, *, found: str | None = None, code: str = "U605"
) -> RekordError:
    """The error for an option that cannot have this value, with its text as it may stand in a terminal."""
    shown = truncate(escape_controls(text if found is None else found)) or "nothing"
    return error(
        code,
        f"`{option}` cannot be {truncate(escape_controls(repr(text)))}",
        expected=expected,
        found=shown,
        do=do,
    )


def format_error_lines(failure: RekordError) -> list[list[StyledText]]:
    """An error as it is shown: the first line stands alone, the rest is what is known."""
    head: StyledText = (f"{failure.family} {failure.code}:", "bold red")
    lines: list[list[StyledText]] = [[head, f" {escape_controls(failure.what)}"]]
    lines += format_detail_lines(
        ("where", str(failure.location)),
        ("expected", failure.expected),
        ("found", failure.found),
        ("likely", failure.likely),
        ("do", failure.do),
    )
    return lines


def format_detail_lines(*details: tuple[str, str | None], indent: int = 2) -> list[list[StyledText]]:
    """What stands indented below a first line: a label and a text for each that there is."""
    return [[" " * indent, (f"{label:<9}", "dim"), f" {escape_controls(text)}"] for label, text in details if text]


def shorten_paths(folder: str, paths: Iterable[str]) -> dict[str, str]:
    """Each path as it is shown: without the folder, where that is one and all of them lie below it."""
    given = list(paths)
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    if os.path.isdir(folder) and all(path.startswith(prefix) for path in given):
        return {path: escape_controls(path[len(prefix) :].lstrip(os.sep)) for path in given}
    return {path: escape_controls(path) for path in given}


class LiveLine:
    """A line on stderr that says how far something is, where a person watches. A subclass gives its `_text`."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if is_terminal(sys.stderr):
            from rich.live import Live

            # Rich would send what is printed meanwhile to stderr; `suspended` keeps the streams apart.
            self._live = Live(
                console=get_console(sys.stderr),
                get_renderable=self._render,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Take the line away while something else is printed."""
        if self._live is not None:
            self._live.stop()
        yield
        if self._live is not None:
            self._live.start()

    def _text(self) -> str:
        raise NotImplementedError

    def _render(self) -> Text:
        from rich.text import Text

        return Text(self._text(), style="dim", no_wrap=True, overflow="ellipsis")


class CheckProgress(LiveLine):
    """How far a check is. It only reads the report, which the check is filling."""

    def __init__(self, report: Report, *, files: int) -> None:
        super().__init__()
        self._report = report
        self._files = files

    def _text(self) -> str:
        report = self._report
        parts = [
            f"file {report.files:,} of {self._files:,}",
            format_count(report.records, "record"),
            format_byte_size(report.payload_bytes),
            format_duration(time.monotonic() - self._began),
        ]
        return " · ".join(parts)


_LOG_LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
# What goes wrong is raised as an exception too; as an error it also logs which of its ways to add numbers it takes.
_ONLY_FATAL = "3"
# Notes and warnings in the two forms of TensorFlow's log, and the lines that come with them. Of its own variable
# TensorFlow takes no notice before its log is set up, so that nothing but the stream is left to hold on to.
_LOG_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} \d\d:\d\d:[\d.]+ .*\]"
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] |To enable the following instructions: "
)


@contextmanager
def suppress_tensorflow_log() -> Iterator[None]:
    """In this block notes in TensorFlow's log do not reach stderr, unless the user has said what is to be logged."""
    if _LOG_LEVEL_VARIABLE in os.environ or not _is_process_stderr(2):
        yield
        return
    os.environ[_LOG_LEVEL_VARIABLE] = _ONLY_FATAL
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            said.seek(0)
            for line in said:
                if not _LOG_NOISE.match(line):
                    os.write(2, line)


def _is_process_stderr(number: int) -> bool:
    """Whether Python's stderr is the process's own, so that both can be held at once."""
    try:
        return sys.stderr is not None and sys.stderr.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False
