"""Rows of raw data as a conversion would store them, and what was guessed to do so."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rekord import _core
from rekord.conversion.driver import Conversion
from rekord.conversion.encode_rows import BadRows, RowEncoding
from rekord.conversion.mapped_rows import MappedOutputs, read_in_sequence
from rekord.conversion.plan import RowFunction
from rekord.errors import RekordError
from rekord.layouts.base import RowRemark, Verify
from rekord.location import Location
from rekord.sources.base import Chunk, ColumnChunk, SourceGuess, full_path
from rekord.verbs.forecast import load_files
from rekord.verbs.progress import print_line

_CRC_BYTES = 4
_MAX_SHOWN_GUESSES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A row of raw data: the payloads that are stored for it, or the error if it cannot be stored."""

    path: str | None
    row: int | None  # in its file, None if the file is one row
    line: int | None
    payloads: tuple[bytes, ...] = ()
    problem: RekordError | None = None


def iter_stored_rows(conversion: Conversion, *, first: int = 0, verify: Verify | None = None) -> Iterator[StoredRow]:
    """The rows of a conversion in the order of its source, from number `first`, encoded as it would write them.

    Nothing is written; only as much is read as is taken.
    """
    job = conversion.job
    bad = _FirstProblem()
    encoding = RowEncoding(
        replace(
            job,
            function=None if job.function is None else _LoadingFunction(job.function),
            verify=verify or job.verify,
            on_bad_row="reject",
            index=(),
            shuffle=False,
        ),
        bad,
    )
    for chunk in _iter_single_rows(read_in_sequence(job.source), first):
        if isinstance(chunk, ColumnChunk):
            position, line = chunk.first, chunk.line_of(0)
        else:
            position, line = chunk.position, chunk.line
            if isinstance(chunk.values, MappedOutputs):
                chunk = chunk._replace(values=MappedOutputs(map(load_files, chunk.values)))
            elif not isinstance(chunk.values, RekordError) and job.function is None:
                chunk = chunk._replace(values=load_files(chunk.values))
        payloads = [payload for piece in encoding.pieces([chunk]) for payload in _iter_payloads(piece)]
        counted = isinstance(chunk, ColumnChunk) or not chunk.path or line is not None or position > 0
        yield StoredRow(
            path=full_path(job.source, chunk.path) or None,
            row=position if counted else None,
            line=line,
            payloads=tuple(payloads),
            problem=bad.take(),
        )


class _FirstProblem(BadRows):
    """Keeps the first error of a row."""

    def __init__(self) -> None:
        super().__init__("reject")
        self._first: RekordError | None = None

    def reject(self, failure: RekordError, place: Location) -> None:
        super().reject(failure, place)
        self._first = self._first or failure

    def add_remark(self, remark: RowRemark, place: Location) -> None:
        pass

    def take(self) -> RekordError | None:
        """The error of the row, which is then forgotten."""
        first, self._first = self._first, None
        return first


class _LoadingFunction:
    """A function of rows whose files are read, so that the frames of the rows are complete."""

    def __init__(self, function: RowFunction) -> None:
        self._function = function

    def __call__(self, row: Mapping[str, Any]) -> Any:
        made: Any = self._function(row)
        if isinstance(made, Mapping):
            return load_files(made)
        if made is None or isinstance(made, (str, bytes)) or not isinstance(made, Iterable):
            return made
        return [load_files(one) if isinstance(one, Mapping) else one for one in made]


def _iter_single_rows(chunks: Iterable[Chunk], first: int) -> Iterator[Chunk]:
    skipped = first
    for chunk in chunks:
        rows = chunk.rows if isinstance(chunk, ColumnChunk) else 1
        if skipped >= rows:
            skipped -= rows
            continue
        if isinstance(chunk, ColumnChunk):
            yield from (chunk.slice(i, i + 1) for i in range(skipped, rows))
        else:
            yield chunk
        skipped = 0


def _iter_payloads(piece: Any) -> Iterator[bytes]:
    view = memoryview(piece.frames).cast("B")
    begin = 0
    for length in piece.lengths.tolist():
        yield bytes(view[begin + _core.HEADER_BYTES : begin + length - _CRC_BYTES])
        begin += length


def format_guesses(guesses: Sequence[SourceGuess]) -> Iterator[tuple[str, str | None]]:
    """What was guessed about raw data, one line each, with what changes it."""
    for guess in guesses[:_MAX_SHOWN_GUESSES]:
        yield f"guessed: {guess.what}", guess.do
    if len(guesses) > _MAX_SHOWN_GUESSES:
        yield f"guessed: … and {len(guesses) - _MAX_SHOWN_GUESSES:,} more", None


def report_guesses(guesses: Sequence[SourceGuess]) -> None:
    """Print what was guessed to stderr."""
    for what, do in format_guesses(guesses):
        print_line(sys.stderr, what if do is None else f"{what}; {do}")
