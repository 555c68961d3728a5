"""What keeps the memory of the server bounded: shares of a budget, and decoded sizes that are known in advance.

Requests decode on threads of their own. Each first takes its share of a budget, and waits while others have taken it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any, TypeAlias

import numpy as np

Buffer: TypeAlias = "bytes | memoryview[Any]"

_MAX_ENTRIES = 1000  # of a record whose lists are measured one by one
_MAX_ITEMS = 300_000  # of a list of values that are measured one by one
_OBJECT_BYTES = 48  # a short `bytes` and the reference to it
_INT64_BYTES = 8
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


class Budget:
    """An amount that is shared: those who take a part wait until it is free."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._left = total
        self._changed = Condition()

    def take(self, amount: int) -> Callable[[], None]:
        """Wait for a part, at most everything; returns what gives it back."""
        taken = min(max(amount, 1), self._total)
        with self._changed:
            self._changed.wait_for(lambda: self._left >= taken)
            self._left -= taken

        def give_back() -> None:
            nonlocal taken
            with self._changed:
                self._left += taken
                taken = 0
                self._changed.notify_all()

        return give_back

    @contextmanager
    def admit(self, amount: int) -> Iterator[None]:
        """Hold a part during the block."""
        give_back = self.take(amount)
        try:
            yield
        finally:
            give_back()


def bound_decoded_bytes(payload: bytes) -> int:
    """At most how much memory the lists of a payload take: its integers have 1 byte or more there, and 8 in memory.

    The lists of an Example are measured one by one; of any other payload, every byte that may end an integer counts.
    """
    try:
        measured = sum(map(_measure_list, _iter_lists(memoryview(payload))))
    except (ValueError, IndexError):
        return len(payload) + _INT64_BYTES * _count_integers(payload)
    return len(payload) + measured


def _count_integers(data: Buffer) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) < 0x80))


def _iter_fields(data: memoryview[Any]) -> Iterator[tuple[int, memoryview[Any]]]:
    """The fields of a message: number, and content if it has a length."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        size = 0
        if key & 7 == _LENGTH:
            size, at = _read_varint(data, at)
        elif key & 7 == _VARINT:
            _, at = _read_varint(data, at)
        elif key & 7 in (_FIXED64, _FIXED32):
            at += 8 if key & 7 == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {key & 7}")
        if at + size > len(data):
            raise ValueError("field ends after its message")
        yield key >> 3, data[at : at + size]
        at += size


def _read_varint(data: memoryview[Any], at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("varint of more than 10 bytes")


def _iter_lists(payload: memoryview[Any]) -> Iterator[tuple[int, memoryview[Any]]]:
    """The lists of an Example, with their kinds; raises ValueError for anything else, and for very many."""
    entries = 0
    for number, features in _iter_fields(payload):
        if number != 1:
            raise ValueError("not an Example")
        for _, entry in _iter_fields(features):
            entries += 1
            if entries > _MAX_ENTRIES:
                raise ValueError("too many entries")
            for part, feature in _iter_fields(entry):
                if part == 2:
                    yield from _iter_fields(feature)


def _measure_list(given: tuple[int, memoryview[Any]]) -> int:
    kind, values = given
    if kind == _INT64_LIST:
        return _INT64_BYTES * _count_integers(values)
    if kind == _FLOAT_LIST:
        return len(values)
    count = 0
    for count, _ in enumerate(_iter_fields(values), 1):
        if count > _MAX_ITEMS:
            return len(values) // 2 * _OBJECT_BYTES  # an empty value has 2 bytes
    return len(values) + count * _OBJECT_BYTES
