"""The layout of ImageNet: what a row becomes, and which ids and names its labels have."""

from __future__ import annotations

import io
import pickle
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.codec.images.inspect import VerifiedBytes
from rekord.layouts.classification import classification

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def encoded(kind: str, mode: str = "RGB", pixels: Any = PIXELS) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    if image.mode != mode:
        image = image.convert(mode)
    image.save(file, kind)
    return file.getvalue()


def read_back(layout: Any, row: dict[str, Any]) -> dict[str, Any]:
    derived = layout.derive(row, "full")
    return rk.decode(rk.encode(derived.values, layout.schema), layout.schema)


def refused(call: Any) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


def test_a_row_has_the_keys_of_imagenet():
    layout = classification(classes=["cat", "dog"], synsets=["n1", "n2"])
    data = encoded("JPEG")
    derived = layout.derive({"image": data, "filename": "dog/1.jpg", "label": "dog", "split": "train"}, "full")
    assert isinstance(derived.values["image"], VerifiedBytes)
    assert derived.remarks == ()
    stored = rk.decode(rk.encode(derived.values, layout.schema))
    assert {key: value[0] for key, value in stored.items()} == {
        "image/encoded": data,
        "image/format": b"JPEG",
        "image/filename": b"dog/1.jpg",
        "image/height": 4,
        "image/width": 6,
        "image/channels": 3,
        "image/colorspace": b"RGB",
        "image/class/label": 1,
        "image/class/text": b"dog",
        "image/class/synset": b"n2",
    }


def test_a_png_is_called_so_whatever_its_name_says(tmp_path):
    path = tmp_path / "1.jpg"
    path.write_bytes(encoded("PNG"))
    layout = classification(classes=["cat"])
    derived = layout.derive({"image": path, "filename": "1.jpg", "label": "cat"}, "full")
    assert derived.values["format"] == "PNG"
    assert [(remark.code, remark.feature) for remark in derived.remarks] == [("H733", "image")]


@pytest.mark.parametrize("label", ["dog", 1, np.int64(1), np.uint8(1)])
def test_with_a_background_stored_ids_begin_at_1_and_names_stay_beside_them(label):
    layout = classification(classes=["cat", "dog"], background=True)
    row = read_back(layout, {"image": encoded("PNG"), "filename": "x", "label": label})
    assert (row["label"], row["text"]) == (2, "dog")
    assert layout.schema["label"].names == ("background", "cat", "dog")
    assert layout.schema["label"].names[row["label"]] == "dog"


def test_stored_ids_begin_at_0():
    layout = classification(classes=["cat", "dog"])
    row = read_back(layout, {"image": encoded("PNG"), "filename": "x", "label": "dog"})
    assert (row["label"], row["text"]) == (1, "dog")
    assert layout.schema["label"].names == ("cat", "dog")


def test_a_class_called_background_keeps_its_name():
    layout = classification(classes=["background", "cat"], background=True)
    assert layout.schema["label"].names == ("(background)", "background", "cat")
    row = read_back(layout, {"image": encoded("PNG"), "filename": "x", "label": "background"})
    assert (row["label"], row["text"]) == (1, "background")


def test_classes_may_be_a_number():
    layout, shifted = classification(classes=10), classification(classes=10, background=True)
    assert "text" not in layout.schema
    assert (layout.schema["label"].count, shifted.schema["label"].count) == (10, 11)
    row = {"image": encoded("PNG"), "filename": "x", "label": 9}
    assert (read_back(layout, row)["label"], read_back(shifted, row)["label"]) == (9, 10)


def test_without_classes_labels_are_optional_numbers():
    layout = classification()
    row = {"image": encoded("PNG"), "filename": "x"}
    assert read_back(layout, row)["label"] is None
    assert read_back(layout, {**row, "label": 4})["label"] == 4
    assert refused(lambda: layout.derive({**row, "label": "cat"}, "full")).code == "E316"


def test_a_missing_label_is_left_out_where_it_may_be():
    row = {"image": encoded("PNG"), "filename": "x"}
    strict, lenient = classification(classes=["a"]), classification(classes=["a"], optional_labels=True)
    assert (read_back(lenient, row)["label"], read_back(lenient, row)["text"]) == (None, None)
    failure = refused(lambda: read_back(strict, row))
    assert (failure.code, failure.location.feature) == ("E301", "label")


