"""Schemas as JSON: stable, readable, and safe to read from untrusted sources."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from rekord.arguments import is_utf8_encodable
from rekord.errors import RekordError, add_location, closest_match, preview, schema_error
from rekord.schema.base import FEATURE_TYPES, Feature, dtype_name

VERSION = 1
_GROUPS = ("features", "context", "steps")


def build_document(groups: Mapping[str, Mapping[str, Feature]], evidence: Any) -> dict[str, Any]:
    """The JSON document of a schema."""
    result: dict[str, Any] = {"rekord_schema": VERSION}
    for group, columns in groups.items():
        result[group] = {name: feature_to_json(feature) for name, feature in columns.items()}
    if evidence is not None:
        result["evidence"] = evidence
    return result


def format_document(members: Mapping[str, Any]) -> str:
    """The document as text, one column per line."""
    parts = []
    for name, value in members.items():
        if name in _GROUPS and value:
            lines = [f"    {_format_json(column)}: {_format_json(feature)}" for column, feature in value.items()]
            parts.append(f"  {_format_json(name)}: {{\n" + ",\n".join(lines) + "\n  }")
        else:
            parts.append(f"  {_format_json(name)}: {_format_json(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def parse_json(text: str | bytes) -> Any:
    """The JSON value in a text; duplicate keys and NaN are errors."""
    try:
        if not isinstance(text, str):
            text = bytes(text).decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    except RekordError:
        raise
    except (ValueError, TypeError, RecursionError) as failure:
        found = "too much nesting" if isinstance(failure, RecursionError) else str(failure)
        raise schema_error(
            "S117",
            "not a valid schema: invalid JSON",
            expected='a JSON document with "rekord_schema": 1',
            found=preview(found)[1:-1],
            do="use a file written by Schema.save",
        ) from None


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(twice, times)] = Counter(name for name, _ in pairs).most_common(1)
        raise schema_error(
            "S117",
            f"schema JSON has duplicate {preview(twice)}",
            expected="unique names",
            found=f"{times} members of that name",
            do="remove the duplicates",
        )
    return members


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def parse_groups(members: Any) -> dict[str, dict[str, Feature]]:
    """The columns of a JSON document, by argument of `Schema`."""
    if not isinstance(members, Mapping) or "rekord_schema" not in members:
        raise schema_error(
            "S117",
            "JSON is not a valid schema",
            expected='an object with the member "rekord_schema"',
            found=preview(members),
            do="use a file written by Schema.save",
        )
    version = members["rekord_schema"]
    if isinstance(version, bool) or version != VERSION or not isinstance(version, int):
        raise schema_error(
            "S119",
            "schema JSON has an unsupported version",
            expected=f'"rekord_schema": {VERSION}',
            found=preview(version),
            do="upgrade rekord, or save the schema again",
        )
    _reject_unknown_members(members, ("rekord_schema", *_GROUPS, "evidence"), "schema JSON", None)
    given = [group for group in _GROUPS if group in members]
    if given not in (["features"], ["context", "steps"]):
        raise schema_error(
            "S117",
            "schema JSON has no unambiguous set of columns",
            expected='the member "features", or the two members "context" and "steps"',
            found=", ".join(given) or "none of them",
            do="keep one of the two forms",
        )
    return {group: _parse_columns(members[group], group) for group in given}


def _parse_columns(members: Any, group: str) -> dict[str, Feature]:
    if not isinstance(members, Mapping):
        raise schema_error(
            "S117",
            f'member "{group}" of the schema JSON is not a set of columns',
            expected="an object of columns",
            found=preview(members),
            do='"features": {"label": {"type": "Label", "count": 10}}',
        )
    columns = {}
    for column, feature in members.items():
        with add_location(feature=column if isinstance(column, str) and is_utf8_encodable(column) else None):
            columns[column] = feature_from_json(feature, column)
    return columns


def feature_to_json(feature: Feature) -> dict[str, Any]:
    """One feature as a JSON object: its type, and the fields that differ from their defaults."""
    members: dict[str, Any] = {"type": type(feature).__name__}
    for name, value in feature.declared().items():
        members[name] = _to_json_value(value)
    return members


def _to_json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json_value(part) for part in value]
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, complex):
        return [_to_json_value(value.real), _to_json_value(value.imag)]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def feature_from_json(members: Any, column: str) -> Feature:
    """The feature in a JSON object."""
    name = members.get("type") if isinstance(members, Mapping) else None
    if not isinstance(name, str) or name not in FEATURE_TYPES:
        meant = closest_match(name, FEATURE_TYPES) if isinstance(name, str) else None
        raise schema_error(
            "S117",
            f"column {preview(column)} has an unknown type",
            expected='an object with "type", one of ' + ", ".join(sorted(FEATURE_TYPES)),
            found=preview(members if name is None else name),
            do=f'"type": "{meant}"' if meant else "use one of these types",
        )
    kind = FEATURE_TYPES[name]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    _reject_unknown_members(members, ("type", *fields), f"{name} {preview(column)}", column)
    missing = [
        field.name for field in fields.values() if field.default is dataclasses.MISSING and field.name not in members
    ]
    if missing:
        raise schema_error(
            "S117",
            f"{name} {preview(column)} has no member {missing[0]!r}",
            expected=", ".join(missing),
            found="no such member",
            do=f"add {missing[0]!r}",
        )
    given = {member: value for member, value in members.items() if member != "type"}
    if "range" in given:
        given["range"] = kind.range_from_json(given["range"])
    if "default" in given:
        given["default"] = kind.default_from_json(given["default"], given)
    return kind(**given)


def _reject_unknown_members(
    members: Mapping[Any, Any], known: tuple[str, ...], owner: str, column: str | None
) -> None:
    unknown = [name for name in members if name not in known]
    if unknown:
        meant = closest_match(unknown[0], known) if isinstance(unknown[0], str) else None
        raise schema_error(
            "S118",
            f"{owner} has unknown member {preview(unknown[0])}",
            column=column,
            expected="only " + ", ".join(known),
            found=", ".join([preview(name) for name in unknown[:5]]),
            do=f"did you mean {meant!r}?" if meant else "remove it",
        )


def validate_evidence(evidence: Any) -> Any:
    """Evidence that can be stored as JSON, or None."""
    try:
        if evidence is not None:
            _format_json(evidence).encode("utf-8")
    except (ValueError, TypeError, RecursionError) as failure:
        raise schema_error(
            "S110",
            "schema evidence is not JSON serializable",
            expected="plain dicts, lists, strings and finite numbers",
            found=preview(str(failure))[1:-1],
            do="convert NumPy values to Python values",
        ) from None
    return evidence
