"""Hypothesis strategies: features, schemas, rows, and Examples on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from operator import add
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rekord.schema.base import ABSENT, INTEGER_DTYPES, TENSOR_DTYPES, Feature, dtype_name, integer_bounds
from rekord.schema.features import Boxes, Bytes, Float32, Image, Int64, Label, Mask, Sparse, Tensor, Text
from rekord.schema.schema import Schema
from rekord.schema.timestamp import TICKS_PER_SECOND, Timestamp
from rekord.testing import wire
from rekord.testing.wire import (
    I32,
    I64,
    LEN,
    VARINT,
    WireKind,
    group,
    int64_list,
    length_delimited,
    tag,
    varint,
)

_MAX_COLUMNS = 6


def names() -> st.SearchStrategy[str]:
    """Names that a column or a record key may have, including awkward ones."""
    letters = st.characters(exclude_categories=["Cs"])
    usual = st.sampled_from(
        ["label", "image/encoded", "x", "y", "weight", "a b", "Größe", "画像", "\n", '"', "##SEQUENCE##"]
    )
    return st.one_of(usual, st.text(letters, min_size=1, max_size=8))


def texts() -> st.SearchStrategy[str]:
    """Texts that UTF-8 can encode."""
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
    """Nested lists of a shape, with any small size for its unknown dimension."""

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
    dtype = draw(st.sampled_from(INTEGER_DTYPES))
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
    # Multiples of 1/4 that all three dtypes represent: other tests cover rounding.
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
    return Float32(shape, dtype=dtype, range=(limits[0], limits[1]) if limits else None, rounding=rounding, **given)


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
    dtype = draw(st.sampled_from(TENSOR_DTYPES))
    shape = draw(shapes())
    one: st.SearchStrategy[Any] = st.integers(0, 1) if dtype in INTEGER_DTYPES else st.sampled_from([0.5, -1.0, 0.1])
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


@st.composite
def _timestamps(draw: st.DrawFn) -> Feature:
    unit: Any = draw(st.sampled_from(list(TICKS_PER_SECOND)))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    first, last = np.datetime64(0, "s"), np.datetime64(2**33, "s")
    limits = draw(st.sampled_from([None, (first, None), (first, last)]))
    shape = draw(shapes())
    # Exact in every unit: whole seconds, in the range of nanoseconds.
    one = st.integers(0, 7_000_000_000).map(lambda seconds: np.datetime64(seconds, "s"))
    return Timestamp(unit, shape, tz=zone, range=limits, **draw(_presence(values(shape, one))))


def _boxes() -> st.SearchStrategy[Feature]:
    one = values((None, 4), st.sampled_from([0.0, 0.5, 0.1]))
    return _presence(one).map(lambda given: Boxes(**given))


FEATURES: dict[type[Feature], Callable[[], st.SearchStrategy[Feature]]] = {
    Int64: _int64s,
    Float32: _float32s,
    Text: _strings,
    Label: _labels,
    Tensor: _tensors,
    Sparse: _sparses,
    Bytes: _ragged,
    Image: _images,
    Boxes: _boxes,
    Timestamp: _timestamps,
}
"""Features of each type; a new type adds its own."""


def features() -> st.SearchStrategy[Feature]:
    """Features of every type that can be the only column: all except Mask, which needs an Image."""
    return st.one_of([make() for make in FEATURES.values()])


@st.composite
def _columns(draw: st.DrawFn, taken: frozenset[str], *, defaults: bool) -> dict[str, Feature]:
    found: dict[str, Feature] = {}
    for name in draw(st.lists(names().filter(lambda one: one not in taken), max_size=_MAX_COLUMNS, unique=True)):
        feature = draw(features())
        if not defaults:
            feature = _replace_fields(feature, default=ABSENT)
        # Every record key begins with its column's number, so that no two columns share one.
        stem = f"{len(found)}:{name}"
        partitions = getattr(feature, "partitions", ())
        if partitions:
            feature = _replace_fields(feature, partitions=tuple([f"{stem}/{key}" for key in partitions]))
        needs_key = feature.storage == "parallel" or name[:1].isdigit() or draw(st.booleans())
        found[name] = _replace_fields(feature, key=stem) if needs_key else feature
    images = [name for name, feature in found.items() if isinstance(feature, Image)]
    if images and "mask" not in (*found, *taken) and draw(st.booleans()):
        ignore = draw(st.one_of(st.none(), st.integers(0, 255)))
        found["mask"] = Mask(classes=draw(st.integers(1, 300)), ignore=ignore, of=draw(st.sampled_from(images)))
    return found


def _replace_fields(feature: Feature, **fields: Any) -> Feature:
    return replace(feature, **fields)


@st.composite
def schemas(draw: st.DrawFn, *, sequences: bool | None = None) -> Schema:
    """Schemas of any columns; with `sequences`, only of SequenceExamples or only of Examples."""
    context = draw(_columns(frozenset(), defaults=True))
    if not (draw(st.booleans()) if sequences is None else sequences):
        return Schema(context)
    return Schema(context=context, steps=draw(_columns(frozenset(context), defaults=False)))


# One pixel each, complete files; the JPEG lacks the tables to decode it.
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
_MAX_STEPS = 3


def rows(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Rows that a schema allows; a missing value is None, or its key is missing."""
    columns = {name: column_values(feature) for name, feature in schema.context.items()}
    for name, feature in schema.steps.items():
        columns[name] = _maybe(feature, st.lists(one_value(feature), max_size=_MAX_STEPS))
    return st.tuples(st.fixed_dictionaries(columns), st.booleans()).map(lambda pair: _drop_missing(*pair))


