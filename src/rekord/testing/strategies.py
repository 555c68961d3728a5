"""Hypothesis strategies for what users of rekord make up: features and schemas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from hypothesis import strategies as st

from rekord.schema.base import Feature
from rekord.schema.defaults import ABSENT
from rekord.schema.dtypes import INTEGERS, TENSORS, integer_bounds
from rekord.schema.feature import Boxes, Bytes, Float32, Image, Int64, Label, Mask, Sparse, Tensor, Text
from rekord.schema.schema import Schema

_MOST_COLUMNS = 6


def names() -> st.SearchStrategy[str]:
    """Names that a column or a record key may have, the awkward ones included."""
    letters = st.characters(exclude_categories=["Cs"])
    usual = st.sampled_from(
        ["label", "image/encoded", "x", "y", "weight", "a b", "Größe", "画像", "\n", '"', "##SEQUENCE##"]
    )
    return st.one_of(usual, st.text(letters, min_size=1, max_size=8))


def texts() -> st.SearchStrategy[str]:
    """Texts that UTF-8 can hold."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def shapes(*, most_dimensions: int = 3, unknown: bool = True) -> st.SearchStrategy[tuple[int | None, ...]]:
    """Small shapes with at most one unknown dimension."""
    fixed = st.lists(st.integers(1, 3), max_size=most_dimensions).map(tuple)
    if not unknown:
        return fixed

    def opened(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int | None, ...]]:
        if not shape:
            return st.just(shape)
        axis = st.integers(0, len(shape) - 1)
        return st.one_of(st.just(shape), axis.map(lambda i: (*shape[:i], None, *shape[i + 1 :])))

    return fixed.flatmap(opened)


