"""A payload as what it is: an Example, a sequence, a list with context, or something else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rekord import _core
from rekord._core import PayloadKind
from rekord.codec.decode import SequenceExample, Value, decode
from rekord.errors import WireError

Features: TypeAlias = dict[str, Value]

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_WIRE_NAMES = {_VARINT: "a number", _I64: "8 bytes", _LEN: "bytes", _I32: "4 bytes"}
_EVENTS = {
    3: "file version",
    4: "graph",
    5: "summary",
    6: "log message",
    7: "session log",
    8: "run metadata",
    9: "meta graph",
}


@dataclass(slots=True, kw_only=True)
class Message:
    """What a payload holds. `kind` decides which fields are filled; `facts` are short truths about it."""

    kind: str
    payload: bytes
    features: Features | None = None
    context: Features | None = None
    steps: dict[str, list[Value]] | None = None
    examples: list[Features] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def message(payload: bytes, *, kind: str | None = None, file_kind: PayloadKind | None = None) -> Message:
    """The message in a payload. `kind` forces a reading, which raises where it fails.

    `file_kind` is what the first records of the file are: a SequenceExample without steps looks like an
    Example, and only its neighbours tell.
    """
    if kind == "bytes":
        return Message(kind="bytes", payload=payload)
    recognised = _core.recognise_payload(payload)
    if kind == "sequence" or (kind is None and recognised == PayloadKind.SEQUENCE):
        return _sequence(payload)
    if kind is None and (recognised, file_kind) == (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE):
        with suppress(WireError):
            return _sequence(payload)
    if kind == "example" or recognised == PayloadKind.EXAMPLE:
        return Message(kind="example", payload=payload, features=decode(payload))
    other = Message(kind=recognised.name.lower(), payload=payload)
    match recognised:
        case PayloadKind.LIST_WITH_CONTEXT:
            _read_list(other)
        case PayloadKind.EVENT:
            _read_event(other)
        case PayloadKind.PROTO:
            other.facts["fields"] = _field_names(payload)
        case PayloadKind.OTHER:
            other.facts["because"] = _why_not(payload)
    return other


def _sequence(payload: bytes) -> Message:
    decoded: SequenceExample = decode(payload, kind="sequence")
    return Message(kind="sequence", payload=payload, context=decoded.context, steps=decoded.steps)


def _read_list(message: Message) -> None:
    # 1: an Example, repeated; 2: the context. Each is a message in bytes of its own.
    message.examples, message.context = [], {}
    for number, _, body in _fields(message.payload):
        if number == 1:
            message.examples.append(decode(body))
        else:
            message.context = decode(body)
    message.facts["examples"] = len(message.examples)


def _read_event(message: Message) -> None:
    for number, _, body in _fields(message.payload):
        if number == 1:
            message.facts["wall_time"] = struct.unpack("<d", body)[0]
        elif number == 2:
            step = _varint(body, 0)[0]
            message.facts["step"] = step - (1 << 64) if step >> 63 else step
        else:
            message.facts["holds"] = _EVENTS.get(number, f"field {number}")


def _field_names(payload: bytes) -> str:
    seen: dict[int, str] = {}
    for number, wire, _ in _fields(payload):
        seen.setdefault(number, _WIRE_NAMES.get(wire, "a group"))
        if len(seen) == 8:
            break
    return ", ".join(f"{number} ({name})" for number, name in seen.items())


def _why_not(payload: bytes) -> str:
    try:
        decode(payload)
    except WireError as failure:
        return f"{failure.code}, {failure.what}, at payload byte {failure.location.payload_offset or 0:,}"
    return "all of its fields are unknown"


def _fields(payload: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a message that the core has already walked: (number, wire type, value's bytes)."""
    at = 0
    while at < len(payload):
        tag, at = _varint(payload, at)
        number, wire = tag >> 3, tag & 7
        if wire == _LEN:
            length, at = _varint(payload, at)
        elif wire in (_I64, _I32):
            length = 8 if wire == _I64 else 4
        elif wire == _VARINT:
            length = _varint(payload, at)[1] - at
        else:
            yield number, wire, b""  # where a group ends only a walk through it would tell
            return
        yield number, wire, payload[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return number & (1 << 64) - 1, at
