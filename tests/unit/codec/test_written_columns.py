"""What an encoder keeps of the rows it wrote: the values that decoding their records gives, and where a blob lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rekord as rk
from rekord import _core
from rekord.codec.columns import column_to_arrow
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.encode import new_row_encoder, shared_pool
from rekord.codec.encode_columns import encode_batches, written_columns
from rekord.codec.plan import compile_plan

FEATURES: dict[str, tuple[rk.Feature, list[Any]]] = {
    "int": (rk.Int64(), [3, -1, 0]),
    "uint8": (rk.Int64(dtype="uint8"), [3, 255, 0]),
    "bool": (rk.Int64(dtype="bool"), [True, False, True]),
    "label": (rk.Label(["cat", "dog"]), [1, 0, 1]),
    "label by name": (rk.Label(["cat", "dog"]), ["dog", "cat", "dog"]),
    "optional int": (rk.Int64(optional=True), [3, None, 0]),
    "int with a default": (rk.Int64(default=7), [3, None, 0]),
    "float": (rk.Float32(), [0.1, 2.5, -1.0]),
    "optional float": (rk.Float32(optional=True), [None, None, 0.1]),
    "floats of a shape": (rk.Float32((2,)), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    "ragged ints": (rk.Int64((None,)), [[1, 2], [], [300]]),
    "optional ragged ints": (rk.Int64((None,), optional=True), [[1, 2], None, [300]]),
    "text": (rk.Text(), ["ä", "", "some" * 2000]),
    "optional text": (rk.Text(optional=True), [None, "b", "c"]),
    "text with a default": (rk.Text(default="none"), [None, "b", "c"]),
    "bytes": (rk.Bytes(), [b"a", b"b", b"\xff"]),
    "ragged text": (rk.Text((None,)), [["a", "bc"], [], ["d"]]),
    "nested": (rk.Int64((None, None), partitions=("x_lengths",)), [[[1, 2], []], [], [[300]]]),
    "tensor": (rk.Tensor("float64", (2,)), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    "sparse": (rk.Sparse("float32", size=10), [([1, 4], [0.5, 1.0]), ([], []), ([9], [2.0])]),
    "timestamp": (rk.Timestamp(), [np.datetime64("2020-01-01", "us")] * 3),
}


def decoded(plan: Any, frames: Any, rows: int) -> dict[str, Any]:
    """The columns of frames, by decoding them."""
    view = memoryview(frames).cast("B")
    slab = shared_pool().slab(len(view))
    slab.view()[: len(view)] = view
    batch = new_batch(plan, shared_pool())
    batch.feed(slab, 0, len(view), len(view), rows)
    columns = assemble_columns(plan, batch.take(), rows)
    return {name: column_to_arrow(column) for name, column in columns.items()}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, column in found.items():
        assert column.type == expected[name].type
        assert column.equals(expected[name])
        column.validate(full=True)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("name", FEATURES)
def test_columns_that_were_kept_are_those_that_decoding_gives(name: str, sequence: bool) -> None:
    feature, values = FEATURES[name]
    other = {"other": rk.Text()}
    schema = (
        rk.Schema(context={"x": feature}, steps={"other": rk.Int64()})
        if sequence
        else rk.Schema({"x": feature, **other})
    )
    rest: Any = [[1], [], [2, 3]] if sequence else ["a", "b", "c"]
    plan = compile_plan(schema, ("x",))
    encoder = new_row_encoder(schema)
    encoder.keep(plan.context.reading)
    for again in range(2):  # after `take_kept` it begins anew
        for value, beside in zip(values, rest, strict=True):
            encoder.append({"x": value, "other": beside})
        frames: Any = encoder.take()
        expected = decoded(plan, frames, 3)
        same(written_columns(plan, encoder.take_kept(), 3), expected)
        assert pa.compute.count(expected["x"], mode="all").as_py() == 3, again
    batches = encode_batches({"x": values, "other": rest}, schema, enough_bytes=1)
    pieces = list(batches.iter_with_index(plan))
    assert len(pieces) == 3
    for frames, ends, index in pieces:
        assert ends.tolist() == [len(frames)]
        same(index, decoded(plan, frames, 1))


def test_a_row_that_is_refused_or_only_encoded_is_not_kept() -> None:
    schema = rk.Schema({"x": rk.Int64()})
    plan = compile_plan(schema, ("x",))
    encoder = new_row_encoder(schema)
    encoder.keep(plan.context.reading)
    encoder.append({"x": 1})
    with pytest.raises(rk.EncodeError):
        encoder.append({"x": "one"})
    encoder.encode({"x": 2})
    encoder.append({"x": 3})
    assert written_columns(plan, encoder.take_kept(), 2)["x"].to_pylist() == [1, 3]


@pytest.mark.parametrize("before_bytes", [0, 100, 5000, 70_000])
@pytest.mark.parametrize("blob_bytes", [1, 127, 128, 20_000, 3 << 20])
def test_the_encoder_says_where_a_blob_lies_in_its_frame(before_bytes: int, blob_bytes: int) -> None:
    schema = rk.Schema({"a": rk.Bytes(), "image": rk.Bytes(), "z": rk.Bytes(optional=True)})
    encoder = new_row_encoder(schema)
    blob = np.random.default_rng(blob_bytes).bytes(blob_bytes)
    encoder.append({"a": b"first", "image": b"short"})  # so that lengths need another room than before
    begin = encoder.append({"a": b"first", "image": b"short"})
    row = {"a": bytes(before_bytes), "image": blob, "z": b"end"}
    waiting, offset = encoder.append_blob(row, blob)
    frames = bytes(encoder.take())
    assert waiting == len(frames)
    assert offset is not None
    assert frames[begin + offset : begin + offset + blob_bytes] == blob
    extents, consumed, _, problem = _core.scan(frames, 0, len(frames), len(frames))
    assert (len(extents), consumed, problem) == (3, len(frames), None)


def test_a_blob_that_is_no_value_of_its_own_lies_nowhere() -> None:
    encoder = new_row_encoder(rk.Schema({"a": rk.Bytes((None,)), "b": rk.Text()}))
    blob = b"0123456789" * 10
    assert encoder.append_blob({"a": [blob, b"x"], "b": "text"}, blob)[1] is None
    assert encoder.append_blob({"a": [], "b": blob.decode()}, blob)[1] is None
    assert encoder.append_blob({"a": [blob], "b": "text"}, blob)[1] is not None
