"""Protobuf wire bytes of Examples and SequenceExamples, written by hand to allow every unusual form.

The functions nest as the messages do. Each returns the *body* of a message, and protobuf merges what is
concatenated: `int64_list([1]) + int64_list([2], packed=False)` is one list in two forms, and two Examples
joined by `+` are one Example.

    example(features([entry("a", feature(("int64", int64_list([5, -1]))))]))
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeAlias

VARINT, I64, LEN, SGROUP, EGROUP, I32 = range(6)
"""The wire types, by protobuf's own names."""

WireKind: TypeAlias = Literal["bytes", "float", "int64"]
Values: TypeAlias = Sequence[int] | Sequence[float] | Sequence[bytes] | Sequence[str]

_FEATURE_FIELDS: dict[WireKind, int] = {"bytes": 1, "float": 2, "int64": 3}


def varint(n: int, width: int | None = None) -> bytes:
    """A number in groups of 7 bits, lowest first; a negative one as its 64-bit two's complement, in 10 bytes.

    `width` is the number of bytes, if more than needed: legal, but unusual.
    """
    if not -(1 << 63) <= n < 1 << 64:
        raise ValueError(f"{n} does not fit 64 bits")
    left = n & (1 << 64) - 1
    groups = [left & 0x7F]
    while left := left >> 7:
        groups.append(left & 0x7F)
    if width is not None:
        if width < len(groups):
            raise ValueError(f"{n} needs {len(groups)} bytes, not {width}")
        groups += [0] * (width - len(groups))
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def tag(field: int, wire: int) -> bytes:
    """The tag before a value: its field number and wire type."""
    return varint(field << 3 | wire)


def length_delimited(field: int, body: bytes) -> bytes:
    """A field that holds text, bytes, a packed list or a message."""
    return tag(field, LEN) + varint(len(body)) + body


def group(field: int, body: bytes = b"") -> bytes:
    """A field in the old form, which ends with a tag instead of starting with a length."""
    return tag(field, SGROUP) + body + tag(field, EGROUP)


def unknown(field: int, wire: int) -> bytes:
    """A field that no Example has, in the given wire type; a group holds one field of every other type."""
    match wire:
        case 0:
            return tag(field, VARINT) + varint(300)
        case 1:
            return tag(field, I64) + bytes(range(8))
        case 2:
            return length_delimited(field, b"unknown")
        case 3:
            inner = b"".join(unknown(field + 1, each) for each in (VARINT, I64, LEN, I32))
            return group(field, inner + group(field + 2))
        case 5:
            return tag(field, I32) + bytes(range(4))
    raise ValueError(f"wire type {wire} cannot stand alone")


def int64_list(values: Iterable[int], packed: bool = True, chunks: Sequence[int] | None = None) -> bytes:
    """An Int64List. `chunks` is the number of values in each packed chunk; by default all are in one."""
    return _encode_numbers([varint(value) for value in values], VARINT, packed, chunks)


def float_list(values: Iterable[float], packed: bool = True, chunks: Sequence[int] | None = None) -> bytes:
    """A FloatList. `chunks` is the number of values in each packed chunk; by default all are in one."""
    return _encode_numbers([struct.pack("<f", value) for value in values], I32, packed, chunks)


def bytes_list(values: Iterable[bytes]) -> bytes:
    """A BytesList."""
    return b"".join(length_delimited(1, value) for value in values)


def _encode_numbers(encoded: list[bytes], wire: int, packed: bool, chunks: Sequence[int] | None) -> bytes:
    if not packed:
        if chunks is not None:
            raise ValueError("unpacked values stand alone: they have no chunks")
        return b"".join(tag(1, wire) + value for value in encoded)
    if chunks is None:
        # An empty list is not written at all, as in protobuf; chunks=[0] writes an empty chunk.
        chunks = [len(encoded)] if encoded else []
    if sum(chunks) != len(encoded):
        raise ValueError(f"chunks of {sum(chunks)} values in all, for {len(encoded)} values")
    values = iter(encoded)
    return b"".join(length_delimited(1, b"".join(islice(values, count))) for count in chunks)


def feature(*kinds: tuple[WireKind, bytes]) -> bytes:
    """A Feature that holds these lists: one normally; none is "kind unset"; on two, readers disagree."""
    return b"".join(length_delimited(_FEATURE_FIELDS[kind], body) for kind, body in kinds)


def feature_list(steps: Iterable[bytes]) -> bytes:
    """A FeatureList: one Feature per step."""
    return b"".join(length_delimited(1, step) for step in steps)


def entry(key: str | bytes | None, value: bytes | None, swap: bool = False) -> bytes:
    """One entry of a Features or FeatureLists map: a key and a Feature or FeatureList.

    None omits that half; `swap` puts the value before the key. Bytes as a key need not be UTF-8.
    """
    halves = []
    if key is not None:
        halves.append(length_delimited(1, key.encode() if isinstance(key, str) else key))
    if value is not None:
        halves.append(length_delimited(2, value))
    return length_delimited(1, b"".join(reversed(halves) if swap else halves))


def features(entries: Iterable[bytes]) -> bytes:
    """A Features, or a FeatureLists: the entries in the given order, including duplicates."""
    return b"".join(entries)


def example(*features: bytes) -> bytes:
    """An Example. Several Features make the field appear several times: a reader merges them."""
    return b"".join(length_delimited(1, body) for body in features)


def sequence_example(context: bytes | None = None, feature_lists: bytes | None = None) -> bytes:
    """A SequenceExample; None omits a half."""
    body = b"" if context is None else length_delimited(1, context)
    return body if feature_lists is None else body + length_delimited(2, feature_lists)


def example_bytes(row: Mapping[str, Values | None]) -> bytes:
    """The Example that TensorFlow would write for `row`, with keys in a fixed order.

    Ints, floats, and bytes or text make the three kinds of list; None leaves the kind unset.
    """
    return example(_encode_features(row))


def sequence_bytes(context: Mapping[str, Values | None], steps: Mapping[str, Sequence[Values | None]]) -> bytes:
    """The SequenceExample of a context and of lists with one value per step, in the same fixed order."""
    lists = {name: feature_list(_encode_feature(step, name) for step in steps[name]) for name in steps}
    entries = [entry(name, lists[name]) for name in _sort_names(lists)]
    return sequence_example(_encode_features(context), features(entries))


def _encode_features(row: Mapping[str, Values | None]) -> bytes:
    return features(entry(key, _encode_feature(row[key], key)) for key in _sort_names(row))


def _sort_names(names: Iterable[str]) -> list[str]:
    # By bytes: text order differs above U+FFFF in other languages, and files must not.
    return sorted(names, key=str.encode)


def _encode_feature(values: Values | None, key: str) -> bytes:
    if values is None:
        return feature()
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    texts = [value for value in encoded if isinstance(value, bytes)]
    ints = [value for value in values if isinstance(value, int)]
    floats = [value for value in values if isinstance(value, float)]
    if values and len(texts) == len(values):
        return feature(("bytes", bytes_list(texts)))
    if values and len(ints) == len(values):
        return feature(("int64", int64_list(ints)))
    if values and len(floats) == len(values):
        return feature(("float", float_list(floats)))
    found = "values of several types, or of none that is known" if values else "an empty list"
    raise ValueError(f"`{key}` has {found}: say which kind is meant with feature() and a list")
