"""Columns of a schema as several verbs ask for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rekord.schema import Feature, Schema


def is_tensor(feature: Feature) -> bool:
    """Whether values are arrays stored as one byte string."""
    return feature.storage == "blob" and feature.dtype is not None


def is_numeric(feature: Feature) -> bool:
    """Whether values are numbers, class ids included."""
    return is_tensor(feature) or feature.value_kind in ("int", "float")


def rebuild_schema(before: Schema, features: Mapping[str, Feature], steps: Collection[str] | None = None) -> Schema:
    """A schema of the same kind as `before` with other features; `steps` names those that are steps now."""
    if not before.is_sequence:
        return Schema(dict(features))
    inside = before.steps if steps is None else steps
    return Schema(
        context={name: one for name, one in features.items() if name not in inside},
        steps={name: one for name, one in features.items() if name in inside},
    )
