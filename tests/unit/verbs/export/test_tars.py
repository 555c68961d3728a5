"""WebDataset tars: members, keys, shards, and the way back."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rekord as rk

SCHEMA = rk.Schema(
    {
        "image": rk.Image(),
        "mask": rk.Mask(classes=4, of="image"),
        "filename": rk.Text(),
        "label": rk.Label(["cat", "dog"]),
        "text": rk.Text(),
        "note": rk.Text(optional=True),
        "cube": rk.Tensor("uint16", (2, 3)),
        "vec": rk.Float32((3,)),
        "boxes": rk.Boxes(),
        "tokens": rk.Int64((None,)),
        "blob": rk.Bytes(),
        "second": rk.Image(),
    }
)


def image(mode: str = "RGB", colour: int = 0, format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (8, 6), colour).save(file, format)
    return file.getvalue()


def row(i: int) -> dict[str, object]:
    return {
        "image": image(format="JPEG"),
        "mask": image("L", i % 4),
        "filename": f"some.folder/{i}.x.jpg",
        "label": i % 2,
        "text": f"é\n{i}",
        "note": None if i % 2 else "n",
        "cube": np.arange(6, dtype=np.uint16).reshape(2, 3) + i,
        "vec": [i, 0.1, -1],
        "boxes": np.full((i % 3, 4), 0.25),
        "tokens": list(range(i % 3)),
        "blob": bytes([i, 0, 255]),
        "second": image(),
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rk.write([row(i) for i in range(10)], tmp_path / "ds", schema=SCHEMA, progress=False)
    return tmp_path / "ds"


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive.getmembers()}  # type: ignore[union-attr]


def test_a_record_is_a_member_for_each_kind_of_value(place: Path, tmp_path: Path) -> None:
    rk.export(place, tmp_path / "out.tar")
    found = members(tmp_path / "out.tar")
    key = "some.folder/3_x"
    mine = {name[len(key) + 1 :]: data for name, data in found.items() if name.startswith(key + ".")}
    assert sorted(mine) == [
        *("blob.bin", "boxes.npy", "cls", "cube.npy", "jpg", "json"),
        *("second.png", "seg.png", "txt", "vec.npy"),
    ]
    assert mine["jpg"] == row(3)["image"]
    assert mine["seg.png"] == row(3)["mask"]
    assert mine["cls"] == b"1"
    assert mine["txt"] == "é\n3".encode()
    assert json.loads(mine["json"]) == {"filename": "some.folder/3.x.jpg", "tokens": []}
    cube = np.load(io.BytesIO(mine["cube.npy"]))
    assert (cube.dtype, cube.tolist()) == (np.dtype("uint16"), row(3)["cube"].tolist())  # type: ignore[attr-defined]


def test_a_tar_that_is_written_again_gives_the_same_records(place: Path, tmp_path: Path) -> None:
    rk.export(place, tmp_path / "out.tar")
    rk.write(tmp_path / "out.tar", tmp_path / "again", schema=SCHEMA, progress=False)
    (shard,), (again,) = place.glob("train-*"), (tmp_path / "again").glob("train-*")
    assert again.read_bytes() == shard.read_bytes()


@pytest.mark.parametrize("name", ["../up.jpg", "CON", "a/b/c.d.png", "", None, "000000001", "x\ny"])
def test_a_name_comes_back_however_unsafe_it_is_as_a_key(tmp_path: Path, name: str | None) -> None:
    schema = rk.Schema({"label": rk.Int64(), "filename": rk.Text(optional=True)})
    rows = [{"label": 0, "filename": name}, {"label": 1, "filename": name}]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.tar")
    assert all(".." not in key and key[0] != "/" for key in members(tmp_path / "out.tar"))
    again = rk.write(tmp_path / "out.tar", tmp_path / "again", schema=schema, progress=False)
    assert [one["filename"] for one in again["train"]] == [name, name]


def test_members_of_a_record_lie_together_and_the_tar_is_a_whole_one(place: Path, tmp_path: Path) -> None:
    rk.export(place, tmp_path / "out.tar")
    data = (tmp_path / "out.tar").read_bytes()
    assert len(data) % 10240 == 0
    assert data.endswith(bytes(1024))
    assert data[257:263] == b"ustar\0"
    keys = [name.split(".x")[0].rsplit(".", 1)[0] for name in members(tmp_path / "out.tar")]
    runs = [key for i, key in enumerate(keys) if i == 0 or keys[i - 1].split("_x")[0] != key.split("_x")[0]]
    assert len(runs) == 10


def test_shards_have_numbers_and_are_not_larger_than_asked(place: Path, tmp_path: Path) -> None:
    report = rk.export(place, tmp_path / "out.tar", shard_size=40_960)
    shards = sorted(tmp_path.glob("out-*.tar"))
    assert [path.name for path in shards] == [f"out-{i:06d}.tar" for i in range(len(shards))]
    assert len(shards) > 1
    assert report.files == len(shards)
    assert not (tmp_path / "out.tar").exists()
    assert all(path.stat().st_size <= 40_960 + 10_240 for path in shards)
    names = [name for path in shards for name in members(path) if name.endswith(".cls")]
    assert len(names) == len(set(names)) == 10


def test_splits_are_tars_of_a_folder(tmp_path: Path) -> None:
    schema = rk.Schema({"id": rk.Int64(), "text": rk.Text()})
    rows = [{"id": i, "text": str(i)} for i in range(20)]
    ds = rk.write(rows, tmp_path / "ds", schema=schema, split={"train": 0.5, "val": 0.5}, progress=False)
    rk.export(ds, tmp_path / "out", format="webdataset", shard_size="1MB")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "train-000000.tar",
        "val-000000.tar",
    ]
    assert len(members(tmp_path / "out/val-000000.tar")) == 2 * len(ds["val"])


def test_records_without_a_name_are_numbered(tmp_path: Path) -> None:
    rows = [{"label": i} for i in range(3)]
    rk.write(rows, tmp_path / "ds", schema=rk.Schema({"label": rk.Int64()}), progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.tar")
    assert members(tmp_path / "out.tar") == {f"{i:09d}.cls": b"%d" % i for i in range(3)}


def test_a_record_without_any_value_is_still_one(tmp_path: Path) -> None:
    schema = rk.Schema({"note": rk.Text(optional=True)})
    rk.write([{"note": None}, {"note": "x"}], tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.tar")
    assert members(tmp_path / "out.tar") == {"000000000.json": b"{}", "000000001.json": b'{"note":"x"}'}


def test_labels_by_name_stand_in_json(tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Label(["cat", "dog"])})
    rk.write([{"label": 1}], tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.tar", labels="names")
    assert members(tmp_path / "out.tar") == {"000000000.json": b'{"label":"dog"}'}


@pytest.mark.parametrize(
    ("features", "column"),
    [({"masks": rk.Bytes((None,))}, "masks"), ({"a/b": rk.Bytes(), "a.b": rk.Bytes()}, "a.b")],
)
def test_columns_that_no_member_can_hold_are_refused(
    tmp_path: Path, features: dict[str, rk.Bytes], column: str
) -> None:
    values = {name: [b"x"] if one.shape else b"x" for name, one in features.items()}
    rk.write([values], tmp_path / "ds", schema=rk.Schema(features), progress=False)
    with pytest.raises(rk.UsageError) as caught:
        rk.export(tmp_path / "ds", tmp_path / "out.tar")
    assert (caught.value.code, caught.value.location.feature) == ("U676", column)
    assert caught.value.what == f"`{column}` cannot be written as WebDataset"


def test_a_long_name_is_kept(tmp_path: Path) -> None:
    name = "ü" * 80 + "/" + "b" * 150
    schema = rk.Schema({"label": rk.Int64(), "filename": rk.Text()})
    rk.write([{"label": 1, "filename": name}], tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.tar")
    assert list(members(tmp_path / "out.tar")) == [f"{name}.cls"]
