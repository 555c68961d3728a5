"""Laws of reading by a schema: rows come back, batches are stacked rows, and no form of the bytes matters."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_strategies as strategies
from hypothesis import given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.framing import frames as frame_reading
from rekord.schema.base import INTEGER_DTYPES, Feature, dtype_name, integer_bounds
from rekord.testing import frames, wire

MOST_RECORDS = 12

# ---- Rows as they are stored, and as they should come back. Made without the encoder: a witness of its own ----


@dataclass(frozen=True)
class Stored:
    """The lists of one column, one for each of its record keys, and its value; no lists where it is missing."""

    lists: tuple[tuple[wire.WireKind, list[Any]], ...]
    value: Any


def _sizes(shape: tuple[int | None, ...], unknown: int) -> tuple[int, ...]:
    return tuple(unknown if size is None else size for size in shape)


def _nested(flat: list[Any], sizes: tuple[int, ...]) -> Any:
    if not sizes:
        return flat[0]
    step = prod(sizes[1:])
    return [_nested(flat[i * step : (i + 1) * step], sizes[1:]) for i in range(sizes[0])]


@st.composite
def _flat(draw: st.DrawFn, one: st.SearchStrategy[Any], count: int) -> list[Any]:
    return draw(st.lists(one, min_size=count, max_size=count))


def _number(name: str) -> st.SearchStrategy[Any]:
    if name in INTEGER_DTYPES:
        low, high = integer_bounds(np.dtype(name))
        some = st.sampled_from([low, high, 0, 1])
        return st.one_of(some, st.integers(low, high)).map(bool if name == "bool" else int)
    # What all float dtypes hold.
    return st.one_of(
        st.integers(-256, 256).map(lambda n: n / 4),
        st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0]),
    )


def _as_int64(value: int) -> int:
    return value - 2**64 if value >= 2**63 else int(value)


@st.composite
def _list_of(draw: st.DrawFn, feature: Feature, count: int) -> tuple[wire.WireKind, list[Any], list[Any]]:
    """So many values of a feature: the kind, as they are stored, and as they come back."""
    if isinstance(feature, rk.Text):
        texts = draw(_flat(strategies.texts(), count))
        return "bytes", [text.encode() for text in texts], texts
    if feature.kind == "bytes":
        values = draw(_flat(st.one_of(st.binary(max_size=20), st.just(b"L" * 4100)), count))
        return "bytes", values, values
    values = draw(_flat(_number(dtype_name(feature.stored_dtype)), count))
    if feature.kind == "float":
        return "float", values, values
    return "int64", [_as_int64(value) for value in values], values


@st.composite
def present(draw: st.DrawFn, feature: Feature) -> Stored:
    """A value that is there."""
    count = draw(st.integers(0, 3))
    if isinstance(feature, rk.Tensor):
        sizes = _sizes(feature.shape, count)
        name = dtype_name(feature.dtype)
        numbers = draw(_flat(_number(name if name in INTEGER_DTYPES else "float"), prod(sizes)))
        array = np.array(numbers, feature.dtype).reshape(sizes)
        return Stored((("bytes", [array.tobytes()]),), _plain(array))
    if isinstance(feature, rk.Sparse):
        indices = sorted(draw(st.sets(st.integers(0, feature.size - 1), max_size=3)))
        values = draw(_flat(_number(dtype_name(feature.dtype)), len(indices)))
        stored = values if feature.kind == "float" else [_as_int64(value) for value in values]
        return Stored((("int64", indices), (feature.kind, stored)), (indices, values))
    if isinstance(feature, rk.Boxes):
        boxes = draw(_flat(_flat(_number("float32"), 4), count))
        return Stored(tuple([("float", [box[side] for box in boxes]) for side in range(4)]), boxes)
    if getattr(feature, "partitions", ()):
        return draw(_partitioned(feature))
    shape = () if isinstance(feature, rk.Image | rk.Mask) else feature.shape
    sizes = _sizes(shape, count)
    kind, stored, values = draw(_list_of(feature, prod(sizes)))
    return Stored(((kind, stored),), _nested(values, sizes))


@st.composite
def _partitioned(draw: st.DrawFn, feature: Feature) -> Stored:
    levels = len(feature.partitions)  # type: ignore[attr-defined]
    lengths: list[list[int]] = []
    count = draw(st.integers(0, 3))
    for _ in range(levels):
        lengths.append(draw(_flat(st.integers(0, 2), count)))
        count = sum(lengths[-1])
    inner = tuple(size for size in feature.shape if size is not None)
    kind, stored, values = draw(_list_of(feature, count * prod(inner)))
    level: list[Any] = [_nested(values[i * prod(inner) :], inner) for i in range(count)]
    for sizes in reversed(lengths):
        ends = [0, *accumulate(sizes)]
        level = [level[begin:end] for begin, end in pairwise(ends)]
    return Stored(((kind, stored), *[("int64", sizes) for sizes in lengths]), level)


@st.composite
def column(draw: st.DrawFn, feature: Feature) -> Stored:
    """A value, or none where the feature may do without."""
    if feature.required or draw(st.integers(0, 3)):
        return draw(present(feature))
    return Stored((), _plain_default(feature) if feature.has_default else None)


def _plain_default(feature: Feature) -> Any:
    default = feature.default
    if isinstance(feature, rk.Tensor):
        return _plain(np.array(default, feature.dtype))
    if isinstance(feature, rk.Timestamp):
        return _plain(feature.default_value())
    if isinstance(feature, rk.Sparse):
        return tuple([list(part) for part in default])
    if isinstance(feature, rk.Float32 | rk.Boxes) and default != ():
        # Float32 rounds on its way into the record.
        return _plain(np.array(default, np.float32).astype(getattr(feature, "dtype", np.float32)))
    return _listed(default)


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Record:
    """One record: features by key, lists of steps by key, and the row that it is."""

    features: dict[str, tuple[wire.WireKind, list[Any]]]
    lists: dict[str, list[tuple[wire.WireKind, list[Any]]]]
    row: dict[str, Any]


@st.composite
def record(draw: st.DrawFn, schema: rk.Schema) -> Record:
    """Any record of a schema."""
    stored: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    row: dict[str, Any] = {}
    for name, feature in schema.context.items():
        found = draw(column(feature))
        row[name] = found.value
        if found.lists:
            stored |= zip(feature.record_keys(name), found.lists, strict=True)
    for name, feature in schema.steps.items():
        if feature.optional and not draw(st.integers(0, 3)):
            row[name] = None
            continue
        steps = draw(st.lists(present(feature), max_size=3))
        row[name] = [step.value for step in steps]
        for i, key in enumerate(feature.record_keys(name)):
            lists[key] = [step.lists[i] for step in steps]
    return Record(stored, lists, row)


@st.composite
def schemas_and_records(
    draw: st.DrawFn, *, sequences: bool | None = None, most: int = MOST_RECORDS
) -> tuple[rk.Schema, list[Record]]:
    """A schema and records of it."""
    schema = draw(strategies.schemas(sequences=sequences))
    return schema, draw(st.lists(record(schema), min_size=1, max_size=most))


# ---- Bytes ----


def _feature(kind: wire.WireKind, values: list[Any]) -> bytes:
    body = {"bytes": wire.bytes_list, "float": wire.float_list, "int64": wire.int64_list}[kind](values)
    return wire.feature((kind, body))


def payload(record: Record, schema: rk.Schema) -> bytes:
    """A record in the usual form."""
    context = wire.features([wire.entry(key, _feature(*value)) for key, value in record.features.items()])
    if not schema.is_sequence:
        return wire.example(context)
    steps = [
        wire.entry(key, wire.feature_list([_feature(*step) for step in lists])) for key, lists in record.lists.items()
    ]
    return wire.sequence_example(context, wire.features(steps))


@st.composite
def _odd_feature(draw: st.DrawFn, kind: wire.WireKind, values: list[Any]) -> bytes:
    """A Feature in any form that means the same to protobuf."""
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=2)))
    pieces = [values[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    lists = []
    for piece in pieces:
        if kind == "bytes":
            body = wire.bytes_list(piece)
        else:
            packed = draw(st.booleans())
            make: Any = wire.float_list if kind == "float" else wire.int64_list
            body = make(piece, packed=packed)
        if draw(st.integers(0, 4)) == 0:
            body = wire.unknown(9, draw(st.sampled_from([0, 1, 2, 3, 5]))) + body
        lists.append((kind, body))
    if draw(st.integers(0, 4)) == 0:
        other: wire.WireKind = "float" if kind != "float" else "int64"
        lists.insert(0, (other, b""))  # of two kinds the last one counts
    return wire.feature(*lists)


@st.composite
def _odd_map(draw: st.DrawFn, entries: dict[str, bytes]) -> bytes:
    """A map in any order, its entries swapped, repeated, and among strangers."""
    keys = draw(st.permutations(list(entries)))
    out = []
    for key in keys:
        if draw(st.integers(0, 4)) == 0:
            out.append(wire.entry(key, draw(st.sampled_from([b"", entries[key]]))))  # replaced by what follows
        if draw(st.integers(0, 6)) == 0:
            out.append(wire.entry("\x00nobody's", entries[key]))
        if draw(st.integers(0, 6)) == 0:
            out.append(wire.unknown(9, wire.LEN))
        out.append(wire.entry(key, entries[key], swap=draw(st.integers(0, 4)) == 0))
    return wire.features(out)


@st.composite
def odd_payload(draw: st.DrawFn, record: Record, schema: rk.Schema) -> bytes:
    """A record in any form that protobuf reads the same."""
    context = {key: draw(_odd_feature(*value)) for key, value in record.features.items()}
    if not schema.is_sequence:
        keys = list(context)
        half = draw(st.integers(0, len(keys)))
        first = draw(_odd_map({key: context[key] for key in keys[:half]}))
        second = draw(_odd_map({key: context[key] for key in keys[half:]}))
        return wire.example(first, second) + draw(st.sampled_from([b"", wire.unknown(9, wire.SGROUP)]))
    lists = {
        key: wire.feature_list([draw(_odd_feature(*step)) for step in steps]) for key, steps in record.lists.items()
    }
    return wire.sequence_example(draw(_odd_map(context)), draw(_odd_map(lists)))


# ---- Comparing ----


def _plain(value: Any) -> Any:
    """Plain Python values, floats by their bits and times by their numbers, so that equal means the same."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "M":
        return value.view(np.int64).tolist()
    if isinstance(value, np.ndarray):
        floats = value.dtype.name == "bfloat16"
        return _plain((value.astype(np.float32) if floats else value).tolist())
    if isinstance(value, np.generic):
        return _plain(np.asarray(value))
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, tuple):
        return tuple([_plain(part) for part in value])
    if isinstance(value, complex):
        return value.real.hex(), value.imag.hex()
    return value.hex() if isinstance(value, float) else value


