"""Transforms when reading give what the same transforms gave when writing, through everything that reads."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sample_conversions import edit_manifest

import rekord as rk
from rekord import transforms as T
from rekord.testing import corrupt_payload

RNG = np.random.default_rng(5)
LAYOUT = rk.layouts.deeplab(classes=5)
SCHEMA = rk.Schema(
    {
        "image": rk.Image(),
        "mask": rk.Mask(classes=5, ignore=9),
        "boxes": rk.Boxes(),
        "labels": rk.Int64(shape=(None,), key="image/object/class/label"),
        "label": rk.Label(["cat", "dog"]),
        "text": rk.Text(optional=True),
        "vector": rk.Float32(shape=(3,)),
    }
)


def saved(pixels: np.ndarray, format: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


def row(number: int) -> dict[str, Any]:
    height, width = RNG.integers(24, 60, 2)
    boxes = np.sort(RNG.random((number % 3, 2, 2)), axis=1).reshape(-1, 4).astype(np.float32)
    return {
        "image": saved(RNG.integers(0, 256, (height, width, 3)).astype(np.uint8), ("PNG", "JPEG")[number % 2]),
        "mask": RNG.integers(0, 5, (height, width)).astype(np.uint8),
        "boxes": boxes,
        "labels": np.arange(len(boxes)),
        "label": number % 2,
        "text": None if number % 4 == 0 else f"row {number}",
        "vector": np.arange(3, dtype=np.float32) + number,
    }


ROWS = [row(number) for number in range(12)]
CHAINS = {
    "resize": [T.resize(20, 30)],
    "nearest": [T.resize(20, 30, filter="nearest")],
    "pad": [T.resize(20, 30, fit="pad", pad=7)],
    "fit crop": [T.resize(20, 30, fit="crop", filter="lanczos")],
    "within": [T.resize(20, 30, fit="within", filter="bicubic")],
    "crop": [T.crop(20, 20)],
    "encode": [T.encode("jpeg", 70)],
    "webp": [T.encode("webp")],
    "grayscale": [T.grayscale()],
    "decode": [T.resize(20, 30), T.decode()],
    "normalize": [T.resize(20, 30, fit="pad"), T.normalize("imagenet")],
    "numbers": [T.one_hot("label"), T.resize(9, 9), T.standardize("vector", 1.0, 2.0)],
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("raw") / "out"
    rk.write(ROWS, place, schema=SCHEMA, shards=2, workers=1, progress=False)
    return place


@pytest.fixture(scope="module", params=list(CHAINS))
def both(raw: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The split that was written with transforms, and the one that has them when it is read."""
    steps = CHAINS[request.param]
    place = tmp_path_factory.mktemp("made") / "out"
    made = rk.write(ROWS, place, schema=SCHEMA, transforms=steps, shards=2, workers=1, progress=False)
    return made["train"], rk.open(raw)["train"].transform(*steps)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert [(name, type(column)) for name, column in one.items()] == [
        (name, type(column)) for name, column in other.items()
    ]
    assert plain(one) == plain(other)


def test_the_schema_is_the_same(both):
    written, read = both
    assert written.schema == read.schema
    assert list(written.schema) == list(read.schema)


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True, "seed": 4}, {"threads": 1, "prefetch": 0}, {"rank": 1, "world": 2}],
    ids=["order", "shuffled", "inline", "rank"],
)
def test_batches_are_the_same(both, options):
    written, read = both
    found = list(zip(written.batches(5, **options), read.batches(5, **options), strict=True))
    assert found
    for one, other in found:
        same(one, other)


def test_rows_views_and_pickles_are_the_same(both):
    written, read = both
    read = pickle.loads(pickle.dumps(read))
    same(written[7], read[7])
    same(written[[3, 1, 3]], read[[3, 1, 3]])
    for one, other in zip(written[2:9].select([4, 0]), read[2:9].select([4, 0]), strict=True):
        same(one, other)
    assert len(read.filter(lambda row: row["text"] is None)) == 3


def test_some_columns_are_the_same(both):
    written, read = both
    for columns in (["mask"], ["label", "image"], ["text"], ["vector", "boxes"], []):
        for one, other in zip(written.batches(6, columns=columns), read.batches(6, columns=columns), strict=True):
            same(one, other)


def test_tables_are_the_same(both):
    written, read = both
    assert read.to_arrow().equals(written.to_arrow())


def test_decoded_images_are_the_same(both):
    written, read = both
    if not isinstance(written.schema["image"], rk.Image):
        return
    for options in ({}, {"resize": (6, 7)}):
        for one, other in zip(
            written.batches(5, decode=True, **options), read.batches(5, decode=True, **options), strict=True
        ):
            same(one, other)


def test_a_map_comes_behind_transforms_and_balance_keeps_them(raw):
    split = rk.open(raw)["train"].transform(T.resize(4, 4), T.decode())
    mapped = split.map(lambda batch: {"sum": batch["image"].sum(axis=(1, 2, 3))})
    assert next(iter(mapped.batches(12)))["sum"].tolist() == [int(one["image"].sum()) for one in split]
    balanced = split.balanced("label")
    assert next(iter(balanced.map(lambda batch: batch).batches(4)))["image"].shape == (4, 4, 4, 3)
    assert split.class_weights("label") == {0: 1.0, 1: 1.0}


