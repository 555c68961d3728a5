"""Rows to payload bytes: each value validated against the schema, then encoded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache, singledispatch
from math import prod
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord.arguments import invalid
from rekord.codec.audio import store_audio
from rekord.codec.columns import Array
from rekord.codec.images.store import store_image, store_mask
from rekord.codec.numbers import NumberRule, store_multi_hot, store_numbers, store_sparse, store_tensor, stored_times
from rekord.codec.plan import CodecPlan, ColumnPlan, compile_plan
from rekord.codec.values import (
    InvalidValue,
    Shape,
    as_array,
    as_sequence,
    describe_value,
    is_text,
    store_strings,
)
from rekord.codec.video import store_video
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.schema import Audio, Boxes, Feature, Image, Mask, MultiLabel, Schema, Sparse, Tensor, Timestamp, Video
from rekord.schema.base import dtype_name

StoredValues: TypeAlias = "Array | list[bytes]"

# core/bind/cells.h's Rule.
NO_RULE, INTS, FLOATS, BYTES, TEXT = range(5)
_RULES: dict[str | None, int] = {"int": INTS, "float": FLOATS, "bytes": BYTES, "str": TEXT}
_INT64_RANGE = (-(2**63), 2**63 - 1)


def build_row_field(field: ColumnPlan) -> _core.RowField:
    """The values of a column that the core accepts without conversion."""
    feature = field.feature
    rule, (low, high) = NO_RULE, _INT64_RANGE
    limits, exact = None, False
    if not field.feature.record_keys("x")[1:]:
        rule = _RULES.get(feature.value_kind, NO_RULE)
    if rule == INTS:
        low, high = NumberRule.of(feature).bounds
        if low > _INT64_RANGE[1]:
            rule = NO_RULE  # only uint64 values beyond int64 are allowed
    elif rule == FLOATS and dtype_name(feature.dtype) == "float32":
        limits, exact = feature.limits, getattr(feature, "rounding", "") == "exact"
    elif rule == FLOATS:
        rule = NO_RULE
    dims = [] if rule == NO_RULE else [-1 if size is None else size for size in feature.shape]
    names = feature.class_names
    return _core.RowField(
        field.name,
        field.first,
        len(field.slots),
        rule,
        dims,
        max(min(low, _INT64_RANGE[1]), _INT64_RANGE[0]),
        min(high, _INT64_RANGE[1]),
        limits,
        exact,
        None if names is None else {name: i for i, name in enumerate(names)},
    )


@singledispatch
def store_value(feature: Feature, value: Any) -> tuple[StoredValues, ...]:
    """A value as one list per record key; raises InvalidValue."""
    if len(feature.record_keys("x")) > 1:
        return _store_partitioned(feature, value)
    return (stored_list(feature, value, feature.shape),)


@singledispatch
def stored_list(feature: Feature, value: Any, shape: Shape) -> StoredValues:
    """All values of a list of the given shape, flattened, as they are stored; raises InvalidValue."""
    if feature.kind == "bytes":
        return store_strings(value, feature, shape)
    return store_numbers(value, NumberRule.of(feature), shape)


store_value.register(Tensor, lambda feature, value: store_tensor(value, feature))
store_value.register(Sparse, lambda feature, value: store_sparse(value, feature))
store_value.register(Image, lambda feature, value: ([store_image(value, feature)],))
store_value.register(MultiLabel, lambda feature, value: (store_multi_hot(value, feature),))
store_value.register(Mask, lambda feature, value: ([store_mask(value, feature)],))
store_value.register(Audio, lambda feature, value: ([store_audio(value, feature)],))
store_value.register(Video, lambda feature, value: ([store_video(value, feature)],))
stored_list.register(Timestamp, lambda feature, value, shape: stored_times(value, feature, shape))


@store_value.register(Boxes)
def _boxes(feature: Boxes, value: Any) -> tuple[StoredValues, ...]:
    sides = store_numbers(value, NumberRule.of(feature), (None, 4)).reshape(-1, 4)
    return tuple(np.ascontiguousarray(sides[:, i]) for i in range(4))


def _store_partitioned(feature: Feature, value: Any) -> tuple[StoredValues, ...]:
    """Values of several ragged levels: flattened, with the row lengths of each inner level."""
    lengths: list[StoredValues] = []
    inner = len(feature.record_keys("x")) - 1
    if isinstance(value, np.ndarray) and value.ndim > inner and value.dtype != object:
        # In an array all lists of a level have the same length: do not walk over millions of values.
        sizes = value.shape
        lengths = [np.full(prod(sizes[: i + 1]), sizes[i + 1], np.int64) for i in range(inner)]
        flat = value.reshape(prod(sizes[: inner + 1]), *sizes[inner + 1 :])
        return (stored_list(feature, flat, feature.shape[inner:]), *lengths)
    level = _split_level(value, feature, 0)
    for depth in range(inner):
        parts = [_split_level(part, feature, depth + 1) for part in level]
        lengths.append(np.array([len(part) for part in parts], np.int64))
        level = [leaf for part in parts for leaf in part]
    rest = feature.shape[inner:]
    return (stored_list(feature, level, rest), *lengths)


def _split_level(value: Any, feature: Feature, depth: int) -> Sequence[Any]:
    parts = _split(value)
    if parts is None:
        raise InvalidValue(
            "E306",
            "has too few levels of nesting",
            expected=f"shape {feature.shape}: a list at level {depth + 1}",
            found=describe_value(value),
            do="give nested lists, one per ragged level",
        )
    return parts


def _split(value: Any) -> Sequence[Any] | None:
    """The parts of an array or a list; None for a single value."""
    array = None if is_text(value) else as_array(value)
    return list(array) if array is not None and array.ndim else as_sequence(value)


class RowValidator:
    """Validates the rows of one schema; the core calls these methods by name."""

    def __init__(self, plan: CodecPlan) -> None:
        self.schema: Schema = plan.schema
        groups = (plan.context,) if plan.steps is None else (plan.context, plan.steps)
        self.fields = tuple(field for group in groups for field in group.fields)

    def normalize(self, number: int, value: Any, step: int | None) -> tuple[StoredValues, ...] | None:
        """The stored lists of a value that the core did not accept, None if it is missing; raises EncodeError."""
        field = self.fields[number]
        if field.feature.is_missing(value):
            if value is None or step is not None or field.feature.required:
                raise missing_value(field.feature, step).to_error(field.name, step=step)
            return None
        try:
            return store_value(field.feature, value)
        except InvalidValue as failure:
            raise failure.to_error(field.name, step=step) from failure.__cause__

    def split_steps(self, number: int, value: Any) -> tuple[Any, ...]:
        """The steps of a column that is not a list."""
        parts = _split(value)
        if parts is None:
            raise InvalidValue(
                "E306",
                "is not a list of steps",
                expected="a list with one value per step",
                found=describe_value(value),
                do="give a list, or declare the column in context=",
            ).to_error(self.fields[number].name)
        return tuple(parts)

    def as_row(self, row: Any) -> dict[Any, Any]:
        """Any mapping as a dict."""
        if isinstance(row, Mapping):
            return dict(row)
        raise error(
            "E325",
            f"row has type {type(row).__name__}, not a mapping",
            expected="a mapping of column names to values",
            found=describe_value(row),
            do='encode({"label": 1, ...}, schema), once per row',
        )

    def raise_unknown_keys(self, row: dict[Any, Any]) -> None:
        """Raise the error for a row with keys that are not in the schema."""
        column = next(key for key in row if key not in self.schema)
        name = column if isinstance(column, str) else None
        free = [one for one in self.schema if one not in row]
        meant = closest_match(name, free) if name else None
        some = ", ".join(f"`{one}`" for one in list(self.schema)[:5])
        raise error(
            "E309",
            f"row has unknown key {preview(column)}",
            location=Location(feature=name),
            expected=f"columns of the schema: {some}{', …' if len(self.schema) > 5 else ''}"[:160],
            found=preview(column),
            do=f"did you mean `{meant}`?" if meant else "remove it from the row, or declare it in the schema",
        )

    def raise_too_large(self) -> None:
        """Raise the error for a row whose record exceeds protobuf's limit."""
        raise too_large_error()


