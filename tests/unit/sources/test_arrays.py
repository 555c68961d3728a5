"""NumPy columns as rows: in memory, in .npy and .npz files, and in pandas."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

import rekord as rk
from rekord.sources.arrays import columns, npy, npz, pandas
from rekord.sources.base import is_partitioned


def chunks(source, part_bytes: int = 1 << 26) -> list:
    if is_partitioned(source):
        return [chunk for part in source.parts(part_bytes) for chunk in source.read(part)]
    return list(source.rows())


def written(source, folder, part_bytes: int = 1 << 26) -> list[dict]:
    """The rows after they were written under the schema of the facts."""
    schema = source.facts().schema
    with rk.Writer(folder / "out.tfrecord", schema) as writer:
        for chunk in chunks(source, part_bytes):
            writer.write_columns(chunk.values)
    return [
        {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
        for row in (rk.decode(record, schema) for record in rk.records(folder / "out.tfrecord"))
    ]


def refusal(call) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


def test_a_dict_of_columns_is_read_row_by_row(tmp_path):
    source = columns({"n": np.arange(9000), "m": np.ones((9000, 2, 2), np.float32), "t": ["a", None] * 4500})
    assert source.facts().schema == rk.Schema(
        {"n": rk.Int64(), "m": rk.Tensor("float32", shape=(2, 2)), "t": rk.Text(optional=True)}
    )
    assert [chunk.first for chunk in chunks(source)] == [0, 4096, 8192]
    assert written(source, tmp_path)[8999] == {"n": 8999, "m": [[1.0, 1.0], [1.0, 1.0]], "t": None}
    assert not is_partitioned(source)


def test_a_pandas_frame_is_read_without_its_index(tmp_path):
    import pandas as pd

    source = pandas(pd.DataFrame({"n": [1, 2], "t": ["x", None]}, index=[7, 8]))
    assert source.facts().schema == rk.Schema({"n": rk.Int64(), "t": rk.Text(optional=True)})
    assert source.facts().rows == 2
    assert written(source, tmp_path) == [{"n": 1, "t": "x"}, {"n": 2, "t": None}]


def test_what_is_no_table_is_refused():
    assert refusal(lambda: columns([1, 2])).code == "U605"
    assert refusal(lambda: pandas({"a": [1]})).code == "U605"
    assert refusal(columns({"a": np.arange(2), "b": np.arange(3)}).facts).code == "S132"
    assert refusal(columns({}).facts).code == "S126"


@pytest.mark.parametrize("part_bytes", [1, 100, 1 << 26])
def test_rows_of_an_array_file_are_the_same_for_parts_of_any_size(tmp_path, part_bytes):
    array = np.arange(600, dtype=">i4").reshape(-1, 3)
    np.save(tmp_path / "a.npy", array)
    source = npy(tmp_path / "a.npy", column="v")
    assert source.facts().schema == rk.Schema({"v": rk.Int64(shape=(3,), dtype="int32")})
    assert source.facts().rows == 200
    assert [row["v"] for row in written(source, tmp_path, part_bytes)] == array.tolist()
    assert chunks(source, 100)[1].first == 8
    assert pickle.loads(pickle.dumps(source)) == source
    assert len(pickle.loads(pickle.dumps(source.parts(1)))) == 200


def test_array_files_of_a_folder_follow_each_other(tmp_path):
    np.save(tmp_path / "b.npy", np.arange(3.0, dtype=np.float32))
    np.save(tmp_path / "a.npy", np.arange(2.0, dtype=np.float32))
    source = npy(tmp_path)
    assert [(chunk.path, chunk.first, chunk.values["x"].tolist()) for chunk in chunks(source)] == [
        ("a.npy", 0, [0.0, 1.0]),
        ("b.npy", 0, [0.0, 1.0, 2.0]),
    ]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_each_array_of_an_archive_is_a_column(tmp_path, save):
    n = 30_000
    save(
        tmp_path / "a.npz",
        n=np.arange(n),
        t=np.array([f"é{i}" for i in range(n)]),
        m=np.arange(n * 64, dtype=np.uint16).reshape(n, 8, 8),
    )
    source = npz(tmp_path / "a.npz")
    assert source.facts().schema == rk.Schema(
        {"n": rk.Int64(), "t": rk.Text(), "m": rk.Tensor("uint16", shape=(8, 8))}
    )
    assert source.facts().rows == n
    pieces = chunks(source)
    assert len(pieces) > 1
    assert [piece.first for piece in pieces] == list(np.cumsum([0] + [piece.rows for piece in pieces[:-1]]))
    row = written(npz(tmp_path / "a.npz", columns=["n", "t"]), tmp_path)[12_345]
    assert row == {"n": 12_345, "t": "é12345"}
    assert pieces[-1].values["m"][-1, -1, -1] == (n * 64 - 1) % 65536


@pytest.mark.parametrize(
    "array",
    [
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([(1, 2.0)], [("a", int), ("b", float)]),
        np.array([{}, []], object),
        np.float32(3),
        np.asfortranarray(np.ones((3, 4))),
        np.ones((3, 0)),
    ],
)
def test_an_array_that_holds_no_rows_of_values_is_refused_by_name(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    failure = refusal(npy(tmp_path / "a.npy").facts)
    assert (failure.code, failure.location.path, failure.location.feature) == (
        "X525",
        str(tmp_path / "a.npy"),
        "x",
    )


def _npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "X520"),
        (_npy(np.ones(0)), "X520"),
        (b"text\n", "X524"),
        (b"\x93NUMPY\x01\x00", "X524"),
        (b"\x93NUMPY\x07\x00" + bytes(100), "X524"),
        (_npy(np.arange(100))[:-1], "X524"),
        (_npy(np.arange(100)).replace(b"(100,)", b"(1" + b"0" * 3 + b",)", 1), "X524"),
        (_npy(np.arange(10)).replace(b"(10,), }        ", b"(10, 99999999,)}", 1), "X524"),
    ],
)
def test_a_damaged_array_file_is_refused_by_name(tmp_path, content, code):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    failure = refusal(npy(path).facts)
    assert (failure.code, failure.location.path) == (code, str(path))


def test_a_damaged_archive_is_refused_by_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.arange(5000) * 7919 % 1000, b=np.arange(5000))
    whole = path.read_bytes()
    print("seed 3")
    chosen = np.random.default_rng(3)
    damaged = [b"", b"text", whole[: len(whole) // 2], whole[:-30]]
    for _ in range(60):
        at = int(chosen.integers(len(whole)))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << int(chosen.integers(8))]) + whole[at + 1 :])
    codes = set()
    for i, content in enumerate(damaged):
        other = tmp_path / f"{i}.npz"
        other.write_bytes(content)
        try:
            npz(other).facts()
            chunks(npz(other))
        except rk.RekordError as failure:
            codes.add((failure.code, failure.location.path == str(other)))
    assert {("X520", True), ("X524", True)} <= codes
    assert codes <= {(code, True) for code in ("X520", "X522", "X523", "X524", "X525")}


def test_an_archive_without_arrays_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "none")
    assert refusal(npz(tmp_path / "a.npz").facts).code == "X520"


def test_arrays_of_different_lengths_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.arange(3), names=np.array(["x", "y"]))
    failure = refusal(npz(tmp_path / "a.npz").facts)
    assert (failure.code, failure.location.feature) == ("X523", "names")
    assert npz(tmp_path / "a.npz", columns=["a"]).facts().rows == 3
    assert refusal(npz(tmp_path / "a.npz", columns=["b"]).facts).code == "X522"


def test_files_with_different_arrays_are_refused_by_file_and_column(tmp_path):
    np.save(tmp_path / "1.npy", np.arange(3))
    np.save(tmp_path / "2.npy", np.arange(3.0))
    failure = refusal(npy(tmp_path).facts)
    assert (failure.code, failure.location.path) == ("X523", str(tmp_path / "2.npy"))
    np.savez(tmp_path / "1.npz", a=np.arange(3))
    np.savez(tmp_path / "2.npz", b=np.arange(3))
    failure = refusal(npz(tmp_path).facts)
    assert (failure.code, failure.location.path) == ("X523", str(tmp_path / "2.npz"))


def test_a_file_that_changed_since_it_was_looked_at_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(10))
    source = npy(path)
    (part,) = source.parts()
    np.save(path, np.arange(12))
    failure = refusal(lambda: list(source.read(part)))
    assert (failure.code, failure.location.path) == ("X526", str(path))