def test_transforms_one_behind_another_are_one_chain(raw):
    split = rk.open(raw)["train"]
    one = split.transform(T.resize(4, 4)).transform(T.decode())
    other = split.transform(T.chain(T.resize(4, 4), T.decode()))
    same(one[0], other[0])
    both = rk.concat([one, other])
    assert len(both) == 24
    assert both[20]["image"].shape == (4, 4, 3)


def test_splits_with_other_transforms_are_not_put_together(raw):
    split = rk.open(raw)["train"]
    with pytest.raises(rk.UsageError) as caught:
        rk.concat([split, split.transform(T.resize(4, 4))])
    assert (caught.value.code, caught.value.what) == (
        "U656",
        "splits with different transforms cannot be combined",
    )
    with pytest.raises(rk.UsageError):
        rk.mix([(split.transform(T.resize(4, 4)), 1.0)])


def test_a_transform_behind_a_map_is_refused(raw):
    with pytest.raises(rk.UsageError) as caught:
        rk.open(raw)["train"].map(lambda batch: batch).transform(T.resize(4, 4))
    assert (caught.value.code, caught.value.what) == (
        "U691",
        "`transform` after `map` is not supported",
    )


def test_what_has_no_meaning_is_said_at_once(raw):
    with pytest.raises(rk.SchemaError) as caught:
        rk.open(raw)["train"].transform(T.decode())
    assert (caught.value.code, caught.value.location.feature) == ("S139", "image")
    with pytest.raises(rk.SchemaError) as caught:
        rk.open(raw)["train"].transform(T.resize(4, 4)).batches(4, columns=["imag"])
    assert caught.value.code == "S116"


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"threads": 1, "prefetch": 0}])
def test_an_image_that_cannot_be_transformed_names_its_record(tmp_path, options):
    path = tmp_path / "a.tfrecord"
    schema = rk.Schema({"image": rk.Bytes(), "n": rk.Int64()})
    with rk.Writer(path, schema) as writer:
        for number in range(6):
            writer.write({"image": b"no image" if number == 4 else ROWS[0]["image"], "n": number})
    split = rk.open(path, rk.Schema({"image": rk.Image(), "n": rk.Int64()}))["all"].transform(T.resize(4, 4))
    seen = []
    batches = split.batches(3, map=lambda batch: seen.extend(batch["n"].tolist()) or batch, **options)
    with pytest.raises(rk.DecodeError) as caught:
        list(batches)
    where = caught.value.location
    assert (caught.value.code, where.path, where.record, where.feature) == ("D409", str(path), 4, "image")
    assert 4 not in seen
    if not options.get("shuffle"):
        assert seen == [0, 1, 2, 3]
    with pytest.raises(rk.DecodeError) as caught:
        split[4]
    assert (caught.value.location.record, caught.value.location.feature) == (4, "image")
    assert [batch["n"].tolist() for batch in split.batches(6, columns=["n"])] == [[0, 1, 2, 3, 4, 5]]


def test_damage_is_told_as_without_transforms(tmp_path):
    path = tmp_path / "a.tfrecord"
    with rk.Writer(path, rk.Schema({"image": rk.Image()})) as writer:
        for one in ROWS[:4]:
            writer.write({"image": one["image"]})
    path.write_bytes(corrupt_payload(path.read_bytes(), 2))
    split = rk.open(path, rk.Schema({"image": rk.Image()}))["all"].transform(T.resize(4, 4), T.decode())
    with pytest.raises(rk.FrameError) as caught:
        list(split.batches(1))
    assert (caught.value.code, caught.value.location.record) == ("F102", 2)


def test_an_inferred_schema_is_transformed_when_it_is_known(tmp_path):
    path = tmp_path / "a.tfrecord"
    with rk.Writer(path, rk.Schema({"n": rk.Int64()})) as writer:
        for number in range(4):
            writer.write({"n": number})
    split = rk.open(path)["all"].transform(T.cast("n", "float32"))
    assert [one["n"].dtype.name for one in split] == ["float32"] * 4


def test_the_transforms_of_a_dataset_can_be_applied_to_other_rows(tmp_path):
    steps = [T.resize(20, 30, fit="pad"), T.crop(10, 10, at=(1, 2)), T.grayscale(), T.normalize(0.5, 0.25)]
    made = rk.write(ROWS, tmp_path / "out", schema=SCHEMA, transforms=steps, workers=1, progress=False)
    opened = pickle.loads(pickle.dumps(rk.open(tmp_path / "out")))
    assert opened.transforms == T.chain(*steps)
    again = opened.transforms.bind(SCHEMA).apply(dict(ROWS[3]))
    assert np.array_equal(again["image"], made["train"][3]["image"])
    assert rk.open(tmp_path / "out" / "train-00000-of-00001.tfrecord").transforms.steps == ()


@pytest.mark.parametrize(
    "told",
    [
        '[{"name": "sharpen"}]',
        '[{"name": "resize", "height": 3}]',
        '[{"name": "resize", "tall": 3}]',
        '["resize"]',
        '"x"',
        '[{"name": 3}]',
    ],
)
def test_transforms_that_cannot_be_made_again_name_the_manifest(tmp_path, told):
    rk.write(ROWS, tmp_path / "out", schema=SCHEMA, transforms=T.resize(4, 4), workers=1, progress=False)
    manifest = tmp_path / "out" / "rekord.json"
    edit_manifest(tmp_path / "out", lambda it: it["options"]["layout"].update({"transforms": json.loads(told)}))
    with pytest.raises(rk.UsageError) as caught:
        rk.open(tmp_path / "out").transforms  # noqa: B018
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U691",
        "recorded transform cannot be restored",
        str(manifest),
    )