def column_values(feature: Feature) -> st.SearchStrategy[Any]:
    """The values that a row may have for a column; None if it may be missing."""
    return _maybe(feature, one_value(feature))


def _maybe(feature: Feature, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return value if feature.required else st.one_of(st.none(), value)


def _drop_missing(row: Mapping[str, Any], keep: bool) -> dict[str, Any]:
    return {name: value for name, value in row.items() if keep or value is not None}


@singledispatch
def one_value(feature: Feature) -> st.SearchStrategy[Any]:
    """A value that is not missing."""
    ragged = len(feature.record_keys("x")) > 1
    return nested_values(feature.shape, one_element(feature), ragged=ragged)


@one_value.register(Tensor)
def _(feature: Tensor) -> st.SearchStrategy[Any]:
    return values(feature.shape, _element(feature.dtype)).map(lambda nested: _as_array(nested, feature))


@one_value.register(Sparse)
def _(feature: Sparse) -> st.SearchStrategy[Any]:
    places = st.lists(st.integers(0, feature.size - 1), max_size=3, unique=True)
    one = one_element(feature)
    return places.flatmap(
        lambda found: st.tuples(st.just(found), st.lists(one, min_size=len(found), max_size=len(found)))
    )


@one_value.register(Boxes)
def _(feature: Boxes) -> st.SearchStrategy[Any]:
    return values((None, 4), _float32())


@one_value.register(Image)
def _(feature: Image) -> st.SearchStrategy[Any]:
    return st.sampled_from([_IMAGES[feature.format]] if feature.format else list(_IMAGES.values()))


@one_value.register(Mask)
def _(feature: Mask) -> st.SearchStrategy[Any]:
    pixels = st.lists(st.integers(0, feature.classes - 1), min_size=4, max_size=4)
    return pixels.map(lambda four: np.array(four).reshape(2, 2))


def nested_values(
    shape: tuple[int | None, ...], one: st.SearchStrategy[Any], *, ragged: bool
) -> st.SearchStrategy[Any]:
    """Nested lists of a shape; with `ragged`, each list of an unknown dimension has its own length."""
    if not ragged:
        return values(shape, one)
    if not shape:
        return one
    inner = nested_values(shape[1:], one, ragged=True)
    size = shape[0]
    return st.lists(inner, max_size=3) if size is None else st.lists(inner, min_size=size, max_size=size)


@singledispatch
def one_element(feature: Feature) -> st.SearchStrategy[Any]:
    """One element of a value that is a list."""
    limits = feature.limits
    if feature.kind == "int64":
        low, high = integer_bounds(feature.dtype)
        least, most = limits or (low, high)
        return st.integers(max(low, least), min(high, most))
    if feature.kind == "float":
        if limits is not None:
            return st.sampled_from([end for end in limits if abs(end) != float("inf")])
        return _float32() if dtype_name(feature.dtype) == "float32" else _quarters()
    return texts() if feature.is_text else st.binary(max_size=4)


@one_element.register(Label)
def _(feature: Label) -> st.SearchStrategy[Any]:
    ids = st.integers(0, feature.count - 1)
    return ids if feature.names is None else st.one_of(ids, st.sampled_from(feature.names))


@one_element.register(Timestamp)
def _(feature: Timestamp) -> st.SearchStrategy[Any]:
    # Parquet has no seconds, and the largest values would overflow in milliseconds.
    most = 2**53 if feature.unit == "s" else 2**63 - 1
    low, high = feature.limits or (-most, most)
    return st.integers(low, min(high, most)).map(lambda tick: np.datetime64(tick, feature.unit))


def _float32() -> st.SearchStrategy[float]:
    return st.floats(width=32)


def _quarters() -> st.SearchStrategy[float]:
    # Multiples of 1/4 that every float dtype represents.
    return st.integers(-256, 256).map(lambda n: n / 4)


def _element(dtype: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, 1) if dtype_name(dtype) in INTEGER_DTYPES else _quarters()


def _as_array(nested: Any, feature: Tensor) -> Any:
    array = np.array(nested, "float32" if isinstance(feature.dtype, str) else feature.dtype)
    known = int(np.prod([size for size in feature.shape if size is not None]))
    missing = array.size // known if known else 0
    shaped = array.reshape([missing if size is None else size for size in feature.shape])
    # Without ml_dtypes no array can be bfloat16; lists of plain numbers have no dtype.
    return shaped.tolist() if isinstance(feature.dtype, str) else shaped


_FIELDS: dict[WireKind, int] = {"bytes": 1, "float": 2, "int64": 3}
_EDGE_INTS = [0, 1, -1, 127, 128, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63)]
# As little-endian bits: zeros, infinities, the smallest and largest numbers, NaNs with a payload.
_FLOATS = ["00000000", "00000080", "0000807f", "000080ff", "01000000", "ffff7f7f", "0100a07f", "addec0ff"]


