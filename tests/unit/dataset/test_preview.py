"""How datasets, splits and batches show themselves: short, escaped, small, and without a look at more than needed."""

from __future__ import annotations

import gzip
import io
import pickle
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk
from rekord.codec.columns import ColumnBatch
from rekord.report.notebook import MAX_FRAGMENT_BYTES
from rekord.storage.local import LOCAL
from rekord.testing import example_bytes, frames

SCHEMA = rk.Schema(
    {
        "image": rk.Image(),
        "mask": rk.Mask(classes=3, ignore=255),
        "label": rk.Label(["cat", "<script>dog</script>"]),
        "name": rk.Text(),
        "tags": rk.Int64(shape=(None,)),
        "score": rk.Float32(optional=True),
    }
)


def encode(pixels: Any, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, kind)
    return file.getvalue()


def rows(count: int = 6) -> list[dict[str, Any]]:
    made = []
    for i in range(count):
        mask = np.zeros((60, 80), np.uint8)
        mask[:, 40:] = 1
        mask[:10] = 255
        grey = np.full((60, 80, 3), 200, np.uint8)
        made.append(
            {
                "image": encode(grey),
                "mask": encode(mask),
                "label": i % 2,
                "name": f"<b>{i}</b>",
                "tags": list(range(i % 3)),
                "score": None if i == 1 else i / 2,
            }
        )
    return made


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    return rk.write(rows(), tmp_path / "data", schema=SCHEMA, split={"train": 0.7, "val": 0.3}, progress=False)


def thumbnails(html: str) -> list[np.ndarray[Any, Any]]:
    found = re.findall(r'<img src="data:image/(?:jpeg|png);base64,([^"]+)" alt="[^"<>]*" />', html)
    return [np.array(Pillow.open(io.BytesIO(b64decode(one)))) for one in found]


def assert_static(html: str) -> None:
    assert len(html.encode()) <= MAX_FRAGMENT_BYTES
    assert not re.search(r"<script|javascript:|\son\w+=|<iframe|src=\"(?!data:)|url\(", html, re.IGNORECASE)
    assert html.count("<table") == html.count("</table>")


def test_a_dataset_shows_splits_counts_and_columns(dataset: rk.Dataset) -> None:
    train, val = len(dataset["train"]), len(dataset["val"])
    assert repr(dataset).splitlines() == [
        "Dataset: 6 records, 2 splits, 6 columns",
        f"  train  {train} records  1 file",
        f"  val    {val} records  1 file" if val != 1 else "  val     1 record  1 file",
        "  image Image · mask Mask(3 classes) · label Label(2 classes) · name Text",
        "  tags Int64(None) · score Float32(optional)",
    ]
    assert repr(dataset["train"]).startswith(f"Split 'train': {train} records, 1 file, 6 columns\n  image Image")
    assert repr(dataset["train"][1:2]).startswith("Split 'train': 1 record selected, 1 file, 6 columns")
    assert repr(pickle.loads(pickle.dumps(dataset))) == repr(dataset)


def test_many_columns_and_splits_stay_a_few_lines(tmp_path: Path) -> None:
    wide = [{f"a_rather_long_name_{i:03}": i for i in range(300)}] * 20
    dataset = rk.write(wide, tmp_path / "wide", split={f"s{i}": 0.05 for i in range(20)}, progress=False)
    lines = repr(dataset).splitlines()
    assert len(lines) <= 13
    assert max(map(len, lines)) <= 90
    assert lines[-1].endswith(" more")
    assert lines[9] == "  … 12 more splits"
    assert len(repr(dataset.schema).splitlines()) == 43
    assert "    …  # 260 more columns" in repr(dataset.schema)
    for shown in (dataset, dataset.schema, dataset["s0"]):
        assert_static(shown._repr_html_())


