"""Payloads to Python values, without a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.errors import error
from rekord.faults import wire_error

Value: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32] | list[bytes] | None"
"""What a Feature holds: int64 or float32 values, byte strings, or nothing where no kind is set."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceExample:
    """A decoded tf.train.SequenceExample."""

    context: dict[str, Value]
    steps: dict[str, list[Value]]


def decode(payload: bytes | bytearray | memoryview, *, kind: Literal["example", "sequence"] = "example") -> Any:
    """A payload as `{key: int64 array | float32 array | list of bytes | None}`, with protobuf's meaning.

    With `kind="sequence"` a SequenceExample with `.context` (such a dict) and `.steps` (`{key: [one such
    value a step]}`). A payload that protobuf would refuse is a WireError.
    """
    data = _as_bytes(payload)
    if kind == "example":
        decoded = _core.decode_example(data)
    elif kind == "sequence":
        decoded = _core.decode_sequence(data)
    else:
        raise error(
            "U605",
            f"`kind` cannot be {kind!r}",
            expected='"example" or "sequence"',
            found=repr(kind)[:60],
            do='decode(payload, kind="example")',
        )
    if isinstance(decoded, _core.Problem):
        raise wire_error(decoded)
    return SequenceExample(*decoded) if kind == "sequence" else decoded


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
