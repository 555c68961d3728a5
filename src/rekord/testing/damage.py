"""Record files and ways to damage them, independent of the native core."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reflected
_MASK_DELTA = 0xA282EAD8
_HEADER_BYTES = 12
_FOOTER_BYTES = 4


def _build_crc_table() -> tuple[int, ...]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _build_crc_table()
_ROW_BYTES = 256
_LONG_BYTES = 16 * _ROW_BYTES


def crc32c(data: bytes) -> int:
    """The CRC-32C of `data`."""
    if len(data) >= _LONG_BYTES:
        return _long_crc32c(data)
    return _advance_crc(0xFFFFFFFF, data) ^ 0xFFFFFFFF


def _advance_crc(crc: int, data: bytes) -> int:
    """The register after `data`, without inversions."""
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc


def _build_row_tables() -> list[list[int]]:
    """For each byte of a register, its values after a row of zeros: the CRC is linear."""
    bits = [_advance_crc(1 << bit, bytes(_ROW_BYTES)) for bit in range(32)]
    tables = []
    for first in range(0, 32, 8):
        table = [0]
        for bit in bits[first : first + 8]:
            table += [value ^ bit for value in table]
        tables.append(table)
    return tables


_ROW_TABLES = _build_row_tables()


def _long_crc32c(data: bytes) -> int:
    """The same for long data: rows of 256 bytes in parallel, then joined."""
    # Leading zeros do not change a zero register; a register of ones inverts the first four bytes instead.
    padding = -len(data) % _ROW_BYTES
    padded = np.frombuffer(bytes(padding) + data, np.uint8).copy()
    padded[padding : padding + 4] ^= 0xFF
    table = np.array(_TABLE, np.uint32)
    rows = padded.reshape(-1, _ROW_BYTES)
    registers = np.zeros(len(rows), np.uint32)
    for column in range(_ROW_BYTES):
        registers = registers >> 8 ^ table[(registers ^ rows[:, column]) & 0xFF]
    low, middle, high, top = _ROW_TABLES
    crc = 0
    for register in registers.tolist():
        crc = low[crc & 0xFF] ^ middle[crc >> 8 & 0xFF] ^ high[crc >> 16 & 0xFF] ^ top[crc >> 24] ^ register
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum that a frame stores: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """One record as stored in a file: length, checksum, payload, checksum."""
    return claim_length(len(payload), payload)


def frames(payloads: Iterable[bytes]) -> bytes:
    """A whole uncompressed record file."""
    return b"".join(map(frame, payloads))


def claim_length(n_bytes: int, payload: bytes = b"") -> bytes:
    """A frame with the length `n_bytes` and a valid checksum of that length, whatever the size of `payload`.

    The payload and its valid checksum follow. If `n_bytes` exceeds them, a reader must not allocate memory for
    the claimed length.
    """
    if not 0 <= n_bytes < 1 << 64:
        raise ValueError(f"a length is 64 bits without sign, not {n_bytes}")
    length = struct.pack("<Q", n_bytes)
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc32c(length)),
            payload,
            struct.pack("<I", masked_crc32c(payload)),
        )
    )


def frame_offsets(data: bytes) -> list[int]:
    """Where each frame of an intact, uncompressed record file begins."""
    offsets = []
    offset = 0
    while offset < len(data):
        offsets.append(offset)
        offset = _frame_end(data, offset)
    return offsets


def _frame_end(data: bytes, offset: int) -> int:
    header = data[offset : offset + _HEADER_BYTES]
    if len(header) == _HEADER_BYTES:
        length, stored_crc = struct.unpack("<QI", header)
        end = offset + _HEADER_BYTES + length + _FOOTER_BYTES
        if stored_crc == masked_crc32c(header[:8]) and end <= len(data):
            return int(end)
    raise ValueError(f"no intact frame at byte {offset}: damage an intact file, one fault at a time")


def truncations(data: bytes) -> Iterator[bytes]:
    """Every proper prefix of `data`, the empty one first."""
    for end in range(len(data)):
        yield data[:end]


def bit_flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """`data` with one bit changed, for every bit: (the bit's number, the bytes). Bit 0 is byte 0's lowest."""
    for bit in range(len(data) * 8):
        yield bit, _flip(data, bit)


def _flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def corrupt_payload(data: bytes, record: int) -> bytes:
    """`data` with one bit changed in the middle of a record's payload; if that is empty, in its checksum."""
    begin, end = _frame_bounds(data, record)
    payload_bytes = end - begin - _HEADER_BYTES - _FOOTER_BYTES
    return _flip(data, (begin + _HEADER_BYTES + payload_bytes // 2) * 8)


def corrupt_length(data: bytes, record: int) -> bytes:
    """`data` with the lowest bit of a record's length changed, so that the length's checksum is wrong."""
    begin, _ = _frame_bounds(data, record)
    return _flip(data, begin * 8)


def _frame_bounds(data: bytes, record: int) -> tuple[int, int]:
    offsets = frame_offsets(data)
    if not 0 <= record < len(offsets):
        raise ValueError(f"there are records 0 to {len(offsets) - 1}, not {record}")
    return offsets[record], _frame_end(data, offsets[record])


def drop_bytes(data: bytes, begin: int, end: int) -> bytes:
    """`data` without the bytes from `begin` up to `end`."""
    _check_range(data, begin, end)
    return data[:begin] + data[end:]


def insert_bytes(data: bytes, at: int, inserted: bytes) -> bytes:
    """`data` with `inserted` before the byte at `at`."""
    _check_range(data, at, at)
    return data[:at] + inserted + data[at:]


def zero_block(data: bytes, begin: int, end: int) -> bytes:
    """`data` with zeros from `begin` up to `end`, as in a file that lost a block in a crash."""
    _check_range(data, begin, end)
    return data[:begin] + bytes(end - begin) + data[end:]


def _check_range(data: bytes, begin: int, end: int) -> None:
    if not 0 <= begin <= end <= len(data):
        raise ValueError(f"bytes {begin} to {end} are not within 0 to {len(data)}")
