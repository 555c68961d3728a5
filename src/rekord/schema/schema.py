"""A schema: the declared types of all columns of a dataset."""

from __future__ import annotations

import os
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, overload

from rekord.arguments import check_keywords, invalid
from rekord.errors import add_location, closest_match, error, preview, schema_error
from rekord.location import Location
from rekord.schema import json_form
from rekord.schema.base import Feature, of_type, validate_name
from rekord.schema.features import Image, Mask, Payload


def validate_columns(columns: object, what: str) -> dict[str, Feature]:
    """Columns by name, each a feature, no two of them on one record key."""
    if not isinstance(columns, Mapping):
        raise schema_error(
            "S115",
            f"{what} of a schema are given as a {type(columns).__name__}",
            expected="a mapping of column names to features",
            found=preview(columns),
            do='Schema({"label": Label(10)})',
        )
    checked: dict[str, Feature] = {}
    for name, feature in columns.items():
        checked[validate_name(name, "a column")] = _validate_feature(name, feature)
    _check_keys(checked)
    _check_masks(checked)
    return checked


def _validate_feature(name: str, feature: Any) -> Feature:
    if isinstance(feature, Feature) and type(feature) is not Feature:
        return feature
    forgotten = isinstance(feature, type) and issubclass(feature, Feature)
    raise schema_error(
        "S111",
        f"`{name}` is declared as something that is no feature",
        column=name,
        expected="a feature, such as Int64(), Text() or Image()",
        found=preview(feature),
        do=f"{feature.__name__}(), with the brackets" if forgotten else "declare the column's type",
    )


def _check_keys(columns: Mapping[str, Feature]) -> None:
    owners: dict[str, str] = {}
    for name, feature in columns.items():
        for key in feature.record_keys(name):
            if key not in owners:
                owners[key] = name
                continue
            other = owners[key]
            raise schema_error(
                "S112",
                f"`{name}` stores twice under one record key"
                if other == name
                else f"`{name}` and `{other}` are stored under one record key",
                column=name,
                expected="a record key of its own for each column",
                found=f"`{key}` for both",
                do=f'give `{name}` another key=, such as key="{name}_2"',
            )


def _check_masks(columns: Mapping[str, Feature]) -> None:
    images = list(of_type(columns, Image))
    for name, mask in of_type(columns, Mask).items():
        if mask.of in images:
            continue
        if mask.of is not None:
            meant = closest_match(mask.of, images)
            raise schema_error(
                "S114",
                f"`{name}` is the mask of `{mask.of}`, which is no Image column",
                column=name,
                expected="of= naming an Image column" + (f": {', '.join(images[:5])}" if images else ""),
                found=f"of={preview(mask.of)}",
                do=f'of="{meant}"' if meant else "name the Image that the mask belongs to",
            )
        if len(images) != 1:
            raise schema_error(
                "S114",
                f"`{name}` is a mask without an image of its own",
                column=name,
                expected="exactly one Image column, or of= naming one",
                found=f"{len(images)} Image columns" + (f": {', '.join(images[:5])}" if images else ""),
                do=f'Mask(of="{images[0]}", ...)' if images else "declare the Image of the mask",
            )


def check_groups(context: Mapping[str, Feature], steps: Mapping[str, Feature]) -> None:
    """A row is one mapping, so that context and steps share their names; steps know no default."""
    _check_payload(context, steps)
    for name, feature in steps.items():
        if name in context:
            raise schema_error(
                "S113",
                f"`{name}` is in both context and steps",
                column=name,
                expected="one column of this name: a row has one value under it",
                found="two",
                do=f'rename one, keep its record key: "{name}_steps": {type(feature).__name__}(key="{name}")',
            )
        if feature.has_default:
            raise schema_error(
                "S125",
                f"`{name}` is a step column with a default",
                column=name,
                expected="steps without defaults: no default says how many steps there are",
                found=f"default={preview(feature.default)}",
                do="optional=True keeps the hole",
            )


def _check_payload(context: Mapping[str, Feature], steps: Mapping[str, Feature]) -> None:
    """A column that is the whole payload leaves nothing for others."""
    columns = {**context, **steps}
    name = next(iter(of_type(columns, Payload)), None)
    if name is not None and (steps or len(columns) > 1):
        raise schema_error(
            "S144",
            f"`{name}` is the whole payload, and the schema has other columns",
            column=name,
            expected="Payload() as the only column of a schema",
            found=f"{len(columns)} columns",
            do=f'Schema({{"{name}": Payload()}})',
        )


