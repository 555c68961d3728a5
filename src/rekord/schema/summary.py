"""Features and columns in a few characters each, for `repr`."""

from __future__ import annotations

from collections.abc import Mapping

from rekord.schema.base import Feature

_MAX_NAME_CHARACTERS = 40
_MAX_LINES = 3
_LINE_CHARACTERS = 88


def summarize_feature(feature: Feature) -> str:
    """`Label(5 classes)`, `Float32(None × 4)`, `Text(optional)`."""
    parts = []
    classes = feature.class_count or getattr(feature, "classes", None)  # of labels, and of masks
    if classes:
        parts.append(f"{classes:,} classes" if classes != 1 else "1 class")
    if feature.shape:
        parts.append(" × ".join(str(size) for size in feature.shape))
    if feature.optional:
        parts.append("optional")
    return type(feature).__name__ + (f"({', '.join(parts)})" if parts else "")


def summarize_columns(columns: Mapping[str, Feature], *, indent: str = "  ") -> list[str]:
    """All columns in at most three lines: `image Image · label Label(5 classes) · … 12 more`."""
    lines: list[str] = []
    line, left = "", len(columns)
    for name, feature in columns.items():
        piece = f"{shorten_name(name)} {summarize_feature(feature)}"
        joined = f"{line} · {piece}" if line else f"{indent}{piece}"
        is_last_line = len(lines) == _MAX_LINES - 1
        room = _LINE_CHARACTERS - (len(f" · … {left:,} more") if is_last_line and left > 1 else 0)
        if line and len(joined) > room:
            if is_last_line:
                return [*lines, f"{line} · … {left:,} more"]
            lines.append(line)
            joined = f"{indent}{piece}"
        line = joined
        left -= 1
    return [*lines, line] if line else []


def shorten_name(name: str) -> str:
    """A name from a file: printable, and of bounded length."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in name[: _MAX_NAME_CHARACTERS + 1])
    return shown if len(shown) <= _MAX_NAME_CHARACTERS else shown[: _MAX_NAME_CHARACTERS - 1] + "…"
