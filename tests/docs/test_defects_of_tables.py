"""What is said of defects in tables, texts, arrays, tars and records: every cell of the table, made and met."""

from __future__ import annotations

import gzip
import io
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import rekord as rk
from rekord.testing import damage, wire

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}


def cell(source: str, defect: str, code: str) -> Callable[[Any], Any]:
    def kept(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert CELLS.setdefault((source, defect, code), build) is build
        return build

    return kept


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table):
    assert defect_table("Tables, text, arrays and records") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


# CSV.


def csv(place: Any, text: str | bytes, name: str = "a.csv") -> Callable[[], Any]:
    path = place.put(name, text)
    return lambda: rk.sources.csv(path)


@cell("csv", "empty", "X520")
def _(place):
    return place.case(csv(place, ""), place.root / "a.csv")


@cell("csv", "truncated", "E358")
def _(place):
    return place.case(csv(place, 'x,y\n1,a\n2,"b'), place.root / "a.csv", row=1, line=3, good=1)


@cell("csv", "truncated", "X524")
def _(place):
    make = csv(place, gzip.compress(b"x,y\n1,a\n"), "a.csv.gz")
    return place.case(make, place.cut(place.root / "a.csv.gz"))


@cell("csv", "wrong type", "E356")
def _(place):
    path = place.put("a.csv", "x,y\n1,a\none,b\n")
    make = lambda: rk.sources.csv(path, columns={"x": rk.Int64()})  # noqa: E731
    return place.case(make, path, row=1, line=3, feature="x", good=1)


@cell("csv", "wrong type", "X521")
def _(place):
    return place.case(csv(place, b"x,y\n1,\0\n"), place.root / "a.csv")


@cell("csv", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.csv(place.root / "none.csv"), place.root / "none.csv")


@cell("csv", "duplicate key", "X522")
def _(place):
    return place.case(csv(place, "x,x\n1,2\n"), place.root / "a.csv", line=1, feature="x")


@cell("csv", "bad encoding", "E353")
def _(place):
    make = csv(place, b"x,y\n1,a\n2,caf\xe9\n")
    return place.case(make, place.root / "a.csv", row=1, line=3, feature="y", good=1)


@cell("csv", "bad encoding", "X585")
def _(place):
    return place.case(csv(place, "x,y\n1,a\n".encode("utf-16")[:-1]), place.root / "a.csv", line=2)


@cell("csv", "inconsistent columns", "E354")
def _(place):
    return place.case(csv(place, "x,y\n1,a\n2\n"), place.root / "a.csv", row=1, line=3, good=1)


@cell("csv", "inconsistent columns", "X523")
def _(place):
    place.put("a.csv", "x,y\n1,a\n")
    path = place.put("b.csv", "x,z\n1,a\n")
    return place.case(lambda: rk.sources.csv(place.root), path, feature="y")


@cell("csv", "unreadable", "X503")
def _(place):
    make = csv(place, "x,y\n1,a\n")
    return place.case(make, place.unreadable(place.root / "a.csv"))


@cell("csv", "too large", "E357")
def _(place):
    place.patch.setattr("rekord.sources.lines.MAX_ROW_BYTES", 1 << 10)
    make = csv(place, "x,y\n1,a\n2," + "b" * (5 << 20) + "\n3,c\n")
    return place.case(make, place.root / "a.csv", row=1, line=3, good=2)


# JSON lines.


def jsonl(place: Any, text: str | bytes, name: str = "a.jsonl") -> Callable[[], Any]:
    path = place.put(name, text)
    return lambda: rk.sources.jsonl(path)


@cell("jsonl", "empty", "X520")
def _(place):
    return place.case(jsonl(place, "\n"), place.root / "a.jsonl")


@cell("jsonl", "truncated", "E355")
def _(place):
    return place.case(jsonl(place, '{"x": 1}\n{"x":'), place.root / "a.jsonl", row=1, line=2, good=1)


@cell("jsonl", "truncated", "X524")
def _(place):
    return place.case(jsonl(place, '[{"x": 1},\n{"x":', "a.json"), place.root / "a.json")


@cell("jsonl", "wrong type", "E350")
def _(place):
    return place.case(jsonl(place, '{"x": 1}\n[1]\n'), place.root / "a.jsonl", row=1, line=2, good=1)