def test_a_schema_with_many_classes_is_short() -> None:
    schema = rk.Schema({"label": rk.Label([f"class number {i}" for i in range(2000)])})
    assert len(repr(schema)) < 220
    assert_static(schema._repr_html_())
    assert "Label(2,000 classes)" in schema._repr_html_()


def test_a_file_without_a_manifest_is_not_read_for_its_repr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.tfrecord").write_bytes(frames([example_bytes({"x": [i]}) for i in range(9)]))
    dataset = rk.open(tmp_path)
    monkeypatch.setattr(type(LOCAL), "open_read", lambda *_: pytest.fail("a file was read"))
    assert repr(dataset) == "Dataset: 1 split\n  train  records not counted yet  1 file"
    assert repr(dataset["train"].batches(4)) == "Batches of split 'train': 4 rows each, in order, epoch 0"
    monkeypatch.undo()
    assert "<td>8</td>" not in dataset._repr_html_()
    assert "<td>3</td>" in dataset._repr_html_()
    assert repr(dataset) == "Dataset: 1 split\n  train  records not counted yet  1 file"
    assert len(dataset["train"]) == 9
    assert repr(dataset["train"]).startswith("Split 'train': 9 records, 1 file")


def test_html_has_thumbnails_with_masks_on_top_and_nothing_unescaped(dataset: rk.Dataset) -> None:
    for shown in (dataset, dataset["train"], dataset["train"][0:2], next(iter(dataset["train"].batches(4)))):
        html = shown._repr_html_()
        assert_static(html)
        assert "&lt;b&gt;" in html
        assert "<b>0" not in html
        assert "1 (&lt;script&gt;dog" in html or "0 (cat)" in html
        assert ">missing<" in html or shown is not dataset
    image, mask = thumbnails(dataset["train"]._repr_html_())[:2]
    assert image.shape == (60, 80, 3)
    # Grey where the mask is 0 or ignored, coloured where it is 1.
    assert abs(image[40, 10].astype(int) - 200).max() < 12
    assert abs(image[3, 70].astype(int) - 200).max() < 25
    assert int(image[40, 70, 0]) - int(image[40, 70, 1]) > 60
    assert int(mask[40, 70, 0]) - int(mask[40, 70, 1]) > 100


def test_decoded_pixels_are_shown_too(dataset: rk.Dataset) -> None:
    batch = dataset["train"].batches(2, columns=["image"], decode=True, resize=(600, 900)).peek()
    assert thumbnails(batch._repr_html_())[0].shape == (64, 96, 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["huge", "truncated", "text", "empty", "bomb"])
def test_hostile_images_are_a_note(tmp_path: Path, name: str) -> None:
    whole = encode(np.zeros((50, 50, 3), np.uint8))
    header = whole[:16] + (100_000).to_bytes(4, "big") * 2 + whole[24:]
    bomb = encode(np.zeros((9000, 9000), np.uint8))
    data = {"huge": header, "truncated": whole[:60], "text": b"<img onerror=x>", "empty": b"", "bomb": bomb}[name]
    (tmp_path / "a.tfrecord").write_bytes(frames([example_bytes({"image": [data]})] * 3))
    dataset = rk.open(tmp_path, schema=rk.Schema({"image": rk.Image()}))
    html = dataset._repr_html_()
    assert_static(html)
    assert thumbnails(html) == []
    assert f"{len(data):,} bytes, not shown" in html


def test_many_large_images_stay_within_the_limit(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (400, 400, 3), np.uint8)
    columns = {f"image{i}": encode(noise, "JPEG") for i in range(30)}
    (tmp_path / "a.tfrecord").write_bytes(
        frames([example_bytes({name: [data] for name, data in columns.items()})] * 4)
    )
    html = rk.open(tmp_path)._repr_html_()
    assert_static(html)
    assert 10 < len(thumbnails(html)) < 64


