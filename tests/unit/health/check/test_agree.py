"""`check` with a schema and reading with it agree: what one refuses, the other reports, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.health.check.run import build_schema_rules
from rekord.health.finding import Finding, Report
from rekord.health.scan import scan_file
from rekord.testing import (
    bytes_list,
    entry,
    example,
    feature,
    feature_list,
    features,
    float_list,
    frames,
    int64_list,
    sequence_example,
)

PutFile = Callable[..., Path]

COLUMNS: dict[str, Any] = {
    "scalar": rk.Int64(),
    "byte": rk.Int64(dtype="uint8", optional=True),
    "whole": rk.Int64(dtype="uint64", default=3),
    "half": rk.Float32(dtype="float16"),
    "pair": rk.Float32(shape=(2,), optional=True),
    "pairs": rk.Int64(shape=(None, 2), default=[[1, 2]]),
    "text": rk.Text(shape=(None,)),
    "name": rk.Text(optional=True),
    "blob": rk.Bytes(shape=(2,)),
    "cube": rk.Tensor("uint16", shape=(None, 2)),
    "flags": rk.Tensor("bool", shape=(2,), optional=True),
    "sparse": rk.Sparse("float32", size=4),
    "holes": rk.Sparse("int64", size=4, optional=True),
    "boxes": rk.Boxes(key="boxes"),
    "nested": rk.Int64(shape=(None, None), partitions=("nested/lengths",)),
    "deep": rk.Float32(shape=(None, None, None), partitions=("deep/0", "deep/1"), optional=True),
}
KEYS = {name: one.record_keys(name) for name, one in COLUMNS.items()}

ints = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 255, 256, 1 << 40]), max_size=4)
floats = st.lists(st.sampled_from([0.0, 0.5, 1.0, 70000.0, float("inf")]), max_size=4)
strings = st.lists(st.sampled_from([b"", b"a", b"\xc3", b"\xa9", b"\0\1", b"\0\1\0\1", bytes(8)]), max_size=3)
values = st.one_of(
    st.just(feature()),
    ints.map(lambda one: feature(("int64", int64_list(one)))),
    floats.map(lambda one: feature(("float", float_list(one)))),
    strings.map(lambda one: feature(("bytes", bytes_list(one)))),
)
likely = {
    "int64": ints.map(lambda one: feature(("int64", int64_list(one)))),
    "float": floats.map(lambda one: feature(("float", float_list(one)))),
    "bytes": strings.map(lambda one: feature(("bytes", bytes_list(one)))),
}


def held_against(path: Path, schema: rk.Schema) -> list[Finding]:
    rules = build_schema_rules(schema)
    found: list[Finding] = []
    for item in scan_file(str(path), Report()):
        found += [item] if isinstance(item, Finding) else [one for rule in rules for one in rule.update(item)]
    return found + [one for rule in rules for one in rule.end_file(str(path))]


def refused(payload: bytes, schema: rk.Schema) -> bool:
    try:
        rk.decode(payload, schema)
    except rk.DecodeError:
        return True
    return False


@st.composite
def entries(draw: Any, name: str, others: st.SearchStrategy[bytes] = values) -> list[tuple[str, bytes]]:
    """Some of the keys of a column, mostly with the kind that they should have."""
    kinds = COLUMNS[name].record_kinds()
    out = []
    for key, kind in zip(KEYS[name], kinds, strict=True):
        if draw(st.integers(0, 9)):
            out.append((key, draw(likely[kind] if draw(st.integers(0, 7)) else others)))
    return out


@settings(max_examples=100)
@given(st.data())
def test_a_record_is_reported_exactly_where_reading_it_is_refused(put_file: PutFile, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(COLUMNS)))
    schema = rk.Schema({name: COLUMNS[name]})
    records = data.draw(st.lists(entries(name), min_size=1, max_size=6))
    payloads = [example(features([entry(key, value) for key, value in one])) for one in records]
    found = held_against(put_file(frames(payloads)), schema)
    reported = {one.record for one in found if one.code.startswith("D4")}
    assert reported == {i for i, payload in enumerate(payloads) if refused(payload, schema)}


# A step without a value has no kind in a batch of columns, so that an empty list of another kind is no finding.
EMPTY = [feature((kind, b"")) for kind in ("int64", "float", "bytes")]
STEPS = ["scalar", "half", "pair", "text", "sparse", "nested"]


@settings(max_examples=100)
@given(st.data())
def test_a_sequence_is_reported_exactly_where_reading_it_is_refused(put_file: PutFile, data: Any) -> None:
    name = data.draw(st.sampled_from(STEPS))
    schema = rk.Schema(context={}, steps={name: COLUMNS[name]})
    payloads = []
    for _ in range(data.draw(st.integers(1, 4))):
        steps = [
            data.draw(entries(name, values.filter(lambda one: one not in EMPTY)))
            for _ in range(data.draw(st.integers(0, 3)))
        ]
        lists = [
            entry(key, feature_list([dict(step)[key] for step in steps if key in dict(step)]))
            for key in KEYS[name]
            if data.draw(st.integers(0, 9))
        ]
        payloads.append(sequence_example(features([]), features(lists)))
    # So that the file is one of sequences, whatever was drawn.
    other = feature_list([feature(("int64", int64_list([1, 2, 3])))] * 2)
    payloads = [sequence_example(features([]), features([entry("other", other)]))] * 9 + payloads
    found = held_against(put_file(frames(payloads)), schema)
    # Steps of several kinds in one list are found on the way, before any rule.
    reported = {one.record for one in found if one.code.startswith("D4") or one.code == "H726"}
    assert reported == {i for i, payload in enumerate(payloads) if refused(payload, schema)}


def test_numbers_of_steps_that_differ_are_told_beside_steps_of_a_wrong_kind(put_file: PutFile) -> None:
    def record(indices: list[bytes], numbers: list[bytes]) -> bytes:
        lists = [entry("x/indices", feature_list(indices)), entry("x/values", feature_list(numbers))]
        return sequence_example(features([]), features(lists))

    one_index, one_text = feature(("int64", int64_list([1]))), feature(("bytes", bytes_list([b"no float"])))
    payloads = [record([one_index], [one_text]), record([one_index], []), record([one_index], [one_text])]
    schema = rk.Schema(context={}, steps={"x": rk.Sparse("float32", size=4)})
    found = held_against(put_file(frames(payloads)), schema)
    assert {(one.code, one.record, one.feature) for one in found if one.record == 1} == {("D407", 1, "x")}
