"""Rows to payload bytes, as the schema declares them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rekord import _core
from rekord.codec.plan import compile_plan
from rekord.codec.rows import Judge, row_field
from rekord.errors import error
from rekord.schema import Schema
from rekord.schema.refuse import shown

_IDLE_BYTES = 64 << 20
_KEPT_ENCODERS = 16
_encoders: OrderedDict[int, tuple[Schema, _core.RowEncoder]] = OrderedDict()


def encode(row: Mapping[str, Any], schema: Schema) -> bytes:
    """A row as the bytes of a tf.train.Example, or of a SequenceExample where the schema has steps.

    The same row gives the same bytes everywhere: keys in the order of their UTF-8 bytes, numbers packed. A
    row that the schema does not allow is an EncodeError that names the feature.
    """
    # By identity: to compare or hash a schema costs more than to encode a row. The schema is kept beside the
    # encoder, so that no other one can have its identity.
    known = _encoders.get(id(schema))
    if known is None:
        known = checked_schema(schema), row_encoder(schema)
        _encoders[id(schema)] = known
        while len(_encoders) > _KEPT_ENCODERS:
            _encoders.popitem(last=False)
    return known[1].encode(row)


@lru_cache(maxsize=1)
def pool() -> _core.Pool:
    """The buffers that all encoders of this process share."""
    return _core.Pool(_IDLE_BYTES)


def row_encoder(schema: Schema) -> _core.RowEncoder:
    """An encoder of its own for the rows of a schema."""
    plan = compile_plan(checked_schema(schema))
    steps = plan.steps
    return _core.RowEncoder(
        plan.context.native,
        None if steps is None else steps.native,
        pool(),
        [row_field(field) for field in plan.context.fields],
        [] if steps is None else [row_field(field) for field in steps.fields],
        Judge(plan),
    )


def checked_schema(schema: object) -> Schema:
    """A schema, and nothing else that might be passed for one."""
    if isinstance(schema, Schema) and schema.kind == "bytes":
        raise error(
            "U605",
            "a schema of whole payloads encodes nothing",
            expected="a schema of columns",
            found="Payload(): payloads as they are",
            do="rk.rewrite(path, out) copies payloads, and rk.rewrite([a, b], out) those of several datasets",
        )
    if isinstance(schema, Schema):
        return schema
    raise error(
        "U605",
        f"`schema` cannot be of type {type(schema).__name__}",
        expected="a rk.Schema",
        found=shown(schema),
        do="rk.Schema({...}), or rk.Schema.load(path)",
    )
