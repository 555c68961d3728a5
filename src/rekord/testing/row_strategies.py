"""Hypothesis strategies for rows: any values that a schema allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rekord.schema.base import Feature
from rekord.schema.dtypes import INTEGERS, dtype_name, integer_bounds
from rekord.schema.feature import Boxes, Float32, Image, Int64, Label, Mask, Sparse, Tensor, Text
from rekord.schema.schema import Schema
from rekord.testing.strategies import texts, values

# One pixel each, whole from the first byte to the last; the JPEG has no tables to decode it with.
_IMAGES = {
    "jpeg": bytes.fromhex("ffd8ffc0000b080001000101011100ffda0008010100003f0000ffd9"),
    "png": bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
        "0000000a49444154789c636000000002000148afa4710000000049454e44ae426082"
    ),
    "gif": bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024c01003b"),
    "bmp": bytes.fromhex(
        "424d3a0000000000000036000000280000000100000001000000010018000000000004000000"
        "00000000000000000000000000000000ffffff00"
    ),
    "webp": bytes.fromhex("524946461a000000574542505650384c0d0000002f00000010071011118888fe0700"),
}
_MOST_STEPS = 3


def rows(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Rows that a schema allows; absent values are None, or have no key at all."""
    columns = {name: column_values(feature) for name, feature in schema.context.items()}
    for name, feature in schema.steps.items():
        columns[name] = _maybe(feature, st.lists(one_value(feature), max_size=_MOST_STEPS))
    return st.tuples(st.fixed_dictionaries(columns), st.booleans()).map(lambda pair: _with_holes(*pair))


def column_values(feature: Feature) -> st.SearchStrategy[Any]:
    """What a row may have for a column, None where it may be missing."""
    return _maybe(feature, one_value(feature))


def _maybe(feature: Feature, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return value if feature.required else st.one_of(st.none(), value)


def _with_holes(row: Mapping[str, Any], keep: bool) -> dict[str, Any]:
    return {name: value for name, value in row.items() if keep or value is not None}


def one_value(feature: Feature) -> st.SearchStrategy[Any]:
    """A value that is there."""
    match feature:
        case Tensor():
            return values(feature.shape, _element(feature.dtype)).map(
                lambda nested: _as_array(nested, feature)
            )
        case Sparse():
            places = st.lists(st.integers(0, feature.size - 1), max_size=3, unique=True)
            return places.flatmap(
                lambda found: st.tuples(
                    st.just(found), st.lists(_number(feature), min_size=len(found), max_size=len(found))
                )
            )
        case Boxes():
            return values((None, 4), _float32())
        case Image():
            return st.sampled_from([_IMAGES[feature.format]] if feature.format else list(_IMAGES.values()))
        case Mask():
            ids = st.integers(0, feature.classes - 1)
            pixels = st.lists(ids, min_size=4, max_size=4)
            return pixels.map(lambda four: np.array(four).reshape(2, 2))
    return nested_values(feature.shape, _number(feature), ragged=bool(getattr(feature, "partitions", ())))


def nested_values(
    shape: tuple[int | None, ...], one: st.SearchStrategy[Any], *, ragged: bool
) -> st.SearchStrategy[Any]:
    """Nested lists of a shape; where `ragged`, each list of an unknown dimension has a length of its own."""
    if not ragged:
        return values(shape, one)
    if not shape:
        return one
    inner = nested_values(shape[1:], one, ragged=True)
    size = shape[0]
    return st.lists(inner, max_size=3) if size is None else st.lists(inner, min_size=size, max_size=size)


def _number(feature: Feature) -> st.SearchStrategy[Any]:
    match feature:
        case Label():
            ids = st.integers(0, feature.count - 1)
            return ids if feature.names is None else st.one_of(ids, st.sampled_from(feature.names))
        case Text():
            return texts()
        case Int64() | Sparse() if feature.kind == "int64":
            low, high = integer_bounds(feature.dtype)
            limits = getattr(feature, "range", None) or (low, high)
            return st.integers(max(low, limits[0]), min(high, limits[1]))
        case Float32() | Sparse():
            limits = getattr(feature, "range", None)
            if limits is not None:
                return st.sampled_from([end for end in limits if abs(end) != float("inf")])
            return _float32() if dtype_name(feature.dtype) == "float32" else _quarters()
    return st.binary(max_size=4)


def _float32() -> st.SearchStrategy[float]:
    return st.floats(width=32)


def _quarters() -> st.SearchStrategy[float]:
    # Multiples of 1/4 that every float dtype holds.
    return st.integers(-256, 256).map(lambda n: n / 4)


def _element(dtype: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, 1) if dtype_name(dtype) in INTEGERS else _quarters()


def _as_array(nested: Any, feature: Tensor) -> Any:
    array = np.array(nested, "float32" if isinstance(feature.dtype, str) else feature.dtype)
    known = int(np.prod([size for size in feature.shape if size is not None]))
    missing = array.size // known if known else 0
    shaped = array.reshape([missing if size is None else size for size in feature.shape])
    # Without ml_dtypes no array can be bfloat16; lists of plain numbers have no dtype.
    return shaped.tolist() if isinstance(feature.dtype, str) else shaped
