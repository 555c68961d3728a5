"""The terminal: results to stdout, messages to stderr, colour and progress only on a terminal."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias, TypeVar

from rekord.cli.flag_hints import translate_error
from rekord.errors import RekordError, UsageError, error
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from rekord.health.finding import Report


T = TypeVar("T")

_MAX_SPOOLED_BYTES, _CHUNK_CHARACTERS = 16 << 20, 1 << 20


class OutputError(OSError):
    """Standard output cannot be written."""


@dataclass(slots=True)
class _OutputSettings:
    """What the running command prints; not per thread, since workers of a verb print too."""

    as_json: bool = False
    quiet: bool = False
    narrated: bool = False  # lines of the result go to stderr


_settings = _OutputSettings()


def reset_output(*, as_json: bool) -> None:
    """Start a command: nothing is quiet, and with `as_json` the result is one document."""
    global _settings
    _settings = _OutputSettings(as_json=as_json)


def set_quiet(quiet: bool) -> None:
    """Whether to print only errors and the result."""
    _settings.quiet = quiet


def is_json() -> bool:
    """Whether the result is one JSON document."""
    return _settings.as_json


def shows_progress() -> bool:
    """Whether to print progress and remarks."""
    return not _settings.quiet


@contextmanager
def narrate() -> Iterator[None]:
    """Print lines of the result to stderr, for a verb that runs others and then prints a JSON document."""
    _settings.narrated = True
    try:
        yield
    finally:
        _settings.narrated = False


def print_line(*pieces: StyledText) -> None:
    """One line of the result."""
    if _settings.narrated:
        print_status(*pieces)
        return
    stream = _get_stdout()
    with _wrap_stdout_errors():
        _write_line(stream, pieces)


def print_next(*pieces: StyledText) -> None:
    """A suggestion at the end of the result."""
    if not _settings.quiet:
        print_line(*pieces)


def print_escapes(text: str) -> None:
    """Escape sequences that draw an image. They are made from pixels; text of the data must never be part of them."""
    with _wrap_stdout_errors():
        _get_stdout().write(f"{text}\n")


def print_lines(lines: Iterable[Iterable[StyledText]]) -> None:
    """Several lines of the result."""
    for line in lines:
        print_line(*line)


def print_table(rows: Sequence[Sequence[str]], alignment: str, *, separators: Sequence[str] | None = None) -> None:
    """Rows of cells as indented lines of the result; see `align_columns`."""
    print_lines([[f"  {line}"] for line in align_columns(rows, alignment, separators=separators)])


def print_json(document: dict[str, Any]) -> None:
    """The result as one JSON document, in ASCII: no terminal and no locale can misread it."""
    print_line(json.dumps(document, allow_nan=False, separators=(", ", ": ")))


def print_document(pieces: Iterable[str]) -> None:
    """The result as one JSON document in pieces; nothing is printed unless all of them can be made."""
    with tempfile.SpooledTemporaryFile(max_size=_MAX_SPOOLED_BYTES, mode="w+", encoding="ascii") as spool:
        for piece in pieces:
            spool.write(piece)
        spool.seek(0)
        while chunk := spool.read(_CHUNK_CHARACTERS):
            with _wrap_stdout_errors():
                _get_stdout().write(chunk)
    print_line()


def print_status(*pieces: StyledText) -> None:
    """One line on stderr about the progress or a remark, unless the command is quiet."""
    if not _settings.quiet:
        print_message(*pieces)


def print_message(*pieces: StyledText) -> None:
    """One line on stderr that belongs to an error. Failing to write it is not an error."""
    if sys.stderr is not None:
        with suppress(OSError):
            _write_line(sys.stderr, pieces)


def print_error(failure: RekordError, *, as_json: bool) -> None:
    """An error as text on stderr, and as a JSON document on stdout with `as_json`."""
    shown = translate_error(failure)
    for line in format_error_lines(shown):
        print_message(*line)
    if as_json:
        print_json({"error": shown.to_dict()})


def print_interrupt(what: str, *, as_json: bool, do: str | None = None) -> None:
    """An interrupt on stderr, and as a JSON document on stdout with `as_json`; `do` is the command that resumes."""
    print_message(what if do is None else f"{what}: resume with")
    if do is not None:
        print_message(f"  {do}")
    if as_json:
        print_json({"error": {"error": "KeyboardInterrupt", "code": None, "what": what, "do": do}})


def is_terminal(stream: TextIO | None) -> bool:
    """Whether this stream is a terminal."""
    return stream is not None and stream.isatty()


@lru_cache(maxsize=4)
def get_console(stream: TextIO) -> Console:
    """The Rich console of a stream."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def configure_streams() -> None:
    """Escape characters that the encoding of a stream lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush_stdout() -> None:
    """Flush stdout, so that a full disk is noticed while it can still be reported."""
    if sys.stdout is not None:
        with _wrap_stdout_errors():
            sys.stdout.flush()


def discard_stdout() -> None:
    """Give up on stdout: its buffer is discarded, and Python does not try to flush it again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _get_stdout() -> TextIO:
    if sys.stdout is None:
        raise OutputError(errno.EBADF, "standard output is closed")
    return sys.stdout


@contextmanager
def _wrap_stdout_errors() -> Iterator[None]:
    """Turn errors of stdout into `OutputError`, to distinguish them from those of files. A closed pipe passes."""
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
"""A text, or (text, style); the style is ignored unless the output is a terminal."""

