"""Payloads to Python values, with a schema or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord._core import Fault, Problem
from rekord.codec.assemble import assemble, refused
from rekord.codec.plan import CodecPlan, Field, Group, compile_plan
from rekord.codec.remedies import other_key, other_kind
from rekord.errors import RekordError, error
from rekord.faults import is_wire_fault, wire_error
from rekord.location import Location
from rekord.schema import Bytes, Float32, Int64, Label, Schema, Text
from rekord.schema.refuse import near_misses
from rekord.schema.schema import KIND_NAMES, RecordKind

Value: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32] | list[bytes] | None"
"""What a Feature holds: int64 or float32 values, byte strings, or nothing where no kind is set."""

_WITH_SHAPE = (Int64, Float32, Bytes, Text, Label)
_LISTS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_KINDS = {1: "bytes", 2: "float", 3: "int64"}
_MOST_COMPARED = 1000
_MOST_NAMED = 3
_INFER = "rekord infer PATH -o schema.json      (reads all records), then open with that schema"
_IDLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SequenceExample:
    """A decoded tf.train.SequenceExample."""

    context: dict[str, Value]
    steps: dict[str, list[Value]]


def decode(
    payload: bytes | bytearray | memoryview,
    schema: Schema | None = None,
    kind: RecordKind | None = None,
) -> Any:
    """A payload's values.

    With a schema: one row, `{column: value}` in the declared shapes and dtypes, None where an optional value is
    missing. Without: `{key: int64 array | float32 array | list of bytes | None}` with protobuf's meaning, and
    with `kind="sequence"` a SequenceExample with `.context` (such a dict) and `.steps` (`{key: [one such value
    a step]}`). `kind="bytes"` gives the payload itself. A payload that protobuf would refuse is a WireError, one that
    the schema refuses a DecodeError.
    """
    data = _as_bytes(payload)
    if kind not in (None, *KIND_NAMES):
        raise _bad_kind(kind)
    if schema is not None:
        if kind not in (None, schema.kind):
            raise _bad_kind(kind, f"a schema of {KIND_NAMES[schema.kind]}")
        return _decode_row(data, compile_plan(schema))
    if kind == "bytes":
        return data
    sequence = kind == "sequence"
    decoded = _core.decode_sequence(data) if sequence else _core.decode_example(data)
    if isinstance(decoded, _core.Problem):
        raise wire_error(decoded)
    return SequenceExample(*decoded) if sequence else decoded


def new_batch(
    plan: CodecPlan, pool: _core.Pool
) -> _core.ExampleBatch | _core.SequenceBatch | _core.PayloadBatch:
    """A native batch that decodes by this plan."""
    if plan.is_payload:
        return _core.PayloadBatch(not plan.context.wanted, pool)
    if plan.steps is None:
        return _core.ExampleBatch(plan.context.reading, pool)
    return _core.SequenceBatch(plan.context.reading, plan.steps.reading, pool)


def row_error(plan: CodecPlan, problem: Problem, slot: int, payload: bytes) -> RekordError:
    """The error for a payload that is not a row of the plan."""
    if is_wire_fault(problem.fault):
        return wire_error(problem)
    if problem.fault == Fault.UNKNOWN_KEY:
        return _unknown_key(problem, payload)
    field, key, group = _field_of(plan, slot)
    words = _words(field, key, problem, _Beside(plan, group, payload))
    failure = refused(field, *words[:2], row=None, expected=words[2], found=words[3], do=words[4])
    failure.location = failure.location.within(payload_offset=problem.at or None)
    if plan.inferred:
        failure.likely = "the schema was inferred from the first records, and this one differs"
        failure.do = _INFER
    return failure


@dataclass(frozen=True, slots=True)
class _Beside:
    """What else is in a payload that was refused: looked at only where there is something to say of it."""

    plan: CodecPlan
    group: Group
    payload: bytes

    @property
    def is_step(self) -> bool:
        return self.group is self.plan.steps

    def stored(self) -> dict[str, Any]:
        """What the payload holds beside the key that was refused; nothing where that cannot be said."""
        try:
            found = decode(self.payload, kind="example" if self.plan.steps is None else "sequence")
        except RekordError:
            return {}
        if isinstance(found, SequenceExample):
            return found.steps if self.is_step else found.context
        return dict(found)

    def near(self, key: str) -> list[str]:
        """Keys that no column has, and that are nearly the one which is missing."""
        known = {slot.key for slot in self.group.slots}
        others = [one for one, value in self.stored().items() if value is not None and one not in known]
        return near_misses(key, others[:_MOST_COMPARED])[:_MOST_NAMED]


def _words(field: Field, key: str, problem: Problem, beside: _Beside) -> tuple[str, str, str, str, str]:
    """(code, what, expected, found, do)"""
    name, declared = field.name, type(field.feature).__name__
    stored = "" if key == name else f" (stored as `{key}`)"
    match problem.fault:
        case Fault.MISSING:
            near = beside.near(key)
            return (
                "D401",
                f"`{name}`{stored} is missing, and the schema requires it",
                f"a value under `{key}`",
                f"no such key, but {_listed(near)}" if near else "no such key, or one without a kind",
                other_key(name, key, near[0])
                if near
                else f"declare `{name}` with optional=True or default=…, or write the records again with it",
            )
        case Fault.WRONG_COUNT:
            shape = field.feature.shape
            many = "a multiple of " if None in shape and problem.expected > 1 else ""
            of_shape = isinstance(field.feature, _WITH_SHAPE)
            shaped = f", for shape {shape}" if of_shape else f", as {declared} is stored"
            return (
                "D402",
                f"`{name}`{stored} has another number of values than the schema says",
                f"{many}{_values(problem.expected)}{shaped}",
                _values(problem.found),
                f"declare the shape that was written, e.g. {declared}(shape=(None,)) for any number"
                if of_shape
                else f"declare `{name}` as rk.Bytes(shape=(None,)), or write the records again",
            )
        case Fault.WRONG_KIND:
            kind, values = _KINDS[problem.found], beside.stored().get(key, ())
            return (
                "D403",
                f"`{name}`{stored} is stored as {_LISTS[problem.found]}, the schema says {declared}",
                _LISTS[problem.expected],
                _LISTS[problem.found],
                other_kind(name, field.feature, key, kind, values, step=beside.is_step),
            )
        case _:
            return (
                "D404",
                f"`{name}`{stored} is not UTF-8, the schema says Text",
                "UTF-8",
                "other bytes",
                f"declare `{name}` as rk.Bytes()",
            )


def _values(count: int) -> str:
    return f"{count:,} value" if count == 1 else f"{count:,} values"


def _listed(keys: list[str]) -> str:
    shown = [f"`{key[: 60 // len(keys)]}`" for key in keys]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _unknown_key(problem: Problem, payload: bytes) -> RekordError:
    key = payload[problem.expected : problem.expected + problem.found].decode("utf-8", "replace")
    shown = key if len(key) <= 60 else key[:57] + "…"
    return error(
        "D408",
        f"`{shown}` is not in the schema that was inferred from the first records",
        location=Location(feature=key, payload_offset=problem.at),
        expected="only keys that the first records had",
        found=f"`{shown}`",
        do=_INFER,
    )


def _field_of(plan: CodecPlan, slot: int) -> tuple[Field, str, Group]:
    group, index = plan.context, slot
    if index >= len(group.slots) and plan.steps is not None:
        index -= len(group.slots)
        group = plan.steps
    field = group.field_of(index)
    return field, field.slots[index - field.first].key, group


def _decode_row(payload: bytes, plan: CodecPlan) -> dict[str, Any]:
    batch = new_batch(plan, _core.Pool(_IDLE_BYTES))
    refusal = batch.add(payload)
    if refusal is not None:
        raise row_error(plan, *refusal, payload)
    try:
        columns = assemble(plan, batch.take(), 1)
    except RekordError as failure:
        failure.location = Location(feature=failure.location.feature)
        raise
    return {name: column[0] for name, column in columns.items()}


def _bad_kind(kind: object, beside: str | None = None) -> RekordError:
    return error(
        "U605",
        f"`kind` cannot be {kind!r}" + (f" beside {beside}" if beside else ""),
        expected='"example" or "sequence"' if beside is None else "the kind that the schema declares",
        found=repr(kind)[:60],
        do='decode(payload, kind="example")' if beside is None else "leave `kind` out",
    )


def _as_bytes(payload: object) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise error(
        "U605",
        f"`payload` cannot be of type {type(payload).__name__}",
        expected="bytes",
        found=type(payload).__name__,
        do="pass the payload of a record, as `rk.records` gives it",
    )
