"""Bars and histograms of columns, and what filters on them select.

The values of each column are kept as bins, one byte per record. A filter is a mask over records, and the counts of
every facet under the filters of all others are a few passes over bytes. While bins of one facet are brushed, the page
needs no request: it has the counts of each other facet, cumulative over the bins of the brushed one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Optional
from rekord.codec.preview import class_colour
from rekord.dataset.samplers import Ids
from rekord.errors import RekordError, error
from rekord.feeds.sql.tables import IndexedColumns, infer_column_types, quote_identifier, quote_literal
from rekord.report.formatting import format_count
from rekord.viewer.columns import ColumnInfo, decode_rows
from rekord.viewer.records import Pending
from rekord.viewer.session import Side, SplitRecords

Codes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.bool_]

MAX_BINS = 40
MAX_UNIT_BINS = 64
MAX_CATEGORIES = 200
MAX_COLUMNS = 24
MAX_VALUE_BYTES = 160 << 20
"""Memory for the values of all columns; further records are not counted."""

_BATCH_ROWS = 8192
_BATCH_BYTES = 16 << 20  # of whole records, of which some columns are decoded
_TOLERANT_ROWS = 256
_ORDER = ("class", "text", "number")  # by what a filter on them is worth


@dataclass
class _Values:
    """The values of one column so far: numbers, or the codes of categories."""

    column: ColumnInfo
    parts: list[npt.NDArray[Any]] = field(default_factory=list)
    categories: dict[str, int] = field(default_factory=dict)
    is_integer: bool = True
    overflowed: bool = False  # too many different texts

    @property
    def is_text(self) -> bool:
        return self.column.view == "text"

    def add(self, column: Any, rows: int) -> None:
        """The values of a batch; NaN stands for a missing number, -1 for a missing text."""
        if self.is_text:
            self.parts.append(self._encode(column, rows))
            return
        if column is None:
            self.parts.append(np.full(rows, np.nan))
            return
        valid = column.valid if isinstance(column, Optional) else None
        values = np.asarray(column.values if isinstance(column, Optional) else column)
        if values.dtype.kind == "M":
            values = values.astype(np.int64)
        self.is_integer = self.is_integer and values.dtype.kind in "iub"
        numbers = values.astype(np.float64)
        if valid is not None:
            numbers = np.where(valid, numbers, np.nan)
        self.parts.append(numbers)

    def add_row(self, values: Sequence[Any]) -> None:
        """The values of single rows, None for a missing one."""
        if self.is_text:
            self.parts.append(self._encode(values, len(values)))
            return
        self.is_integer = self.is_integer and all(
            value is None or np.asarray(value).dtype.kind in "iubM" for value in values
        )
        numbers = [
            np.nan if value is None else float(np.asarray(value).astype(np.int64 if _is_time(value) else np.float64))
            for value in values
        ]
        self.parts.append(np.array(numbers, np.float64))

    def _encode(self, column: Any, rows: int) -> npt.NDArray[np.int16]:
        codes = np.full(rows, -1, np.int16)
        if column is None:
            return codes
        for row, value in enumerate(column):
            if value is None:
                continue
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            code = self.categories.get(text)
            if code is None:
                code = len(self.categories)
                if code >= MAX_CATEGORIES:
                    self.overflowed = True
                    codes[row] = MAX_CATEGORIES
                    continue
                self.categories[text] = code
            codes[row] = code
        return codes

    def whole(self) -> npt.NDArray[Any]:
        """All values so far."""
        if len(self.parts) > 1:
            self.parts = [np.concatenate(self.parts)]
        return self.parts[0] if self.parts else np.zeros(0)


def _is_time(value: Any) -> bool:
    return np.asarray(value).dtype.kind == "M"


@dataclass(frozen=True)
class Facet:
    """One column in bins. The code of a record is its bin, or `missing` or `other` after the last one."""

    column: ColumnInfo
    kind: str
    values: npt.NDArray[Any]
    codes: Codes
    edges: Sequence[float] = ()
    labels: Sequence[Any] = ()  # class ids or texts, by bin
    is_integer: bool = False
    totals: Sequence[int] = ()

    @property
    def bins(self) -> int:
        return len(self.edges) - 1 if self.edges else len(self.labels)

    def mask(self, wanted: Mapping[str, Any]) -> Rows:
        """The records that a filter on this column selects."""
        if wanted.get("missing"):
            return np.asarray(self.codes == self.bins)
        if "in" in wanted and not isinstance(wanted["in"], Sequence):
            raise _filter_error(self.column.name, "a list as `in`", repr(wanted["in"])[:60])
        if "in" in wanted and self.kind == "number":
            return np.asarray(np.isin(self.values, _numbers(self.column.name, wanted["in"])))
        if "in" in wanted:
            places = [self._place(one) for one in wanted["in"]]
            table = np.zeros(256, np.bool_)
            table[[place for place in places if place is not None]] = True
            return np.asarray(table[self.codes])
        low, high = _parse_range(self.column.name, wanted.get("range"))
        if self.kind != "number":
            raise _filter_error(self.column.name, "categories as `in`", "a range")
        with np.errstate(invalid="ignore"):
            below = self.values <= high if self._closes(high) else self.values < high
            return np.asarray((self.values >= low) & below)

    def condition(self, wanted: Mapping[str, Any]) -> str:
        """The same filter as an SQL condition."""
        name = quote_identifier(self.column.name)
        if wanted.get("missing"):
            return f"{name} is null"
        if "in" in wanted and self.kind == "number":
            listed = [f"{one!r}::double" for one in _numbers(self.column.name, wanted["in"])]
            return f"{name} in ({', '.join(listed)})" if listed else "false"
        if "in" in wanted:
            labels = [self.labels[place] for place in map(self._place, wanted["in"]) if place is not None]
            return f"{name} in ({', '.join(map(_sql_literal, labels))})" if labels else "false"
        low, high = _parse_range(self.column.name, wanted.get("range"))
        if self.is_integer and float(low).is_integer() and float(high).is_integer():
            texts = str(int(low)), str(int(high))
        else:
            texts = f"{low!r}::double", f"{high!r}::double"
        sign = "<=" if self._closes(high) else "<"
        # In DuckDB, NaN is greater than every number.
        return f"({name} >= {texts[0]} and {name} {sign} {texts[1]})"

    def _list(self) -> dict[str, str] | None:
        """How a column is only named, because no filter on it is of use: one value, or one value per record."""
        counts = self.totals[: self.bins]
        if len(counts) == 1 and not any(self.totals[self.bins :]):
            return {"as": "same", "text": str(self._names()[0]) if self.labels else _format_edge(self.edges[0])}
        if self.kind == "text" and len(counts) > 3 and max(counts) <= 1:
            return {"as": "unique", "text": format_count(len(counts), "value")}
        return None

    def _names(self) -> list[str]:
        if self.kind == "text":
            return list(self.labels)
        known = self.column.feature.class_names or ()
        return [known[one] if 0 <= one < len(known) else str(one) for one in self.labels]

    def _closes(self, high: float) -> bool:
        """Whether a range ends at the last edge, and includes it."""
        return bool(self.edges) and not self.is_integer and high == self.edges[-1]

    def _place(self, code: Any) -> int | None:
        """The bin of a code: of a class id, or of a text by its number or itself."""
        if self.kind == "text" and isinstance(code, int):
            return code if 0 <= code < len(self.labels) else None
        return next((place for place, one in enumerate(self.labels) if one == code), None)

    def to_dict(self, selected: Sequence[int], *, is_fixed: bool) -> dict[str, Any]:
        """The facet for the page; `selected` are the counts under the filters of the others."""
        colours = None
        if self.kind == "class":
            colours = [class_colour(one) if one >= 0 else None for one in self.labels]
        # Edges of integers lie between them: the texts name the integers.
        whole = [float(math.ceil(edge)) if self.is_integer else edge for edge in self.edges]
        return {
            "column": self.column.name,
            "type": self.kind,
            "names": None if self.edges else self._names(),
            "codes": list(range(len(self.labels)) if self.kind == "text" else self.labels) or None,
            "colours": colours,
            "edges": list(self.edges) if self.edges else None,
            "lows": [_format_edge(edge) for edge in whole],
            "highs": [_format_edge(edge - 1 if self.is_integer else edge) for edge in whole],
            "listed": self._list() if is_fixed else None,
            "integer": self.is_integer,
            "counts": list(self.totals[: self.bins]),
            "selected": list(selected[: self.bins]),
            "missing": int(self.totals[self.bins]),
            "other": int(self.totals[self.bins + 1]),
        }


def _format_edge(value: float) -> str:
    """A whole number in full, another one with the digits that tell neighbours apart."""
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e15 else f"{value:.5g}"


def _sql_literal(value: Any) -> str:
    return quote_literal(value) if isinstance(value, str) else str(int(value))


def _numbers(name: str, given: Sequence[Any]) -> list[float]:
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in given):
        raise _filter_error(name, "numbers", repr(given)[:60])
    return [float(one) for one in given]


def _parse_range(name: str, given: Any) -> tuple[float, float]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise _filter_error(name, '{"range": [low, high]} or {"in": [...]}', repr(given)[:60])
    low, high = given
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (low, high)):
        raise _filter_error(name, "two numbers", repr(given)[:60])
    return float(low), float(high)


def _filter_error(name: str, expected: str, found: str) -> RekordError:
    return error("U605", f"filter on `{name[:60]}` cannot be used", expected=expected, found=found)


def build_facet(values: _Values) -> Facet | None:
    """The facet of the values of a column; None if it has too many texts to be one."""
    column = values.column
    whole = values.whole()
    if values.is_text:
        if values.overflowed:
            return None
        texts = list(values.categories)
        numbers = np.where(whole < 0, len(texts), whole)
        return _with_totals(column, "text", whole, numbers.astype(np.uint8), labels=texts)
    with np.errstate(invalid="ignore"):
        finite = whole[np.isfinite(whole)]
    if column.view == "class":
        return _build_class_facet(column, whole, finite)
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    edges = choose_edges(low, high, is_integer=values.is_integer)
    bins = len(edges) - 1
    with np.errstate(invalid="ignore"):
        codes: npt.NDArray[Any] = np.searchsorted(np.array(edges), whole, side="right") - 1
        codes = np.where(whole == edges[-1], bins - 1, codes)
        codes = np.where(np.isnan(whole), bins, np.where((codes < 0) | (codes >= bins), bins + 1, codes))
    return _with_totals(column, "number", whole, codes.astype(np.uint8), edges=edges, is_integer=values.is_integer)


def _build_class_facet(column: ColumnInfo, whole: npt.NDArray[Any], finite: npt.NDArray[Any]) -> Facet:
    found, counts = np.unique(finite.astype(np.int64), return_counts=True)
    if len(found) > MAX_CATEGORIES:
        found = np.sort(found[np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]])
    labels = found.tolist()
    numbers = np.where(np.isnan(whole), np.iinfo(np.int64).min, whole).astype(np.int64)
    places = np.searchsorted(found, numbers)
    inside = np.minimum(places, max(len(labels) - 1, 0))
    hit = found[inside] == numbers if len(labels) else np.zeros(len(whole), np.bool_)
    codes = np.where(np.isnan(whole), len(labels), np.where(hit, inside, len(labels) + 1))
    return _with_totals(column, "class", whole, codes.astype(np.uint8), labels=labels, is_integer=True)


def _with_totals(column: ColumnInfo, kind: str, values: Any, codes: Codes, **fields: Any) -> Facet:
    made = Facet(column, kind, values, codes, **fields)
    totals = np.bincount(codes, minlength=made.bins + 2).tolist()
    return Facet(column, kind, values, codes, **fields, totals=totals)


def choose_edges(low: float, high: float, *, is_integer: bool) -> list[float]:
    """The edges of bins of equal width, at round numbers; one bin per integer if these are few."""
    if is_integer and high - low < MAX_UNIT_BINS:
        return [float(one) for one in range(int(low), int(high) + 2)]
    if high <= low:
        return [low, low + 1.0] if abs(low) < 2**52 else [low, math.nextafter(low, math.inf)]
    step = _round_step((high - low) / MAX_BINS)
    if is_integer:
        step = max(1.0, step)
    first = math.floor(low / step)
    count = math.floor(high / step) - first + (0 if (high / step).is_integer() and not is_integer else 1)
    edges = [float(f"{(first + i) * step:.12g}") for i in range(max(count, 1) + 1)]
    edges = sorted(set(edges))
    if len(edges) < 2 or not edges[0] <= low or edges[-1] < high or len(edges) > 2 * MAX_BINS + 4:
        return [low + (high - low) * i / MAX_BINS for i in range(MAX_BINS)] + [high]
    return edges


def _round_step(width: float) -> float:
    power = 10.0 ** math.floor(math.log10(width)) if width > 1e-300 else 1e-300
    return next((factor * power for factor in (1, 2, 5, 10) if factor * power >= width), 10 * power)


class FacetTable:
    """The facets of one split, read in the background."""

    def __init__(self, side: Side, split: SplitRecords) -> None:
        self.side = side
        self.split = split
        self.complete = False
        self.records = 0
        self.note: str | None = None
        self.error: RekordError | None = None
        self.version = 0
        self._values: dict[str, _Values] = {}
        self._facets: dict[str, Facet | None] = {}
        self._built_records = -1
        self._stop = Event()
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="rekord-view-facets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()

    def status(self) -> dict[str, Any]:
        """Its progress, for the page."""
        return {
            "side": self.side.number,
            "split": self.split.name,
            "records": self.records,
            "of": len(self.split) if self.split.is_complete else None,
            "complete": self.complete,
            "note": self.note,
        }

    def wait(self, seconds: float) -> None:
        """Wait until all records are counted, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.complete, seconds)

    def facets(self) -> dict[str, Facet]:
        """The facets of the records that were read so far."""
        with self._changed:
            # Building them again for every batch would take longer than reading.
            if self._built_records < 0 or (
                self._built_records < self.records and (self.complete or self.records > 1.5 * self._built_records)
            ):
                self._facets = {name: build_facet(one) for name, one in self._values.items() if one.parts}
                self._built_records = self.records
                self.version += 1
            return {name: facet for name, facet in self._facets.items() if facet is not None}

    def select(self, filters: Mapping[str, Any], facets: Mapping[str, Facet]) -> dict[str, Rows]:
        """The records that each filter selects, by column."""
        found = {}
        for name, wanted in filters.items():
            if name not in facets:
                raise self._missing_facet(name, "a column with facets: " + ", ".join(list(facets)[:8]))
            if not isinstance(wanted, Mapping):
                raise _filter_error(name, '{"range": [low, high]} or {"in": [...]}', repr(wanted)[:60])
            found[name] = facets[name].mask(wanted)
        return found

    def _missing_facet(self, name: str, expected: str) -> Exception:
        """Why a column has no facet: its values may not be read yet."""
        return _filter_error(name, expected, f"`{name[:60]}`") if self.complete else Pending()

    def to_dict(self, filters: Mapping[str, Any], within: Ids | None) -> dict[str, Any]:
        """All facets under some filters; `within` are the records that other conditions select."""
        facets = self.facets()
        masks = self.select(filters, facets)
        count = self._built_records
        base = _to_mask(within, count)
        shown = []
        for name, facet in facets.items():
            rest = _combine([mask for other, mask in masks.items() if other != name], base)
            some = facet.codes if rest is None else facet.codes[rest]
            selected = facet.totals if rest is None else np.bincount(some, minlength=facet.bins + 2).tolist()
            shown.append(facet.to_dict(selected, is_fixed=self.complete and name not in filters))
        shown.sort(key=lambda one: _ORDER.index(one["type"]))
        every = _combine(list(masks.values()), base)
        conditions = [facets[name].condition(wanted) for name, wanted in filters.items()]
        return {
            "complete": self.complete,
            "records": count,
            "of": len(self.split) if self.split.is_complete else None,
            "selected": count if every is None else int(np.count_nonzero(every)),
            "sql": " and ".join(conditions) or None,
            "note": self.note,
            "error": None if self.error is None else self.error.to_dict(),
            "facets": shown,
        }

    def cube(self, active: str, filters: Mapping[str, Any], within: Ids | None) -> dict[str, Any]:
        """The counts of every other facet, cumulative over the bins of the active one."""
        facets = self.facets()
        if active not in facets:
            raise self._missing_facet(active, "a column with facets")
        others = {name: wanted for name, wanted in filters.items() if name != active}
        masks = self.select(others, facets)
        base = _to_mask(within, self._built_records)
        brushed = facets[active]
        width = brushed.bins + 2
        cubes = {}
        for name, facet in facets.items():
            if name == active:
                continue
            rest = _combine([mask for other, mask in masks.items() if other != name], base)
            cubes[name] = {
                "bins": facet.bins,
                "cumulative": _cumulate(brushed, facet.codes, facet.bins, rest, width).reshape(-1).tolist(),
            }
        rest = _combine(list(masks.values()), base)
        totals = _cumulate(brushed, np.zeros(len(brushed.codes), np.uint8), 1, rest, width)
        return {"active": active, "bins": brushed.bins, "cubes": cubes, "totals": totals.reshape(-1).tolist()}

    def matching(self, filters: Mapping[str, Any]) -> Ids:
        """The numbers of the records that all filters select."""
        facets = self.facets()
        mask = _combine(list(self.select(filters, facets).values()), None)
        if mask is None:
            return np.arange(self._built_records, dtype=np.int64)
        return np.flatnonzero(mask).astype(np.int64)

    def order(self, column: str, *, descending: bool) -> Ids:
        """All records ordered by a column; those without a value come last."""
        facet = self.facets().get(column)
        if facet is None:
            raise self._missing_facet(column, "a column with facets")
        keys = facet.codes.astype(np.int64) if facet.kind == "text" else facet.values
        if facet.kind == "text":
            rank = np.argsort(np.argsort(np.array([*facet.labels], object))) if facet.labels else np.zeros(0, int)
            keys = np.append(rank, [len(rank), len(rank) + 1])[facet.codes].astype(np.float64)
            keys = np.where(facet.codes >= facet.bins, np.nan, keys)
        return np.argsort(-keys if descending else keys, kind="stable").astype(np.int64)

    # Reading.

    def _run(self) -> None:
        try:
            self._read()
        except RekordError as failure:
            self.error = failure
        except Exception as failure:
            self.error = error("U682", "facets cannot be computed", found=str(failure)[:60])
        with self._changed:
            self.complete = True
            self._changed.notify_all()

    def _read(self) -> None:
        while self.side.schema_pending and not self._stop.wait(0.01):
            pass
        columns = [one for one in self.side.columns if one.is_facet][:MAX_COLUMNS]
        self._values = {one.name: _Values(one) for one in columns}
        names = [one.name for one in columns]
        while not self.split.is_complete and not self._stop.wait(0.02):
            pass
        if not columns:
            self.records = len(self.split)
            return
        most = MAX_VALUE_BYTES // (9 * len(columns))
        if len(self.split) > most:
            self.note = f"of the first {format_count(most, 'record')}"
        if self.split.is_healthy and not self.split.has_oversized:
            try:
                self._read_healthy(names, most)
                return
            except RekordError:
                # One of the records is damaged or invalid: the others are read one by one.
                with self._changed:
                    self.records, self._built_records = 0, -1
                    self._values = {one.name: _Values(one) for one in columns}
        self._read_tolerant(names, most)

    def _read_healthy(self, names: Sequence[str], most: int) -> None:
        split = self.split.split
        assert split is not None
        if split.view.shards.has_listed_counts:
            kinds = infer_column_types(split, names)
            indexed = IndexedColumns(split.view.shards, kinds)
            if indexed.has(names):
                for arrays, ids in indexed.batches(names):
                    columns = {name: _from_arrow(array) for name, array in arrays.items()}
                    if not self._add(columns, len(ids), most):
                        return
                return
        longest_bytes = max((file.longest_bytes for file in self.split.files), default=1)
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(longest_bytes, 1)))
        for batch in split.batches(rows, columns=list(names)):
            if not self._add(batch, len(next(iter(batch.values()))), most):
                return

    def _read_tolerant(self, names: Sequence[str], most: int) -> None:
        total = min(len(self.split), most)
        step = min(_TOLERANT_ROWS, self.split.records_at_once)
        for first in range(0, total, step):
            if self._stop.is_set():
                return
            raws = self.split.read(range(first, min(first + step, total)))
            payloads = [raw.payload if raw.state == "ok" else None for _, raw in raws]
            rows = decode_rows(payloads, self.side.schema, names)
            with self._changed:
                for name, values in self._values.items():
                    values.add_row([None if row is None else row[name] for row in rows])
                self.records += len(rows)
                self._changed.notify_all()

    def _add(self, columns: Mapping[str, Any], rows: int, most: int) -> bool:
        """Add a batch; whether there is room for more."""
        with self._changed:
            for name, values in self._values.items():
                values.add(columns.get(name), rows)
            self.records += rows
            self._changed.notify_all()
        return self.records < most and not self._stop.is_set()


