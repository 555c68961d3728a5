"""Label maps are read as TensorFlow's object detection means them, and written so that it reads them."""

from __future__ import annotations

import pytest

from rekord.errors import RekordError
from rekord.schema.interop.label_map import LabelItem, format_label_map, read_label_items, read_label_map


def test_a_label_map_gives_names_by_id_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "label_map.pbtxt"
    path.write_text("item {\n  id: 2\n  name: 'dog'\n}\n# more\nitem: { name: \"cat\" id: 1 display_name: 'Cat' }\n")
    assert list(read_label_map(path).items()) == [(2, "dog"), (1, "cat")]
    assert read_label_items(path) == (LabelItem(2, "dog"), LabelItem(1, "cat", "Cat"))


def test_a_display_name_stands_in_for_a_missing_name(tmp_path):
    path = tmp_path / "m.pbtxt"
    path.write_text("item { id: 1 display_name: 'Großer Hund' }")
    assert read_label_map(path) == {1: "Großer Hund"}


def test_a_background_with_the_id_0_is_left_out(tmp_path):
    path = tmp_path / "m.pbtxt"
    path.write_text("item { id: 0 name: 'background' } item { id: 1 name: 'cat' }")
    assert read_label_map(path) == {1: "cat"}


def test_what_is_written_is_read_again(tmp_path):
    classes = {7: "it's", 1: 'a "cat"', 3: "Großer Hund", 90: "back\\slash"}
    path = tmp_path / "m.pbtxt"
    path.write_text(format_label_map(classes), encoding="utf-8")
    assert read_label_map(path) == classes
    assert format_label_map({1: "cat"}) == 'item {\n  id: 1\n  name: "cat"\n}\n'


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (b"", None, "no item"),
        (b"feature { name: 'x' }", None, "no item"),
        (b"item { id: 0 name: 'cat' }", None, "0, which is reserved for the background"),
        (b"item { id: -1 name: 'cat' }", None, "-1"),
        (b"item { id: 1.5 name: 'cat' }", None, "1.5"),
        (b"item { id: 4294967296 name: 'cat' }", None, "4294967296"),
        (b"item { name: 'cat' }", None, "no id"),
        (b"item { id: 1 }", None, "no `name`, no `display_name`"),
        (b"item { id: 1 name: 'a' } item { id: 1 name: 'b' }", None, "1"),
        (b"item { id: 1 name: 'a' } item { id: 2 name: 'a' }", None, "'a'"),
        (b"item { id: 1 name: '\\377' }", None, "other bytes"),
        (b"item {\n  id: 1\n  name 'cat'\n}", 3, None),
        (b"item { id: 1\n", 2, "the end of the text"),
        (b"item {\n id: 1 name: 'k\xe4fer' }", 2, "e4 66 65 72 27 20 7d"),
    ],
)
def test_a_label_map_that_cannot_be_used_is_refused(tmp_path, content, line, found):
    path = tmp_path / "m.pbtxt"
    path.write_bytes(content)
    with pytest.raises(RekordError) as caught:
        read_label_map(path)
    assert (caught.value.code, caught.value.location.path, caught.value.location.line) == (
        "X533",
        str(path),
        line,
    )
    assert found is None or caught.value.found == found
    assert caught.value.do


def test_a_label_map_that_is_not_there_or_no_file_is_refused(tmp_path):
    for path, code in ((tmp_path / "none.pbtxt", "X501"), (tmp_path, "X503")):
        with pytest.raises(RekordError) as caught:
            read_label_map(path)
        assert (caught.value.code, caught.value.location.path) == (code, str(path))


def test_a_file_that_is_too_large_for_a_label_map_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.schema.interop.label_map._MAX_FILE_BYTES", 20)
    path = tmp_path / "m.pbtxt"
    path.write_text("item { id: 1 name: 'a cat of many words' }")
    with pytest.raises(RekordError) as caught:
        read_label_map(path)
    assert (caught.value.code, caught.value.location.path) == ("X533", str(path))
