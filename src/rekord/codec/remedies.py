"""The commands that mend a copy of records which a schema refuses, where there are such."""

from __future__ import annotations

import re
import shlex
from typing import Any

import numpy as np

from rekord.schema import Feature, Float32, Int64, Label

_DECLARE = {"bytes": "rk.Bytes()", "float": "rk.Float32()", "int64": "rk.Int64()"}
_WHOLE = re.compile(rb"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(rb"[+-]?([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})")
_SHOWN_CHARACTERS = 60
EXACT_FLOAT32 = 1 << 24
"""Up to here every int is a float32."""


def rewriting(option: str, key: str, to: str) -> str:
    """The command that makes a mended copy, as a shell takes it: `rekord rewrite IN OUT --cast label=int64`."""
    cut = key if len(key) <= _SHOWN_CHARACTERS else key[: _SHOWN_CHARACTERS - 1] + "…"
    return f"rekord rewrite IN OUT --{option} {shlex.quote(f'{cut}={to}')}"


def other_kind(column: str, feature: Feature, key: str, kind: str, values: Any, *, step: bool) -> str:
    """What to do about values of another kind than the feature of a column is stored as."""
    declare = f"declare `{column[:_SHOWN_CHARACTERS]}` as {_DECLARE[kind]}"
    if step or not _survives(feature, kind, values):
        return f"{declare}, or write the records again"
    to = "float32" if isinstance(feature, Float32) else "int64"
    return f"{rewriting('cast', key, to)}; or {declare}"


def other_key(column: str, key: str, near: str) -> str:
    """What to do about a key that is missing where the record has one that is nearly the same."""
    shown = f"declare `{column[:_SHOWN_CHARACTERS]}` with key={near[:_SHOWN_CHARACTERS]!r}"
    return f"{shown}; or {rewriting('rename', near, key[:_SHOWN_CHARACTERS])}"


def _survives(feature: Feature, kind: str, values: Any) -> bool:
    """Whether a cast to what a feature of numbers is stored as loses nothing of the values."""
    if not isinstance(feature, (Int64, Float32, Label)) or len(feature.record_kinds()) > 1:
        return False
    if kind == "bytes":
        form = _NUMBER if isinstance(feature, Float32) else _WHOLE
        return all(form.fullmatch(value) for value in values)
    numbers = np.asarray(values)
    if kind == "int64":
        return not len(numbers) or bool(numbers.min() >= -EXACT_FLOAT32 and numbers.max() <= EXACT_FLOAT32)
    with np.errstate(all="ignore"):
        return bool(np.all((np.abs(numbers) < 2.0**63) & (numbers == np.floor(numbers))))
