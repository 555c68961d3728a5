"""Rules of `check` for boxes and their classes, with a schema and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.health.finding import Finding
from rekord.testing import example_bytes, frame_offsets, frames

PutFile = Callable[..., Path]
STEM = "image/object/bbox"
SCHEMA = rk.Schema({"id": rk.Int64(), "boxes": rk.Boxes()})


def boxed(*boxes: tuple[float, float, float, float], number: int = 0, **objects: Any) -> dict[str, Any]:
    """A record with boxes of xmin, ymin, xmax, ymax."""
    sides = zip(*boxes, strict=True)
    row: dict[str, Any] = {
        f"{STEM}/{name}": list(map(float, side))
        for name, side in zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True)
    }
    return {"id": [number], **row, **{f"image/object/class/{name}": value for name, value in objects.items()}}


def about_boxes(path: Path, schema: rk.Schema | None) -> list[Finding]:
    return [one for one in rk.check(path, schema).findings if one.code == "D407" or "H770" <= one.code < "H780"]


GOOD = [boxed((0.1, 0.2, 0.5, 0.6), (0.0, 0.0, 1.0, 1.0), number=i) for i in range(6)]

WRONG = {
    "outside": ((0.5, 0.5, 1.2, 0.9), "H771", "error", "has a box outside its image", None),
    "below 0": ((-0.2, 0.5, 0.7, 0.9), "H771", "error", "has a box outside its image", None),
    "a little outside": (
        (0.5, 0.5, 1.002, 0.9),
        "H771",
        "warning",
        "has a box outside its image",
        "the box slightly exceeds",
    ),
    "a little below 0": (
        (-0.002, 0.5, 0.7, 0.9),
        "H771",
        "warning",
        "has a box outside its image",
        "the box slightly exceeds",
    ),
    "as far as is read": (
        (0.5, 0.5, 0.7, 1.1),
        "H771",
        "warning",
        "has a box outside its image",
        "the box slightly exceeds",
    ),
    "rounded": (
        (0.5, 0.5, 1.0005, 0.9),
        "H771",
        "note",
        "has a box outside its image",
        "the coordinates were rounded",
    ),
    "rounded below 0": (
        (0.5, -0.0005, 0.7, 0.9),
        "H771",
        "note",
        "has a box outside its image",
        "the coordinates were",
    ),
    "not a number": ((float("nan"), 0.5, 0.7, 0.9), "H771", "error", "has a box outside its image", None),
    "pixels": ((20, 30, 200, 300), "H771", "error", "has a box outside its image", "these are pixels"),
    "reversed": ((0.5, 0.2, 0.1, 0.6), "H772", "error", "has a reversed box", None),
    "both reversed": (
        (0.5, 0.6, 0.1, 0.2),
        "H772",
        "error",
        "has a reversed box",
        "the corners are swapped",
    ),
    "no width": ((0.5, 0.2, 0.5, 0.6), "H773", "warning", "has a box without an area", None),
}


@pytest.mark.parametrize("at", [0, 3, 5], ids=["first", "middle", "last"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["declared", "not declared"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_box_that_cannot_be_is_found_at_its_record(
    put_file: PutFile,
    compress: Callable[[bytes, str], bytes],
    wrong: str,
    schema: rk.Schema | None,
    compression: str,
    at: int,
) -> None:
    box, code, severity, message, likely = WRONG[wrong]
    rows = list(GOOD)
    rows[at] = boxed((0.1, 0.2, 0.5, 0.6), box, number=at)
    stream = frames([example_bytes(row) for row in rows])
    path = put_file(compress(stream, compression), "x.gz" if compression == "gzip" else "x.tfrecord")
    (one,) = about_boxes(path, schema)
    assert (one.code, one.severity, one.record) == (code, severity, at)
    assert one.offset == frame_offsets(stream)[at]
    assert one.feature == (STEM if schema is None else "boxes")
    assert message in one.message
    assert (one.found or "").startswith("box 1: ")
    assert (one.likely or "").startswith(likely or "")
    assert (one.likely is None) == (likely is None)


def test_a_rounding_of_a_millionth_is_no_finding(put_records: PutFile) -> None:
    rows = [boxed((-5e-7, 0.0, 1.0000005, 1.0))]
    assert about_boxes(put_records([example_bytes(row) for row in rows]), None) == []


def test_boxes_outside_their_image_are_one_finding_a_severity(put_records: PutFile) -> None:
    sides = (1.0005, 1.002, 1.05, 1.5, 1.0002, 1.002)
    rows = [boxed((0.5, 0.5, side, 0.9), number=i) for i, side in enumerate(sides)]
    path = put_records([example_bytes(row) for row in rows])
    found = [(one.severity, one.record, one.count) for one in about_boxes(path, None)]
    assert sorted(found) == [("error", 3, 1), ("note", 0, 2), ("warning", 1, 3)]
    assert not rk.check(path).ok


def test_a_flat_box_a_little_outside_is_both(put_records: PutFile) -> None:
    (outside, flat) = about_boxes(put_records([example_bytes(boxed((1.002, 0.5, 1.002, 0.9)))]), None)
    assert (outside.code, outside.severity) == ("H771", "warning")
    assert (flat.code, flat.severity) == ("H773", "warning")


def test_records_without_boxes_are_good(put_records: PutFile) -> None:
    rows: list[dict[str, Any]] = [GOOD[0], {"id": [1]}, GOOD[2]]
    assert about_boxes(put_records([example_bytes(row) for row in rows]), None) == []


def test_all_bad_boxes_of_a_record_are_one_finding(put_records: PutFile) -> None:
    rows = [GOOD[0], boxed((0.1, 0.2, 0.3, 0.4), (2, 3, 4, 5), (5, 6, 7, 8))]
    (one,) = about_boxes(put_records([example_bytes(row) for row in rows]), None)
    assert one.found == "box 1: 2, 3, 4, 5; 1 more in the record"


def test_lists_of_different_lengths_are_an_error(put_records: PutFile) -> None:
    uneven = {**GOOD[1], f"{STEM}/ymax": [0.5]}
    path = put_records([example_bytes(row) for row in (GOOD[0], uneven, boxed((3, 4, 5, 6)))])
    found = about_boxes(path, None)
    assert [(one.code, one.severity, one.record) for one in found] == [
        ("H770", "error", 1),
        ("H771", "error", 2),
    ]
    assert found[0].message == f"the four lists under `{STEM}` differ in length"
    assert found[0].found == "2, 2, 2, 1"
    declared = about_boxes(path, SCHEMA)
    assert [(one.code, one.record) for one in declared] == [("D407", 1), ("H771", 2)]


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["declared", "not declared"])
@pytest.mark.parametrize(("name", "values"), [("label", [1]), ("text", [b"cat"]), ("label", [1, 2, 3])])
def test_classes_that_are_not_as_many_as_the_boxes_are_an_error(
    put_records: PutFile, schema: rk.Schema | None, name: str, values: list[Any]
) -> None:
    two = (0.1, 0.2, 0.5, 0.6), (0.0, 0.0, 1.0, 1.0)
    good = boxed(*two, label=[1, 2], text=[b"cat", b"dog"])
    bad = boxed(*two, number=1, **{"label": [1, 2], "text": [b"cat", b"dog"], name: values})
    (one,) = about_boxes(put_records([example_bytes(row) for row in (good, bad, good)]), schema)
    assert (one.code, one.severity, one.record) == ("H770", "error", 1)
    assert one.feature == f"image/object/class/{name}"
    assert one.expected == "2, one per box"
    assert one.found == str(len(values))


def test_names_of_classes_may_be_left_out(put_records: PutFile) -> None:
    rows = [
        boxed((0.1, 0.2, 0.5, 0.6), label=[1], text=[b"cat"]),
        boxed((0.1, 0.2, 0.5, 0.6), number=1, label=[2]),
    ]
    assert about_boxes(put_records([example_bytes(row) for row in rows]), None) == []


def test_a_class_id_of_0_is_one_warning_a_file(put_records: PutFile) -> None:
    rows = [boxed((0.1, 0.2, 0.5, 0.6), number=i, label=[i % 3]) for i in range(9)]
    (one,) = about_boxes(put_records([example_bytes(row) for row in rows]), None)
    assert (one.code, one.severity, one.record, one.count) == ("H774", "warning", 0, 3)
    assert one.feature == "image/object/class/label"
    assert one.message == "`image/object/class/label` is 0, but class ids start at 1"


@pytest.mark.parametrize(
    ("label", "codes"),
    [
        (rk.Int64(shape=(None,), key="image/object/class/label"), ["H774"]),
        (rk.Int64(shape=(None,), key="image/object/class/label", range=(0, 9)), []),
        (rk.Label(3, shape=(None,), key="image/object/class/label"), []),
    ],
)
def test_a_schema_that_says_which_class_ids_there_are_is_believed(
    put_records: PutFile, label: Any, codes: list[str]
) -> None:
    schema = rk.Schema({"id": rk.Int64(), "boxes": rk.Boxes(), "labels": label})
    rows = [boxed((0.1, 0.2, 0.5, 0.6), number=i, label=[i % 3]) for i in range(3)]
    found = about_boxes(put_records([example_bytes(row) for row in rows]), schema)
    assert [one.code for one in found] == codes


def test_boxes_of_another_name_are_found_by_their_keys(put_records: PutFile) -> None:
    rows = [
        {
            "id": [i],
            **{f"faces/bbox/{s}": [v] for s, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)},
        }
        for i, box in enumerate([(0.1, 0.1, 0.2, 0.2), (0.1, 0.1, 9.0, 0.2)])
    ]
    (one,) = about_boxes(put_records([example_bytes(row) for row in rows]), None)
    assert (one.code, one.record, one.feature) == ("H771", 1, "faces/bbox")