def too_large_error() -> RekordError:
    """The error for a record that exceeds protobuf's limit."""
    return error(
        "E327",
        "record of this row is larger than 2 GiB, the limit of protobuf",
        expected="at most 2,147,483,647 bytes",
        found="more",
        do="split the row, or store file paths instead of contents",
    )


def missing_value(feature: Feature, step: int | None = None) -> InvalidValue:
    """The error for a missing value of a required column, or of a step."""
    if step is not None:
        return InvalidValue(
            "E301",
            "has no value",
            expected="a value in every step",
            found="None",
            do="drop the step, or give it a value",
        )
    kind = type(feature).__name__
    return InvalidValue(
        "E301",
        "is required and has no value",
        expected=f"a value for {kind}",
        found="None, or no such key",
        do=f"give a value, or declare {kind}(optional=True) or default=",
    )


_MAX_IDLE_BYTES = 64 << 20
_MAX_CACHED_ENCODERS = 16
_encoder_cache: OrderedDict[int, tuple[Schema, _core.RowEncoder]] = OrderedDict()


def encode(row: Mapping[str, object], schema: Schema) -> bytes:
    """A row as the bytes of a tf.train.Example, or of a SequenceExample if the schema has steps.

    The same row always gives the same bytes: keys sorted by their UTF-8 bytes, numbers packed. A row that does not
    match the schema raises an EncodeError that names the feature.
    """
    # By identity: comparing or hashing a schema costs more than encoding a row. The schema is kept with the encoder,
    # so that its id is not reused.
    known = _encoder_cache.get(id(schema))
    if known is None:
        known = validate_schema(schema), new_row_encoder(schema)
        _encoder_cache[id(schema)] = known
        while len(_encoder_cache) > _MAX_CACHED_ENCODERS:
            _encoder_cache.popitem(last=False)
    return known[1].encode(row)


