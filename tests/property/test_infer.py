"""A schema that was inferred from records opens these records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import record_strategies as strategies
from hypothesis import assume, given
from hypothesis import strategies as st

import rekord as rk
from rekord import _core
from rekord.codec.decode import new_batch
from rekord.codec.plan import compile_plan
from rekord.dataset.infer import infer
from rekord.schema import Schema

PutFile = Callable[..., Path]
Kind = Literal["example", "sequence"]

# (kind, payloads)
records = st.one_of(
    st.tuples(st.just("example"), st.lists(strategies.examples(), min_size=1, max_size=4)),
    st.tuples(st.just("sequence"), st.lists(strategies.sequences(), min_size=1, max_size=4)),
)


def has_a_key_twice(payload: bytes, kind: Kind) -> bool:
    """Whether a value stands there that a later one replaces."""
    framed = bytearray(_core.frame(payload))
    extents, *_ = _core.scan(framed, 0, len(framed), len(framed))
    surveyed = _core.survey(framed, extents, kind == "sequence")
    return any(_core.ODD_DUPLICATE_KEY in oddities for _, _, oddities in surveyed)


def has_two_kinds(schema: Schema) -> bool:
    groups = [schema.evidence.get(group, {}) for group in ("features", "context", "steps")]
    return any("differs" in seen for group in groups for seen in group.values())


@given(drawn=records)
def test_a_schema_accepts_every_record_that_it_was_inferred_from(drawn: tuple[Kind, list[bytes]]) -> None:
    kind, payloads = drawn
    assume(not any(has_a_key_twice(payload, kind) for payload in payloads))
    schema = infer(payloads, kind=kind)
    assume(not has_two_kinds(schema))
    for payload in payloads:
        rk.decode(payload, schema)
    # Nor has any of them a key that the schema lacks, but for the one that no column can have for a name.
    keys = {key for group in ("features", "context", "steps") for key in schema.evidence.get(group, {})}
    if "" not in keys:
        batch = new_batch(compile_plan(schema, strict=True), _core.Pool(1 << 20))
        assert [batch.add(payload) for payload in payloads] == [None] * len(payloads)


@given(drawn=records)
def test_present_values_and_bounds_are_those_of_the_decoded_records(drawn: tuple[Kind, list[bytes]]) -> None:
    kind, payloads = drawn
    evidence = infer(payloads, kind=kind).evidence
    group = "features" if kind == "example" else "context"
    decoded: list[dict[str, Any]] = [
        rk.decode(payload, kind=kind) if kind == "example" else rk.decode(payload, kind=kind).context
        for payload in payloads
    ]
    assert set(evidence[group]) == {key for row in decoded for key in row}
    for key, seen in evidence[group].items():
        values = [row[key] for row in decoded if row.get(key) is not None]
        assert seen["present"] == len(values)
        assert seen.get("unset", 0) == sum(key in row and row[key] is None for row in decoded)
        if seen["kind"] is None or "differs" in seen:
            continue
        assert seen["values"] == [min(map(len, values)), max(map(len, values))]
        if seen["kind"] == "int64" and seen["values"][1]:
            flat = [number for value in values for number in value.tolist()]
            assert (seen["min"], seen["max"]) == (min(flat), max(flat))
        if seen["kind"] == "bytes" and seen["values"][1]:
            lengths = [len(string) for value in values for string in value]
            assert seen["bytes"] == [min(lengths), max(lengths)]


@given(drawn=records, limit=st.integers(1, 5))
def test_files_and_payloads_give_the_same_schema(
    put_records: PutFile, drawn: tuple[Kind, list[bytes]], limit: int
) -> None:
    kind, payloads = drawn
    inferred = infer(put_records(payloads), kind=kind, limit=limit)
    assert inferred == infer(payloads, kind=kind, limit=limit)
    assert inferred.evidence["complete"] == (limit >= len(payloads))