@cell("jsonl", "wrong type", "S129")
def _(place):
    return place.case(jsonl(place, '{"x": 1}\n{"x": "a"}\n'), place.root / "a.jsonl", feature="x")


@cell("jsonl", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.jsonl(place.root / "none.jsonl"), place.root / "none.jsonl")


@cell("jsonl", "duplicate key", "E355")
def _(place):
    make = jsonl(place, '{"x": 1}\n{"x": 1, "x": 2}\n')
    return place.case(make, place.root / "a.jsonl", row=1, line=2, good=1)


@cell("jsonl", "bad encoding", "E353")
def _(place):
    make = jsonl(place, b'{"x": "a"}\n{"x": "caf\xe9"}\n')
    return place.case(make, place.root / "a.jsonl", row=1, line=2, good=1)


@cell("jsonl", "bad encoding", "X585")
def _(place):
    return place.case(jsonl(place, '{"x": 1}\n'.encode("utf-16")[:-1]), place.root / "a.jsonl", line=1)


@cell("jsonl", "inconsistent columns", "E309")
def _(place):
    # Every row of a file of this size would be looked at before the first is written.
    place.patch.setattr(import_module("rekord.sources.jsonl"), "HEAD_ROWS", 1)
    place.patch.setattr(import_module("rekord.sources.jsonl"), "SAMPLE_ROWS", 1)
    make = jsonl(place, '{"x": 1}\n' * 2 + '{"x": 2, "z": 1}\n' + '{"x": 3}\n' * 6)
    return place.case(make, place.root / "a.jsonl", row=2, line=3, feature="z", good=8)


@cell("jsonl", "unreadable", "X503")
def _(place):
    make = jsonl(place, '{"x": 1}\n')
    return place.case(make, place.unreadable(place.root / "a.jsonl"))


@cell("jsonl", "too large", "E357")
def _(place):
    place.patch.setattr("rekord.sources.lines.MAX_ROW_BYTES", 1 << 10)
    make = jsonl(place, '{"x": "a"}\n{"x": "' + "b" * (5 << 20) + '"}\n{"x": "c"}\n')
    return place.case(make, place.root / "a.jsonl", row=1, line=2, good=2)


# Text.


def text(place: Any, content: str | bytes, name: str = "a.txt") -> Callable[[], Any]:
    path = place.put(name, content)
    return lambda: rk.sources.text(path)


@cell("text", "empty", "X520")
def _(place):
    return place.case(text(place, ""), place.root / "a.txt")


@cell("text", "truncated", "X524")
def _(place):
    make = text(place, gzip.compress(b"a\nb\n"), "a.txt.gz")
    return place.case(make, place.cut(place.root / "a.txt.gz"))


@cell("text", "wrong type", "X521")
def _(place):
    return place.case(text(place, b"a\n\0\n"), place.root / "a.txt")


@cell("text", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.text(place.root / "none.txt"), place.root / "none.txt")


@cell("text", "bad encoding", "E353")
def _(place):
    return place.case(text(place, b"a\ncaf\xe9\n"), place.root / "a.txt", row=1, line=2, feature="text", good=1)


@cell("text", "bad encoding", "X585")
def _(place):
    return place.case(text(place, "a\nb\n".encode("utf-16")[:-1]), place.root / "a.txt", line=2)


@cell("text", "unreadable", "X503")
def _(place):
    make = text(place, "a\n")
    return place.case(make, place.unreadable(place.root / "a.txt"))


@cell("text", "too large", "E357")
def _(place):
    place.patch.setattr("rekord.sources.lines.MAX_ROW_BYTES", 1 << 10)
    make = text(place, "a\n" + "b" * (5 << 20) + "\nc\n")
    return place.case(make, place.root / "a.txt", row=1, line=2, good=2)


# Parquet and Arrow.


def table(**columns: Any) -> Any:
    return pa.table(columns or {"x": [1, 2, 3], "y": ["a", "b", "c"]})


def put_table(place: Any, kind: str, content: Any, name: str = "a") -> Any:
    path = place.root / f"{name}.{kind}"
    if kind == "parquet":
        parquet.write_table(content, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, content.schema) as writer:
            writer.write_table(content)
    return path


def source_of(kind: str, path: Any) -> Callable[[], Any]:
    return lambda: getattr(rk.sources, kind)(path)


def not_utf8(kind: Any = None) -> Any:
    """Texts of which the second is not UTF-8; Arrow believes what it is given."""
    return pa.array([b"a", b"caf\xe9", b"c"], pa.binary()).view(kind or pa.string())