@pytest.mark.parametrize(
    ("label", "code", "do"),
    [
        ("dgo", "E316", "did you mean 'dog'?"),
        ("background", "E316", "fix the row, or add the class: classes=[…]"),
        (2, "E317", "fix the row, or add the class: classes=[…]"),
        (-1, "E317", "fix the row, or add the class: classes=[…]"),
        (1.0, "E317", "fix the row, or add the class: classes=[…]"),
        (True, "E317", "fix the row, or add the class: classes=[…]"),
    ],
)
def test_a_label_that_is_no_class_is_refused(label, code, do):
    layout = classification(classes=["cat", "dog"])
    failure = refused(lambda: layout.derive({"image": encoded("PNG"), "filename": "x", "label": label}, "full"))
    assert (failure.code, failure.location.feature, failure.do) == (code, "label", do)


@pytest.mark.parametrize(
    ("kind", "mode", "what"),
    [
        ("PNG", "L", "the image is grey of 8 bits: "),
        ("JPEG", "L", "the image is grey of 8 bits: "),
        ("PNG", "RGBA", "the image is RGBA of 8 bits: "),
        ("PNG", "LA", "the image is grey with alpha of 8 bits: "),
    ],
)
def test_other_channels_are_stored_as_they_are_with_a_remark(kind, mode, what):
    data = encoded(kind, mode)
    derived = classification().derive({"image": data, "filename": "x"}, "full")
    assert (derived.values["image"], derived.values["channels"]) == (data, 3)
    assert [(remark.code, remark.feature) for remark in derived.remarks] == [("H738", "image")]
    assert derived.remarks[0].what.startswith(what)


def test_16_bits_are_a_remark_that_names_the_file(tmp_path):
    path = tmp_path / "deep.png"
    path.write_bytes(encoded("PNG", "I;16", np.full((3, 3), 40_000, np.uint16)))
    derived = classification().derive({"image": path, "filename": "deep.png"}, "full")
    assert [remark.what.partition(":")[0] for remark in derived.remarks] == ["deep.png is grey of 16 bits"]


def test_a_palette_of_colours_and_plain_rgb_need_no_remark():
    for data in (encoded("PNG"), encoded("PNG", "P"), encoded("JPEG")):
        assert classification().derive({"image": data, "filename": "x"}, "full").remarks == ()


def test_cmyk_has_one_remark():
    derived = classification().derive({"image": encoded("JPEG", "CMYK"), "filename": "x"}, "full")
    assert [remark.code for remark in derived.remarks] == ["H731"]


@pytest.mark.parametrize("kind", ["GIF", "BMP", "WEBP"])
def test_formats_that_readers_do_not_decode_are_refused(tmp_path, kind):
    path = tmp_path / "x.bin"
    path.write_bytes(encoded(kind))
    failure = refused(lambda: classification().derive({"image": path, "filename": "x"}, "full"))
    assert (failure.code, failure.location.path, failure.location.feature) == ("E321", str(path), "image")


def test_broken_images_name_their_file(tmp_path):
    whole = encoded("JPEG")
    for name, data, code in (
        ("empty", b"", "E330"),
        ("cut", whole[:-10], "E331"),
        ("text", b"hello" * 9, "E321"),
    ):
        path = tmp_path / f"{name}.jpg"
        path.write_bytes(data)
        failure = refused(lambda path=path: classification().derive({"image": path, "filename": "x"}, "full"))
        assert (failure.code, failure.location.path, failure.location.feature) == (code, str(path), "image")
    failure = refused(lambda: classification().derive({"image": tmp_path / "no.jpg", "filename": "x"}, "full"))
    assert (failure.code, failure.location.path) == ("E329", str(tmp_path / "no.jpg"))
    failure = refused(lambda: classification().derive({"filename": "x"}, "full"))
    assert (failure.code, failure.location.feature) == ("E301", "image")


@pytest.mark.parametrize(
    "options",
    [
        {"classes": []},
        {"classes": 0},
        {"classes": "cat"},
        {"classes": {"cat"}},
        {"classes": True},
        {"synsets": ["n1"]},
        {"classes": ["a"], "synsets": ["n1", "n2"]},
    ],
)
def test_classes_that_cannot_be_are_refused(options):
    failure = refused(lambda: classification(**options))
    assert failure.code == "U605"
    assert re.search("^`(classes|synsets)` cannot be ", failure.what)


def test_names_that_cannot_be_told_apart_are_refused():
    assert refused(lambda: classification(classes=["a", "a"])).code == "S108"


def test_a_layout_is_a_value_that_travels():
    layout = classification(classes=["a", "b"], synsets=["n1", "n2"])
    far = pickle.loads(pickle.dumps(layout))
    assert far == layout
    assert (far.name, far.needs_derive, far.schema) == ("classification", True, layout.schema)
    assert far.options() == {
        "classes": ["a", "b"],
        "synsets": ["n1", "n2"],
        "background": False,
        "optional_labels": False,
    }
    row = {"image": encoded("PNG"), "filename": "x", "label": "b"}
    assert far.derive(row, "headers") == layout.derive(row, "headers")
