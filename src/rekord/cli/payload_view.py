"""A payload as text or JSON: its kind, its features, and a preview of each value."""

from __future__ import annotations

import base64
import codecs
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple, TypeAlias

from rekord import _core
from rekord._core import PayloadKind
from rekord.cli.console import MAX_SHOWN_CHARACTERS, StyledText, escape_controls, quote_text, truncate
from rekord.codec.decode import DecodedValue, SequenceExample, decode
from rekord.errors import WireError
from rekord.report.formatting import format_count

_INSPECTED_BYTES = 4096
_HEX_BYTES = 16
_MAX_SEGMENTS = 1000  # before the size in a JPEG; a malicious one could have millions
MAX_SHOWN_VALUES = 8


class ImagePreview(NamedTuple):
    """An encoded image: its format, and its size if the header has one."""

    format: str
    width: int | None = None
    height: int | None = None


def inspect_image(data: bytes) -> ImagePreview | None:
    """The image in these bytes, judged by its header alone; None if they are not an image."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImagePreview("PNG", *_unpack_pair(data[16:24], 4, "big") if data[12:16] == b"IHDR" else (None, None))
    if data.startswith(b"\xff\xd8\xff"):
        return ImagePreview("JPEG", *_read_jpeg_size(data))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImagePreview("GIF", *_unpack_pair(data[6:10], 2, "little"))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return ImagePreview("WebP", *_read_webp_size(data))
    return None


def format_bytes(data: bytes) -> str:
    """A preview of a byte string."""
    image = inspect_image(data)
    if image is not None:
        size = "" if image.width is None else f" {image.width}×{image.height}"
        return f"{image.format}{size}, {format_count(len(data), 'byte')}"
    text = decode_text(data)
    if text is not None:
        shown = quote_text(text)
        return shown if not shown.endswith('…"') else f"{shown}, {format_count(len(data), 'byte')}"
    more = f" …, {format_count(len(data), 'byte')}" if len(data) > _HEX_BYTES else ""
    return f"0x {data[:_HEX_BYTES].hex(' ')}{more}"


def format_byte_list(values: Sequence[bytes]) -> str:
    """A preview of a list of byte strings."""
    return _format_list(map(format_bytes, values[:MAX_SHOWN_VALUES]), len(values))


def format_numbers(values: Sequence[int] | Sequence[float], *, total: int) -> str:
    """A preview of `total` numbers, of which these are the first; floats have six digits."""
    return _format_list(map(_format_number, values[:MAX_SHOWN_VALUES]), total)


def _format_number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _format_list(shown: Iterable[str], total: int) -> str:
    taken: list[str] = []
    length = 0
    for text in shown:
        length += len(text) + 2
        if taken and length > MAX_SHOWN_CHARACTERS:
            break
        taken.append(text)
    return ", ".join(taken) + (", …" if len(taken) < total else "")


def decode_text(data: bytes) -> str | None:
    """The beginning of a text; None if these bytes are not one."""
    # The beginning is enough, and its last character may be incomplete.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data[:_INSPECTED_BYTES], final=len(data) <= _INSPECTED_BYTES)
    except UnicodeDecodeError:
        return None
    odd = sum(1 for letter in text if letter < " " and letter not in "\t\n\r")
    # Small numbers are valid UTF-8 too; text has few control characters.
    return text if odd * 4 <= len(text) else None


def _unpack_pair(data: bytes, width: int, order: str) -> tuple[int | None, int | None]:
    if len(data) < 2 * width:
        return None, None
    little = order == "little"
    numbers = [data[:width], data[width : 2 * width]]
    first, second = (int.from_bytes(number, "little" if little else "big") for number in numbers)
    return first, second


def _read_jpeg_size(data: bytes) -> tuple[int | None, int | None]:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        segment = data[at : at + 9]
        if len(segment) < 4 or segment[0] != 0xFF:
            break
        marker = segment[1]
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a segment
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _unpack_pair(segment[5:9], 2, "big")
            return width, height
        else:
            at += 2 + max(int.from_bytes(segment[2:4], "big"), 2)
    return None, None


def _read_webp_size(data: bytes) -> tuple[int | None, int | None]:
    form = data[12:16]
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a" and len(data) >= 30:
        width, height = _unpack_pair(data[26:30], 2, "little")
        return (width or 0) & 0x3FFF, (height or 0) & 0x3FFF
    if form == b"VP8L" and data[20:21] == b"\x2f" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8X" and len(data) >= 30:
        width, height = _unpack_pair(data[24:30], 3, "little")
        return (width or 0) + 1, (height or 0) + 1
    return None, None


FeatureMap: TypeAlias = dict[str, DecodedValue]

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_WIRE_NAMES = {_VARINT: "a number", _I64: "8 bytes", _LEN: "bytes", _I32: "4 bytes"}
_EVENT_NAMES = {
    3: "file version",
    4: "graph",
    5: "summary",
    6: "log message",
    7: "session log",
    8: "run metadata",
    9: "meta graph",
}


@dataclass(slots=True, kw_only=True)
class PayloadMessage:
    """The content of a payload. `kind` decides which fields are set; `facts` are printed as they are."""

    kind: str
    payload: bytes
    features: FeatureMap | None = None
    context: FeatureMap | None = None
    steps: dict[str, list[DecodedValue]] | None = None
    examples: list[FeatureMap] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def parse_message(payload: bytes, *, kind: str | None = None, file_kind: PayloadKind | None = None) -> PayloadMessage:
    """The message in a payload. `kind` forces a message type, and raises if the payload is not one.

    `file_kind` is the kind of the first records of the file: a SequenceExample without steps looks like an Example,
    and only the other records show what it is.
    """
    if kind == "bytes":
        return PayloadMessage(kind="bytes", payload=payload)
    recognised = _core.recognise_payload(payload)
    if kind == "sequence" or (kind is None and recognised == PayloadKind.SEQUENCE):
        return _parse_sequence(payload)
    if kind is None and (recognised, file_kind) == (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE):
        with suppress(WireError):
            return _parse_sequence(payload)
    if kind == "example" or recognised == PayloadKind.EXAMPLE:
        return PayloadMessage(kind="example", payload=payload, features=decode(payload))
    other = PayloadMessage(kind=recognised.name.lower(), payload=payload)
    match recognised:
        case PayloadKind.LIST_WITH_CONTEXT:
            _read_list(other)
        case PayloadKind.EVENT:
            _read_event(other)
        case PayloadKind.PROTO:
            other.facts["fields"] = _list_field_names(payload)
        case PayloadKind.OTHER:
            other.facts["because"] = _explain_failure(payload)
    return other


def _parse_sequence(payload: bytes) -> PayloadMessage:
    decoded: SequenceExample = decode(payload, kind="sequence")
    return PayloadMessage(kind="sequence", payload=payload, context=decoded.context, steps=decoded.steps)


def _read_list(message: PayloadMessage) -> None:
    # 1: an Example, repeated; 2: the context. Each is a serialized message.
    message.examples, message.context = [], {}
    for number, _, body in _iter_fields(message.payload):
        if number == 1:
            message.examples.append(decode(body))
        else:
            message.context = decode(body)
    message.facts["examples"] = len(message.examples)


def _read_event(message: PayloadMessage) -> None:
    for number, _, body in _iter_fields(message.payload):
        if number == 1:
            message.facts["wall_time"] = struct.unpack("<d", body)[0]
        elif number == 2:
            step = _read_varint(body, 0)[0]
            message.facts["step"] = step - (1 << 64) if step >> 63 else step
        else:
            message.facts["holds"] = _EVENT_NAMES.get(number, f"field {number}")


def _list_field_names(payload: bytes) -> str:
    seen: dict[int, str] = {}
    for number, wire, _ in _iter_fields(payload):
        seen.setdefault(number, _WIRE_NAMES.get(wire, "a group"))
        if len(seen) == 8:
            break
    return ", ".join(f"{number} ({name})" for number, name in seen.items())


def _explain_failure(payload: bytes) -> str:
    try:
        decode(payload)
    except WireError as failure:
        return f"{failure.code}, {failure.what}, at payload byte {failure.location.payload_offset or 0:,}"
    return "all of its fields are unknown"


def _iter_fields(payload: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a message that the core has validated: (number, wire type, bytes of the value)."""
    at = 0
    while at < len(payload):
        tag, at = _read_varint(payload, at)
        number, wire = tag >> 3, tag & 7
        if wire == _LEN:
            length, at = _read_varint(payload, at)
        elif wire in (_I64, _I32):
            length = 8 if wire == _I64 else 4
        elif wire == _VARINT:
            length = _read_varint(payload, at)[1] - at
        else:
            yield number, wire, b""  # the end of a group is known only after parsing it
            return
        yield number, wire, payload[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return number & (1 << 64) - 1, at


_TITLES = {
    "sequence": "SequenceExample",
    "list_with_context": "ExampleListWithContext",
    "event": "tf.Event",
    "text": "plain text",
    "proto": "another protobuf message",
    "other": "unknown message",
    "bytes": "payload",
}
_MAX_NAME_WIDTH = 40
_MAX_SHOWN_STEPS = 4
_MAX_SHOWN_FEATURES = 1000
"""Nobody reads more lines, and formatting a million features takes most of a minute."""


Texts: TypeAlias = "Mapping[str, Callable[[Any], str]]"
"""By key, how to print a value that represents something else, such as a time."""


def format_message(message: PayloadMessage, texts: Texts | None = None) -> list[list[StyledText]]:
    """The lines below the heading of a record."""
    texts = texts or {}
    if message.features is not None:
        return _format_table(message.features, indent=2, texts=texts) or [["  no features"]]
    lines: list[list[StyledText]] = [[f"  {_TITLES[message.kind]}"]]
    for name, fact in message.facts.items():
        lines.append([f"    {name:<9} {escape_controls(str(fact))}"])
    if message.context is not None:
        lines += [
            ["  context"],
            *(_format_table(message.context, indent=4, texts=texts) or [["    no features"]]),
        ]
    if message.steps is not None:
        lines += [["  steps"], *(_format_steps(message.steps, texts) or [["    no features"]])]
    if message.examples:
        lines += [
            ["  example 0"],
            *(_format_table(message.examples[0], indent=4, texts=texts) or [["    no features"]]),
        ]
    if message.kind in ("text", "proto", "other", "bytes"):
        lines.append([f"    {'payload':<9} {format_bytes(message.payload)}"])
    return lines


def message_to_json(message: PayloadMessage, texts: Texts | None = None) -> dict[str, Any]:
    """A message as a JSON document; `kind` decides which other members it has."""
    texts = texts or {}
    document: dict[str, Any] = {"kind": message.kind}
    if message.features is not None:
        document["features"] = _json_features(message.features, texts)
    if message.context is not None:
        document["context"] = _json_features(message.context, texts)
    if message.steps is not None:
        document["steps"] = {
            name: _json_steps(steps, texts.get(name)) for name, steps in _sort_features(message.steps)
        }
    if message.examples is not None:
        document["examples"] = [_json_features(example, texts) for example in message.examples]
    if message.kind in ("event", "text", "proto", "other", "bytes"):
        document["payload"] = _json_bytes(message.payload)
    if message.kind == "event":
        document |= {name: _json_number(message.facts.get(name)) for name in ("wall_time", "step")}
    return document


def get_list_kind(value: DecodedValue) -> str | None:
    """The kind of list in a feature: bytes, int64 or float; None if it is unset."""
    if value is None:
        return None
    if isinstance(value, list):
        return "bytes"
    return "int64" if value.dtype.kind == "i" else "float"


def _sort_features(named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(named.items(), key=lambda item: item[0])


def _take_first(named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The features that are shown: the first by name."""
    names = sorted(named) if len(named) <= _MAX_SHOWN_FEATURES else nsmallest(_MAX_SHOWN_FEATURES, named)
    return [(name, named[name]) for name in names]


def _format_more(named: Mapping[str, Any], indent: int) -> list[list[StyledText]]:
    """The line that counts the features that are not shown."""
    hidden = len(named) - _MAX_SHOWN_FEATURES
    if hidden <= 0:
        return []
    return [[" " * indent, (f"… and {format_count(hidden, 'more feature')}: --json lists them all", "dim")]]


def _format_table(features: FeatureMap, *, indent: int, texts: Texts) -> list[list[StyledText]]:
    rows = []
    for name, value in _take_first(features):
        length = str(_count_values(value)) if value is not None else ""
        rows.append((name, get_list_kind(value) or "unset", length, _format_preview(value, texts.get(name))))
    return _align_rows(rows, indent) + _format_more(features, indent)


def _format_steps(steps: Mapping[str, Sequence[DecodedValue]], texts: Texts) -> list[list[StyledText]]:
    rows = []
    for name, values in _take_first(steps):
        shown = " | ".join(_format_preview(value, texts.get(name)) or "–" for value in values[:_MAX_SHOWN_STEPS])
        more = " | …" if len(values) > _MAX_SHOWN_STEPS else ""
        rows.append(
            (
                name,
                _get_steps_kind(values) or "unset",
                format_count(len(values), "step"),
                truncate(shown, 100) + more,
            )
        )
    return _align_rows(rows, 4) + _format_more(steps, 4)


def _align_rows(rows: Iterable[tuple[str, str, str, str]], indent: int) -> list[list[StyledText]]:
    named = [(truncate(escape_controls(name)), *rest) for name, *rest in rows]
    name_width = min(max((len(name) for name, *_ in named), default=0), _MAX_NAME_WIDTH)
    count_width = max((len(counted) for _, _, counted, _ in named), default=0)
    return [
        [
            " " * indent,
            (f"{name:<{name_width}}", "cyan"),
            (f"  {kind:<5}", "dim"),
            f"  {counted:>{count_width}}  {shown}".rstrip(),
        ]
        for name, kind, counted, shown in named
    ]


def _count_values(value: DecodedValue) -> int:
    return 0 if value is None else len(value)


def _format_preview(value: DecodedValue, text: Callable[[Any], str] | None = None) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return (
            format_byte_list(value) if text is None else _format_list(map(text, value[:MAX_SHOWN_VALUES]), len(value))
        )
    if text is not None and value.dtype.kind == "i":
        return _format_list(map(text, value[:MAX_SHOWN_VALUES].tolist()), len(value))
    return format_numbers(value[:MAX_SHOWN_VALUES].tolist(), total=len(value))


def _get_steps_kind(values: Sequence[DecodedValue]) -> str | None:
    kinds = {get_list_kind(value) for value in values} - {None}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


def _json_features(features: FeatureMap, texts: Texts) -> dict[str, Any]:
    return {
        name: {
            "kind": get_list_kind(value),
            "count": _count_values(value),
            "values": _json_values(value, texts.get(name)) or [],
        }
        for name, value in _sort_features(features)
    }


def _json_steps(values: Sequence[DecodedValue], text: Callable[[int], str] | None) -> dict[str, Any]:
    return {
        "kind": _get_steps_kind(values),
        "count": len(values),
        "values": [_json_values(value, text) for value in values],
    }


def _json_values(value: DecodedValue, text: Callable[[int], str] | None) -> list[Any] | None:
    if value is None:
        return None
    if isinstance(value, list):
        return [_json_bytes(each) for each in value]
    if text is not None and value.dtype.kind == "i":
        return [text(each) for each in value.tolist()]
    return [_json_number(each) for each in value.tolist()]


def _json_number(number: float | None) -> float | str | None:
    if number is None or math.isfinite(number):
        return number
    # JSON has no such numbers; these are the names that most languages parse.
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _json_bytes(data: bytes) -> dict[str, str]:
    try:
        return {"utf8": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
