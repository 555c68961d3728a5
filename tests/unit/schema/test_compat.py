"""Whether data written with one schema can be read with another."""

import pytest

from rekord.schema import (
    Boxes,
    Bytes,
    Change,
    Float32,
    Image,
    Int64,
    Label,
    Mask,
    Schema,
    Sparse,
    Tensor,
    Text,
    compat,
)

IMAGE = Image(key="i")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (Int64(), Int64(), "same"),
        # shape
        (Int64((3,)), Int64((None,)), "widened"),
        (Int64((None,)), Int64((3,)), "breaking"),
        (Int64((3,)), Int64((4,)), "breaking"),
        (Int64((2, 3)), Int64((None, 3)), "widened"),
        (Int64((2, 3)), Int64((3, 2)), "breaking"),
        (Int64((2, 3)), Int64((6,)), "breaking"),
        (Int64(()), Int64((1,)), "widened"),
        (Int64((1,)), Int64(()), "widened"),
        (Int64(()), Int64((None,)), "widened"),
        (Int64((None,)), Int64(()), "breaking"),
        # presence
        (Int64(), Int64(optional=True), "widened"),
        (Int64(optional=True), Int64(), "breaking"),
        (Int64(optional=True), Int64(default=0), "widened"),
        (Int64(), Int64(default=0), "widened"),
        (Int64(default=0), Int64(), "widened"),
        (Int64(default=0), Int64(default=1), "widened"),
        (Int64(default=0), Int64(optional=True), "widened"),
        (Float32(default=float("nan")), Float32(default=float("nan")), "same"),
        # dtype
        (Int64(dtype="uint8"), Int64(), "widened"),
        (Int64(), Int64(dtype="uint8"), "breaking"),
        (Int64(range=(0, 9)), Int64(dtype="uint8", range=(0, 9)), "widened"),
        (Int64(dtype="uint8"), Int64(dtype="int8"), "breaking"),
        (Int64(dtype="uint64"), Int64(), "breaking"),
        (Int64(), Int64(dtype="uint64"), "breaking"),
        (Int64(dtype="bool"), Int64(dtype="uint64"), "widened"),
        (Float32(dtype="float16"), Float32(), "widened"),
        (Float32(), Float32(dtype="float16"), "breaking"),
        (Float32(dtype="float16"), Float32(dtype="bfloat16"), "breaking"),
        (Int64(), Float32(), "breaking"),
        (Tensor("uint8", (4,)), Tensor("int8", (4,)), "breaking"),
        (Tensor("uint8", (4,)), Tensor("uint8", (None,)), "widened"),
        # range
        (Int64(range=(0, 5)), Int64(range=(0, 9)), "widened"),
        (Int64(range=(0, 9)), Int64(range=(0, 5)), "breaking"),
        (Int64(), Int64(range=(0, 5)), "breaking"),
        (Int64(range=(0, 5)), Int64(), "widened"),
        (Int64(dtype="uint8"), Int64(dtype="uint8", range=(0, 255)), "widened"),
        (Float32(range=(0, 1)), Float32(range=(-1, 1)), "widened"),
        (Float32(range=(-1, 1)), Float32(range=(0, 1)), "breaking"),
        (Float32(), Float32(range=(None, float("inf"))), "breaking"),
        # how rows are written
        (Int64(), Int64(cast=True), "widened"),
        (Float32(), Float32(rounding="exact"), "widened"),
        (Image(format="jpeg", quality=90), Image(format="jpeg", quality=50), "widened"),
        (Int64(), Int64(key="c"), "widened"),
        # labels
        (Label(["a"]), Label(["a", "b"]), "widened"),
        (Label(["a", "b"]), Label(["b", "a"]), "breaking"),
        (Label(["a", "b"]), Label(["a"]), "breaking"),
        (Label(["a", "b"]), Label(["a", "c"]), "breaking"),
        (Label(["a", "b"]), Label(2), "widened"),
        (Label(2), Label(["a", "b"]), "widened"),
        (Label(3), Label(["a", "b"]), "breaking"),
        (Label(3), Int64(), "widened"),
        (Label(300), Int64(dtype="uint8"), "breaking"),
        (Int64(range=(0, 1)), Label(2), "widened"),
        (Int64(), Label(2), "breaking"),
        # bytes
        (Text(), Bytes(), "widened"),
        (Bytes(), Text(), "breaking"),
        (Image(), Bytes(), "widened"),
        (Bytes(), Image(), "breaking"),
        (Tensor("uint8"), Bytes(), "widened"),
        (Tensor("uint8", (2, 2)), Bytes(), "widened"),
        (Tensor("uint8", (2, 2)), Bytes((2, 2)), "breaking"),
        # images
        (Image(format="jpeg"), Image(), "widened"),
        (Image(), Image(format="jpeg"), "breaking"),
        (Image(format="jpeg"), Image(format="png"), "breaking"),
        (Image(channels=3), Image(channels=1), "breaking"),
        (Mask(classes=2), Mask(classes=3), "widened"),
        (Mask(classes=3), Mask(classes=2), "breaking"),
        (Mask(classes=3), Mask(classes=3, ignore=255), "widened"),
        (Mask(classes=3), Mask(classes=3, ignore=0), "breaking"),
        (Mask(classes=3, ignore=255), Mask(classes=3), "breaking"),
        (Mask(classes=3, ignore=255), Mask(classes=3, ignore=254), "breaking"),
        (Mask(classes=3, ignore=255), Mask(classes=300, ignore=255), "widened"),
        (Mask(classes=3), Mask(classes=3, of="image"), "widened"),
        # several keys
        (Sparse("float32", 9), Sparse("float32", 10), "widened"),
        (Sparse("float32", 9), Sparse("float32", 8), "breaking"),
        (Sparse("uint8", 9), Sparse("int64", 9), "widened"),
        (Sparse("int64", 9), Sparse("float32", 9), "breaking"),
        (Sparse("int64", 9), Sparse("int64", 9, index_key="other"), "breaking"),
        (Boxes(), Boxes(optional=True), "widened"),
        (Boxes(), Boxes(key="b"), "breaking"),
    ],
)
def test_one_column_changed(before, after, verdict):
    result = compat(Schema({"image": IMAGE, "c": before}), Schema({"image": IMAGE, "c": after}))
    assert result.verdict == verdict
    assert {change.column for change in result.changes} == (set() if verdict == "same" else {"c"})
    worst = "breaking" if verdict == "breaking" else "widened"
    assert all(change.verdict in (worst, "widened") for change in result.changes)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "changes"),
    [
        (
            Schema({}),
            Schema({"a": Int64()}),
            "breaking",
            [Change(column="a", what="new and required, missing in all records", verdict="breaking")],
        ),
        (
            Schema({}),
            Schema({"a": Int64(optional=True)}),
            "widened",
            [Change(column="a", what="new, optional", verdict="widened")],
        ),
        (
            Schema({}),
            Schema({"a": Int64(default=1)}),
            "widened",
            [Change(column="a", what="new, with a default", verdict="widened")],
        ),
        (
            Schema({"a": Int64()}),
            Schema({}),
            "widened",
            [Change(column="a", what="removed, no longer read", verdict="widened")],
        ),
        (
            Schema({"a": Int64()}),
            Schema({"b": Int64(key="a")}),
            "widened",
            [Change(column="b", what="renamed from `a`", verdict="widened")],
        ),
        (
            Schema({"a": Int64()}),
            Schema({"a": Int64(key="b")}),
            "breaking",
            [Change(column="a", what="read from `b`, but stored under `a`", verdict="breaking")],
        ),
        (
            Schema({"a": Int64()}),
            Schema(context={"a": Int64()}, steps={}),
            "breaking",
            [Change(column=None, what="records were Examples and are now SequenceExamples", verdict="breaking")],
        ),
    ],
)
def test_columns_come_and_go(before, after, verdict, changes):
    result = compat(before, after)
    assert result.verdict == verdict
    assert list(result.changes) == changes


def test_a_column_that_moves_between_context_and_steps_breaks():
    before = Schema(context={"a": Int64()}, steps={})
    after = Schema(context={}, steps={"a": Int64(optional=True)})
    changes = {(change.column, change.verdict) for change in compat(before, after).changes}
    assert changes == {("a", "breaking"), ("a", "widened")}


def test_a_column_of_several_keys_does_not_read_what_others_stored():
    before = Schema({side: Float32((None,), key=f"b/{side}") for side in ("xmin", "ymin", "xmax", "ymax")})
    result = compat(before, Schema({"boxes": Boxes(key="b", optional=True)}))
    assert result.verdict == "breaking"
    assert result.changes[0].column == "boxes"
