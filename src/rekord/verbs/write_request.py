"""The options that a dataset was written with, as `.rekord/write.json` keeps them for `rk.sync`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import msgspec

from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.json_form import feature_from_json, feature_to_json
from rekord.sources.detect import SourceOverrides
from rekord.transforms.chain import as_chain, deserialize_transforms, serialize_transform
from rekord.verbs.options import WriteOptions

_CIRCUMSTANCES = frozenset(("workers", "fresh", "staging", "engine"))
_CODE = ("map", "layout", "transforms")
"""Options that can hold what no file does: functions and objects."""

Colours: TypeAlias = "list[tuple[int, int, int, int]] | None"


class MaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides of what the source knows about its masks."""

    classes: int | None = None
    ignore: int | str | None = None
    colours: Colours = None


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `write`, without its source and output."""

    options: dict[str, Any]
    missing: list[str]  # options that were given and cannot be recorded
    overrides: dict[str, Any]
    masks: MaskRequest | None = None
    class_names: list[str] | None = None
    own_splits: bool = False


@dataclass(frozen=True, slots=True)
class RestoredRequest:
    """A recorded call, with its options as they were given."""

    request: WriteRequest
    options: Mapping[str, Any]


def encode_request(
    options: WriteOptions,
    *,
    overrides: SourceOverrides | None,
    masks: MaskRequest | None,
    class_names: Sequence[str] | None,
    own_splits: bool,
) -> bytes:
    """The file for these options; those that have their defaults are left out."""
    recorded: dict[str, Any] = {}
    missing = []
    for field in fields(WriteOptions):
        value = getattr(options, field.name)
        if field.name in _CIRCUMSTANCES or value is None or (field.name != "map" and value == field.default):
            continue
        document = None if field.name == "map" else _to_document(field.name, value)
        if document is None:
            missing.append(field.name)
        else:
            recorded[field.name] = document
    given = {} if overrides is None else {one.name: getattr(overrides, one.name) for one in fields(SourceOverrides)}
    request = WriteRequest(
        options=recorded,
        missing=missing,
        overrides={name: value for name, value in given.items() if value is not None},
        masks=masks,
        class_names=None if class_names is None else list(class_names),
        own_splits=own_splits,
    )
    return msgspec.json.format(msgspec.json.encode(request), indent=1) + b"\n"


def _to_document(name: str, value: Any) -> Any:
    """An option as JSON; None if it cannot be restored from that."""
    if name == "schema":
        return value.to_dict(evidence=False)
    if name == "columns":
        return {column: feature_to_json(feature) for column, feature in value.items()}
    if name == "layout":
        return value if isinstance(value, str) else None
    if name == "transforms":
        return _serialize_steps(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError):
        return None


def _serialize_steps(transforms: Any) -> list[Any] | None:
    steps = as_chain(transforms).steps
    try:
        recorded = [serialize_transform(step) for step in steps]
        # One that is fitted to rows, or a class of the user's own, is not restored.
        same = deserialize_transforms(recorded, "").steps == steps
    except RekordError:
        return None
    return recorded if same else None


def decode_request(data: bytes, path: str, given: Mapping[str, Any]) -> RestoredRequest:
    """The recorded call; `given` are the options that it lacks. Raises for one that is missing."""
    try:
        request = msgspec.json.decode(data, type=WriteRequest)
        known = {field.name for field in fields(WriteOptions)} - _CIRCUMSTANCES
        if not known.issuperset([*request.options, *request.missing]):
            raise ValueError("an option that this version does not have")
        options = {name: _from_document(name, value) for name, value in request.options.items()}
    except (RekordError, msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError) as failure:
        raise error(
            "X559",
            "the recorded options of the dataset are damaged",
            location=Location(path=path),
            expected="the options that rekord write recorded",
            found=preview(str(failure)),
            do="write the dataset again: rekord write SOURCE OUT --fresh",
        ) from failure
    for name in request.missing:
        if given.get(name) is None:
            raise error(
                "X559",
                f"`{name}` was given when the dataset was written, and cannot be recorded",
                location=Location(path=path),
                expected=f"the same {name}= again",
                found=f"no {name}=",
                do=f"{name}=…, as for rk.write",
            )
    for name in _CODE:
        if given.get(name) is not None:
            options[name] = given[name]
    return RestoredRequest(request, options)


def _from_document(name: str, value: Any) -> Any:
    if name == "schema":
        return Schema.from_dict(value)
    if name == "columns":
        return {column: feature_from_json(one, column) for column, one in value.items()}
    if name == "transforms":
        return deserialize_transforms(value, "").steps
    return value
