"""Laws of exports: what goes out and comes in again is the same records, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from record_strategies import rows, schemas

import rekord as rk
from rekord.codec.encode_columns import encode_columns
from rekord.sources.base import ColumnChunk
from rekord.sources.jsonl import decode_base64_values


@st.composite
def datasets(draw: st.DrawFn) -> tuple[rk.Schema, list[dict[str, Any]]]:
    schema = draw(schemas())
    # The default of an image may be any bytes, but an image that is given is looked at.
    images = [one for one in schema.values() if isinstance(one, (rk.Image, rk.Mask))]
    assume(len(schema) > 0 and not any(one.has_default for one in images))
    return schema, draw(st.lists(rows(schema), min_size=1, max_size=5))


def written(path: Path, schema: rk.Schema, given_rows: list[dict[str, Any]]) -> list[bytes]:
    with rk.Writer(path, schema) as writer:
        for row in given_rows:
            writer.write(row)
    return list(rk.records(path))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(datasets(), st.sampled_from(["parquet", "arrow"]))
def test_a_table_gives_the_schema_and_the_records_back(
    data: tuple[rk.Schema, list[dict[str, Any]]], kind: str
) -> None:
    schema, given_rows = data
    with tempfile.TemporaryDirectory() as folder:
        before = written(Path(folder) / "a.tfrecord", schema, given_rows)
        out = Path(folder) / f"out.{kind}"
        rk.export(Path(folder) / "a.tfrecord", out, schema=schema)
        source = rk.sources.parquet(out) if kind == "parquet" else rk.sources.arrow(out)
        facts = source.facts()
        assert facts.schema == schema
        again = Path(folder) / "b.tfrecord"
        with open(again, "wb") as file:
            for part in source.parts():
                for chunk in source.read(part):
                    assert isinstance(chunk, ColumnChunk)
                    file.write(encode_columns(chunk.values, schema))
        assert list(rk.records(again)) == before


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(datasets())
def test_lines_of_json_give_the_records_back(data: tuple[rk.Schema, list[dict[str, Any]]]) -> None:
    schema, given_rows = data
    with tempfile.TemporaryDirectory() as folder:
        before = written(Path(folder) / "a.tfrecord", schema, given_rows)
        out = Path(folder) / "out.jsonl"
        refused = None
        try:
            rk.export(Path(folder) / "a.tfrecord", out, schema=schema)
        except rk.RekordError as failure:
            refused = failure.code
        if refused is not None:
            assert refused in ("X560", "U676")  # NaN, and complex numbers
            assert not out.exists()
            return
        again = [decode_base64_values(msgspec.json.decode(line)) for line in out.read_bytes().splitlines()]
        assert [rk.encode(row, schema) for row in again] == before
