"""Avro files as rows: values as fastavro reads them, and files whose lengths must not be believed."""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import rekord as rk
from rekord.sources.detect import identify_source


def save(path: Path, schema: Any, rows: list[Any], codec: str = "null", **options: Any) -> Path:
    fields = schema if isinstance(schema, list) else [{"name": n, "type": t} for n, t in schema.items()]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows, codec, **options)
    return path


def rows_of(source: Any) -> list[Any]:
    return [row.values for row in source.rows()]


def refused(path: Path, code: str) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.avro(path).facts()
    assert (caught.value.code, caught.value.location.path) == (code, str(path))
    return caught.value


ROWS = [{"id": i, "x": i / 4, "name": None if i % 3 else f"n{i}", "tags": ["a"] * (i % 2)} for i in range(500)]
FIELDS = {
    "id": "long",
    "x": "double",
    "name": ["null", "string"],
    "tags": {"type": "array", "items": "string"},
}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_records_are_rows_with_the_values_of_fastavro(tmp_path, codec):
    path = save(tmp_path / "a.avro", FIELDS, ROWS, codec, sync_interval=1000)
    source = rk.sources.avro(path)
    with path.open("rb") as file:
        assert rows_of(source) == list(fastavro.reader(file)) == ROWS
    assert dict(source.facts().schema) == {
        "id": rk.Int64(),
        "x": rk.Float32(),
        "name": rk.Text(optional=True),
        "tags": rk.Text(shape=(None,)),
    }
    assert (source.facts().rows, identify_source(path).kind) == (500, "avro")


def test_snappy_and_zstandard_are_read(tmp_path):
    plain = save(tmp_path / "plain.avro", {"x": "long"}, [{"x": i} for i in range(50)]).read_bytes()
    head, sync = plain.split(plain[-16:], 1)[0], plain[-16:]
    block = plain[len(head) + 16 : -16]
    data = block[2:]  # after the count and the length
    assert len(data) == 50
    for name, packed in (
        ("snappy", pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")),
        ("zstandard", pa.Codec("zstd").compress(data, asbytes=True)),
    ):
        out = io.BytesIO()
        codec = head.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + bytes([2 * len(name)]) + name.encode())
        assert codec != head
        out.write(codec + sync + b"\x64" + _long(len(packed)) + packed + sync)
        (tmp_path / "a.avro").write_bytes(out.getvalue())
        assert rows_of(rk.sources.avro(tmp_path / "a.avro")) == [{"x": i} for i in range(50)]


def _long(number: int) -> bytes:
    number <<= 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_logical_types_have_their_meaning(tmp_path):
    utc = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    token = uuid.UUID(int=5)
    path = save(
        tmp_path / "a.avro",
        {
            "at": {"type": "long", "logicalType": "timestamp-micros"},
            "day": ["null", {"type": "int", "logicalType": "date"}],
            "hour": {"type": "int", "logicalType": "time-millis"},
            "price": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            "token": {"type": "string", "logicalType": "uuid"},
            "kind": {"type": "enum", "name": "kind", "symbols": ["a", "b"]},
            "nest": {"type": "record", "name": "nest", "fields": [{"name": "x", "type": "boolean"}]},
        },
        [
            {
                "at": utc,
                "day": datetime.date(2024, 2, 29),
                "hour": datetime.time(1, 0, 1),
                "price": decimal.Decimal("1.25"),
                "token": token,
                "kind": "b",
                "nest": {"x": True},
            }
        ],
    )
    source = rk.sources.avro(path)
    assert rows_of(source) == [
        {
            "at": utc,
            "day": datetime.datetime(2024, 2, 29),
            "hour": 3601,
            "price": 1.25,
            "token": str(token),
            "kind": "b",
            "nest/x": True,
        }
    ]
    assert source.facts().schema["at"] == rk.Timestamp(tz="UTC")


@pytest.mark.parametrize(
    ("kind", "feature"),
    [
        ({"type": "map", "values": "int"}, "x"),
        (["int", "string"], "x"),
        ({"type": "array", "items": "null"}, "x"),
        ({"type": "array", "items": {"type": "fixed", "name": "none", "size": 0}}, "x"),
        (["null", "row"], "x"),
        ({"type": "record", "name": "a", "fields": [{"name": "y", "type": {"type": "map", "values": "int"}}]}, "x/y"),
    ],
)
def test_types_that_no_column_holds_are_refused_before_a_row_is_read(tmp_path, kind, feature):
    path = save(tmp_path / "a.avro", [{"name": "id", "type": "int"}, {"name": "x", "type": kind}], [])
    assert refused(path, "X525").location.feature == feature


# Files that must not be believed.


def test_a_block_that_expands_without_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("rekord.sources.avro"), "MAX_BLOCK_BYTES", 1 << 20)
    path = save(tmp_path / "a.avro", {"x": "bytes"}, [{"x": bytes(4 << 20)}], "deflate")
    assert "decompressed" in str(refused(path, "X524").found)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_a_small_block_that_expands_a_thousandfold_is_refused(tmp_path, codec):
    path = save(tmp_path / "a.avro", {"x": {"type": "array", "items": "int"}}, [{"x": [0] * (5 << 20)}], codec)
    assert path.stat().st_size < 20_000
    assert "expand to more than 4,194,304" in str(refused(path, "X524").found)


@pytest.mark.parametrize("cut", [1, 20, 60, 200])
def test_a_truncated_file_is_corrupt(tmp_path, cut):
    path = save(tmp_path / "a.avro", FIELDS, ROWS[:20])
    path.write_bytes(path.read_bytes()[:-cut])
    refused(path, "X524")


def test_lengths_and_counts_are_not_believed(tmp_path):
    path = save(tmp_path / "a.avro", {"x": "string"}, [{"x": "abc"}])
    data = path.read_bytes()
    sync = data[-16:]
    head = data[: data.index(sync) + 16]
    for block in (
        b"\xfe\xff\xff\xff\x0f" + b"\x08\x06abc",  # two billion records
        b"\x02" + b"\xfe\xff\xff\xff\x0f" + b"\x06abc",  # a block of two gigabytes
        b"\x02\x08" + b"\xfe\xff\xff\x0f",  # a string that is longer than its block
        b"\x02\x0a\x06abcd",  # a byte that no record has
        b"\x02\x08\x07abc",  # a negative length
        b"\x01\x08\x06abc",  # a negative count
    ):
        path.write_bytes(head + block + sync)
        refused(path, "X524")
    path.write_bytes(head + b"\x02\x08\x06abc" + bytes(16))
    assert "marker" in str(refused(path, "X524").found)


def test_a_file_of_something_else_and_an_empty_file_are_refused(tmp_path):
    path = tmp_path / "a.avro"
    path.write_bytes(b"x,y\n1,2\n")
    refused(path, "X524")
    path.write_bytes(b"")
    refused(path, "X520")
    refused(save(path, {"x": "int"}, []), "X520")