def with_tables(kind: str) -> None:
    @cell(kind, "empty", "X520")
    def _(place):
        path = put_table(place, kind, table().slice(0, 0))
        return place.case(source_of(kind, path), path)

    @cell(kind, "truncated", "X524")
    def _(place):
        path = put_table(place, kind, table())
        return place.case(source_of(kind, path), place.cut(path))

    @cell(kind, "wrong type", "X525")
    def _(place):
        path = put_table(place, kind, table(x=[{"a": [[1], [2, 3]]}]))
        return place.case(source_of(kind, path), path, feature="x/a")

    @cell(kind, "wrong type", "X524")
    def _(place):
        path = place.put(f"a.{kind}", "x,y\n1,2\n")
        return place.case(source_of(kind, path), path)

    @cell(kind, "missing file", "X501")
    def _(place):
        path = place.root / f"none.{kind}"
        return place.case(source_of(kind, path), path)

    @cell(kind, "duplicate key", "X522")
    def _(place):
        twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
        path = put_table(place, kind, twice)
        return place.case(source_of(kind, path), path, feature="x")

    @cell(kind, "inconsistent columns", "X523")
    def _(place):
        put_table(place, kind, table(x=[1]), "a")
        path = put_table(place, kind, table(x=["b"]), "b")
        return place.case(source_of(kind, place.root), path, feature="x")

    @cell(kind, "unreadable", "X503")
    def _(place):
        path = put_table(place, kind, table())
        return place.case(source_of(kind, path), place.unreadable(path))


with_tables("parquet")
with_tables("arrow")


@cell("parquet", "bad encoding", "E318")
def _(place):
    path = put_table(place, "parquet", table(y=not_utf8()))
    return place.case(source_of("parquet", path), path, row=1, feature="y", good=2)


@cell("arrow", "bad encoding", "X524")
def _(place):
    path = put_table(place, "arrow", table(y=not_utf8()))
    return place.case(source_of("arrow", path), path)


# NumPy's files.


def saved(place: Any, array: Any, name: str = "a.npy") -> Any:
    path = place.root / name
    np.save(path, array)
    return path


def zipped(place: Any, name: str = "a.npz", **arrays: Any) -> Any:
    path = place.root / name
    np.savez(path, **arrays)
    return path


@cell("npy", "empty", "X520")
def _(place):
    path = saved(place, np.zeros((0, 3)))
    return place.case(source_of("npy", path), path)


@cell("npy", "truncated", "X524")
def _(place):
    path = saved(place, np.zeros((9, 30)))
    return place.case(source_of("npy", path), place.cut(path))


@cell("npy", "wrong type", "X525")
def _(place):
    path = saved(place, np.array([{"a": 1}], object))
    return place.case(source_of("npy", path), path, feature="x")


@cell("npy", "missing file", "X501")
def _(place):
    path = place.root / "none.npy"
    return place.case(source_of("npy", path), path)


@cell("npy", "inconsistent columns", "X523")
def _(place):
    saved(place, np.zeros((2, 3)), "a.npy")
    path = saved(place, np.zeros((2, 4)), "b.npy")
    return place.case(source_of("npy", place.root), path, feature="x")


@cell("npy", "unreadable", "X503")
def _(place):
    path = saved(place, np.zeros((2, 3)))
    return place.case(source_of("npy", path), place.unreadable(path))


@cell("npy", "too large", "X524")
def _(place):
    path = saved(place, np.zeros((2, 3)))
    place.put("a.npy", path.read_bytes().replace(b"(2, 3), }     ", b"(2, 99999999)}"))
    return place.case(source_of("npy", path), path)


@cell("npz", "empty", "X520")
def _(place):
    path = zipped(place)
    return place.case(source_of("npz", path), path)


@cell("npz", "truncated", "X524")
def _(place):
    path = zipped(place, x=np.zeros((9, 30)))
    return place.case(source_of("npz", path), place.cut(path))


@cell("npz", "wrong type", "X525")
def _(place):
    path = zipped(place, x=np.array([{"a": 1}], object))
    return place.case(source_of("npz", path), path, feature="x")


@cell("npz", "missing file", "X501")
def _(place):
    path = place.root / "none.npz"
    return place.case(source_of("npz", path), path)