MAX_SHOWN_CHARACTERS = 60
SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
"""The style of each severity of findings and diagnoses, worst first."""

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    """Untrusted text with every character escaped that is not printable, so that it cannot control the terminal.

    These are control characters and escape sequences, marks of writing direction, line separators, and bytes of file
    names that are not UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape_character(letter) for letter in text)


def truncate(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """A text cut to `limit` characters, with `…` at the end if it was longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote_text(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """A text in quotes, escaped and cut to `limit` characters."""
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
    """Carries a `UsageError` through typer, which would replace the message of any `ValueError` by its own."""

    def __init__(self, failure: UsageError) -> None:
        super().__init__(failure)
        self.failure = failure


def option_parser(parse: Callable[[object], T]) -> Callable[[object], T]:
    """`parse` as typer takes it: its errors reach `VerbCommand.parse_args` as they were raised."""

    def parsed(text: object) -> T:
        try:
            return parse(text)
        except UsageError as failure:
            raise InvalidOption(failure) from None

    return parsed


def parse_integer(text: object, option: str, do: str | None = None) -> int:
    """The value of an option that takes an integer ≥ 0. Without `do` the error points to the help of the verb."""
    written = str(text)
    # Python refuses to read numbers of thousands of digits.
    if written.isascii() and written.isdigit() and len(written) < 1000:
        return int(written)
    raise invalid_option(option, written, "an integer ≥ 0", do)


def make_integer_parser(option: str, *, do: str | None = None) -> Callable[[object], int]:
    """`parse_integer` as typer takes it."""
    return option_parser(partial(parse_integer, option=option, do=do))


def invalid_option(
    option: str, text: str, expected: str, do: str | None, *, found: str | None = None, code: str = "U605"
) -> RekordError:
    """The error for an option that cannot have this value, whose text is escaped for a terminal."""
    shown = truncate(escape_controls(text if found is None else found)) or "an empty text"
    return error(
        code,
        f"`{option}` cannot be {truncate(escape_controls(repr(text)))}",
        expected=expected,
        found=shown,
        do=do,
    )


def format_error_lines(failure: RekordError) -> list[list[StyledText]]:
    """An error as lines: the message, then its details."""
    head: StyledText = (f"{failure.family} {failure.code}:", "bold red")
    lines: list[list[StyledText]] = [[head, f" {escape_controls(failure.what)}"]]
    lines += format_detail_lines(
        ("where", str(failure.location)),
        ("expected", failure.expected),
        ("found", failure.found),
        ("likely", failure.likely),
        *failure.remedies,
    )
    return lines + [[f"  {escape_controls(line)}"] for line in failure.notes]


def format_detail_lines(*details: tuple[str, str | None], indent: int = 2) -> list[list[StyledText]]:
    """Indented lines of a label and a text, without the details that have none."""
    return [[" " * indent, (f"{label:<9}", "dim"), f" {escape_controls(text)}"] for label, text in details if text]


def shorten_paths(folder: str, paths: Iterable[str]) -> dict[str, str]:
    """Each path as it is printed: relative to the folder, if that is one and all of them are below it."""
    given = list(paths)
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    if os.path.isdir(folder) and all(path.startswith(prefix) for path in given):
        return {path: escape_controls(path[len(prefix) :].lstrip(os.sep)) for path in given}
    return {path: escape_controls(path) for path in given}


def align_columns(
    rows: Sequence[Sequence[str]], alignment: str, *, separators: Sequence[str] | None = None
) -> list[str]:
    """Rows of cells as lines; `alignment` has `<` or `>` per column, `separators` the text between two columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    between = ["", *(separators or ["  "] * (len(alignment) - 1))]
    return [
        "".join(
            f"{gap}{cell:{side}{width}}"
            for gap, cell, side, width in zip(between, row, alignment, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


class LiveLine:
    """A progress line on stderr, if that is a terminal. A subclass has its `_text`."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if is_terminal(sys.stderr) and shows_progress():
            from rich.live import Live

            # Rich would redirect stdout to stderr while the line is shown; `suspended` keeps the streams apart.
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
        """Hide the line while something else is printed."""
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
    """The progress of a check, read from the report that it fills."""

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
# Failures are raised as exceptions too; at level "error" TensorFlow also logs which CPU instructions it uses.
_ONLY_FATAL = "3"
# Notes and warnings in the two formats of TensorFlow's log, and the lines that come with them. TensorFlow ignores
# its own variable until its log is set up, so these lines have to be filtered from the stream.
_LOG_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} \d\d:\d\d:[\d.]+ .*\]"
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] |To enable the following instructions: "
)


@contextmanager
def suppress_tensorflow_log() -> Iterator[None]:
    """Keep notes and warnings of TensorFlow's log from stderr, unless the user has set its log level."""
    if _LOG_LEVEL_VARIABLE in os.environ or not _is_process_stderr(2):
        yield
        return
    os.environ[_LOG_LEVEL_VARIABLE] = _ONLY_FATAL
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            log.seek(0)
            for line in log:
                if not _LOG_NOISE.match(line):
                    os.write(2, line)


def _is_process_stderr(number: int) -> bool:
    """Whether Python's stderr writes to the stderr of the process."""
    try:
        return sys.stderr is not None and sys.stderr.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False
