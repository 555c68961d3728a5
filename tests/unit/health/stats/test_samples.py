"""The images and rows in the report: which are chosen, what is drawn on them, and what hostile bytes can do."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.health.stats.accumulate import MAX_SAMPLED_ROWS, MAX_SAMPLES
from rekord.health.stats.html import MAX_IMAGE_BYTES, find_remarks
from rekord.report.charts import render_scatter
from rekord.testing import example_bytes

HOSTILE = "\"><script>alert('x')</script>\x00\u202e&amp;"


def encoded(colour, size=(16, 12), kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


def parsed(page):
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def texts(element):
    return " ".join(" ".join(element.itertext()).split())


def tiles(root):
    return [one for each in root.iter("ul") if each.get("class") == "gallery" for one in each]


def pixels(element):
    """The image of a tile, decoded."""
    (image,) = element.iter("img")
    data = base64.b64decode(image.get("src").partition("base64,")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def write_classes(folder, counts, **options):
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(list(counts))})
    rows = [
        {"image": encoded((40 * number, 200, i % 250)), "label": name}
        for number, (name, times) in enumerate(counts.items())
        for i in range(times)
    ]
    rk.write(rows, folder, schema=schema, progress=False, workers=1, **options)
    return rk.stats(folder)


def test_each_class_has_up_to_five_images_however_rare_it_is(tmp_path):
    stats = write_classes(tmp_path / "data", {"cat": 300, "dog": 40, "owl": 2}, split={"train": 0.5, "val": 0.5})
    root = parsed(stats.to_html())
    (strips,) = [one for one in root.iter("div") if one.get("class") == "strips"]
    assert [(texts(one.find("h3")), len(tiles(one))) for one in strips] == [
        ("cat 300", 5),
        ("dog 40", 5),
        ("owl 2", 2),
    ]
    reds = [{int(pixels(tile)[0, 0, 0]) for tile in tiles(one)} for one in strips]
    assert reds == [{0}, {40}, {80}], "each image is one of its class"
    assert {sample.split for sample in stats.samples} == {"train", "val"}
    assert all(one.get("alt").startswith("image of ") for one in root.iter("img"))


def test_the_choice_does_not_depend_on_how_files_are_read(tmp_path):
    chosen = [
        [(one.split, one.record, one.label) for one in write_classes(tmp_path / name, {"a": 90, "b": 90}).samples]
        for name in ("once", "again")
    ]
    assert chosen[0] == chosen[1]
    assert max(record for _, record, _ in chosen[0]) > 120, "from the end of the file too"


@pytest.mark.parametrize(("classes", "each"), [(12, 5), (20, 3), (60, 1), (100, 1)])
def test_many_classes_have_fewer_images_each(put_records, classes, each):
    rows = [{"image": [encoded((i, 0, 0))], "label": [i % classes]} for i in range(classes * 6)]
    stats = rk.stats(put_records([example_bytes(row) for row in rows]))
    labels = [one.label for one in stats.samples]
    assert len(labels) == min(classes, MAX_SAMPLES) * each
    assert {labels.count(label) for label in set(labels)} == {each}
    assert len(tiles(parsed(stats.to_html()))) == len(labels)


def test_images_without_labels_are_a_gallery(put_records):
    stats = rk.stats(put_records([example_bytes({"photo": [encoded((i, 0, 0))]}) for i in range(200)]))
    assert len(stats.samples) == MAX_SAMPLES // 2
    assert len(tiles(parsed(stats.to_html()))) == MAX_SAMPLES // 2


def test_a_mask_is_drawn_on_its_image_and_classes_have_their_share_of_pixels(tmp_path):
    mask = np.zeros((8, 10), np.uint8)
    mask[:, :2] = 2
    mask[0] = 255  # ignored
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3, ignore=255)})
    rows = [{"image": np.full((8, 10, 3), 100, np.uint8), "mask": mask}] * 4
    rk.write(rows, tmp_path / "data", schema=schema, progress=False, workers=1)
    root = parsed(rk.stats(tmp_path / "data").to_html())
    shown = pixels(tiles(root)[0])
    assert shown.shape == (8, 10, 3)
    assert shown[4, 8].tolist() == [100, 100, 100]
    assert shown[0, 0].tolist() == [100, 100, 100], "ignored pixels stay clear"
    assert shown[4, 0].tolist() == [68, 131, 123], "the second colour at 55 %"
    (legend,) = [one for one in root.iter("ul") if one.get("class") == "swatches"]
    assert [texts(one) for one in legend] == ["class 0 80%", "class 2 20%"]
    assert "the pixels of 4 masks" in texts(root)


def test_boxes_are_drawn_with_the_names_of_their_classes(put_records):
    row = {
        "image/encoded": [encoded((9, 9, 9))],
        "image/object/bbox/xmin": [0.25, 0.5],
        "image/object/bbox/xmax": [0.75, 1.5],
        "image/object/bbox/ymin": [0.0, float("nan")],
        "image/object/bbox/ymax": [0.5, 1.0],
        "image/object/class/text": [HOSTILE.encode(), b"dog"],
    }
    root = parsed(rk.stats(put_records([example_bytes(row)])).to_html())
    (box,) = tiles(root)[0].iter("i")
    assert (box.get("style") or "").startswith("left:25.0%;top:0.0%;width:50.0%;height:50.0%;")
    assert texts(box).startswith("\"><script>alert('x')</script>\\x00\\u202e&amp;")


def png_of(width, height):
    """A PNG whose header announces a size, and whose pixels are missing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 999)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "bad",
    [
        encoded((1, 2, 3))[:45],
        png_of(30_000, 30_000),
        png_of(64, 64),
        b"\xff\xd8\xff\xe0" + b"\0" * 90,
        b"",
        b"x" * 40,
    ],
    ids=["cut off", "too many pixels", "no pixels", "no jpeg", "empty", "text"],
)
def test_an_image_that_cannot_be_decoded_leaves_its_place_empty(put_records, bad):
    images = [encoded((200, 0, 0)), bad, encoded((0, 200, 0))]
    root = parsed(rk.stats(put_records([example_bytes({"image": [one]}) for one in images])).to_html())
    shown = [texts(one) for one in tiles(root)]
    assert sorted(shown) == ["", "", "cannot be shown"]


