"""`rk.balance(…, augment=…)`: copies that are not identical, beside records that are."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_storage import Crash, FaultyStorage
from PIL import Image as Pillow
from sample_conversions import disable_fsync, find_leftovers, read_tree

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.dataset.manifest import read_manifest
from rekord.dataset.shard_index import open_shard_index
from rekord.verbs.balance import prepare_balance
from rekord.verbs.options import BalanceOptions

SCHEMA = rk.Schema(
    {
        "image": rk.Image(key="image/encoded"),
        "mask": rk.Mask(classes=4, ignore=255),
        "label": rk.Label(2),
        "n": rk.Int64(),
        "digest": rk.Text(key="image/key/sha256"),
    }
)
EVERYTHING = ["flip", "crop", "rotate", "colour"]


def encoded(pixels: Any) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "png")
    return file.getvalue()


def decoded(data: bytes) -> Any:
    return np.asarray(Pillow.open(io.BytesIO(data)))


def rows_of(counts: tuple[int, int]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for n, label in enumerate(rng.permutation(np.repeat([0, 1], counts)).tolist()):
        mask = rng.choice(np.array([0, 2, 255], np.uint8), (12, 16)).repeat(2, 0).repeat(2, 1)
        image = np.stack([mask, 255 - mask, mask // 2], -1)
        rows.append({"image": encoded(image), "mask": encoded(mask), "label": label, "n": n, "digest": "?"})
    return rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rk.write(rows_of((20, 4)), tmp_path / "in", schema=SCHEMA, shards=2, progress=False, workers=1)
    return tmp_path / "in"


def balanced(path: Any, out: Path, **options: Any) -> rk.Dataset:
    return rk.balance(path, out, progress=False, **{"workers": 1, "augment": EVERYTHING, **options})


def payloads(split: rk.Split) -> list[bytes]:
    return [bytes(one) for path in split.paths for one in rk.records(path)]


def test_originals_are_the_same_bytes_and_copies_differ_from_all(data, tmp_path):
    made = balanced(data, tmp_path / "out")["train"]
    assert Counter(row["label"] for row in made) == {0: 20, 1: 20}
    old, new = Counter(payloads(rk.open(data)["train"])), Counter(payloads(made))
    assert set(new.values()) == {1}
    assert set(old) <= set(new)
    added = [rk.decode(one, SCHEMA) for one in new if one not in old]
    assert [row["label"] for row in added] == [1] * 16
    assert set(Counter(row["n"] for row in added).values()) == {4}
    assert len({row["image"] for row in made}) == 40
    assert rk.check(tmp_path / "out").findings == []


def test_masks_of_copies_are_where_their_images_are_and_have_no_new_ids(data, tmp_path):
    made = balanced(data, tmp_path / "out", augment=["flip", "crop", "rotate"], shuffle=False)["train"]
    rows = list(made)[24:]
    assert len(rows) == 16
    for row in rows:
        image, mask = decoded(row["image"]).astype(int), decoded(row["mask"])
        assert set(np.unique(mask).tolist()) <= {0, 2, 255}
        void = mask == 255
        # The image shows its mask; pixels at edges are between two classes, and those inside are not.
        assert ((image[..., 0] > 127) == void).mean() > 0.9


def test_a_marker_pixel_is_found_where_the_mask_says(tmp_path):
    image, mask = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40), np.uint8)
    image[18:23, 12:17], mask[18:23, 12:17] = 255, 3
    row = {"image": encoded(image), "mask": encoded(mask), "n": 0, "digest": "?"}
    rows = [{**row, "label": int(i == 0)} for i in range(20)]
    rk.write(rows, tmp_path / "in", schema=SCHEMA, progress=False, workers=1)
    made = balanced(tmp_path / "in", tmp_path / "out", augment=["flip", "crop", "rotate"], shuffle=False)
    for one in list(made["train"])[20:]:
        bright, marked = decoded(one["image"])[..., 0].astype(float), decoded(one["mask"]) == 3
        middle = [np.average(axis, weights=bright) for axis in np.indices((40, 40))]
        assert np.abs(np.array(middle) - np.argwhere(marked).mean(axis=0)).max() < 0.5


def test_one_worker_and_three_make_the_same_bytes_and_another_seed_others(data, tmp_path):
    for workers in (1, 3):
        balanced(data, tmp_path / str(workers), shards=6, workers=workers)
    assert read_tree(tmp_path / "1") == read_tree(tmp_path / "3")
    balanced(data, tmp_path / "other", shards=6, seed=1)
    old = set(payloads(rk.open(data)["train"]))
    ours = set(payloads(rk.open(tmp_path / "1")["train"])) - old
    assert ours.isdisjoint(set(payloads(rk.open(tmp_path / "other")["train"])) - old)


def test_copies_that_look_alike_are_told(data, tmp_path, capsys):
    for number, (names, told) in enumerate((("flip", True), ("flip,colour", False))):
        assert run_command_line(["balance", str(data), str(tmp_path / str(number)), "--augment", names]) == 0
        assert ("all copies of a record are identical" in capsys.readouterr().err) is told
    once = ["--augment", "flip", "--strategy", "1=8"]  # one copy of each record: none that it could be like
    assert run_command_line(["balance", str(data), str(tmp_path / "once"), *once]) == 0
    assert "look alike" not in capsys.readouterr().err


def test_shards_do_not_decide_what_a_copy_looks_like(data, tmp_path):
    made = [balanced(data, tmp_path / str(n), shards=n)["train"] for n in (1, 5)]
    assert payloads(made[0]) == payloads(made[1])


def test_the_index_has_what_the_copies_have(tmp_path):
    rk.write(rows_of((9, 3)), tmp_path / "in", schema=SCHEMA, index=["digest", "n"], progress=False, workers=1)
    made = balanced(tmp_path / "in", tmp_path / "out")["train"]
    assert read_manifest(str(tmp_path / "out")).splits["train"].classes["label"] == {"0": 9, "1": 9}
    index = open_shard_index(made.paths[0])
    assert index.has_columns(["digest", "n"])
    table = index.columns(0, ["digest", "n"])
    assert table["digest"].to_pylist() == [row["digest"] for row in made]
    assert table["n"].to_pylist() == [row["n"] for row in made]
    assert len(set(table["digest"].to_pylist())) == 7  # `?` of the originals


def test_keys_that_no_schema_declares_stay_in_the_originals(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(2)})
    wide = rk.Schema({**schema.context, "more": rk.Int64()})
    with rk.Writer(folder / "train.tfrecord", wide) as writer:
        for row in rows_of((5, 2)):
            writer.write({"image": row["image"], "label": row["label"], "more": row["n"]})
    made = balanced(rk.open(folder / "train.tfrecord", schema=schema), tmp_path / "out", shuffle=False)
    old = [bytes(one) for one in rk.records(folder / "train.tfrecord")]
    assert payloads(made["train"])[:7] == old
    assert all("more" not in rk.decode(one) for one in payloads(made["train"])[7:])


def test_an_image_that_cannot_be_decoded_is_named_with_its_record(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(2)})
    plain = rk.Schema({"image": rk.Bytes(), "label": rk.Int64()})
    good = encoded(np.zeros((4, 4), np.uint8))
    with rk.Writer(folder / "train.tfrecord", plain) as writer:
        for i in range(6):
            writer.write({"image": b"no image" if i == 4 else good, "label": int(i == 4)})
    with pytest.raises(rk.RekordError) as caught:
        balanced(rk.open(folder / "train.tfrecord", schema=schema), tmp_path / "out")
    where = caught.value.location
    assert (caught.value.code, where.path, where.record) == ("D409", str(folder / "train.tfrecord"), 4)
    assert where.feature == "image"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_dies_at_any_step_is_ended_by_the_next_run_with_the_same_bytes(data, tmp_path, monkeypatch):
    disable_fsync(monkeypatch)
    requested = BalanceOptions(shards=2, workers=1, augment=["flip", "colour"])
    storage = FaultyStorage()
    (tmp_path / "whole").mkdir()
    prepare_balance(data, tmp_path / "whole" / "out", requested, storage=storage).run(progress=False)
    whole = read_tree(tmp_path / "whole" / "out")
    for step in range(1, len(storage.operations) + 1):
        out = tmp_path / str(step) / "out"
        out.parent.mkdir()
        with suppress(Crash):
            prepare_balance(data, out, requested, storage=FaultyStorage(fail_at=step)).run(progress=False)
        assert not out.exists() or read_tree(out) == whole
        prepare_balance(data, out, requested).run(progress=False)
        assert read_tree(out) == whole
        assert find_leftovers(out) == []
