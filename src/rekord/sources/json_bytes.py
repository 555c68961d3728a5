"""Bytes in JSON, which has none: an object {"base64": "…"} stands for them, as `rk.export` writes it."""

from __future__ import annotations

import base64
from typing import Any

MARK = b'"base64"'
"""What a line with bytes in it has in it."""

_DEEPEST = 32


def with_bytes(value: Any, depth: int = 0) -> Any:
    """A value with bytes in the place of such objects; ValueError where one is not base64."""
    if isinstance(value, dict):
        encoded = value.get("base64")
        if len(value) == 1 and isinstance(encoded, str):
            try:
                return base64.b64decode(encoded, validate=True)
            except (ValueError, TypeError):
                raise ValueError(encoded) from None
        return (
            {name: with_bytes(inner, depth + 1) for name, inner in value.items()}
            if depth < _DEEPEST
            else value
        )
    if isinstance(value, list) and depth < _DEEPEST:
        return [with_bytes(inner, depth + 1) for inner in value]
    return value
