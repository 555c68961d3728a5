"""The values under the keys of a schema: numbers in their limits, texts in UTF-8, tensors of the right length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from rekord import _core
from rekord.health.finding import Severity
from rekord.health.keyed import KeyColumn
from rekord.health.rules.cells import Array, Cells, Mask, begins, packed
from rekord.health.rules.expected import ExpectedColumn, ExpectedKey
from rekord.health.rules.once import named
from rekord.schema import Tensor

_UNKNOWN = -1
"""What TFDS stores where the class of a label is not known."""

Verdict = tuple[str, Severity, Mask]
Says = Callable[[int], tuple[str, str]]
"""What was expected of a cell, and what was found."""


def sound(column: ExpectedColumn, key: ExpectedKey, found: KeyColumn) -> bool:
    """Whether a quick look has nothing against the values of a key; it never overlooks anything."""
    if key.limits is not None:
        return key.limits.sound(found.values)
    if key.utf8:
        return _all_utf8(found.values)
    if isinstance(column.feature, Tensor):
        return found.valid is None and _tensors_sound(column.feature, found.values)
    return True


def judged(column: ExpectedColumn, key: ExpectedKey, cells: Cells, *, tfds: bool) -> Iterator[Verdict]:
    """What is wrong with which values of a key: a code, a severity and a mark for each value."""
    values = cells.column.values
    if key.limits is not None:
        for code, severity, marks in key.limits.judged(values):
            if code == "H752" and tfds:
                unknown = marks & (values == _UNKNOWN)
                yield "H753", "note", unknown
                yield code, severity, marks & ~unknown
            else:
                yield code, severity, marks
    elif key.utf8:
        if not _all_utf8(values):
            yield "D404", "error", np.array([not _is_utf8(value) for value in _listed(values)], np.bool_)
    elif isinstance(column.feature, Tensor):
        yield from _tensors(column.feature, values)


# Texts.


def _all_utf8(values: _core.StringColumn) -> bool:
    ends, data = packed(values)
    if not len(data) or data.max() < 0x80:
        return True
    # Valid end to end, and none begins inside a character: then each of them is valid.
    starts = ends[:-1]
    starts = starts[starts < len(data)]
    return _is_utf8(data.tobytes()) and not bool(np.any((data[starts] & 0xC0) == 0x80))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _listed(values: _core.StringColumn) -> Iterator[bytes]:
    for place in range(len(values)):
        yield values.bytes(place)  # type: ignore[misc]


# Tensors.


def tensor_bytes(feature: Tensor) -> int:
    """How many bytes belong together: those of the known dimensions."""
    return prod(size for size in feature.shape if size is not None) * _item_bytes(feature)


def _item_bytes(feature: Tensor) -> int:
    return 2 if isinstance(feature.dtype, str) else int(feature.dtype.itemsize)


def _wrong_lengths(feature: Tensor, ends: Array) -> Mask:
    lengths = np.diff(ends)
    whole = tensor_bytes(feature)
    varies = None in feature.shape and whole > 0
    wrong: Mask = lengths % whole != 0 if varies else lengths != whole
    return wrong


def _tensors_sound(feature: Tensor, values: _core.StringColumn) -> bool:
    ends, data = packed(values)
    if _wrong_lengths(feature, ends).any():
        return False
    if not len(data) or isinstance(feature.dtype, str):
        return True
    if feature.dtype == np.bool_:
        return bool(data.max() <= 1)
    return feature.dtype.kind not in "fc" or bool(np.isfinite(np.add.reduce(data.view(feature.dtype))))


def _tensors(feature: Tensor, values: _core.StringColumn) -> Iterator[Verdict]:
    ends, data = packed(values)
    wrong = _wrong_lengths(feature, ends)
    yield "D406", "error", wrong
    if isinstance(feature.dtype, str):
        return  # bfloat16, and no package that knows it
    odd = np.zeros(len(wrong), np.bool_)
    looks = feature.dtype == np.bool_ or feature.dtype.kind in "fc"
    for place in np.flatnonzero(~wrong).tolist() if looks else ():
        piece = data[ends[place] : ends[place + 1]]
        if feature.dtype == np.bool_:
            odd[place] = len(piece) and piece.max() > 1
        else:
            odd[place] = not np.isfinite(np.frombuffer(piece.tobytes(), feature.dtype)).all()
    if feature.dtype == np.bool_:
        yield "D405", "error", odd
    else:
        yield "H751", "warning", odd


# Keys of one column.


def lengths(column: ExpectedColumn, parts: list[Cells]) -> tuple[Mask, Says]:
    """Which cells have another number of values under one key than under the first."""
    counts = [part.column.counts for part in parts]
    wrong = np.logical_or.reduce([count != counts[0] for count in counts])

    def say(cell: int) -> tuple[str, str]:
        other = next(i for i, count in enumerate(counts) if count[cell] != counts[0][cell])
        as_many = f"{counts[0][cell]:,} values under {named(column.keys[other].key)}"
        return f"{as_many}, as under {named(column.keys[0].key)}", f"{counts[other][cell]:,}"

    return wrong, say


def partitions(column: ExpectedColumn, parts: list[Cells]) -> tuple[Mask, Says]:
    """Which cells have row lengths that do not add up to the values that they divide."""
    inner = column.keys[0].count or 1
    held = parts[0].column.counts // inner
    blame: dict[int, tuple[str, str]] = {}
    wrong = np.zeros(len(parts[0].column), np.bool_)
    for part in reversed(parts[1:]):
        found = part.column
        told = found.values if isinstance(found.values, np.ndarray) else np.zeros(0, np.int64)
        # Beyond what there is, a length is a lie, and their sum might not fit a number.
        lies = (told < 0) | (told > (held.max() if len(held) else 0))
        places = begins(found)
        sums = np.diff(np.concatenate([[0], np.cumsum(np.where(lies, 0, told))])[places])
        lied = np.diff(np.concatenate([[0], np.cumsum(lies)])[places]) > 0
        bad = (sums != held) | lied
        for cell in np.flatnonzero(bad & ~wrong).tolist():
            blame[cell] = (
                f"row lengths that sum to {held[cell]:,}",
                _few(told[places[cell] : places[cell + 1]]),
            )
        wrong |= bad
        held = found.counts
    return wrong, lambda cell: blame[cell]


def _few(numbers: Array) -> str:
    shown = ", ".join([str(int(number)) for number in numbers[:4]])[:50]
    return f"{shown}, …" if len(numbers) > 4 else shown or "none"


def first_bad_item(feature: Tensor, data: bytes) -> tuple[int, Any]:
    """The place and the value of the first item of a tensor that is no bool, or not finite."""
    if feature.dtype == np.bool_:
        items = np.frombuffer(data, np.uint8)
        place = int(np.argmax(items > 1))
    else:
        items = np.frombuffer(data, feature.dtype)
        place = int(np.argmin(np.isfinite(items)))
    return place, items[place]
