"""One feature of a tensorflow_metadata schema: what its fields say, and how ours are said with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekord.schema.base import Feature, Kind
from rekord.schema.defaults import ABSENT
from rekord.schema.dtypes import dtype_name, float_maximum, integer_bounds
from rekord.schema.feature import Bytes, Float32, Image, Int64, Label, Mask, Sparse, Tensor, Text
from rekord.schema.refuse import refuse
from rekord.schema.shapes import Shape
from rekord.schema.textproto import Message, Scalar, Word

TYPE_NUMBERS = {0: "TYPE_UNKNOWN", 1: "BYTES", 2: "INT", 3: "FLOAT", 4: "STRUCT"}
TYPE_OF_KIND: dict[Kind, str] = {"bytes": "BYTES", "int64": "INT", "float": "FLOAT"}
_STAGE_NUMBERS = {
    1: "PLANNED",
    2: "ALPHA",
    5: "DEPRECATED",
    6: "DEBUG_ONLY",
    7: "DISABLED",
    9: "VALIDATION_DERIVED",
}
_TYPE_OF_DOMAIN = {
    "int_domain": "INT",
    "float_domain": "FLOAT",
    "string_domain": "BYTES",
    "natural_language_domain": "BYTES",
    "image_domain": "BYTES",
    "url_domain": "BYTES",
}
_INT64_MOST = 2**63 - 1
_MOST_FILLED = 2**20  # a shape in a text is no reason to allocate without end


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a feature's meaning depends on beside its own fields."""

    domains: Mapping[str, tuple[str, Message]]  # schema-wide domains by name: which field, and its content
    ragged: bool = False  # absent lists of varying length are empty lists
    steps: bool = False


def left_out(message: Message) -> bool:
    """Whether a feature is one that the data need not have: planned, deprecated, for debugging."""
    return (
        message.flag("deprecated")
        or message.word("lifecycle_stage", _STAGE_NUMBERS) in _STAGE_NUMBERS.values()
    )


def type_of(message: Message) -> str:
    """BYTES, INT, FLOAT or STRUCT; from the domain where no type is given."""
    given = message.word("type", TYPE_NUMBERS)
    if given in (None, "TYPE_UNKNOWN"):
        return next((kind for domain, kind in _TYPE_OF_DOMAIN.items() if message.all(domain)), "TYPE_UNKNOWN")
    return str(given)


def read_feature(message: Message, around: Surroundings) -> Feature:
    """The feature that the fields of a message declare, annotations apart."""
    name = message.text("name")
    kind = type_of(message)
    if kind not in TYPE_OF_KIND.values():
        raise inexpressible(name, "type BYTES, INT or FLOAT", f"type {kind}")
    if message.all("value_counts"):
        raise inexpressible(name, "value_count: one level of values", "value_counts: lists inside lists")
    shape = _shape(message)
    presence = message.message("presence")
    optional = presence is None or (presence.number("min_fraction") or 0) < 1
    default: Any = ABSENT
    if optional and around.ragged and not around.steps and shape == (None,):
        optional, default = False, ()
    domain, content = _domain(message, around)
    if kind == "INT":
        dtype = "bool" if domain == "bool_domain" else "int64"
        limits = _limits(content) if domain == "int_domain" else None
        return Int64(shape, dtype=dtype, range=limits, optional=optional, default=default)
    if kind == "FLOAT":
        limits = _float_limits(content) if domain == "float_domain" else None
        return Float32(shape, range=limits, optional=optional, default=default)
    if domain == "image_domain" and shape == ():
        return Image(optional=optional)
    text = Text if domain == "natural_language_domain" else Bytes
    return text(shape, optional=optional, default=default)


def _shape(message: Message) -> Shape:
    fixed = message.message("shape")
    if fixed is not None:
        return fixed_shape(fixed)
    count = message.message("value_count")
    if count is None:
        return (None,)
    least, most = count.number("min"), count.number("max")
    if least != most or not isinstance(least, int) or least < 1:
        return (None,)
    return () if least == 1 else (least,)


def fixed_shape(message: Message) -> Shape:
    """A FixedShape; a size that is not given varies."""
    sizes = [dim.number("size") for dim in message.messages("dim")]
    return tuple([int(size) if size is not None and size >= 0 else None for size in sizes])


