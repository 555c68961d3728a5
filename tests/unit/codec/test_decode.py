"""`rk.decode` without a schema: what is in a payload, as Python values."""

from __future__ import annotations

import numpy as np
import pytest

import rekord as rk
from rekord.testing import (
    bytes_list,
    entry,
    example,
    example_bytes,
    feature,
    float_list,
    int64_list,
    length_delimited,
    sequence_bytes,
    tag,
)
from rekord.testing.wire import EGROUP, SGROUP

KNOWN = bytes.fromhex(
    "0a25 0a140a0161120f1a0d0a0b05ffffffffffffffffff01 0a0d0a01621208 0a060a0261620a00".replace(" ", "")
)


def test_the_known_example_is_a_dict_of_arrays_and_bytes() -> None:
    decoded = rk.decode(KNOWN)
    assert list(decoded) == ["a", "b"]
    assert decoded["a"].dtype == np.int64
    assert decoded["a"].tolist() == [5, -1]
    assert decoded["b"] == [b"ab", b""]


def test_floats_keep_their_bits() -> None:
    bits = [0x7FA00001, 0xFFC0DEAD, 0x80000000, 0x00000001, 0x7F800000]
    packed = np.array(bits, "<u4").tobytes()
    decoded = rk.decode(example(entry("f", feature(("float", length_delimited(1, packed))))))
    assert decoded["f"].dtype == np.float32
    assert decoded["f"].view(np.uint32).tolist() == bits


def test_empty_lists_are_values_and_an_unset_kind_is_none() -> None:
    decoded = rk.decode(
        example(
            entry("i", feature(("int64", b""))),
            entry("f", feature(("float", b""))),
            entry("b", feature(("bytes", b""))),
            entry("m", feature()),
        )
    )
    assert (decoded["i"].dtype, decoded["i"].shape) == (np.int64, (0,))
    assert (decoded["f"].dtype, decoded["f"].shape) == (np.float32, (0,))
    assert decoded["b"] == []
    assert decoded["m"] is None


@pytest.mark.parametrize("payload", [b"", b"\x0a\x00"])
def test_an_empty_payload_is_an_example_without_features(payload: bytes) -> None:
    assert rk.decode(payload) == {}


def test_the_last_of_two_equal_keys_counts() -> None:
    twice = example(entry("a", feature(("int64", int64_list([1]))))) + example_bytes({"a": [2.0]})
    assert rk.decode(twice)["a"].tolist() == [2.0]


def test_pieces_of_a_list_are_joined() -> None:
    pieces = int64_list([1, 2, 3], chunks=[2, 1]) + int64_list([4], packed=False)
    assert rk.decode(example(entry("a", feature(("int64", pieces)))))["a"].tolist() == [1, 2, 3, 4]
    halves = feature(("bytes", bytes_list([b"x"])), ("bytes", bytes_list([b"y"])))
    assert rk.decode(example(entry("a", halves)))["a"] == [b"x", b"y"]


def test_the_last_of_two_kinds_counts() -> None:
    both = feature(("int64", int64_list([1])), ("float", float_list([0.5])))
    assert rk.decode(example(entry("a", both)))["a"].tolist() == [0.5]


def test_a_sequence_has_a_context_and_one_value_a_step() -> None:
    decoded = rk.decode(sequence_bytes({"c": [0.5]}, {"s": [[7], None], "t": [["x"], ["y", "z"]]}), kind="sequence")
    assert isinstance(decoded, rk.SequenceExample)
    assert decoded.context["c"].tolist() == [0.5]  # type: ignore[union-attr]
    assert list(decoded.steps) == ["s", "t"]
    assert [None if step is None else list(step) for step in decoded.steps["s"]] == [[7], None]
    assert decoded.steps["t"] == [[b"x"], [b"y", b"z"]]


def test_arrays_are_our_own_and_outlive_the_payload() -> None:
    payload = bytearray(example_bytes({"a": list(range(100))}))
    decoded = rk.decode(payload)["a"]
    payload[:] = bytes(len(payload))
    assert decoded.tolist() == list(range(100))
    assert decoded.flags.writeable
    decoded[0] = 7
    assert rk.decode(bytes(example_bytes({"a": [0]})))["a"].tolist() == [0]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_bytes_are_taken(wrap: type) -> None:
    assert list(rk.decode(wrap(KNOWN))) == ["a", "b"]


@pytest.mark.parametrize("payload", ["text", None, 5, [1]])
def test_what_is_no_bytes_is_refused_by_name(payload: object) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.decode(payload)  # type: ignore[arg-type]
    assert caught.value.code == "U605"
    assert caught.value.found == type(payload).__name__


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.decode(b"", kind="row")  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.found) == ("U605", "'row'")


def in_list(kind: str, body: bytes) -> bytes:
    return example(entry("a", feature((kind, body))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payload", "code", "at"),
    [
        (b"\x0a", "W201", 1),
        (in_list("int64", length_delimited(1, b"\x05" + b"\xff" * 10 + b"\x01")), "W201", 14),
        (b"\x0a\x05\x0a\x01", "W202", 1),
        (b"\x00", "W203", 0),
        (b"\x0f\x00", "W203", 0),
        (tag(9, EGROUP), "W204", 1),
        (tag(9, SGROUP), "W204", 1),
        (example(entry(b"\xff\xfe", feature())), "W205", 5),
        (in_list("float", length_delimited(1, b"abc")), "W206", 12),
        (tag(9, SGROUP) * 101, "W207", 101),
    ],
)
def test_what_protobuf_refuses_is_refused_at_its_byte(payload: bytes, code: str, at: int) -> None:
    for kind in ("example", "sequence"):
        with pytest.raises(rk.WireError) as caught:
            rk.decode(payload, kind=kind)
        assert (caught.value.code, caught.value.location) == (code, rk.Location(payload_offset=at))
        assert caught.value.expected
        assert caught.value.found
        assert caught.value.do


def test_a_key_keeps_every_letter() -> None:
    keys = ["", "é", "a\0b", "\U0001f600", "image/encoded", "x" * 300]
    assert list(rk.decode(example(*(entry(key, feature()) for key in keys)))) == keys
