"""What shapes a feature may have, and how row lengths make more than one dimension variable."""

from __future__ import annotations

import math
import operator
from typing import TypeAlias

from rekord.schema.refuse import refuse, shown

Shape: TypeAlias = "tuple[int | None, ...]"

_MOST_DIMENSIONS = 32  # NumPy's limit before 2.0
_MOST_ELEMENTS = 2**63 - 1


def checked_shape(value: object, owner: str, column: str | None) -> Shape:
    """`value` as a tuple of sizes, None where a size varies from record to record."""
    if not isinstance(value, (tuple, list)) or len(value) > _MOST_DIMENSIONS:
        raise refuse(
            "S101",
            f"{owner} has a shape that is none",
            column=column,
            expected=f"a tuple of at most {_MOST_DIMENSIONS} sizes, each an int or None",
            found=shown(value),
            do="shape=() for one value, shape=(3,) for three, shape=(None,) for a varying number",
        )
    shape = tuple(None if size is None else _checked_size(size, value, owner, column) for size in value)
    known = math.prod(size for size in shape if size is not None)
    if known > _MOST_ELEMENTS:
        raise refuse(
            "S101",
            f"{owner} has a shape of more elements than any record can hold",
            column=column,
            expected="fewer than 2^63 elements",
            found=shown(shape),
            do="check the sizes",
        )
    if known == 0 and None in shape:
        raise refuse(
            "S101",
            f"{owner} has a shape whose unknown size cannot be restored",
            column=column,
            expected="no 0 beside None: with no values stored, any size would fit",
            found=shown(shape),
            do="give the unknown size, or drop the dimension of size 0",
        )
    return shape


def _checked_size(size: object, shape: object, owner: str, column: str | None) -> int:
    try:
        if isinstance(size, bool):
            raise TypeError
        number = operator.index(size)  # type: ignore[arg-type]
        if number < 0:
            raise TypeError
    except TypeError:
        raise refuse(
            "S101",
            f"{owner} has a shape with the size {shown(size)}",
            column=column,
            expected="an int of 0 or more, or None for a size that varies",
            found=shown(shape),
            do="None, not -1, for a size that varies" if size == -1 else "give each size as an int or None",
        ) from None
    return number


def checked_partitions(value: object, shape: Shape, owner: str, column: str | None) -> tuple[str, ...]:
    """The keys of row lengths, one for each unknown dimension but the outermost."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(key, str) and key for key in value):
        raise refuse(
            "S103",
            f"{owner} has partitions that are not record keys",
            column=column,
            expected="a tuple of record keys, each a text",
            found=shown(value),
            do='partitions=("tokens/row_lengths",)',
        )
    partitions = tuple(value)
    unknown = shape.count(None)
    if unknown > 1 and not partitions:
        raise refuse(
            "S102",
            f"{owner} has more than one unknown dimension",
            column=column,
            expected="at most one None: a flat list of values can restore no more",
            found=f"shape={shape}",
            do=f"fix all sizes but one, or name {unknown - 1} record key(s) of row lengths with partitions=",
        )
    if len(set(partitions)) < len(partitions):
        raise refuse(
            "S103",
            f"{owner} names one partition twice",
            column=column,
            expected="a record key of its own for each level of row lengths",
            found=shown(partitions),
            do="give each level its own key",
        )
    if partitions and (unknown != len(partitions) + 1 or shape[:unknown] != (None,) * unknown):
        raise refuse(
            "S103",
            f"{owner} has partitions that do not fit its shape",
            column=column,
            expected=f"{len(partitions) + 1} leading None for {len(partitions)} partition(s), then sizes",
            found=f"shape={shape}",
            do=f"shape={(None,) * (len(partitions) + 1)}, or another number of partitions",
        )
    return partitions