def _rows(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for batch in batches:
        columns = {name: _plain(list(column)) for name, column in batch.items()}
        (count,) = {len(column) for column in columns.values()} or {0}
        rows += [{name: column[i] for name, column in columns.items()} for i in range(count)]
    return rows


def _expected(records: list[Record]) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in record.row.items()} for record in records]


# ---- The laws ----


@settings(max_examples=150)
@given(data=st.data())
def test_a_row_comes_back_as_it_was_stored(data) -> None:
    schema, [one] = data.draw(schemas_and_records(most=1))
    row = rk.decode(payload(one, schema), schema)
    assert list(row) == list(schema)
    assert {name: _plain(value) for name, value in row.items()} == _expected([one])[0]


@settings(max_examples=150)
@given(data=st.data())
def test_any_form_that_protobuf_reads_the_same_is_the_same_row(data) -> None:
    schema, [one] = data.draw(schemas_and_records(most=1))
    row = rk.decode(data.draw(odd_payload(one, schema)), schema)
    assert {name: _plain(value) for name, value in row.items()} == _expected([one])[0]


@settings(max_examples=100)
@given(data=st.data())
def test_batches_are_stacked_rows_however_they_are_read(data, tmp_path) -> None:
    schema, records = data.draw(schemas_and_records())
    if not len(schema):
        return
    payloads = [
        data.draw(odd_payload(one, schema)) if data.draw(st.integers(0, 4)) == 0 else payload(one, schema)
        for one in records
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3)))
    folder = _written(tmp_path, payloads, cuts, data.draw(st.booleans()))
    dataset = rk.open(folder, schema=schema)
    batch_size = data.draw(st.integers(1, len(records) + 2))
    threads, prefetch = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    batches = list(dataset.batches(batch_size, threads=threads, prefetch=prefetch))
    assert _rows(batches) == _expected(records)
    full, rest = divmod(len(records), batch_size)
    sizes = [len(next(iter(batch.values()))) for batch in batches]
    assert sizes == [batch_size] * full + ([rest] if rest else [])

    columns = data.draw(st.lists(st.sampled_from(list(schema)), unique=True, min_size=1))
    some = list(dataset.batches(batch_size, columns=columns, threads=threads, prefetch=prefetch))
    names = [name for name in schema if name in columns]
    assert all(list(batch) == names for batch in some)
    assert _rows(some) == [{name: row[name] for name in names} for row in _expected(records)]


