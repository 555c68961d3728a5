"""The wire writer writes the bytes that protobuf's rules give, the odd forms included."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rekord.testing import frame
from rekord.testing.wire import (
    EGROUP,
    I32,
    I64,
    LEN,
    SGROUP,
    VARINT,
    bytes_list,
    entry,
    example,
    example_bytes,
    feature,
    feature_list,
    features,
    float_list,
    group,
    int64_list,
    length_delimited,
    sequence_bytes,
    sequence_example,
    tag,
    unknown,
    varint,
)

MINUS_ONE = "ff ff ff ff ff ff ff ff ff 01"


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace("|", " "))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "80 01"),
        (300, "ac 02"),
        (-1, MINUS_ONE),
        ((1 << 64) - 1, MINUS_ONE),
        ((1 << 63) - 1, "ff ff ff ff ff ff ff ff 7f"),
        (-(1 << 63), "80 80 80 80 80 80 80 80 80 01"),
    ],
)
def test_a_varint_has_seven_bits_a_byte_lowest_first(n: int, expected: str) -> None:
    assert varint(n) == hexed(expected)


def test_a_varint_can_be_wider_than_it_needs_and_never_narrower() -> None:
    assert varint(5, width=3) == hexed("85 80 00")
    assert varint(300, width=2) == varint(300)
    with pytest.raises(ValueError, match="300 needs 2 bytes, not 1"):
        varint(300, width=1)
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        varint(1 << 64)


def test_a_tag_is_field_and_wire_type() -> None:
    assert [tag(1, wire) for wire in (VARINT, I64, LEN, SGROUP, EGROUP, I32)] == [
        b"\x08",
        b"\x09",
        b"\x0a",
        b"\x0b",
        b"\x0c",
        b"\x0d",
    ]
    assert tag(2, LEN) == b"\x12"
    assert tag(16, VARINT) == b"\x80\x01"
    assert length_delimited(2, b"ab") == hexed("12 02 61 62")


def test_int64_lists_are_packed_unpacked_or_in_pieces() -> None:
    assert int64_list([5, -1]) == hexed(f"0a 0b 05 {MINUS_ONE}")
    assert int64_list([5, -1], packed=False) == hexed(f"08 05 08 {MINUS_ONE}")
    assert int64_list([1, 2, 3], chunks=[2, 0, 1]) == hexed("0a 02 01 02 | 0a 00 | 0a 01 03")
    assert int64_list([1]) + int64_list([2], packed=False) == hexed("0a 01 01 | 08 02")
    assert int64_list([]) == b""
    assert int64_list([], chunks=[0]) == hexed("0a 00")


def test_float_lists_are_packed_unpacked_or_in_pieces() -> None:
    assert float_list([0.5, -2]) == hexed("0a 08 0000003f 000000c0")
    assert float_list([0.5, -2], packed=False) == hexed("0d 0000003f 0d 000000c0")
    assert float_list([0.5, -2], chunks=[1, 1]) == hexed("0a 04 0000003f | 0a 04 000000c0")
    assert float_list([]) == b""


@pytest.mark.parametrize("numbers", [int64_list, float_list])
def test_chunks_that_do_not_fit_are_refused(numbers: Callable[..., bytes]) -> None:
    with pytest.raises(ValueError, match="chunks of 2 values in all, for 3 values"):
        numbers([1, 2, 3], chunks=[1, 1])
    with pytest.raises(ValueError, match="no chunks"):
        numbers([1, 2, 3], packed=False, chunks=[3])


def test_a_feature_holds_one_kind_none_or_two() -> None:
    assert feature() == b""
    assert feature(("bytes", bytes_list([b"ab", b""]))) == hexed("0a 06 0a 02 61 62 0a 00")
    assert feature(("float", b"")) == hexed("12 00")
    assert feature(("int64", b"")) == hexed("1a 00")
    both = feature(("int64", int64_list([1])), ("float", float_list([0.5])))
    assert both == hexed("1a 03 0a 01 01 | 12 06 0a 04 0000003f")


def test_an_entry_is_a_key_and_a_value_and_can_lack_or_swap_them() -> None:
    assert entry("m", feature()) == hexed("0a 05 0a 01 6d 12 00")
    assert entry("e", feature(("int64", int64_list([])))) == hexed("0a 07 0a 01 65 12 02 1a 00")
    assert entry("m", feature(), swap=True) == hexed("0a 05 12 00 0a 01 6d")
    assert entry(None, feature()) == hexed("0a 02 12 00")
    assert entry("m", None) == hexed("0a 03 0a 01 6d")
    assert entry(None, None) == hexed("0a 00")
    assert entry("", feature()) == hexed("0a 04 0a 00 12 00")
    assert entry(b"\xff", feature()) == hexed("0a 05 0a 01 ff 12 00")


AB = hexed(f"0a 25 | 0a 14 0a 01 61 12 0f 1a 0d 0a 0b 05 {MINUS_ONE} | 0a 0d 0a 01 62 12 08 0a 06 0a 02 61 62 0a 00")


def test_an_example_by_hand_and_the_friendly_one_are_the_known_39_bytes() -> None:
    by_hand = example(
        features(
            [
                entry("a", feature(("int64", int64_list([5, -1])))),
                entry("b", feature(("bytes", bytes_list([b"ab", b""])))),
            ]
        )
    )
    assert by_hand == AB
    assert len(AB) == 39
    assert example_bytes({"b": [b"ab", b""], "a": [5, -1]}) == AB
    framed = frame(AB)
    assert framed[:12] == hexed("27 00 00 00 00 00 00 00 bb e1 b1 46")
    assert framed[-4:] == hexed("a7 f2 f7 d8")


def test_duplicate_keys_and_repeated_features_are_written_as_given() -> None:
    one, two = (entry("a", feature(("int64", int64_list([n])))) for n in (1, 2))
    assert features([one, two]) == one + two
    assert example(features([one]), features([two])) == example(one) + example(two)
    assert (example(), example(b"")) == (b"", hexed("0a 00"))


def test_unknown_fields_come_in_every_wire_type() -> None:
    assert unknown(9, VARINT) == hexed("48 ac 02")
    assert unknown(9, I64) == hexed("49 00 01 02 03 04 05 06 07")
    assert unknown(9, LEN) == hexed("4a 07") + b"unknown"
    assert unknown(9, I32) == hexed("4d 00 01 02 03")
    nested = b"".join(unknown(10, wire) for wire in (VARINT, I64, LEN, I32)) + hexed("5b 5c")
    assert unknown(9, SGROUP) == hexed("4b") + nested + hexed("4c")
    assert group(9) == hexed("4b 4c")
    with pytest.raises(ValueError, match="wire type 4 cannot stand alone"):
        unknown(9, EGROUP)


def test_a_sequence_example_has_a_context_and_lists() -> None:
    step = feature(("int64", int64_list([7])))
    lists = features([entry("s", feature_list([step, feature()]))])
    context = features([entry("c", feature(("float", float_list([0.5]))))])
    expected = hexed(
        "0a 0f 0a 0d 0a 01 63 12 08 12 06 0a 04 0000003f | 12 10 0a 0e 0a 01 73 12 09 0a 05 1a 03 0a 01 07 0a 00"
    )
    assert sequence_example(context, lists) == expected
    assert sequence_bytes({"c": [0.5]}, {"s": [[7], None]}) == expected
    assert sequence_example() == b""
    assert sequence_example(None, b"") == hexed("12 00")


def test_the_friendly_writer_sorts_keys_by_bytes_and_takes_text_and_none() -> None:
    written = example_bytes({"é": [1], "z": None, "Z": ["é"], "a": [True]})
    assert written == example(
        features(
            [
                entry("Z", feature(("bytes", bytes_list(["é".encode()])))),
                entry("a", feature(("int64", int64_list([1])))),
                entry("z", feature()),
                entry("é", feature(("int64", int64_list([1])))),
            ]
        )
    )


@pytest.mark.parametrize(
    ("values", "found"), [([], "an empty list"), ([1, 0.5], "several types"), ([b"a", 1], "several types")]
)
def test_the_friendly_writer_refuses_to_guess_a_kind(values: list[int], found: str) -> None:
    with pytest.raises(ValueError, match=f"`x` has .*{found}"):
        example_bytes({"x": values})
