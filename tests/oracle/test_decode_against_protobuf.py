"""`rk.decode` means what protobuf means on every message, and refuses what protobuf refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from record_strategies import examples, ints, mutated_payloads, raw_entry, sequences

import rekord as rk
from rekord.testing import (
    bytes_list,
    entry,
    example,
    example_bytes,
    feature,
    feature_list,
    float_list,
    frames,
    int64_list,
    length_delimited,
    sequence_bytes,
    sequence_example,
    tag,
    unknown,
    varint,
)
from rekord.testing.wire import EGROUP, SGROUP

WIRES = (0, 1, 2, 3, 5)


def by_protobuf(feature: Any) -> object:
    """A Feature as its kind and values; floats as bits, which Python's own floats would not keep."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "float_list":
        feature.float_list.DiscardUnknownFields()
        packed = feature.float_list.SerializeToString()
        bits = packed[len(packed) - 4 * len(feature.float_list.value) :]
        return kind, np.frombuffer(bits, "<u4").tolist()
    return kind, list(getattr(feature, kind).value)


def by_us(value: object) -> object:
    """What `rk.decode` gives, in the same form."""
    if value is None:
        return None
    if isinstance(value, list):
        assert all(type(item) is bytes for item in value)
        return "bytes_list", value
    assert isinstance(value, np.ndarray)
    assert value.ndim == 1
    if value.dtype == np.int64:
        return "int64_list", value.tolist()
    assert value.dtype == np.float32
    return "float_list", value.view(np.uint32).tolist()


def example_by_protobuf(pb: ModuleType, payload: bytes) -> object:
    message = pb.Example.FromString(payload)
    return {key: by_protobuf(value) for key, value in message.features.feature.items()}


def example_by_us(payload: bytes) -> object:
    return {key: by_us(value) for key, value in rk.decode(payload).items()}


def sequence_by_protobuf(pb: ModuleType, payload: bytes) -> object:
    message = pb.SequenceExample.FromString(payload)
    return (
        {key: by_protobuf(value) for key, value in message.context.feature.items()},
        {
            key: [by_protobuf(step) for step in steps.feature]
            for key, steps in message.feature_lists.feature_list.items()
        },
    )


def sequence_by_us(payload: bytes) -> object:
    decoded = rk.decode(payload, kind="sequence")
    return (
        {key: by_us(value) for key, value in decoded.context.items()},
        {key: [by_us(step) for step in steps] for key, steps in decoded.steps.items()},
    )


def both(pb: ModuleType, payload: bytes, kind: str) -> tuple[object, object]:
    """What protobuf makes of a payload and what we make of it; "refused" where it is refused."""
    from google.protobuf.message import DecodeError

    theirs, ours = (
        (example_by_protobuf, example_by_us) if kind == "example" else (sequence_by_protobuf, sequence_by_us)
    )
    try:
        expected = theirs(pb, payload)
    except DecodeError:
        expected = "refused"
    try:
        found = ours(payload)
    except rk.WireError as failure:
        at = failure.location.payload_offset
        found = "refused" if at is not None and 0 <= at <= len(payload) else "refused outside the payload"
    return expected, found


@settings(max_examples=500)
@given(payload=examples())
def test_any_example_on_the_wire_means_what_protobuf_says(pb: ModuleType, payload: bytes) -> None:
    expected, found = both(pb, payload, "example")
    assert expected != "refused"
    assert found == expected


@settings(max_examples=400)
@given(payload=sequences())
def test_any_sequence_example_on_the_wire_means_what_protobuf_says(pb: ModuleType, payload: bytes) -> None:
    expected, found = both(pb, payload, "sequence")
    assert expected != "refused"
    assert found == expected


@settings(max_examples=1200)
@given(payload=mutated_payloads(examples()))
def test_a_mutated_example_is_read_alike_or_refused_alike(pb: ModuleType, payload: bytes) -> None:
    expected, found = both(pb, payload, "example")
    assert found == expected


@settings(max_examples=800)
@given(payload=mutated_payloads(sequences()))
def test_a_mutated_sequence_example_is_read_alike_or_refused_alike(pb: ModuleType, payload: bytes) -> None:
    expected, found = both(pb, payload, "sequence")
    assert found == expected


@settings(max_examples=300)
@given(payload=examples())
def test_an_example_read_as_a_sequence_is_read_alike(pb: ModuleType, payload: bytes) -> None:
    expected, found = both(pb, payload, "sequence")
    assert found == expected


KEY, VALUE, OTHER = length_delimited(1, b"a"), length_delimited(2, ints(1)), length_delimited(2, ints(2))