@settings(max_examples=40)
@given(data=st.data())
def test_the_ends_of_slabs_and_reads_fall_anywhere(data, tmp_path) -> None:
    schema = rk.Schema({"n": rk.Int64(), "text": rk.Text(), "blob": rk.Bytes(), "list": rk.Bytes(shape=(None,))})
    sizes = st.one_of(st.integers(0, 40), st.sampled_from([3000, 4095, 4096, 4097, 9000, 20_000]))
    records = []
    for i, size in enumerate(data.draw(st.lists(sizes, min_size=1, max_size=20))):
        row = {"n": i, "text": "t" * (size % 50), "blob": b"%d" % i * size, "list": [b"x", b"y" * size]}
        stored: dict[str, Any] = {
            "n": ("int64", [i]),
            "text": ("bytes", [row["text"].encode()]),  # type: ignore[attr-defined]
            "blob": ("bytes", [row["blob"]]),
            "list": ("bytes", row["list"]),
        }
        records.append(Record(stored, {}, row))
    folder = _written(tmp_path, [payload(one, schema) for one in records], [], data.draw(st.booleans()))
    with pytest.MonkeyPatch.context() as patch:
        # No slab is smaller than a page; what is read at once may be.
        patch.setattr(frame_reading, "SLAB_BYTES", data.draw(st.sampled_from([13, 64, 1000, 4096, 10_000])))
        threads, prefetch = data.draw(st.sampled_from([(1, 0), (2, 2)]))
        batches = list(rk.open(folder, schema=schema).batches(3, threads=threads, prefetch=prefetch))
    assert _rows(batches) == _expected(records)