def test_a_page_of_large_images_stays_small(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG", quality=95)  # hardly shrinks: the worst case
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(12)})
    rows = [{"image": file.getvalue(), "label": i % 12} for i in range(96)]
    rk.write(rows, tmp_path / "data", schema=schema, progress=False, workers=1)
    page = rk.stats(tmp_path / "data").to_html()
    assert len(tiles(parsed(page))) == 60
    assert len(page) < MAX_IMAGE_BYTES + 200_000


def test_rows_without_images_are_a_table_with_the_names_of_classes(tmp_path):
    schema = rk.Schema({"x": rk.Float32(), "kind": rk.Label(["no", "yes"]), "tags": rk.Int64(shape=(None,))})
    rows = [{"x": i, "kind": i % 2, "tags": range(i)} for i in range(50)]
    rk.write(rows, tmp_path / "data", schema=schema, progress=False, workers=1)
    stats = rk.stats(tmp_path / "data")
    (panel,) = [one for one in parsed(stats.to_html()).iter("div") if one.get("class") == "panel rows"]
    head, *body = [[texts(cell) for cell in row] for row in panel.iter("tr")]
    assert head == ["split", "kind", "tags", "x"]
    assert len(body) == MAX_SAMPLED_ROWS
    for split, kind, tags, x in body:
        assert (split, kind) == ("train", "yes" if int(x) % 2 else "no")
        assert tags == "0" if x == "1" else tags.startswith("[")


def test_what_deserves_a_look_is_said_by_name(put_records):
    rows = [
        {
            "always": [7],
            "nearly": [1 if i == 3 else 0],
            "far": [float(i % 10) if i else 1e6],
            "rare": [] if i % 4 else [1.0 + i],
            "label": [b"cat" if i % 50 else b"dog"],
        }
        for i in range(200)
    ]
    stats = rk.stats(put_records([example_bytes({k: v for k, v in row.items() if v}) for row in rows]))
    assert find_remarks(stats) == [
        ("always", "constant", "has the same value everywhere: 7"),
        ("far", "outliers", "the largest value is 1,000,000; half of them are from 2 to 7"),
        ("label", "imbalance", "49 times as many records of cat as of dog"),
        ("nearly", "nearly constant", "99.5% of the values are 0"),
        ("rare", "missing", "missing in 75% of the records"),
    ]
    root = parsed(stats.to_html())
    (panel,) = [one for one in root.iter("ul") if one.get("class") == "remarks"]
    assert len(panel) == 4, "the constant feature has its own list"
    assert "always" not in [texts(one) for one in root.iter("h3")], "and no chart"


def test_sizes_are_a_scatter_and_one_size_is_a_sentence(put_records):
    sizes = [(16, 12)] * 6 + [(32, 12)] * 3
    rows = [{"image": [encoded((i, 0, 0), size)]} for i, size in enumerate(sizes)]
    root = parsed(rk.stats(put_records([example_bytes(row) for row in rows])).to_html())
    (chart,) = [one for one in root.iter("svg") if one.get("class") == "scatter"]
    assert chart.get("aria-label") == "Image sizes: width from 16 to 32, height from 12 to 12"
    assert [texts(one) for one in chart.iter("circle")] == ["16 × 12: 6 (67%)", "32 × 12: 3 (33%)"]
    (table,) = root.iter("details")
    assert "16 × 12 6 67%" in texts(table)
    alone = rk.stats(put_records([example_bytes(rows[0])], "one.tfrecord")).to_html()
    assert "All images are <b>16 × 12</b>." in alone


def test_very_many_sizes_are_few_circles_with_the_same_total():
    points = [(10 + i, 20 + i % 37, 1 + i % 3) for i in range(900)]
    drawn = ElementTree.fromstring(render_scatter("sizes", points, axes=("width", "height")))
    counts = [int(texts(one).split(": ")[1].split(" ")[0]) for one in drawn.iter("circle")]
    assert len(counts) <= 200
    assert sum(counts) == sum(times for _, _, times in points)