@cell("npz", "duplicate key", "X522")
def _(place):
    path = zipped(place, x=np.zeros(2))
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("x.npy", archive.read("x.npy"))
    return place.case(source_of("npz", path), path, feature="x")


@cell("npz", "inconsistent columns", "X523")
def _(place):
    path = zipped(place, x=np.zeros(2), y=np.zeros(3))
    return place.case(source_of("npz", path), path, feature="y")


@cell("npz", "unreadable", "X503")
def _(place):
    path = zipped(place, x=np.zeros(2))
    return place.case(source_of("npz", path), place.unreadable(path))


@cell("npz", "too large", "X524")
def _(place):
    path = zipped(place, x=np.zeros((2, 3)))
    member = saved(place, np.zeros((2, 3)), "b.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", member.read_bytes().replace(b"(2, 3), }     ", b"(2, 99999999)}"))
    return place.case(source_of("npz", path), path)


# WebDataset.


def tar(place: Any, *members: tuple[str, bytes]) -> Any:
    """A good sample, and these members."""
    return packed(place, ("1.jpg", image()), ("1.cls", b"0"), *members)


def packed(place: Any, *members: tuple[str, bytes]) -> Any:
    path = place.root / "a.tar"
    with tarfile.open(path, "w") as archive:
        for member, data in members:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def image() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6)).save(file, "jpeg")
    return file.getvalue()


@cell("webdataset", "empty", "X520")
def _(place):
    path = place.put("a.tar", bytes(10240))
    return place.case(source_of("webdataset", path), path)


@cell("webdataset", "empty", "E376")
def _(place):
    tar(place)
    return place.case(source_of("webdataset", place.root), place.put("b.tar", b""), row=0, good=1)


@cell("webdataset", "empty", "E330")
def _(place):
    path = tar(place, ("2.jpg", b""), ("2.cls", b"1"))
    return place.case(source_of("webdataset", path), path, row=1, feature="image", good=1)


@cell("webdataset", "truncated", "E376")
def _(place):
    path = tar(place, ("2.jpg", image()), ("2.cls", b"1"))
    return place.case(source_of("webdataset", path), place.cut(path, 4608), row=1, good=1)


@cell("webdataset", "wrong type", "E377")
def _(place):
    path = tar(place, ("2.jpg", image()), ("2.cls", b"cat"))
    return place.case(source_of("webdataset", path), path, row=1, good=1)


@cell("webdataset", "wrong type", "E321")
def _(place):
    path = tar(place, ("2.jpg", b"a text"), ("2.cls", b"1"))
    return place.case(source_of("webdataset", path), path, row=1, feature="image", good=1)


@cell("webdataset", "missing file", "X501")
def _(place):
    path = place.root / "none.tar"
    return place.case(source_of("webdataset", path), path)


@cell("webdataset", "orphan", "E301")
def _(place):
    path = tar(place, ("2.cls", b"1"))
    return place.case(source_of("webdataset", path), path, row=1, feature="image", good=1)


@cell("webdataset", "duplicate key", "E378")
def _(place):
    path = tar(place, ("2.jpg", image()), ("2.cls", b"1"), ("2.json", b'{"label": 1}'))
    return place.case(source_of("webdataset", path), path, row=1, feature="label", good=1)


@cell("webdataset", "bad encoding", "E377")
def _(place):
    path = tar(place, ("2.jpg", image()), ("2.txt", b"caf\xe9"))
    return place.case(source_of("webdataset", path), path, row=1, good=1)


@cell("webdataset", "inconsistent columns", "E309")
def _(place):
    place.patch.setattr(import_module("rekord.sources.webdataset"), "_PEEK_ROWS", 1)
    path = packed(place, ("1.txt", b"a"), ("2.txt", b"b"), ("2.note", b"c"))
    return place.case(source_of("webdataset", path), path, row=1, feature="note", good=1)


@cell("webdataset", "unreadable", "X503")
def _(place):
    path = tar(place)
    return place.case(source_of("webdataset", path), place.unreadable(path))


@cell("webdataset", "too large", "E377")
def _(place):
    path = tar(place, ("2.jpg", image() + bytes(5000)), ("2.cls", b"1"))
    place.patch.setattr(import_module("rekord.sources.webdataset"), "_MAX_MEMBER_BYTES", 4000)
    return place.case(source_of("webdataset", path), path, row=1, good=1)