def odd_examples() -> Iterator[tuple[str, bytes]]:
    """The odd forms one by one, so that a failure has a name."""
    yield "nothing", b""
    yield "empty features", example(b"")
    yield "packed", example(entry("a", ints(5, -1)))
    yield "unpacked", example(entry("a", ints(5, -1, packed=False)))
    yield "chunks", example(entry("a", ints(1, 2, 3, chunks=[2, 0, 1])))
    yield (
        "packed then unpacked",
        example(entry("a", feature(("int64", int64_list([1]) + int64_list([2], packed=False))))),
    )
    yield (
        "unpacked then packed",
        example(entry("a", feature(("float", float_list([1], packed=False) + float_list([2]))))),
    )
    yield "two lists of one kind", example(entry("a", ints(1) + ints(2)))
    yield "two kinds", example(entry("a", feature(("float", float_list([0.5]))) + ints(2)))
    yield "three times a kind", example(entry("a", ints(1) + feature(("bytes", b"")) + ints(2)))
    yield "kind unset", example(entry("m", feature()))
    for kind in ("bytes", "float", "int64"):
        yield f"empty {kind}", example(entry("e", feature((kind, b""))))
    yield "lowest and highest", example(entry("a", ints(-(1 << 63), (1 << 63) - 1)))
    yield "ten bytes", example(entry("a", feature(("int64", length_delimited(1, b"\xff" * 9 + b"\x7f")))))
    yield "eleven bytes", example(entry("a", feature(("int64", length_delimited(1, b"\xff" * 10 + b"\x01")))))
    yield (
        "NaNs",
        example(entry("f", feature(("float", length_delimited(1, bytes.fromhex("0100a07f addec0ff 00000080")))))),
    )
    yield "duplicate keys", example(entry("a", ints(1)) + entry("a", ints(2)))
    yield "duplicate, the last unset", example(entry("a", ints(1)) + entry("a", feature()))
    yield "merged features", example(entry("a", ints(1)), entry("b", ints(2)), entry("a", ints(3)))
    yield "concatenated", example_bytes({"a": [1], "b": [b"x"]}) + example_bytes({"b": [b"y"]})
    yield "value before key", example(entry("a", ints(1), swap=True))
    yield "no key", example(entry(None, ints(1)))
    yield "no value", example(entry("a", None))
    yield "neither", example(entry(None, None))
    yield "two keys", example(raw_entry(KEY, length_delimited(1, b"b"), VALUE))
    yield "two values", example(raw_entry(KEY, VALUE, OTHER))
    yield (
        "two values, other kinds",
        example(raw_entry(KEY, length_delimited(2, feature(("float", float_list([1])))), OTHER)),
    )
    yield "key not UTF-8", example(entry(b"\xff", ints(1)))
    yield "key with a zero", example(entry("a\0b", ints(1)))
    for wire in WIRES:
        stranger = unknown(9, wire)
        yield f"unknown {wire} beside the features", stranger + example(entry("a", ints(1))) + stranger
        yield f"unknown {wire} in the features", example(stranger + entry("a", ints(1)) + stranger)
        yield f"unknown {wire} in an entry", example(raw_entry(KEY, VALUE, stranger) + entry("b", ints(2)))
        yield (
            f"unknown {wire} in a replaced entry",
            example(entry("a", ints(1)) + raw_entry(KEY, OTHER, stranger)),
        )
        yield f"unknown {wire} in a feature", example(entry("a", stranger + ints(1) + stranger))
        for kind, body in (
            ("int64", int64_list([1])),
            ("float", float_list([1])),
            ("bytes", bytes_list([b"x"])),
        ):
            yield (
                f"unknown {wire} in {kind}",
                example(entry("a", feature((kind, stranger + body + stranger)))),
            )
    yield "group not closed", tag(9, SGROUP)
    yield "group closed by another", tag(9, SGROUP) + tag(8, EGROUP)
    yield "end of no group", example(entry("a", ints(1))) + tag(9, EGROUP)
    for width in (2, 5, 6):
        yield f"tag in {width} bytes", varint(10, width=width) + b"\x00"
        yield f"length in {width} bytes", b"\x0a" + varint(0, width=width)
        yield f"unknown length in {width} bytes", b"\x4a" + varint(1, width=width) + b"x"
    for raw in (0, 2, 6, 7, 14, 15, (1 << 32) - 8 | 0, (1 << 32) - 1, 1 << 32 | 8, (1 << 35) - 8):
        yield f"tag {raw:#x}", varint(raw) + b"\x00"
    for length in (1, 127, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63):
        yield f"length {length:#x}", b"\x0a" + varint(length)
    for size in range(1, 8):
        yield (
            f"{size} bytes of floats",
            example(entry("a", feature(("float", length_delimited(1, bytes(size)))))),
        )


@pytest.mark.parametrize("name", [name for name, _ in odd_examples()])
def test_every_odd_form_of_an_example_means_what_protobuf_says(pb: ModuleType, name: str) -> None:
    expected, found = both(pb, dict(odd_examples())[name], "example")
    assert found == expected


