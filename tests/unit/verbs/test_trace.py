"""`rk.trace`: the file and line of every record, also after edits; damaged origins are not used."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.dataset.origins import OriginRuns, RowOrigins, origins_path, read_origins
from rekord.errors import RekordError


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    for number in range(3):
        lines = [f"{100 * number + i},{i % 3}" for i in range(20)]
        (root / f"{number}.csv").write_text("\n".join(["x,label", *lines]) + "\n")
    split = {"train": 0.7, "val": 0.3}
    rk.write(root, tmp_path / "data", shuffle=True, split=split, shards=2, label="label", progress=False)
    return tmp_path / "data"


def assert_traced(path: Path, source: Path) -> None:
    found = rk.open(path)
    for name, split in found.items():
        for number, origin in enumerate(rk.trace(path, split=name)):
            line = (source / origin.path).read_text().splitlines()[origin.line - 1]
            assert int(line.split(",")[0]) == split[number]["x"]
            assert (origin.split, origin.record, origin.row) == (name, number, origin.line - 2)


def test_every_record_is_traced_to_its_line(dataset: Path) -> None:
    assert_traced(dataset, dataset.parent / "source")
    assert len(list(rk.trace(dataset))) == 60
    last = rk.trace(dataset, -1, split="val")
    assert last.record == len(rk.open(dataset)["val"]) - 1
    assert str(last) == f"{last.path}, line {last.line}"


def test_an_image_is_its_file(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "in" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "in" / name / "1.png")
    rk.write(tmp_path / "in", tmp_path / "out", progress=False)
    assert str(rk.trace(tmp_path / "out", 0)) == "cat/1.png"


def test_copied_records_keep_their_origins(dataset: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    rk.rewrite(dataset, tmp_path / "rewritten", shards=3, shuffle=True, progress=False)
    rk.rewrite(dataset, tmp_path / "cast", cast={"x": "float32"}, progress=False)
    rk.split(dataset, tmp_path / "split", split={"train": 0.5, "val": 0.5}, progress=False)
    rk.delete(dataset, tmp_path / "deleted", where="x < 110", progress=False)
    rk.relabel(dataset, tmp_path / "relabelled", {"0": "none"}, progress=False)
    for name in ("rewritten", "cast", "split", "deleted", "relabelled"):
        assert_traced(tmp_path / name, source)


def test_appended_records_have_origins_of_their_own(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("x,label\n900,1\n")
    rk.append(dataset, tmp_path / "more.csv", replace=True, progress=False)
    assert str(rk.trace(dataset, -1, split="train")) == "more.csv, line 2"
    assert rk.trace(dataset, 0, split="train").path.endswith(".csv")


@pytest.mark.slow
def test_added_records_say_whether_they_are_copies_or_synthetic(dataset: Path, tmp_path: Path) -> None:
    rk.delete(dataset, tmp_path / "uneven", where="label = 1 AND x > 30", progress=False)
    rk.balance(tmp_path / "uneven", tmp_path / "even", method="smote", k_neighbors=2, progress=False, splits="train")
    kinds = [origin.synthetic for origin in rk.trace(tmp_path / "even", split="train")]
    assert kinds.count(False) == len(rk.open(tmp_path / "uneven")["train"])
    assert kinds.count(True) == len(kinds) - kinds.count(False) > 0
    synthetic = next(origin for origin in rk.trace(tmp_path / "even", split="train") if origin.synthetic)
    assert str(synthetic) == "made from several records"


def test_every_damaged_byte_of_origins_is_noticed(dataset: Path) -> None:
    shard = next(iter(rk.open(dataset)["val"].paths))
    path = Path(origins_path(shard))
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(RekordError) as caught:
            rk.trace(dataset, 0, split="val")
        assert (caught.value.code, caught.value.location.path) == ("X558", shard)
    for end in range(0, len(whole), 11):
        path.write_bytes(whole[:end])
        with pytest.raises(RekordError) as caught:
            rk.trace(dataset, 0, split="val")
        assert caught.value.code == "X558"


def test_origins_of_another_shard_are_not_used(dataset: Path) -> None:
    one, other = rk.open(dataset)["train"].paths
    Path(origins_path(one)).write_bytes(Path(origins_path(other)).read_bytes())
    with pytest.raises(RekordError) as caught:
        rk.trace(dataset, 0, split="train")
    assert caught.value.code == "X558"


def test_a_file_that_lies_with_a_valid_checksum_is_bounded(tmp_path: Path) -> None:
    (tmp_path / ".rekord" / "origins").mkdir(parents=True)
    shard = tmp_path / "train-00000-of-00001.tfrecord"
    header = (
        '{"shard":"blake3:00","records":3,"runs":%s,"paths":%s,"columns":[["record","<u4"],["path","<u4"],'
        '["position","<u4"]]}'
    )
    bodies = [
        (1, 1, [0, 0, 0, 1], b"a"),
        (1, 1, [0, 5, 0, 1], b"a"),
        (3, 1, [0, 0, 0], b""),
        (10**9, 10**9, [0], b""),
    ]
    for number, (runs, paths, values, text) in enumerate(bodies):
        document = (header % (runs, paths)).encode()
        body = struct.pack("<I", len(document)) + document + struct.pack(f"<{len(values)}I", *values) + text
        Path(origins_path(str(shard))).write_bytes(b"rkorig1\n" + hashlib.sha256(body).digest() + body)
        found = read_origins(str(shard), "blake3:00", 3)
        assert (found is not None) == (number == 0)


def test_rows_that_follow_each_other_are_one_run_however_they_arrive() -> None:
    count = 1000
    zeros = np.zeros(count, np.int64)
    rows = RowOrigins([b"a.csv"], np.zeros(count, np.uint32), np.arange(count), np.arange(count) + 2, zeros)
    files = set()
    for step in (1000, 333, 1):
        runs = OriginRuns()
        for begin in range(0, count, step):
            runs.add(rows[begin : begin + step])
        files.add(runs.encode("x:0"))
    assert len(files) == 1
    assert len(files.pop() or b"") < 300


@pytest.mark.parametrize(("record", "split", "code"), [(0, None, "U605"), (0, "vall", "U605"), (99, "train", "U606")])
def test_what_does_not_exist_is_refused(dataset: Path, record: int, split: str | None, code: str) -> None:
    with pytest.raises(RekordError) as caught:
        rk.trace(dataset, record, split=split)
    assert (caught.value.code, caught.value.location.path) == (code, str(dataset))


def test_a_folder_without_origins_is_told(tmp_path: Path) -> None:
    with rk.Writer(tmp_path / "a.tfrecord", rk.Schema({"x": rk.Int64()})) as writer:
        writer.write({"x": 1})
    with pytest.raises(RekordError) as caught:
        rk.trace(tmp_path, 0)
    assert (caught.value.code, caught.value.location.path) == ("X558", str(tmp_path))
