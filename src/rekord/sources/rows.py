"""Rows from Python: any iterable of mappings or tuples, and the first rows of any source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain
from typing import Any

import numpy as np

from rekord.arguments import check_keywords, invalid, tuple_names
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.infer import infer_rows
from rekord.schema.row_adapters import flatten_row
from rekord.sources.base import SourceFacts, SourceRow

PEEK_ROWS = 10_000
"""The number of rows that a schema is inferred from, unless they are large."""

PEEK_BYTES = 64 << 20
"""The most bytes of values that it is inferred from, give or take a row."""

_VALUE_BYTES = 8


@check_keywords
def rows(iterable: Iterable[object], *, names: Sequence[str] | None = None) -> RowsSource:
    """Rows from an iterable: mappings (nested names are joined with `/`), or tuples whose parts are `names`.

    Tuples without `names` have the columns x, y and weight. An iterable that starts again each time, such as a list,
    can be read several times; an iterator or a generator once.
    """
    tuple_names(names)
    if isinstance(iterable, (str, bytes, bytearray, Mapping)) or not isinstance(iterable, Iterable):
        do = 'pass a list such as [{"label": 3}, …]'
        raise invalid("iterable", iterable, "an iterable of mappings or tuples", do)
    once = isinstance(iterable, Iterator)
    known = len(iterable) if isinstance(iterable, Sized) else None
    return RowsSource("rows", lambda: iter(iterable), names=names, once=once, known_rows=known)


class RowsSource:
    """A sequential source of single rows. `begin` returns an iterator over them from the first.

    With `once` it can do so only once. `convert` turns an item into a row. If rows are `is_mapped` by a function,
    items may be anything: those that are neither mappings nor tuples are passed to it as they are.
    """

    def __init__(
        self,
        kind: str,
        begin: Callable[[], Iterator[Any]],
        *,
        names: Sequence[str] | None = None,
        once: bool = False,
        known_rows: int | None = None,
        splits: tuple[str, ...] | None = None,
        convert: Callable[[Any], Any] | None = None,
        is_mapped: bool = False,
    ) -> None:
        self.kind = kind
        self._begin = begin
        self._names = None if names is None else tuple(names)
        self._once = once
        self._known_rows = known_rows
        self._splits = splits
        self._convert = convert
        self._is_mapped = is_mapped
        self._begun = False
        self._waiting: list[SourceRow] = []  # rows that `peek_schema` took from the running iterator
        self._running: Iterator[SourceRow] | None = None
        self._schema: Schema | None = None

    def options(self) -> Mapping[str, Any]:
        return {"names": None if self._names is None else list(self._names)}

    def for_function(self) -> RowsSource:
        """This source, for a function that takes its items."""
        return RowsSource(
            self.kind,
            self._begin,
            names=self._names,
            once=self._once,
            known_rows=self._known_rows,
            splits=self._splits,
            convert=self._convert,
            is_mapped=True,
        )

    def facts(self) -> SourceFacts:
        """What is known without reading; the schema only after `peek_schema`."""
        return SourceFacts(layout="table", schema=self._schema, rows=self._known_rows, splits=self._splits)

    def peek_columns(self, limit_rows: int = PEEK_ROWS) -> tuple[list[str], bool]:
        """The columns of the first good rows, which are not lost, and whether these are all rows."""
        complete = self._peek(limit_rows, PEEK_BYTES)
        good = [row.values for row in self._waiting if not isinstance(row.values, RekordError)]
        return list(dict.fromkeys(name for values in good for name in values)), complete

    def peek_schema(
        self, limit_rows: int = PEEK_ROWS, limit_bytes: int = PEEK_BYTES, *, skip: Collection[str] = ()
    ) -> Schema:
        """The schema of the first rows, which are not lost: `rows` starts with them.

        Bad rows are skipped; if there are no others, the first error is raised. The columns `skip` are left out.
        """
        if self._schema is None:
            complete = self._peek(limit_rows, limit_bytes)
            skipped = {*skip, "split"} if self._splits is not None else skip
            self._schema = infer_row_schema(self._waiting, complete=complete, skip=skipped)
        return self._schema

    def _peek(self, limit_rows: int, limit_bytes: int) -> bool:
        """Keep the first rows; returns whether there are no others."""
        running = self._start() if self._running is None else self._running
        good = [row.values for row in self._waiting if not isinstance(row.values, RekordError)]
        taken_bytes = sum(map(estimate_row_bytes, good))
        self._running = running
        while len(self._waiting) < limit_rows and taken_bytes < limit_bytes:
            row = next(running, None)
            if row is None:
                return True
            self._waiting.append(row)
            taken_bytes += 0 if isinstance(row.values, RekordError) else estimate_row_bytes(row.values)
        return False

    def rows(self) -> Iterator[SourceRow]:
        """All rows, in order. An exception of the iterable passes through, with the row in its notes."""
        waiting, running = self._waiting, self._running
        self._waiting, self._running = [], None
        if running is None:
            return self._start()
        return chain(drain_rows(waiting), running)

    def _start(self) -> Iterator[SourceRow]:
        if self._begun and self._once:
            raise error(
                "U616",
                "iterator of rows was already read",
                expected="an unread iterator, or a list",
                found="an iterator that was read before",
                do="create the iterator again, or pass a list",
            )
        self._begun = True
        return self._read()

    def _read(self) -> Iterator[SourceRow]:
        plain: set[type] = set()
        position = 0
        items: Iterator[Any] | None = None
        while True:
            try:
                if items is None:
                    items = self._begin()
                item = next(items)
            except StopIteration:
                return
            except Exception as failure:
                add_row_note(failure, position)
                raise
            yield SourceRow("", position, self._convert_item(item, position, plain))
            position += 1

    def _convert_item(self, item: Any, position: int, plain: set[type]) -> Mapping[str, Any] | RekordError:
        try:
            converted = item if self._convert is None else self._convert(item)
        except RekordError as failure:
            add_row_note(failure, position)
            return failure
        if self._is_mapped and not isinstance(converted, (Mapping, tuple, list)) and not hasattr(converted, "keys"):
            return converted  # type: ignore[no-any-return]
        return _to_values(converted, position, self._names, plain)


def add_row_note(failure: Exception, position: int) -> None:
    """Add the row to an exception."""
    if isinstance(failure, RekordError):
        failure.location = failure.location.within(row=position)
    else:
        failure.add_note(f"rekord was reading row {position:,}")


def infer_row_schema(rows: Iterable[SourceRow], *, complete: bool, skip: Collection[str] = ()) -> Schema:
    """The schema of the good rows, without the columns `skip`."""
    good: list[Mapping[str, Any]] = []
    bad: RekordError | None = None
    for row in rows:
        if isinstance(row.values, RekordError):
            bad = bad or row.values
        elif skip:
            good.append({name: value for name, value in row.values.items() if name not in skip})
        else:
            good.append(row.values)
    if bad is not None and not good:
        raise bad
    schema = infer_rows(good)
    return schema.with_evidence({**schema.evidence, "complete": complete})


def estimate_row_bytes(values: Mapping[str, Any]) -> int:
    """The approximate size of the values of a row in memory."""
    total = 0
    for value in values.values():
        if isinstance(value, (bytes, str)):
            total += len(value)
        elif hasattr(value, "nbytes"):
            total += int(value.nbytes)
        else:
            total += _VALUE_BYTES * len(value) if isinstance(value, (list, tuple)) else _VALUE_BYTES
    return total


def to_pixels(value: Any) -> Any:
    """A Pillow image as an array, if that holds all of it; other values unchanged."""
    mode = getattr(value, "mode", None)
    if mode in ("L", "RGB", "RGBA", "I;16", "F") and hasattr(value, "getbands"):
        return np.asarray(value)
    return value


def _to_values(
    item: Any, position: int, names: tuple[str, ...] | None, plain: set[type]
) -> Mapping[str, Any] | RekordError:
    if type(item) is dict and _is_flat(item, plain):
        return item
    try:
        return flatten_row(item, position, names)
    except RekordError as failure:
        return error(
            "E325",
            failure.what,
            location=Location(row=position),
            expected=failure.expected,
            found=failure.found,
            do=failure.do,
        )


def _is_flat(row: dict[Any, Any], plain: set[type]) -> bool:
    """Whether a dict is a row without changes. `plain` are types of values known not to be mappings."""
    for name, value in row.items():
        if type(name) is not str:
            return False
        kind = type(value)
        if kind not in plain:
            if issubclass(kind, Mapping):
                return False
            plain.add(kind)
    return True


def drain_rows(rows: list[SourceRow]) -> Iterator[SourceRow]:
    """The rows in order, each released before the next."""
    rows.reverse()
    while rows:
        yield rows.pop()
