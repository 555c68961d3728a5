"""Class ids and names against a label map that lies beside the records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rekord as rk
from rekord.testing import example_bytes, frame_offsets, frames

PutFile = Callable[..., Path]
MAP = b"item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\n"
SIDES = {
    f"image/object/bbox/{side}": [0.1 if side[1:] == "min" else 0.9] for side in ("xmin", "ymin", "xmax", "ymax")
}


def objects(number: int, label: int, text: bytes) -> bytes:
    return example_bytes(
        {"id": [number], **SIDES, "image/object/class/label": [label], "image/object/class/text": [text]}
    )


def said(folder: Path) -> list[tuple[str, int | None, int | None, str | None, str | None]]:
    report = rk.check(folder)
    return [(f.code, f.record, f.offset, f.feature, f.found) for f in report.findings if f.code == "H752"]


@pytest.mark.parametrize("at", [0, 2, 4], ids=["first", "middle", "last"])
def test_an_id_or_a_name_that_the_map_lacks_is_an_error_at_its_record(
    put_file: PutFile, tmp_path: Path, at: int
) -> None:
    put_file(MAP, "data/pet_label_map.pbtxt")
    rows = [objects(i, 1 + i % 2, (b"cat", b"dog")[i % 2]) for i in range(5)]
    put_file(frames(rows), "data/x.tfrecord")
    assert said(tmp_path / "data") == []
    rows[at] = objects(at, 3, b"Cat")
    data = frames(rows)
    put_file(data, "data/x.tfrecord")
    where = at, frame_offsets(data)[at]
    assert said(tmp_path / "data") == [
        ("H752", *where, "image/object/class/label", "3"),
        ("H752", *where, "image/object/class/text", "b'Cat'"),
    ]


def test_a_label_map_that_cannot_be_read_is_a_finding(put_file: PutFile, tmp_path: Path) -> None:
    place = put_file(b"item { id: 'x' ", "data/label_map.pbtxt")
    put_file(frames([objects(0, 1, b"cat")]), "data/x.tfrecord")
    found = [(f.code, f.path, f.severity) for f in rk.check(tmp_path / "data").findings]
    assert ("X533", str(place), "error") in found


def test_two_label_maps_are_no_ones(put_file: PutFile, tmp_path: Path) -> None:
    put_file(MAP, "data/a_label_map.pbtxt")
    put_file(MAP, "data/b_label_map.pbtxt")
    put_file(frames([objects(0, 9, b"x")]), "data/x.tfrecord")
    assert said(tmp_path / "data") == []
