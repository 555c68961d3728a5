"""`Writer`: the file appears when it is complete, and a bad row costs nothing but itself."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from faulty_storage import FaultyStorage

from rekord.codec.encode import encode
from rekord.dataset.read import records
from rekord.dataset.writer import Writer
from rekord.errors import DatasetError, EncodeError, UsageError
from rekord.schema import Float32, Int64, Schema, Text
from rekord.testing import frames

SCHEMA = Schema({"label": Int64(range=(0, 10**9)), "name": Text(optional=True)})
ROWS = [{"label": i, "name": f"row {i}" if i % 3 else None} for i in range(100)]
PAYLOADS = [encode(row, SCHEMA) for row in ROWS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.tfrecord"


@pytest.mark.parametrize("compression", [None, "none", "gzip", "zlib"])
def test_rows_are_written_in_order(path: Path, compression: str | None) -> None:
    with Writer(path, SCHEMA, compression=compression) as writer:
        for i, row in enumerate(ROWS):
            assert writer.records == i
            writer.write(row)
        assert not path.exists()
    assert list(records(path)) == PAYLOADS
    assert os.listdir(path.parent) == [path.name]
    if compression in (None, "none"):
        assert path.read_bytes() == frames(PAYLOADS)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_rows_and_columns_mix_and_give_the_same_bytes(path: Path, compression: str | None) -> None:
    columns = {name: [row[name] for row in ROWS[10:60]] for name in SCHEMA}
    batch = pa.RecordBatch.from_pylist(ROWS[60:90])
    with Writer(path, SCHEMA, compression=compression) as writer:
        for row in ROWS[:10]:
            writer.write(row)
        writer.write_columns(columns)
        writer.write_columns(batch)
        assert writer.records == 90
        writer.write_columns(pa.Table.from_batches([batch[:0]]))
        for row in ROWS[90:]:
            writer.write(row)
        assert writer.records == 100
    assert list(records(path)) == PAYLOADS
    other = path.with_name("rows")
    with Writer(other, SCHEMA, compression=compression) as writer:
        for row in ROWS:
            writer.write(row)
    assert other.read_bytes() == path.read_bytes()


def test_a_bad_row_is_named_and_left_out(path: Path) -> None:
    with Writer(path, SCHEMA) as writer:
        writer.write(ROWS[0])
        for expected in (1, 2):
            with pytest.raises(EncodeError) as caught:
                writer.write({"label": -1})
            where = caught.value.location
            assert (caught.value.code, where.row, where.feature, where.path) == (
                "E311",
                expected,
                "label",
                str(path),
            )
        assert writer.records == 1
        writer.write(ROWS[1])
        assert writer.records == 2
    assert list(records(path)) == PAYLOADS[:2]


@pytest.mark.parametrize("bad", [{"label": [1, 2, -1]}, {"label": [1, 2], "name": [b"\xff", "a"]}, {"label": [1.5]}])
def test_a_bad_batch_is_left_out_whole(path: Path, bad: dict[str, Any]) -> None:
    with Writer(path, SCHEMA) as writer:
        writer.write(ROWS[0])
        writer.write_columns({"label": np.array([1, 2]), "name": ["row 1", "row 2"]})
        with pytest.raises(EncodeError) as caught:
            writer.write_columns(bad)
        row = [i for i, one in enumerate(bad["label"]) if one in (-1, 1.5)] or [0]
        assert (caught.value.location.row, caught.value.location.path) == (3 + row[0], str(path))
        writer.write({"label": 3})
        assert writer.records == 4
    assert list(records(path)) == [*PAYLOADS[:3], encode({"label": 3}, SCHEMA)]


def test_when_the_block_raises_nothing_appears(path: Path) -> None:
    path.write_bytes(b"what was here before")

    def work(failure: type[BaseException]) -> None:
        with Writer(path, SCHEMA) as writer:
            writer.write(ROWS[0])
            raise failure

    for failure in (RuntimeError, KeyboardInterrupt, SystemExit):
        with pytest.raises(failure):
            work(failure)
        assert path.read_bytes() == b"what was here before"
        assert os.listdir(path.parent) == [path.name]


def test_a_bad_row_that_nobody_catches_ends_the_block(path: Path) -> None:
    with pytest.raises(EncodeError), Writer(path, SCHEMA) as writer:
        writer.write({"label": "a"})
    assert os.listdir(path.parent) == []


def test_a_closed_writer_is_not_written_to(path: Path) -> None:
    with Writer(path, SCHEMA) as writer:
        writer.write(ROWS[0])
    for use in (
        lambda: writer.write(ROWS[0]),
        lambda: writer.write_columns({"label": [1]}),
        writer.__enter__,
    ):
        with pytest.raises(UsageError) as caught:
            use()
        assert (caught.value.code, caught.value.what, caught.value.location.path) == (
            "U607",
            "writer is closed",
            str(path),
        )
    writer.close()
    assert list(records(path)) == PAYLOADS[:1]
    assert writer.records == 1


def test_a_writer_works_without_a_block_too(path: Path) -> None:
    writer = Writer(path, SCHEMA)
    writer.write(ROWS[0])
    assert not path.exists()
    writer.close()
    assert list(records(path)) == PAYLOADS[:1]
    empty = path.with_name("empty")
    Writer(empty, SCHEMA).close()
    assert empty.read_bytes() == b""


def test_a_writer_that_is_dropped_leaves_nothing(path: Path) -> None:
    writer = Writer(path, SCHEMA)
    writer.write(ROWS[0])
    assert len(os.listdir(path.parent)) == 1
    del writer
    assert os.listdir(path.parent) == []
    given_up = Writer(path, SCHEMA)
    given_up.write(ROWS[0])
    given_up.discard()
    assert os.listdir(path.parent) == []
    with pytest.raises(UsageError):
        given_up.write(ROWS[0])


def test_a_failure_to_write_that_is_swallowed_publishes_nothing(path: Path) -> None:
    storage = FaultyStorage(fail_at=2, fault="enospc")

    def work() -> None:
        with Writer(path, Schema({"x": Text()}), storage=storage) as writer:
            # The write of the first full block fails; the caller goes on as if nothing had been.
            for _ in range(4):
                writer.write({"x": "x" * 1_000_000})
            with pytest.raises(DatasetError) as full:
                writer.write({"x": "x" * 1_000_000})
            assert full.value.code == "X504"
            writer.write({"x": "y"})

    with pytest.raises(UsageError) as caught:
        work()
    assert (caught.value.code, caught.value.what) == (
        "U607",
        "writer was interrupted, and records are missing",
    )
    assert os.listdir(path.parent) == []


def test_an_interrupt_between_encoding_and_writing_publishes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(frames: Any) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        with Writer(path, Schema({"x": Text()})) as writer:
            writer.write({"x": "a"})
            with monkeypatch.context() as patch:
                patch.setattr(writer._sink, "write", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    writer.write_columns({"x": ["b"]})

    with pytest.raises(UsageError) as caught:
        work()
    assert (caught.value.code, caught.value.what) == (
        "U607",
        "writer was interrupted, and records are missing",
    )
    assert os.listdir(path.parent) == []


def test_a_place_that_cannot_hold_it_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught, Writer(tmp_path / "gone" / "x", SCHEMA):
        raise AssertionError("the block must not begin")
    assert (caught.value.code, caught.value.location.path) == ("X504", str(tmp_path / "gone" / "x"))


def test_wrong_arguments_are_told_before_anything_is_made(path: Path) -> None:
    for arguments in ((SCHEMA, "GZIP"), ({"label": Int64()}, None)):
        with pytest.raises(UsageError) as caught:
            Writer(path, arguments[0], compression=arguments[1])  # type: ignore[arg-type]
        assert caught.value.code == "U605"
    assert os.listdir(path.parent) == []


def test_rows_are_written_in_blocks_and_memory_stays_flat(path: Path) -> None:
    schema = Schema({"x": Float32((None,))})
    row = {"x": np.zeros(25_000, np.float32)}
    storage = FaultyStorage()
    with Writer(path, schema, storage=storage) as writer:
        for _ in range(50):
            writer.write(row)
        tracemalloc.start()
        for _ in range(200):
            writer.write(row)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1 << 20
    sizes = [operation.n_bytes for operation in storage.operations if operation.name == "write"]
    assert all(4 << 20 <= size < 5 << 20 for size in sizes[:-1])
    assert len(sizes) == 6


def test_large_batches_are_written_in_blocks(path: Path) -> None:
    storage = FaultyStorage()
    with Writer(path, Schema({"x": Float32((100,))}), storage=storage) as writer:
        writer.write_columns({"x": np.zeros((50_000, 100), np.float32)})
    sizes = [operation.n_bytes for operation in storage.operations if operation.name == "write"]
    assert max(sizes) < 5 << 20
    assert writer.records == 50_000


def test_flush_points_are_kept_for_the_index(path: Path) -> None:
    schema = Schema({"x": Text()})
    with Writer(path, schema, compression="zlib") as writer:
        for _ in range(3):
            writer.write({"x": "x" * 1_500_000})
    each = len(encode({"x": "x" * 1_500_000}, schema)) + 16
    assert [point.offset for point in writer.flush_points] == [each, 2 * each, 3 * each]
    assert [len(payload) for payload in records(path)] == [len(encode({"x": "x" * 1_500_000}, schema))] * 3