def ints(*values: int, packed: bool = True, chunks: Sequence[int] | None = None) -> bytes:
    """A Feature of these numbers."""
    return wire.feature(("int64", int64_list(values, packed, chunks)))


def raw_entry(*fields: bytes) -> bytes:
    """A map entry with arbitrary fields, as bytes."""
    return length_delimited(1, b"".join(fields))


def keys() -> SearchStrategy[str]:
    """Feature names: one of a few, so that names repeat, or any text."""
    return st.sampled_from(["a", "b", "a/b", "é", ""]) | st.text(max_size=8)


def int64_bytes() -> SearchStrategy[bytes]:
    """One int64 as a varint: canonical, longer than needed, or with bits above the 64th."""
    number = st.sampled_from(_EDGE_INTS) | st.integers(-(1 << 63), (1 << 63) - 1)
    padded = st.builds(varint, st.integers(0, 127), st.integers(2, 10))
    overflowing = st.binary(min_size=9, max_size=9).map(lambda b: bytes(x | 0x80 for x in b) + b"\x7f")
    return number.map(varint) | padded | overflowing


def float_bytes() -> SearchStrategy[bytes]:
    """The four bytes of one float: any bits, including NaNs of every kind."""
    return st.sampled_from([bytes.fromhex(bits) for bits in _FLOATS]) | st.binary(min_size=4, max_size=4)


def unknown_fields() -> SearchStrategy[bytes]:
    """One field that no message declares, of any wire type, including groups."""
    numbers = st.sampled_from([4, 9, 15, 16, 2047, (1 << 29) - 1])
    flat = (
        _field(numbers, VARINT, int64_bytes())
        | _field(numbers, I64, st.binary(min_size=8, max_size=8))
        | _field(numbers, LEN, _delimited(st.binary(max_size=8)))
        | _field(numbers, I32, st.binary(min_size=4, max_size=4))
    )
    return st.recursive(flat, lambda inner: st.builds(group, numbers, _joined(inner, most=2)), max_leaves=4)