def values(shape: tuple[int | None, ...], one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nested lists of a shape, its unknown dimension of any small size."""

    def nested(sizes: tuple[int, ...]) -> st.SearchStrategy[Any]:
        if not sizes:
            return one
        return st.lists(nested(sizes[1:]), min_size=sizes[0], max_size=sizes[0])

    size = st.integers(0, 3)
    return size.flatmap(lambda n: nested(tuple([n if known is None else known for known in shape])))


@st.composite
def _presence(draw: st.DrawFn, default: st.SearchStrategy[Any]) -> dict[str, Any]:
    how = draw(st.sampled_from(["required", "optional", "default"]))
    return {"optional": how == "optional", "default": draw(default) if how == "default" else ABSENT}


@st.composite
def _int64s(draw: st.DrawFn) -> Feature:
    dtype = draw(st.sampled_from(INTEGERS))
    low, high = integer_bounds(dtype)
    limits = draw(st.one_of(st.none(), st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)))
    shape = draw(shapes())
    default = values(shape, st.integers(*(limits or (low, high))))
    given = draw(_presence(default))
    return Int64(
        shape,
        dtype=dtype,
        range=(limits[0], limits[1]) if limits else None,
        cast=draw(st.booleans()),
        **given,
    )


@st.composite
def _float32s(draw: st.DrawFn) -> Feature:
    dtype = draw(st.sampled_from(["float16", "float32", "bfloat16"]))
    # Multiples of 1/4 that all three dtypes hold: what rounding does is for other tests.
    number = st.integers(-256, 256).map(lambda n: n / 4)
    ends = st.tuples(number, number).map(sorted)
    limits = draw(st.one_of(st.none(), ends, st.just((0.0, None)), st.just((None, 1.0))))
    shape = draw(shapes())
    one = (
        st.just(limits[0] if limits[0] is not None else limits[1])
        if limits
        else st.one_of(number, st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 0.1]))
    )
    exact = draw(st.booleans()) and dtype == "float32"
    given = draw(_presence(values(shape, number if exact and not limits else one)))
    rounding: Literal["nearest", "exact"] = "exact" if exact else "nearest"
    return Float32(
        shape, dtype=dtype, range=(limits[0], limits[1]) if limits else None, rounding=rounding, **given
    )


@st.composite
def _strings(draw: st.DrawFn) -> Feature:
    shape = draw(shapes())
    if draw(st.booleans()):
        return Text(shape, **draw(_presence(values(shape, texts()))))
    return Bytes(shape, **draw(_presence(values(shape, st.binary(max_size=4)))))


@st.composite
def _labels(draw: st.DrawFn) -> Feature:
    classes = draw(
        st.one_of(st.integers(1, 10**6), st.lists(texts().filter(bool), min_size=1, max_size=4, unique=True))
    )
    shape = draw(st.sampled_from([(), (None,)]))
    count = classes if isinstance(classes, int) else len(classes)
    return Label(classes, shape=shape, **draw(_presence(values(shape, st.integers(0, count - 1)))))


@st.composite
def _tensors(draw: st.DrawFn) -> Feature:
    dtype = draw(st.sampled_from(TENSORS))
    shape = draw(shapes())
    one: st.SearchStrategy[Any] = (
        st.integers(0, 1) if dtype in INTEGERS else st.sampled_from([0.5, -1.0, 0.1])
    )
    if dtype.startswith("complex"):
        one = st.sampled_from([1j, 0.5, complex("nan"), complex(0.1, float("-inf"))])
    return Tensor(dtype, shape, **draw(_presence(values(shape, one))))


@st.composite
def _sparses(draw: st.DrawFn) -> Feature:
    size = draw(st.integers(1, 10**9))
    indices = st.lists(st.integers(0, size - 1), max_size=3, unique=True).map(sorted)
    default = indices.map(lambda found: (found, [1] * len(found)))
    return Sparse(draw(st.sampled_from(["float32", "int64", "bool"])), size, **draw(_presence(default)))


@st.composite
def _ragged(draw: st.DrawFn) -> Feature:
    levels = draw(st.integers(1, 2))
    shape = (None,) * (levels + 1) + draw(shapes(most_dimensions=1, unknown=False))
    keys = tuple([f"row_lengths_{level}" for level in range(levels)])
    optional = draw(st.booleans())
    return draw(
        st.sampled_from(
            [
                Int64(shape, partitions=keys, optional=optional),
                Float32(shape, partitions=keys, optional=optional),
                Bytes(shape, partitions=keys, optional=optional),
                Text(shape, partitions=keys, optional=optional),
            ]
        )
    )


@st.composite
def _images(draw: st.DrawFn) -> Feature:
    kind = draw(st.sampled_from([None, "jpeg", "png"]))
    quality = draw(st.one_of(st.none(), st.integers(1, 100))) if kind == "jpeg" else None
    channels = draw(st.one_of(st.none(), st.integers(1, 4)))
    given = draw(_presence(st.binary(min_size=1, max_size=4)))
    return Image(format=kind, quality=quality, channels=channels, **given)


def features() -> st.SearchStrategy[Feature]:
    """Features of every type that can stand alone: all but Mask, which needs an Image beside it."""
    boxes = _presence(values((None, 4), st.sampled_from([0.0, 0.5, 0.1]))).map(lambda given: Boxes(**given))
    return st.one_of(
        _int64s(), _float32s(), _strings(), _labels(), _tensors(), _sparses(), _ragged(), _images(), boxes
    )


@st.composite
def _columns(draw: st.DrawFn, taken: frozenset[str], *, defaults: bool) -> dict[str, Feature]:
    found: dict[str, Feature] = {}
    for name in draw(
        st.lists(names().filter(lambda one: one not in taken), max_size=_MOST_COLUMNS, unique=True)
    ):
        feature = draw(features())
        if not defaults:
            feature = _with(feature, default=ABSENT)
        # Every record key begins with its column's number, so that no two columns meet on one.
        stem = f"{len(found)}:{name}"
        if isinstance(feature, (Int64, Float32, Bytes, Text)) and feature.partitions:
            feature = replace(feature, partitions=tuple([f"{stem}/{key}" for key in feature.partitions]))
        needs_key = isinstance(feature, (Boxes, Sparse)) or name[:1].isdigit() or draw(st.booleans())
        found[name] = _with(feature, key=stem) if needs_key else feature
    images = [name for name, feature in found.items() if isinstance(feature, Image)]
    if images and "mask" not in (*found, *taken) and draw(st.booleans()):
        ignore = draw(st.one_of(st.none(), st.integers(0, 255)))
        found["mask"] = Mask(
            classes=draw(st.integers(1, 300)), ignore=ignore, of=draw(st.sampled_from(images))
        )
    return found


def _with(feature: Feature, **fields: Any) -> Feature:
    return replace(feature, **fields)


@st.composite
def schemas(draw: st.DrawFn, *, sequences: bool | None = None) -> Schema:
    """Schemas of any columns; only SequenceExamples, or only Examples, where `sequences` says so."""
    context = draw(_columns(frozenset(), defaults=True))
    if not (draw(st.booleans()) if sequences is None else sequences):
        return Schema(context)
    return Schema(context=context, steps=draw(_columns(frozenset(context), defaults=False)))