@cell("webdataset", "too large", "E327")
def _(place):
    path = tar(place, ("2.jpg", image()), ("2.cls", b"1"), ("2.other", bytes(3900)))
    place.patch.setattr(import_module("rekord.sources.webdataset"), "_MAX_MEMBER_BYTES", 4000)
    return place.case(source_of("webdataset", path), path, row=1, good=1)


# Records.

RECORDS = [wire.example_bytes({"x": [i], "name": [b"row %d" % i]}) for i in range(4)]
SCHEMA = rk.Schema({"x": rk.Int64(), "name": rk.Text()})
FRAMES = damage.frames(RECORDS)
AT = len(damage.frames(RECORDS[:2]))  # of the third record


def records(place: Any, data: bytes, name: str = "a.tfrecord") -> Callable[[], Any]:
    path = place.put(name, data)
    return lambda: rk.sources.records(path, SCHEMA)


def third(payload: bytes) -> bytes:
    return damage.frames([*RECORDS[:2], payload, RECORDS[3]])


def at(payload_offset: int) -> dict[str, int]:
    """Where in the third record."""
    return {"row": 2, "record": 2, "offset": AT, "payload_offset": payload_offset}


@cell("records", "empty", "X520")
def _(place):
    return place.case(records(place, b""), place.root / "a.tfrecord")


@cell("records", "truncated", "F104")
def _(place):
    make = records(place, FRAMES[:-6])
    at = len(damage.frames(RECORDS[:3]))
    return place.case(make, place.root / "a.tfrecord", row=3, record=3, offset=at, good=3)


@cell("records", "truncated", "F102")
def _(place):
    make = records(place, damage.corrupt_payload(FRAMES, 2))
    return place.case(make, place.root / "a.tfrecord", row=2, record=2, offset=AT, good=3)


@cell("records", "truncated", "C202")
def _(place):
    make = records(place, gzip.compress(FRAMES, 0, mtime=0), "a.tfrecord.gz")
    path = place.cut(place.root / "a.tfrecord.gz")
    where = {"record": 1, "offset": AT // 2, "compressed_offset": path.stat().st_size}
    return place.case(make, path, row=1, **where, good=1)


@cell("records", "wrong type", "F118")
def _(place):
    place.put("a.tfrecord", FRAMES)
    path = place.put("b.tfrecord", "x,y\n1,2\n")
    return place.case(lambda: rk.sources.records(place.root, SCHEMA), path, record=0, offset=0, good=4)


@cell("records", "wrong type", "D403")
def _(place):
    make = records(place, third(wire.example_bytes({"x": [0.5], "name": [b"a"]})))
    return place.case(make, place.root / "a.tfrecord", **at(26), feature="x", good=3)


@cell("records", "missing file", "X501")
def _(place):
    path = place.root / "none.tfrecord"
    return place.case(lambda: rk.sources.records(path, SCHEMA), path)


@cell("records", "missing file", "X505")
def _(place):
    place.put("train-00000-of-00002.tfrecord", FRAMES)
    return place.case(lambda: rk.sources.records(place.root), place.root / "train-*-of-00002.tfrecord")


@cell("records", "bad encoding", "D404")
def _(place):
    make = records(place, third(wire.example_bytes({"x": [1], "name": [b"caf\xe9"]})))
    return place.case(make, place.root / "a.tfrecord", **at(14), feature="name", good=3)


@cell("records", "inconsistent columns", "D401")
def _(place):
    make = records(place, third(wire.example_bytes({"x": [1]})))
    return place.case(make, place.root / "a.tfrecord", row=2, record=2, offset=AT, feature="name", good=3)


@cell("records", "inconsistent columns", "D408")
def _(place):
    path = place.put("a.tfrecord", third(wire.example_bytes({"x": [1], "name": [b"a"], "z": [1]})))
    make = lambda: rk.sources.records(path, SCHEMA, strict=True)  # noqa: E731
    return place.case(make, path, **at(33), feature="z", good=3)


@cell("records", "unreadable", "X503")
def _(place):
    make = records(place, FRAMES)
    return place.case(make, place.unreadable(place.root / "a.tfrecord"))


@cell("records", "too large", "F105")
def _(place):
    make = records(place, FRAMES + damage.claim_length(1 << 40, b"abc"))
    return place.case(make, place.root / "a.tfrecord", row=4, record=4, offset=len(FRAMES), good=4)
