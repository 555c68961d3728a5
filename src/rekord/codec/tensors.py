"""Tensors and sparse vectors as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.nested import as_array, check_shape, flat, is_text, sequence
from rekord.codec.number_rule import NumberRule
from rekord.codec.numbers import stored_numbers
from rekord.codec.unfit import Unfit, described, shown_shape
from rekord.schema import Sparse, Tensor
from rekord.schema.defaults import Misfit, element
from rekord.schema.dtypes import dtype_name

_INDEX = NumberRule(type_name="Sparse", dtype=np.dtype("<i8"), floats=False)


def stored_tensor(value: Any, feature: Tensor) -> bytes:
    """An array of the declared dtype and shape as its raw little-endian bytes."""
    array = None if is_text(value) else as_array(value)
    if array is not None and array.dtype.kind == "O":
        value, array = array.tolist(), None
    array = _from_values(value, feature) if array is None else cast_tensor(array, feature)
    check_shape(array.shape, feature.shape, value)
    if isinstance(feature.dtype, str):  # bfloat16 without NumPy's help: the upper half of a float32
        halves = np.ascontiguousarray(array, "<f4").view("<u4") >> np.uint32(16)
        return bytes(halves.astype("<u2").tobytes())
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def cast_tensor(array: Array, feature: Tensor) -> Array:
    """An array as the declared dtype, if that changes nothing."""
    name = dtype_name(feature.dtype)
    if array.dtype.name == name:
        return array
    target = feature.dtype
    if (
        isinstance(target, np.dtype)
        and array.dtype.kind in "biufc"
        and np.can_cast(array.dtype, target, "safe")
    ):
        out = array.astype(target)
        # NumPy calls int64 to float64 safe; beyond 2^53 it is not.
        if array.dtype.kind not in "iu" or out.dtype.kind not in "fc" or _survives(array, out):
            return out
    elif array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise Unfit(
            "E303" if array.dtype.kind in "SUT" else "E302",
            f"is an array of {array.dtype}, the schema says Tensor",
            expected=f"an array of {name}",
            found=shown_shape(array),
            do="give an array of numbers",
        )
    raise Unfit(
        "E324",
        f"is an array of {array.dtype}, the schema says {name}",
        expected=f"an array of {name}, or of a dtype that {name} holds without change",
        found=shown_shape(array),
        do=f'value.astype("{name}") if the change is meant, or Tensor("{array.dtype.name}")',
    )


def _survives(whole: Array, out: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(out.real.astype(whole.dtype), whole))


def _from_values(value: Any, feature: Tensor) -> Array:
    """Nested lists of plain numbers, which have no dtype of their own."""
    leaves, given = flat(value)
    elements = []
    for i, leaf in enumerate(leaves):
        try:
            elements.append(element(leaf, feature.dtype))
        except Misfit as misfit:
            text = is_text(leaf)
            number = isinstance(leaf, (int, float, complex, np.number))
            raise Unfit(
                "E303" if text else "E324" if number else "E302",
                "has an element that its dtype cannot hold",
                expected=misfit.expected,
                found=described(leaf),
                do="give an array of the declared dtype",
                at=i,
            ) from None
    dtype = "<f4" if isinstance(feature.dtype, str) else feature.dtype
    return np.array(elements, dtype).reshape(given)


def stored_sparse(value: Any, feature: Sparse) -> tuple[Array, Array]:
    """A sparse vector as its ascending indices and their values."""
    indices, values = _pair(value, feature)
    places = _indices(indices, feature)
    rule = NumberRule.of(feature)
    numbers = stored_numbers(values, rule, (None,))
    if len(places) != len(numbers):
        raise _refused("as many values as indices", f"{len(places):,} indices and {len(numbers):,} values")
    order = np.argsort(places, kind="stable")
    places, numbers = places[order], numbers[order]
    if (places[1:] == places[:-1]).any():
        twice = int(places[1:][places[1:] == places[:-1]][0])
        raise _refused("each index once", f"index {twice:,} twice")
    return places, numbers


def _pair(value: Any, feature: Sparse) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        return list(value.keys()), list(value.values())
    array = None if isinstance(value, (list, tuple)) or is_text(value) else as_array(value)
    if array is not None:
        if array.shape != (feature.size,):
            check_shape(array.shape, (feature.size,), value)
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            return np.arange(feature.size), array  # refused with its values
        where = np.flatnonzero(array)
        return where, array[where]
    parts = sequence(value)
    if parts is not None and len(parts) == 2 and all(_is_list(part) for part in parts):
        return parts[0], parts[1]
    raise Unfit(
        "E302",
        f"is of type {type(value).__name__}, the schema says Sparse",
        expected="(indices, values), {index: value}, or a dense array",
        found=described(value),
        do="(indices, values) of the elements that are not zero",
    )


def _is_list(part: Any) -> bool:
    return not is_text(part) and (sequence(part) is not None or np.ndim(part) == 1)


def _indices(indices: Any, feature: Sparse) -> Array:
    try:
        places = stored_numbers(indices, _INDEX, (None,))
    except Unfit as unfit:
        raise _refused("indices that are whole numbers, in one list", unfit.found) from None
    wrong = (places < 0) | (places >= feature.size)
    if wrong.any():
        raise _refused(f"indices from 0 to {feature.size - 1:,}", f"index {int(places[np.argmax(wrong)]):,}")
    return places


def _refused(expected: str, found: str) -> Unfit:
    return Unfit(
        "E320",
        "has indices that cannot be",
        expected=expected,
        found=found,
        do="mend the indices, or declare another size=",
    )
