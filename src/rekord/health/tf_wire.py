"""A payload as TensorFlow's fast parser of Examples walks it, which is not quite as protobuf does.

It reads each map entry as two fields, a Feature as its first list, a list of numbers as its first piece, and it
lets a length that is too large end with whatever stands around it. Nothing here keeps more than the payload.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

TfType: TypeAlias = Literal["int64", "float", "string"]
"""A type by the name that TensorFlow's messages give it."""

_TAG_1, _TAG_2, _TAG_3 = 0x0A, 0x12, 0x1A  # fields 1, 2 and 3, with a length
_VARINT_1, _FIXED32_1 = 0x08, 0x0D
_TYPES: dict[int, TfType] = {_TAG_1: "string", _TAG_2: "float", _TAG_3: "int64"}
_LONGEST_VARINT = 10
_INT_MAX = (1 << 31) - 1


class Unparsable(Exception):
    """The parser gives up on the whole payload."""


class _Broken(Exception):
    """The parser gives up on this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One entry of the map of a record, as the parser meets it.

    `dtype` is None where no kind is set. Of `count` values only `readable` are there; a `broken` list stops the
    parser whatever was asked for. `numbers` are those of an int64 list, where they were asked for.
    """

    key: str
    dtype: TfType | None = None
    count: int = 0
    readable: int = 0
    broken: bool = False
    unsupported: bool = False
    numbers: tuple[int, ...] = ()


def stored_of(example: Mapping[str, Any], numbers_of: Collection[str]) -> list[Stored]:
    """The entries of a decoded record: values as `rk.decode` gives them without a schema."""
    entries = []
    for key, value in example.items():
        if value is None:
            entries.append(Stored(key=key))
            continue
        dtype: TfType = "string"
        if isinstance(value, np.ndarray):
            dtype = "int64" if value.dtype == np.int64 else "float"
        listed = dtype == "int64" and key in numbers_of
        entries.append(
            Stored(
                key=key,
                dtype=dtype,
                count=len(value),
                readable=len(value),
                numbers=tuple(value.tolist()) if listed else (),
            )
        )
    return entries


def stored_in(payload: bytes, keys: Collection[str], numbers_of: Collection[str]) -> list[Stored]:
    """The entries of a payload under the given keys, in its order, duplicates and all."""
    walk = _Walk(payload)
    found: list[tuple[str, bytes]] = []
    try:
        while walk.at < walk.limit:
            if walk.takes(_TAG_1):
                outer = walk.narrow()
                while walk.at < walk.limit:
                    walk.expect(_TAG_1)
                    entry = walk.narrow()
                    found.append(walk.map_entry())
                    walk.limit = entry
                walk.limit = outer
            else:
                walk.skip_field()
    except _Broken:
        raise Unparsable from None
    return [_stored(key, body, key in numbers_of) for key, body in found if key in keys]


def _stored(key: str, feature: bytes, with_numbers: bool) -> Stored:
    if not feature:
        return Stored(key=key)
    dtype = _TYPES.get(feature[0])
    if dtype is None:
        return Stored(key=key, unsupported=True)
    walk = _Walk(feature)
    walk.at = 1
    try:
        walk.narrow()
        if dtype == "string":
            count = readable = walk.texts()
            numbers: tuple[int, ...] = ()
        elif dtype == "float":
            count, readable = walk.floats()
            numbers = ()
        else:
            count, numbers = walk.integers(with_numbers=with_numbers)
            readable = count
    except _Broken:
        return Stored(key=key, dtype=dtype, broken=True)
    return Stored(key=key, dtype=dtype, count=count, readable=readable, numbers=numbers)


class _Walk:
    """A place in some bytes, and the end of what may be read: that of the innermost message."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.limit = len(data)

    def varint(self) -> int:
        number = 0
        for position in range(_LONGEST_VARINT):
            if self.at >= self.limit:
                raise _Broken
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return number
        raise _Broken

    def length(self) -> int:
        return self.varint() & 0xFFFFFFFF

    def takes(self, tag: int) -> bool:
        """Step over a tag, if it is the one that stands here, in its one-byte form."""
        if self.at < self.limit and self.data[self.at] == tag:
            self.at += 1
            return True
        return False

    def expect(self, tag: int) -> None:
        if not self.takes(tag):
            raise _Broken

    def narrow(self) -> int:
        """Read a length, and read no further than that; gives the limit that there was before."""
        before, length = self.limit, self.length()
        if length <= _INT_MAX:
            self.limit = min(before, self.at + length)
        return before

    def take(self, length: int) -> bytes:
        if length > self.limit - self.at:
            raise _Broken
        self.at += length
        return self.data[self.at - length : self.at]

    def map_entry(self) -> tuple[str, bytes]:
        key, value = b"", b""
        for _ in range(2):  # in any order; and of two keys or two values the last counts
            tag = self.length()
            if tag == _TAG_1:
                key = self.take(self.length())
            elif tag == _TAG_2:
                value = self.take(self.length())
            else:
                raise _Broken
        if self.at != self.limit:
            raise _Broken
        return key.decode("utf-8", "surrogateescape"), value

    def skip_field(self) -> None:
        wire = self.length() & 7
        if wire == 0:
            self.length()
        elif wire == 1:
            self.take(8)
        elif wire == 2:
            length = self.length()
            if length <= _INT_MAX:
                self.at = min(self.limit, self.at + length)
        elif wire == 5:
            self.take(4)
        else:
            raise _Broken  # a group, or no wire type at all

    def texts(self) -> int:
        count = 0
        while self.at < self.limit:
            self.expect(_TAG_1)
            length = self.length()
            if length > self.limit - self.at:
                raise _Broken
            self.at += length
            count += 1
        return count

    def floats(self) -> tuple[int, int]:
        """(values that the first piece claims, values that are there)"""
        if self.at == self.limit:
            return 0, 0
        if self.takes(_TAG_1):
            claimed = self.length()
            return claimed // 4, (self.limit - self.at) // 4
        count = (self.limit - self.at) // 5
        while self.at < self.limit:
            self.expect(_FIXED32_1)
            self.take(4)
        return count, count

    def integers(self, *, with_numbers: bool) -> tuple[int, tuple[int, ...]]:
        if self.at == self.limit:
            return 0, ()
        packed = self.takes(_TAG_1)
        if packed:
            self.narrow()
            if not with_numbers:
                return self._counted(), ()
        count, numbers = 0, []
        while self.at < self.limit:
            if not packed:
                self.expect(_VARINT_1)
            number = self.varint() & (1 << 64) - 1
            count += 1
            if with_numbers:
                numbers.append(number - (1 << 64) if number >> 63 else number)
        return count, tuple(numbers)

    def _counted(self) -> int:
        """How many numbers there are up to the limit, without a look at each in Python."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8)[self.at : self.limit] < 0x80)
        if self.at == self.limit:
            return 0
        if not len(ends) or ends[-1] != self.limit - self.at - 1:
            raise _Broken
        if np.diff(ends, prepend=-1).max() > _LONGEST_VARINT:
            raise _Broken
        return len(ends)