RecordKind: TypeAlias = Literal["example", "sequence", "bytes"]
"""What the payloads of records are taken for."""

KIND_NAMES: Mapping[RecordKind, str] = {
    "example": "Examples",
    "sequence": "SequenceExamples",
    "bytes": "payloads as they are",
}

T = TypeVar("T")


def check_kind(kind: object) -> None:
    """Refuse what is no kind of records."""
    if kind not in (None, *KIND_NAMES):
        raise invalid("kind", kind, '"example", "sequence" or "bytes"', 'kind="example"')


@check_keywords
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Schema:
    """Columns by name, in the order of their declaration.

    `Schema({...})` declares Examples, `Schema(context={...}, steps={...})` SequenceExamples: a column of the
    context has one value a record, a column of the steps one value a step, and its shape is that of one step.
    Schemas are equal when they declare the same columns, in whatever order; `evidence` and `pbtxt` (the text
    that a schema came from) take no part in that.
    """

    context: Mapping[str, Feature]  # all columns, where this is no sequence
    steps: Mapping[str, Feature]
    is_sequence: bool
    evidence: Any
    pbtxt: str | None

    def __init__(
        self,
        features: Mapping[str, Feature] | None = None,
        *,
        context: Mapping[str, Feature] | None = None,
        steps: Mapping[str, Feature] | None = None,
        evidence: Any = None,
        pbtxt: str | None = None,
    ) -> None:
        is_sequence = context is not None or steps is not None
        if (features is None) != is_sequence:
            raise schema_error(
                "S115",
                "a schema is declared in both forms" if is_sequence else "a schema is given no columns",
                expected="Schema({...}), or Schema(context={...}, steps={...}) for SequenceExamples",
                found="both" if is_sequence else "neither",
                do="drop one of the two" if is_sequence else "Schema({}) for a schema without columns",
            )
        first = features if features is not None else context
        one = validate_columns({} if first is None else first, "the columns")
        many = validate_columns({} if steps is None else steps, "the steps")
        check_groups(one, many)
        object.__setattr__(self, "context", MappingProxyType(one))
        object.__setattr__(self, "steps", MappingProxyType(many))
        object.__setattr__(self, "is_sequence", is_sequence)
        object.__setattr__(self, "evidence", json_form.validate_evidence(evidence))
        object.__setattr__(self, "pbtxt", pbtxt)

    @property
    def kind(self) -> RecordKind:
        """What records are: `example`, `sequence`, or `bytes` where they are taken as they are (`Payload()`)."""
        if self.is_sequence:
            return "sequence"
        whole = len(self.context) == 1 and bool(of_type(self.context, Payload))
        return "bytes" if whole else "example"

    @property
    def features(self) -> Mapping[str, Feature]:
        """All columns by name: those of the context first, then those of the steps."""
        return MappingProxyType({**self.context, **self.steps}) if self.steps else self.context

    def __getitem__(self, column: str) -> Feature:
        feature = self.get(column)
        if isinstance(feature, Feature):
            return feature
        some = ", ".join([f"`{name}`" for name in list(self)[:8]])
        meant = closest_match(column, self) if isinstance(column, str) else None
        raise schema_error(
            "S116",
            f"the schema has no column {preview(column)}",
            column=column if isinstance(column, str) else None,
            expected=f"one of {some}" + (", …" if len(self) > 8 else "") if some else "no column: there are none",
            found=preview(column),
            do=f"did you mean `{meant}`?" if meant else "name a column of the schema",
        )

    @overload
    def get(self, column: object, default: None = None) -> Feature | None: ...
    @overload
    def get(self, column: object, default: T) -> Feature | T: ...
    def get(self, column: object, default: object = None) -> object:
        """The feature of a column, or `default` where there is no such column."""
        try:
            feature = self.context.get(column)  # type: ignore[call-overload]
            return feature if feature is not None else self.steps.get(column, default)  # type: ignore[call-overload]
        except TypeError:  # not hashable, so not a column
            return default

    def __contains__(self, column: object) -> bool:
        return self.get(column) is not None

    def __iter__(self) -> Iterator[str]:
        yield from self.context
        yield from self.steps

    def __len__(self) -> int:
        return len(self.context) + len(self.steps)

    def keys(self) -> KeysView[str]:
        """The columns' names."""
        return self.features.keys()

    def values(self) -> ValuesView[Feature]:
        """The columns' features."""
        return self.features.values()

    def items(self) -> ItemsView[str, Feature]:
        """The columns' names and features."""
        return self.features.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return (self.is_sequence, self.context, self.steps) == (other.is_sequence, other.context, other.steps)

    def __hash__(self) -> int:
        return hash((self.is_sequence, frozenset(self.context.items()), frozenset(self.steps.items())))

    def __repr__(self) -> str:
        if not self.is_sequence:
            return f"Schema({_format_columns(self.context)})"
        return f"Schema(context={_format_columns(self.context)}, steps={_format_columns(self.steps)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle, and a schema from elsewhere is checked again.
        return _rebuild, (dict(self.context), dict(self.steps), self.is_sequence, self.evidence, self.pbtxt)

    def with_evidence(self, evidence: Any) -> Schema:
        """The same schema, with what it was inferred from."""
        return _rebuild(self.context, self.steps, self.is_sequence, evidence, self.pbtxt)

    def to_dict(self, *, evidence: bool = True) -> dict[str, Any]:
        """The schema as JSON holds it, for a document that contains it."""
        groups = {"features": self.context}
        if self.is_sequence:
            groups = {"context": self.context, "steps": self.steps}
        return json_form.build_document(groups, self.evidence if evidence else None)

    @staticmethod
    def from_dict(document: Mapping[str, object]) -> Schema:
        """The schema in a JSON document; `evidence` is left behind."""
        groups = json_form.parse_groups(document)
        return Schema(groups.get("features"), context=groups.get("context"), steps=groups.get("steps"))

    def to_json(self, *, evidence: bool = True) -> str:
        """The schema as JSON text, one line a column."""
        return json_form.format_document(self.to_dict(evidence=evidence))

    @staticmethod
    def from_json(text: str | bytes) -> Schema:
        """The schema in a JSON text; `evidence` is left behind."""
        return Schema.from_dict(json_form.parse_json(text))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema as JSON; the file is complete or not there."""
        from rekord.storage.transaction import publish

        with publish(_validate_path(path)) as file:
            file.write(self.to_json().encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Schema:
        """Read a schema that `save` wrote."""
        place = _validate_path(path)
        try:
            with open(place, "rb") as file:
                content = file.read()
        except OSError as failure:
            missing = isinstance(failure, FileNotFoundError)
            raise error(
                "X501" if missing else "X503",
                f"{place} does not exist" if missing else f"{place} cannot be read",
                location=Location(path=place),
                expected="the JSON file of a schema",
                found=failure.strerror or str(failure),
                do="check the path",
            ) from failure
        with add_location(path=place):
            return Schema.from_json(content)

    def to_tf_spec(self) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """What `tf.io.parse_example` takes: a dict; for a sequence the pair (context spec, sequence spec)."""
        from rekord.schema.interop import tf_spec

        return tf_spec.to_tf_spec(self)

    @staticmethod
    def from_tf_spec(
        spec: Mapping[str, Any] | tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    ) -> Schema:
        """The schema of a tf.io spec: a dict, or the pair (context spec, sequence spec)."""
        from rekord.schema.interop import tf_spec

        return tf_spec.from_tf_spec(spec)

    def to_pbtxt(self) -> str:
        """The text of a tensorflow_metadata schema; the very text it came from, where it came from one."""
        from rekord.schema.interop import tfx

        return tfx.to_pbtxt(self)

    @staticmethod
    def from_pbtxt(text: str) -> Schema:
        """The schema in a tensorflow_metadata text (schema.pbtxt)."""
        from rekord.schema.interop import tfx

        return tfx.from_pbtxt(text)


def _rebuild(
    context: Mapping[str, Feature],
    steps: Mapping[str, Feature],
    is_sequence: bool,
    evidence: Any,
    pbtxt: str | None,
) -> Schema:
    if is_sequence:
        return Schema(context=context, steps=steps, evidence=evidence, pbtxt=pbtxt)
    return Schema(context, evidence=evidence, pbtxt=pbtxt)


def _format_columns(columns: Mapping[str, Feature]) -> str:
    lines = [f"    {name!r}: {feature!r},\n" for name, feature in columns.items()]
    return "{\n" + "".join(lines) + "}" if lines else "{}"


def _validate_path(path: object) -> str:
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        raise error(
            "U605",
            "a schema is kept in a file, and this is no path",
            expected="a str or a pathlib.Path",
            found=preview(path),
            do='schema.save("schema.json")',
        ) from None