@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone", "other", "gzip bomb"])
def test_corrupt_files_are_shown_as_what_is_known_of_them(dataset: rk.Dataset, damage: str) -> None:
    path = Path(dataset["train"].paths[0])
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        made = {
            "flipped": data[:30] + b"\0\0\0" + data[33:],
            "truncated": data[:100],
            "other": b"not records at all" * 10,
            "gzip bomb": gzip.compress(bytes(50 << 20)),
        }[damage]
        path.write_bytes(made)
    assert repr(dataset).startswith("Dataset: 6 records, 2 splits, 6 columns")
    for shown in (dataset, dataset["train"], dataset["train"][0:2]):
        assert_static(shown._repr_html_())
        assert repr(shown) is not None


def test_a_dataset_whose_manifest_is_gone_has_a_repr(dataset: rk.Dataset, tmp_path: Path) -> None:
    content = pickle.dumps(dataset)
    (tmp_path / "data" / "rekord.json").unlink()
    assert repr(pickle.loads(content)).startswith("Dataset: cannot be shown (X501")
    assert pickle.loads(content)._repr_html_().startswith("<pre>Dataset: cannot be shown")


def test_functions_of_the_user_are_not_called_to_show_a_split(dataset: rk.Dataset) -> None:
    mapped = dataset["train"].map(lambda batch: pytest.fail("called"))
    assert repr(mapped).splitlines()[0].endswith("6 columns, mapped")
    assert thumbnails(mapped._repr_html_()) == []


# Batches and loaders


def test_a_batch_is_a_dict_that_shows_its_columns(dataset: rk.Dataset) -> None:
    batch = dataset["train"].batches(3).peek()
    assert isinstance(batch, dict)
    assert type(dataset["train"][[0, 2]]) is type(batch) is ColumnBatch
    assert type(pickle.loads(pickle.dumps(batch))) is ColumnBatch
    lines = repr(batch).splitlines()
    assert lines[0] == "Batch: 3 rows, 6 columns"
    assert re.fullmatch(r"  image  Strings\(3 rows of bytes, [\d,]+ bytes\)", lines[1])
    assert lines[3:] == [
        "  label  int64 (3,)",
        f"  name   {batch['name']!r}",
        f"  tags   {batch['tags']!r}",
        f"  score  {batch['score']!r}",
    ]
    assert {**batch} == dict(batch)
    assert batch.copy() == batch


def test_what_a_map_returns_is_delivered_as_it_is(dataset: rk.Dataset) -> None:
    class Mine(dict[str, Any]):
        pass

    assert type(dataset["train"].batches(2, map=Mine).peek()) is Mine
    assert type(dataset["train"].batches(2, map=dict).peek()) is ColumnBatch


def test_loaders_show_their_split_order_and_size(dataset: rk.Dataset) -> None:
    train, count = dataset["train"], len(dataset["train"])
    assert repr(train.batches(1, shuffle=True, seed=7, epoch=2)) == (
        f"Batches of split 'train': {count} batches, 1 row each, shuffle='exact', seed=7, epoch 2"
    )
    assert repr(train.batches(count)) == f"Batches of split 'train': 1 batch, {count} rows each, in order, epoch 0"
    two = train.batches(1, rank=1, world=2, remainder="drop")
    assert repr(two).endswith("in order, epoch 0, rank 1 of 2")


@pytest.mark.parametrize("library", ["jax", "torch", "optree"])
def test_batches_are_mapped_over_as_dicts_are(dataset: rk.Dataset, library: str) -> None:
    """These libraries know a dict by its exact type, and would take a batch for a leaf."""
    module = pytest.importorskip(library)
    batch = dataset["train"].batches(2, columns=["label"]).peek()
    mapped = {
        "jax": lambda: module.tree_util.tree_map(lambda values: values + 1, batch),
        "torch": lambda: module.utils._pytree.tree_map(lambda values: values + 1, batch),
        "optree": lambda: module.tree_map(lambda values: values + 1, batch),
    }[library]()
    assert {name: values.tolist() for name, values in mapped.items()} == {"label": (batch["label"] + 1).tolist()}