def _domain(message: Message, around: Surroundings) -> tuple[str, Message]:
    for field in (*_TYPE_OF_DOMAIN, "bool_domain"):
        content = message.message(field)
        if content is not None:
            return field, content
    return around.domains.get(message.text("domain"), ("", Message()))


def _limits(domain: Message) -> Any:
    least, most = domain.number("min"), domain.number("max")
    return None if least is None and most is None else (least, most)


def _float_limits(domain: Message) -> Any:
    least, most = (_narrowed(domain.number(name)) for name in ("min", "max"))
    open_ends = (None, float("-inf"), float("inf"))
    return None if least in open_ends and most in open_ends else (least, most)


def _narrowed(bound: float | int | None) -> float | None:
    """A bound as protobuf's float holds it: what is too large for it is infinite."""
    if bound is None or abs(bound) <= float_maximum("float32") or bound != bound:
        return bound
    return math.copysign(float("inf"), bound)


def filled(given: Message, feature: Feature, shape: Shape) -> Any:
    """The DefaultValue of a dense tensor, in each of its places."""
    one: Any = given.number("float_value" if isinstance(feature, Float32) else "int_value")
    if feature.kind == "bytes":
        one = given.text("bytes_value")
        one = one if isinstance(feature, Text) else one.encode("utf-8", "surrogateescape")
    if math.prod([size or 0 for size in shape]) > _MOST_FILLED:
        raise inexpressible("default_value", f"a default of at most {_MOST_FILLED} values", f"shape {shape}")
    for size in reversed(shape):
        one = [one] * (size or 0)
    return one


def feature_messages(column: str, feature: Feature) -> list[Message]:
    """One message for each record key of a feature, without annotations."""
    messages = []
    keys, kinds = feature.record_keys(column), feature.record_kinds()
    for key, kind in zip(keys, kinds, strict=True):
        message = Message()
        message.add("name", key)
        message.add("type", Word(TYPE_OF_KIND[kind]))
        _add_presence(message, feature, shape=_stored_shape(feature) if len(keys) == 1 else (None,))
        if len(keys) == 1:
            _add_domain(message, feature)
        elif isinstance(feature, Sparse) and key == keys[0]:
            message.add("int_domain", submessage(min=0, max=feature.size - 1))  # TFX takes the size from here
        messages.append(message)
    return messages


def _stored_shape(feature: Feature) -> Shape:
    return () if isinstance(feature, Tensor) else feature.shape


def _add_presence(message: Message, feature: Feature, *, shape: Shape) -> None:
    if not feature.optional:
        message.add("presence", submessage(min_fraction=1.0, min_count=1))
    if None in shape:
        message.add("value_count", submessage(min=0))
    elif feature.optional:
        count = math.prod([size for size in shape if size is not None])
        message.add("value_count", submessage(min=count, max=count))
    else:
        fixed = Message()
        for size in shape:
            fixed.add("dim", submessage(size=size or 0))
        message.add("shape", fixed)


def _add_domain(message: Message, feature: Feature) -> None:
    if isinstance(feature, Label):
        domain = submessage(min=0, max=feature.count - 1)
        domain.add("is_categorical", True)
        message.add("int_domain", domain)
    elif isinstance(feature, Int64) and dtype_name(feature.dtype) == "bool":
        message.add("bool_domain", Message())
    elif isinstance(feature, Int64) and (feature.range is not None or dtype_name(feature.dtype) != "int64"):
        low, high = feature.range or integer_bounds(feature.dtype)
        if high <= _INT64_MOST:  # uint64 is stored bit for bit, and its upper half has no domain
            message.add("int_domain", submessage(min=low, max=high))
    elif isinstance(feature, Float32) and feature.range is not None:
        ends = {
            name: end for name, end in zip(("min", "max"), feature.range, strict=True) if math.isfinite(end)
        }
        message.add("float_domain", submessage(**ends))
    elif isinstance(feature, Text):
        message.add("natural_language_domain", Message())
    elif isinstance(feature, (Image, Mask)):
        message.add("image_domain", Message())


def submessage(**fields: Scalar) -> Message:
    """A message of a few scalars."""
    return Message(list(fields.items()))


def inexpressible(name: str, expected: str, found: str) -> Exception:
    """The error for what a schema.pbtxt says and no column can be."""
    return refuse(
        "S123",
        f"`{name}` in schema.pbtxt is nothing that a column can be",
        column=name or None,
        expected=expected,
        found=found,
        do=f"take `{name}` out of the text, or declare the column by hand",
    )