@settings(max_examples=60)
@given(data=st.data())
def test_keys_in_the_order_of_any_writer_give_the_same_columns(data, tmp_path) -> None:
    # Many rows of one schema, so that the decoder's guesses are right, wrong, and right again.
    schema = rk.Schema({name: rk.Bytes(optional=name > "c") for name in "abcde"})
    orders = data.draw(st.lists(st.permutations("abcde"), min_size=1, max_size=3))
    values = data.draw(st.lists(st.binary(max_size=12), min_size=2, max_size=5))
    runs = data.draw(st.lists(st.tuples(st.sampled_from(orders), st.integers(1, 80)), min_size=1, max_size=6))
    records = []
    for order, length in runs:
        for i in range(length):
            has = {name: values[(i + place) % len(values)] for place, name in enumerate("abcde")}
            for name in "de":
                if (i + ord(name)) % 5 == 0:
                    has[name] = None
            stored: dict[str, Any] = {name: ("bytes", [has[name]]) for name in order if has[name] is not None}
            records.append(Record(stored, {}, has))
    folder = _written(tmp_path, [payload(one, schema) for one in records], [], False)
    batches = list(rk.open(folder, schema=schema).batches(64, threads=1, prefetch=0))
    assert _rows(batches) == _expected(records)


def _written(folder: Path, payloads: list[bytes], cuts: list[int], compressed: bool) -> Path:
    """The payloads in one file or several, in order; whatever was there before is gone."""
    for old in folder.iterdir():
        old.unlink()
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(payloads)], strict=True)):
        data = frames(payloads[begin:end])
        name = f"part-{i:05d}.tfrecord" + (".gz" if compressed else "")
        (folder / name).write_bytes(gzip.compress(data, 1, mtime=0) if compressed else data)
    return folder
