"""The features of a message, as lines for a person and as JSON for a program."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any

from rekord.cli import preview
from rekord.cli.messages import Features, Message
from rekord.cli.render import Piece, clean, count, cut
from rekord.codec.decode import Value

_TITLES = {
    "sequence": "SequenceExample",
    "list_with_context": "ExampleListWithContext",
    "event": "tf.Event",
    "text": "plain text",
    "proto": "another protobuf message",
    "other": "no message that is known",
    "bytes": "payload",
}
_WIDEST_NAME = 40
_SHOWN_STEPS = 4
_SHOWN_FEATURES = 1000
"""More lines than this nobody reads, and those of a million features take most of a minute."""


def lines_of(message: Message) -> list[list[Piece]]:
    """What stands below a record's heading."""
    if message.features is not None:
        return _table(message.features, indent=2) or [["  no features"]]
    lines: list[list[Piece]] = [[f"  {_TITLES[message.kind]}"]]
    for name, fact in message.facts.items():
        lines.append([f"    {name:<9} {clean(str(fact))}"])
    if message.context is not None:
        lines += [["  context"], *(_table(message.context, indent=4) or [["    no features"]])]
    if message.steps is not None:
        lines += [["  steps"], *(_steps_table(message.steps) or [["    no features"]])]
    if message.examples:
        lines += [["  example 0"], *(_table(message.examples[0], indent=4) or [["    no features"]])]
    if message.kind in ("text", "proto", "other", "bytes"):
        lines.append([f"    {'payload':<9} {preview.of_bytes(message.payload)}"])
    return lines


def json_of(message: Message) -> dict[str, Any]:
    """A message as JSON holds it: `kind` says which of the other members are there."""
    document: dict[str, Any] = {"kind": message.kind}
    if message.features is not None:
        document["features"] = _json_features(message.features)
    if message.context is not None:
        document["context"] = _json_features(message.context)
    if message.steps is not None:
        document["steps"] = {name: _json_steps(steps) for name, steps in _sorted(message.steps)}
    if message.examples is not None:
        document["examples"] = [_json_features(example) for example in message.examples]
    if message.kind in ("event", "text", "proto", "other", "bytes"):
        document["payload"] = _json_bytes(message.payload)
    if message.kind == "event":
        document |= {name: _json_number(message.facts.get(name)) for name in ("wall_time", "step")}
    return document


def kind_of(value: Value) -> str | None:
    """Which list a feature holds, by the name that its proto gives it; None where it holds none."""
    if value is None:
        return None
    if isinstance(value, list):
        return "bytes"
    return "int64" if value.dtype.kind == "i" else "float"


def _sorted(named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(named.items(), key=lambda item: item[0])


def _first(named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What is shown of many features: the first by name."""
    names = sorted(named) if len(named) <= _SHOWN_FEATURES else nsmallest(_SHOWN_FEATURES, named)
    return [(name, named[name]) for name in names]


def _more(named: Mapping[str, Any], indent: int) -> list[list[Piece]]:
    """The line about features that are not shown."""
    hidden = len(named) - _SHOWN_FEATURES
    if hidden <= 0:
        return []
    return [[" " * indent, (f"… and {hidden:,} more feature{'s' * (hidden > 1)} (--json shows all)", "dim")]]


def _table(features: Features, *, indent: int) -> list[list[Piece]]:
    rows = [
        (name, kind_of(value) or "unset", str(_length(value)) if value is not None else "", _preview(value))
        for name, value in _first(features)
    ]
    return _aligned(rows, indent) + _more(features, indent)


def _steps_table(steps: Mapping[str, Sequence[Value]]) -> list[list[Piece]]:
    rows = []
    for name, values in _first(steps):
        shown = " | ".join(_preview(value) or "–" for value in values[:_SHOWN_STEPS])
        more = " | …" if len(values) > _SHOWN_STEPS else ""
        rows.append(
            (name, _steps_kind(values) or "unset", count(len(values), "step"), cut(shown, 100) + more)
        )
    return _aligned(rows, 4) + _more(steps, 4)


def _aligned(rows: Iterable[tuple[str, str, str, str]], indent: int) -> list[list[Piece]]:
    named = [(cut(clean(name)), *rest) for name, *rest in rows]
    name_width = min(max((len(name) for name, *_ in named), default=0), _WIDEST_NAME)
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


def _length(value: Value) -> int:
    return 0 if value is None else len(value)


def _preview(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return preview.of_many_bytes(value)
    return preview.of_numbers(value[: preview.SHOWN_VALUES].tolist(), total=len(value))


def _steps_kind(values: Sequence[Value]) -> str | None:
    kinds = {kind_of(value) for value in values} - {None}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


def _json_features(features: Features) -> dict[str, Any]:
    return {
        name: {"kind": kind_of(value), "count": _length(value), "values": _json_values(value) or []}
        for name, value in _sorted(features)
    }


def _json_steps(values: Sequence[Value]) -> dict[str, Any]:
    return {
        "kind": _steps_kind(values),
        "count": len(values),
        "values": [_json_values(value) for value in values],
    }


def _json_values(value: Value) -> list[Any] | None:
    if value is None:
        return None
    if isinstance(value, list):
        return [_json_bytes(each) for each in value]
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