@lru_cache(maxsize=1)
def shared_pool() -> _core.Pool:
    """The buffer pool that all encoders of this process share."""
    return _core.Pool(_MAX_IDLE_BYTES)


def new_row_encoder(schema: Schema) -> _core.RowEncoder:
    """A new encoder for the rows of a schema."""
    plan = compile_plan(validate_schema(schema))
    steps = plan.steps
    return _core.RowEncoder(
        plan.context.native,
        None if steps is None else steps.native,
        shared_pool(),
        [build_row_field(field) for field in plan.context.fields],
        [] if steps is None else [build_row_field(field) for field in steps.fields],
        RowValidator(plan),
    )


def validate_schema(schema: object) -> Schema:
    """A schema that rows can be encoded with."""
    if isinstance(schema, Schema) and schema.kind == "bytes":
        raise error(
            "U605",
            "schema of unparsed payloads cannot encode rows",
            expected="a schema of columns",
            found="Payload(): unparsed payloads",
            do="rk.rewrite(path, out) copies payloads; rk.rewrite([a, b], out) those of several datasets",
        )
    if isinstance(schema, Schema):
        for name, feature in schema.items():
            if feature.has_unknown_classes:
                raise _unknown_classes_error(name, feature)
        return schema
    raise invalid("schema", schema, "an rk.Schema", "rk.Schema({...}), or rk.Schema.load(path)")


def _unknown_classes_error(name: str, feature: Feature) -> RekordError:
    kind = type(feature).__name__
    return error(
        "S146",
        f"`{name}` is declared as {kind}(), without its classes",
        location=Location(feature=name),
        expected="class names, or their number",
        found=f"{feature!r}",
        do=f'rk.{kind}(["cat", "dog"]); only rk.write learns classes from the data',
    )