def _from_arrow(array: Any) -> Any:
    """An Arrow array as the column of a batch."""
    import pyarrow as pa

    if pa.types.is_string(array.type) or pa.types.is_binary(array.type) or pa.types.is_large_string(array.type):
        return array.to_pylist()
    if pa.types.is_large_binary(array.type):
        return array.to_pylist()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        valid = np.asarray(array.is_valid())
        return Optional(np.asarray(array.fill_null(0)), valid)
    return np.asarray(array)


def _to_mask(ids: Ids | None, count: int) -> Rows | None:
    if ids is None:
        return None
    mask = np.zeros(count, np.bool_)
    mask[ids[ids < count]] = True
    return mask


def _combine(masks: Sequence[Rows], base: Rows | None) -> Rows | None:
    """The records that all masks select; None for all records."""
    found = base
    for mask in masks:
        found = mask if found is None else found & mask
    return found


def _cumulate(brushed: Facet, codes: Codes, bins: int, rest: Rows | None, width: int) -> npt.NDArray[np.int64]:
    """Counts of `codes` by the brushed bins, cumulative from 0 to all of them."""
    pairs = brushed.codes.astype(np.int32) * (bins + 2) + codes
    if rest is not None:
        pairs = pairs[rest]
    counts = np.bincount(pairs, minlength=width * (bins + 2)).reshape(width, bins + 2)
    table = np.zeros((brushed.bins + 1, bins), np.int64)
    table[1:] = np.cumsum(counts[: brushed.bins, :bins], axis=0)
    return table
