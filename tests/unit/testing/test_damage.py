"""The fault makers make exactly the faults that they name."""

from __future__ import annotations

import random
import struct

import pytest

from rekord.testing import (
    bit_flips,
    claim_length,
    corrupt_length,
    corrupt_payload,
    crc32c,
    drop_bytes,
    frame,
    frame_offsets,
    frames,
    insert_bytes,
    masked_crc32c,
    truncations,
    zero_block,
)
from rekord.testing.damage import _advance_crc

EMPTY = bytes.fromhex("00 00 00 00 00 00 00 00 29 03 98 07 d8 ea 82 a2")
ABC = bytes.fromhex("03 00 00 00 00 00 00 00 b0 99 49 0e 61 62 63 6e 57 f1 21")


def test_the_checksums_are_those_of_the_published_vectors() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert masked_crc32c(b"123456789") == 0xC78AB0E5
    assert (crc32c(b""), masked_crc32c(b"")) == (0, 0xA282EAD8)
    # RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("n_bytes", [4095, 4096, 4097, 65_536, 100_003])
def test_long_data_has_the_checksum_of_its_bytes_one_by_one(n_bytes: int) -> None:
    data = random.Random(n_bytes).randbytes(n_bytes)
    assert crc32c(data) == _advance_crc(0xFFFFFFFF, data) ^ 0xFFFFFFFF


def test_a_frame_is_length_checksum_payload_checksum() -> None:
    assert frame(b"") == EMPTY
    assert frame(b"abc") == ABC
    assert frames([b"abc", b"", b"abc"]) == ABC + EMPTY + ABC
    assert frames([]) == b""


def test_frame_offsets_are_where_frames_begin() -> None:
    assert frame_offsets(ABC + EMPTY + ABC) == [0, 19, 35]
    assert frame_offsets(b"") == []


@pytest.mark.parametrize(
    ("data", "offset"), [(ABC[:-1], 0), (ABC + b"\0" * 5, 19), (ABC + corrupt_length(EMPTY, 0), 19)]
)
def test_frame_offsets_of_a_damaged_file_are_refused(data: bytes, offset: int) -> None:
    with pytest.raises(ValueError, match=f"no intact frame at byte {offset}:"):
        frame_offsets(data)


@pytest.mark.parametrize("n_bytes", [0, 3, 4, 1 << 31, 1 << 40, (1 << 64) - 1])
def test_a_claimed_length_has_the_right_checksum_whatever_follows(n_bytes: int) -> None:
    claimed = claim_length(n_bytes, b"abc")
    length, crc = struct.unpack("<QI", claimed[:12])
    assert (length, crc) == (n_bytes, masked_crc32c(claimed[:8]))
    assert claimed[12:] == ABC[12:]
    assert (claimed == ABC) == (n_bytes == 3)


@pytest.mark.parametrize("n_bytes", [-1, 1 << 64])
def test_a_claimed_length_beyond_64_bits_is_refused(n_bytes: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        claim_length(n_bytes)


def test_truncations_are_every_proper_prefix() -> None:
    assert list(truncations(b"abc")) == [b"", b"a", b"ab"]
    assert list(truncations(b"")) == []


def test_bit_flips_change_every_bit_once_lowest_first() -> None:
    flips = list(bit_flips(b"\x00\xff"))
    assert [bit for bit, _ in flips] == list(range(16))
    assert flips[0] == (0, b"\x01\xff")
    assert flips[7] == (7, b"\x80\xff")
    assert flips[8] == (8, b"\x00\xfe")
    assert len({data for _, data in flips}) == 16


def test_a_corrupt_payload_leaves_its_header_and_its_neighbours_alone() -> None:
    data = ABC + ABC + EMPTY
    damaged = corrupt_payload(data, 1)
    changed = [i for i in range(len(data)) if data[i] != damaged[i]]
    assert changed == [19 + 12 + 1]
    assert frame_offsets(damaged) == frame_offsets(data)


def test_the_corrupt_payload_of_an_empty_record_is_its_checksum() -> None:
    data = ABC + EMPTY
    damaged = corrupt_payload(data, 1)
    assert [i for i in range(len(data)) if data[i] != damaged[i]] == [19 + 12]


def test_a_corrupt_length_no_longer_agrees_with_its_checksum() -> None:
    data = ABC + ABC
    damaged = corrupt_length(data, 1)
    assert [i for i in range(len(data)) if data[i] != damaged[i]] == [19]
    length, crc = struct.unpack("<QI", damaged[19:31])
    assert length == 2
    assert crc != masked_crc32c(damaged[19:27])


@pytest.mark.parametrize("record", [-1, 2])
def test_a_record_that_is_not_there_is_refused(record: int) -> None:
    for corrupt in (corrupt_payload, corrupt_length):
        with pytest.raises(ValueError, match=f"there are records 0 to 1, not {record}"):
            corrupt(ABC + ABC, record)


def test_bytes_are_dropped_inserted_and_zeroed_where_told() -> None:
    assert drop_bytes(b"abcdef", 1, 4) == b"aef"
    assert insert_bytes(b"abc", 1, b"XY") == b"aXYbc"
    assert insert_bytes(b"abc", 3, b"!") == b"abc!"
    assert zero_block(b"abcdef", 1, 4) == b"a\0\0\0ef"


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (2, 1), (0, 4)])
def test_a_range_outside_the_data_is_refused(begin: int, end: int) -> None:
    for damage in (drop_bytes, zero_block):
        with pytest.raises(ValueError, match=f"bytes {begin} to {end} are not within 0 to 3"):
            damage(b"abc", begin, end)