def value_lists(kind: WireKind) -> SearchStrategy[bytes]:
    """A BytesList, FloatList or Int64List: in one chunk or several, packed or not, with unknown fields between."""
    if kind == "bytes":
        usual = _field(st.just(1), LEN, _delimited(st.binary(max_size=8)))
        return _joined(st.one_of(usual, usual, usual, unknown_fields(), _field(st.just(1), VARINT, int64_bytes())))
    one, wire = (float_bytes(), I32) if kind == "float" else (int64_bytes(), VARINT)
    packed = _field(st.just(1), LEN, _delimited(_joined(one, most=4)))
    single = _field(st.just(1), wire, one)
    # The field of a value in the wire type of another kind is an unknown field.
    stranger = _field(st.just(1), I64, st.binary(min_size=8, max_size=8))
    return _joined(st.one_of(packed, packed, single, single, unknown_fields(), stranger))


def feature_bodies() -> SearchStrategy[bytes]:
    """A Feature: no kind, one, or several."""
    whole: list[SearchStrategy[bytes]] = [
        _field(st.just(_FIELDS[kind]), LEN, _delimited(value_lists(kind))) for kind in _FIELDS
    ]
    stranger = unknown_fields() | _field(st.integers(1, 3), VARINT, int64_bytes())
    return _joined(st.one_of(*whole, *whole, stranger), most=2)


def feature_maps() -> SearchStrategy[bytes]:
    """A Features: entries in any order, duplicate, swapped, with a missing or repeated half."""
    return _maps(feature_bodies())


def examples() -> SearchStrategy[bytes]:
    """An Example of one or several Features, with unknown fields."""
    return _joined(_mostly(_field(st.just(1), LEN, _delimited(feature_maps())), unknown_fields()))


def sequences() -> SearchStrategy[bytes]:
    """A SequenceExample: contexts and lists of steps, with unknown fields at every level."""
    step = _field(st.just(1), LEN, _delimited(feature_bodies()))
    steps = _maps(_joined(_mostly(step, unknown_fields())))
    context = _field(st.just(1), LEN, _delimited(feature_maps()))
    lists = _field(st.just(2), LEN, _delimited(steps))
    return _joined(st.one_of(context, lists, lists, unknown_fields()))


@st.composite
def mutated_payloads(draw: st.DrawFn, payloads: SearchStrategy[bytes]) -> bytes:
    """A payload with some of its bytes changed, lost, added or repeated."""
    data = bytearray(draw(payloads))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(at + 6, len(data))))
        match draw(st.sampled_from(["change", "change", "cut", "drop", "insert", "repeat"])):
            case "change" if at < len(data):
                data[at] = draw(st.integers(0, 255) | st.just(data[at] ^ 1 << draw(st.integers(0, 7))))
            case "cut":
                del data[at:]
            case "drop":
                del data[at:end]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "repeat":
                data[at:at] = data[at:end]
    return bytes(data)


def _maps(values: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    key = _field(st.just(1), LEN, _delimited(keys().map(str.encode)))
    value = _field(st.just(2), LEN, _delimited(values))
    usual = st.builds(add, key, value)
    odd = _joined(st.one_of(key, value, unknown_fields()))
    entry = _field(st.just(1), LEN, _delimited(_mostly(usual, odd)))
    return _joined(_mostly(entry, unknown_fields()))


def _field(numbers: SearchStrategy[int], wire: int, value: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    tags = _mostly(numbers.map(lambda number: tag(number, wire)), numbers.map(lambda number: _padded(number, wire)))
    return st.builds(add, tags, value)


def _padded(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire, width=5)


def _delimited(body: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    # A length may be wider than needed; parsers accept that.
    return st.builds(
        lambda data, width: varint(len(data), width=width if len(data) < 128 else None) + data,
        body,
        st.sampled_from([None, None, None, None, 2, 5]),
    )


def _joined(pieces: SearchStrategy[bytes], most: int = 3) -> SearchStrategy[bytes]:
    return st.lists(pieces, max_size=most).map(b"".join)


def _mostly(usual: SearchStrategy[bytes], odd: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    return st.one_of(usual, usual, usual, usual, odd)