def nested_groups(levels: int) -> bytes:
    return b"" if levels == 0 else tag(9, SGROUP) * levels + tag(9, EGROUP) * levels


@pytest.mark.parametrize("levels", [1, 90, *range(94, 103), 200])
def test_groups_are_followed_exactly_as_deep_as_protobuf_follows_them(pb: ModuleType, levels: int) -> None:
    deep = nested_groups(levels)
    for payload in (
        deep,
        example(deep),
        example(raw_entry(KEY, VALUE, deep)),
        example(entry("a", deep)),
        example(entry("a", feature(("int64", deep)))),
    ):
        expected, found = both(pb, payload, "example")
        assert found == expected
    for payload in (
        sequence_example(None, deep),
        sequence_example(None, raw_entry(KEY, length_delimited(2, deep))),
        sequence_example(None, entry("a", feature_list([deep]))),
        sequence_example(None, entry("a", feature_list([feature(("int64", deep))]))),
    ):
        expected, found = both(pb, payload, "sequence")
        assert found == expected


def odd_sequences() -> Iterator[tuple[str, bytes]]:
    steps = feature_list([ints(1), feature(), ints(2, 3)])
    yield "plain", sequence_bytes({"c": [0.5]}, {"s": [[7], None], "t": [[b"x"], [b"y", b"z"]]})
    yield (
        "lists before context",
        sequence_example(None, entry("s", steps)) + sequence_example(entry("c", ints(1))),
    )
    yield "empty list of steps", sequence_example(None, entry("s", b""))
    yield "no value", sequence_example(None, entry("s", None))
    yield "no key", sequence_example(None, entry(None, steps))
    yield "swapped", sequence_example(None, entry("s", steps, swap=True))
    yield (
        "two values",
        sequence_example(None, raw_entry(KEY, length_delimited(2, steps), length_delimited(2, steps))),
    )
    yield "duplicate", sequence_example(None, entry("s", steps) + entry("s", feature_list([ints(9)])))
    yield "merged", sequence_example(entry("c", ints(1)), entry("s", steps)) * 2
    yield (
        "kinds differ between steps",
        sequence_example(None, entry("s", feature_list([ints(1), feature(("bytes", bytes_list([b"x"])))]))),
    )
    for wire in WIRES:
        stranger = unknown(9, wire)
        yield (
            f"unknown {wire} beside",
            stranger + sequence_example(entry("c", ints(1)), entry("s", steps)) + stranger,
        )
        yield f"unknown {wire} in lists", sequence_example(None, stranger + entry("s", steps) + stranger)
        yield (
            f"unknown {wire} in entry",
            sequence_example(None, raw_entry(KEY, length_delimited(2, steps), stranger) + entry("b", steps)),
        )
        yield f"unknown {wire} in steps", sequence_example(None, entry("s", stranger + steps + stranger))
        yield (
            f"unknown {wire} in step",
            sequence_example(None, entry("s", feature_list([stranger + ints(1)]))),
        )


@pytest.mark.parametrize("name", [name for name, _ in odd_sequences()])
def test_every_odd_form_of_a_sequence_means_what_protobuf_says(pb: ModuleType, name: str) -> None:
    expected, found = both(pb, dict(odd_sequences())[name], "sequence")
    assert expected != "refused"
    assert found == expected


PAYLOADS = [b"abc", b"", example_bytes({"a": [1, 2, 3]}), bytes(range(256)) * 300, b"\x78\x9c", b"last"]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_writes_is_read_back(tf: ModuleType, tmp_path: Path, compression: str) -> None:
    path = tmp_path / "x.tfrecord"
    with tf.io.TFRecordWriter(str(path), compression or None) as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    if not compression:
        assert path.read_bytes() == frames(PAYLOADS)
    assert list(rk.records(path)) == PAYLOADS
    report = rk.check(path)
    assert (report.ok, report.records) == (True, len(PAYLOADS))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_frames_that_rekord_makes_are_read_by_tensorflow(
    tf: ModuleType, put_file: Any, compress: Any, compression: str
) -> None:
    from rekord import _core

    data = b"".join(map(_core.frame, PAYLOADS))
    assert data == frames(PAYLOADS)
    path = put_file(compress(data, compression.lower()))
    read = tf.data.TFRecordDataset(str(path), compression_type=compression or None)
    assert [record.numpy() for record in read] == PAYLOADS


def test_the_members_of_a_gzip_file_are_read_through_as_tensorflow_does(
    tf: ModuleType, put_file: Any, compress: Any
) -> None:
    data = frames(PAYLOADS)
    path = put_file(compress(data[:30], "gzip") + compress(data[30:], "gzip"), "x.tfrecord.gz")
    read = tf.data.TFRecordDataset(str(path), compression_type="GZIP")
    assert [record.numpy() for record in read] == list(rk.records(path)) == PAYLOADS
