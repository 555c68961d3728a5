"""A schema: the declared types of all columns of a dataset, in a few characters each, and compared with another."""

from __future__ import annotations

import os
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, overload

from rekord.arguments import check_keywords, invalid
from rekord.errors import add_location, closest_match, open_error, preview, schema_error
from rekord.report.formatting import format_count
from rekord.report.notebook import never_raises, render_fragment, render_table
from rekord.schema import json_form
from rekord.schema.base import Changes, Feature, of_type, validate_name
from rekord.schema.features import Image, Mask, Payload


def validate_columns(columns: object, what: str) -> dict[str, Feature]:
    """Columns by name, each a feature, no two with the same record key."""
    if not isinstance(columns, Mapping):
        raise schema_error(
            "S115",
            f"{what} of a schema have type {type(columns).__name__}, not a mapping",
            expected="a mapping of column names to features",
            found=preview(columns),
            do='Schema({"label": Label(10)})',
        )
    checked: dict[str, Feature] = {}
    for name, feature in columns.items():
        checked[validate_name(name, "a column of the schema")] = _validate_feature(name, feature)
    _check_keys(checked)
    _check_masks(checked)
    return checked


def _validate_feature(name: str, feature: Any) -> Feature:
    if isinstance(feature, Feature) and type(feature) is not Feature:
        return feature
    is_class = isinstance(feature, type) and issubclass(feature, Feature)
    raise schema_error(
        "S111",
        f"`{name}` is not declared as a feature",
        column=name,
        expected="a feature, such as Int64(), Text() or Image()",
        found=preview(feature),
        do=f"{feature.__name__}(), with parentheses" if is_class else "declare the type of the column",
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
                f"`{name}` has a duplicate record key"
                if other == name
                else f"`{name}` and `{other}` share a record key",
                column=name,
                expected="a different record key for each column",
                found=f"`{key}` for both",
                do=f'key="{name}_2" for `{name}`',
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
                f"`{name}` is the mask of `{mask.of}`, which is not an Image column",
                column=name,
                expected="of= naming an Image column" + (f": {', '.join(images[:5])}" if images else ""),
                found=f"of={preview(mask.of)}",
                do=f'of="{meant}"' if meant else "name the Image column of the mask",
            )
        if len(images) != 1:
            raise schema_error(
                "S114",
                f"`{name}` is a mask without an image",
                column=name,
                expected="exactly one Image column, or of= naming one",
                found=f"{len(images)} Image columns" + (f": {', '.join(images[:5])}" if images else ""),
                do=f'Mask(of="{images[0]}", ...)' if images else "declare the Image column of the mask",
            )


def check_groups(context: Mapping[str, Feature], steps: Mapping[str, Feature]) -> None:
    """Context and steps share one namespace, as a row is one mapping; steps have no defaults."""
    _check_payload(context, steps)
    for name, feature in steps.items():
        if name in context:
            raise schema_error(
                "S113",
                f"`{name}` is in both context and steps",
                column=name,
                expected="one column of this name",
                found="two",
                do=f'rename one, keep its record key: "{name}_steps": {type(feature).__name__}(key="{name}")',
            )
        if feature.has_default:
            raise schema_error(
                "S125",
                f"`{name}` is a step column with a default",
                column=name,
                expected="no default: it would not define the number of steps",
                found=f"default={preview(feature.default)}",
                do="optional=True, without default=",
            )


def _check_payload(context: Mapping[str, Feature], steps: Mapping[str, Feature]) -> None:
    """A payload column must be the only column."""
    columns = {**context, **steps}
    name = next(iter(of_type(columns, Payload)), None)
    if name is not None and (steps or len(columns) > 1):
        raise schema_error(
            "S144",
            f"`{name}` is the whole payload, but the schema has other columns",
            column=name,
            expected="Payload() as the only column",
            found=f"{len(columns)} columns",
            do=f'Schema({{"{name}": Payload()}})',
        )


RecordKind: TypeAlias = Literal["example", "sequence", "bytes"]
"""How payloads are parsed."""

KIND_NAMES: Mapping[RecordKind, str] = {
    "example": "Examples",
    "sequence": "SequenceExamples",
    "bytes": "unparsed payloads",
}

T = TypeVar("T")

_MAX_SHOWN_COLUMNS = 40
_MAX_SHOWN_CHARACTERS = 160


def check_kind(kind: object) -> None:
    """Raise an error for an unknown kind of records."""
    if kind not in (None, *KIND_NAMES):
        raise invalid("kind", kind, '"example", "sequence" or "bytes"', 'kind="example"')


@check_keywords
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Schema:
    """Columns by name, in order of declaration.

    `Schema({...})` declares Examples, `Schema(context={...}, steps={...})` SequenceExamples: a context column has one
    value per record, a step column one value per step, and its shape is that of one step. Schemas are equal if they
    declare the same columns, in any order; `evidence` and `pbtxt` (the text that the schema was read from) are not
    compared.
    """

    context: Mapping[str, Feature]  # all columns, unless this is a sequence
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
                "schema is declared in both forms" if is_sequence else "schema has no columns",
                expected="Schema({...}), or Schema(context={...}, steps={...}) for SequenceExamples",
                found="both" if is_sequence else "neither",
                do="drop one of the two" if is_sequence else "Schema({}) for an empty schema",
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
        """`example`, `sequence`, or `bytes` for unparsed payloads (`Payload()`)."""
        if self.is_sequence:
            return "sequence"
        whole = len(self.context) == 1 and bool(of_type(self.context, Payload))
        return "bytes" if whole else "example"

    @property
    def features(self) -> Mapping[str, Feature]:
        """All columns by name: context first, then steps."""
        return MappingProxyType({**self.context, **self.steps}) if self.steps else self.context

    def __getitem__(self, column: str) -> Feature:
        feature = self.get(column)
        if isinstance(feature, Feature):
            return feature
        some = ", ".join([f"`{name}`" for name in list(self)[:8]])
        meant = closest_match(column, self) if isinstance(column, str) else None
        raise schema_error(
            "S116",
            f"schema has no column {preview(column)}",
            column=column if isinstance(column, str) else None,
            expected=f"one of {some}" + (", …" if len(self) > 8 else "") if some else "none: the schema is empty",
            found=preview(column),
            do=f"did you mean `{meant}`?" if meant else "use a column of the schema",
        )

    @overload
    def get(self, column: object, default: None = None) -> Feature | None: ...
    @overload
    def get(self, column: object, default: T) -> Feature | T: ...
    def get(self, column: object, default: object = None) -> object:
        """The feature of a column, or `default` if it does not exist."""
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
        """The column names."""
        return self.features.keys()

    def values(self) -> ValuesView[Feature]:
        """The features."""
        return self.features.values()

    def items(self) -> ItemsView[str, Feature]:
        """The column names and features."""
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

    @never_raises
    def _repr_html_(self) -> str:
        rows = [
            (shorten_name(name), summarize_feature(feature), repr(feature)) for name, feature in self.features.items()
        ]
        facts = [format_count(len(self), "column"), KIND_NAMES[self.kind]]
        return render_fragment("Schema", facts, render_table(("column", "type", "declared as"), rows))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and an unpickled schema is validated again.
        return _rebuild, (dict(self.context), dict(self.steps), self.is_sequence, self.evidence, self.pbtxt)

    def with_evidence(self, evidence: Any) -> Schema:
        """The same schema with other evidence."""
        return _rebuild(self.context, self.steps, self.is_sequence, evidence, self.pbtxt)

    def to_dict(self, *, evidence: bool = True) -> dict[str, Any]:
        """The schema as a JSON-compatible dict."""
        groups = {"features": self.context}
        if self.is_sequence:
            groups = {"context": self.context, "steps": self.steps}
        return json_form.build_document(groups, self.evidence if evidence else None)

    @staticmethod
    def from_dict(document: Mapping[str, object]) -> Schema:
        """The schema in a JSON document, without its `evidence`."""
        groups = json_form.parse_groups(document)
        return Schema(groups.get("features"), context=groups.get("context"), steps=groups.get("steps"))

    def to_json(self, *, evidence: bool = True) -> str:
        """The schema as JSON text, one column per line."""
        return json_form.format_document(self.to_dict(evidence=evidence))

    @staticmethod
    def from_json(text: str | bytes) -> Schema:
        """The schema in a JSON text, without its `evidence`."""
        return Schema.from_dict(json_form.parse_json(text))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema as a JSON file, atomically."""
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
            raise open_error(place, failure, expected="a schema JSON file") from failure
        with add_location(path=place):
            return Schema.from_json(content)

    def to_tf_spec(self) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """The spec for `tf.io.parse_example`: a dict; for a sequence, the pair (context spec, sequence spec)."""
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
        """The text of a tensorflow_metadata schema (schema.pbtxt); unchanged if the schema was read from one."""
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
    lines = [f"    {name!r}: {_shorten(repr(feature))},\n" for name, feature in columns.items()]
    if len(lines) > _MAX_SHOWN_COLUMNS:
        half = _MAX_SHOWN_COLUMNS // 2
        lines[half:-half] = [f"    …  # {len(lines) - 2 * half:,} more columns\n"]
    return "{\n" + "".join(lines) + "}" if lines else "{}"


def _shorten(text: str) -> str:
    """The declaration of a feature; that of one with a thousand class names is cut."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 2]}…)"


def _validate_path(path: object) -> str:
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        raise invalid("path", path, "a str or a pathlib.Path", 'schema.save("schema.json")') from None


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


Verdict: TypeAlias = Literal["same", "widened", "breaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference; `column` is None if it concerns the whole schema."""

    column: str | None
    what: str
    verdict: Literal["widened", "breaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """same: the schemas are equal. widened: all data of the first can be read. breaking: some cannot."""

    verdict: Verdict
    changes: tuple[Change, ...]


@check_keywords
def compat(a: Schema, b: Schema) -> Compatibility:
    """Whether data written with `a` can be read with `b`.

    Columns are matched by name, then by record key: a renamed column that keeps its key is the same column. A default
    of `a` was written for every missing value, so that this data is never absent.
    """
    changes = tuple(_find_changes(a, b))
    if any(change.verdict == "breaking" for change in changes):
        return Compatibility(verdict="breaking", changes=changes)
    return Compatibility(verdict="widened" if changes else "same", changes=changes)


def _find_changes(a: Schema, b: Schema) -> Iterator[Change]:
    if a.kind != b.kind:
        what = f"records were {KIND_NAMES[a.kind]} and are now {KIND_NAMES[b.kind]}"
        yield Change(column=None, what=what, verdict="breaking")
        return
    for before, after, elsewhere in ((a.context, b.context, a.steps), (a.steps, b.steps, a.context)):
        yield from _compare_columns(before, after, elsewhere)


def _compare_columns(
    before: Mapping[str, Feature], after: Mapping[str, Feature], elsewhere: Mapping[str, Feature]
) -> Iterator[Change]:
    owners = {feature.record_keys(name): name for name, feature in before.items()}
    used = set()
    for name, feature in after.items():
        keys = feature.record_keys(name)
        old = name if name in before else owners.get(keys)
        if old is None:
            yield _describe_added_column(name, feature, keys, before, moved=name in elsewhere)
            continue
        used.add(old)
        found = list(_compare_features(before[old], feature, before[old].record_keys(old), keys))
        if old != name:
            found.insert(0, (True, f"renamed from `{old}`"))
        elif not found and before[old] != feature:
            # The rest concerns writing only: quality, rounding, cast, an explicit key.
            found.append((True, "declaration changed, without effect on reading"))
        for readable, what in found:
            yield Change(column=name, what=what, verdict="widened" if readable else "breaking")
    for name in before:
        if name not in used:
            yield Change(column=name, what="removed, no longer read", verdict="widened")


def _describe_added_column(
    name: str, feature: Feature, keys: tuple[str, ...], before: Mapping[str, Feature], *, moved: bool
) -> Change:
    if moved:
        return Change(column=name, what="moved between context and steps", verdict="breaking")
    stored = {key: old for old, had in before.items() for key in had.record_keys(old)}
    taken = [stored[key] for key in keys if key in stored]
    if taken:
        what = f"reads the data of `{taken[0]}` as another feature"
        return Change(column=name, what=what, verdict="breaking")
    if feature.required:
        return Change(column=name, what="new and required, missing in all records", verdict="breaking")
    how = "optional" if feature.optional else "with a default"
    return Change(column=name, what=f"new, {how}", verdict="widened")


def _compare_features(a: Feature, b: Feature, keys_a: tuple[str, ...], keys_b: tuple[str, ...]) -> Changes:
    if keys_a != keys_b:
        yield False, f"read from {_format_keys(keys_b)}, but stored under {_format_keys(keys_a)}"
        return
    if type(a) is not type(b):
        if not b.reads(a):
            yield False, f"stored as {type(a).__name__}, read as {type(b).__name__}"
            return
        yield True, f"{type(a).__name__} became {type(b).__name__}"
    yield from _compare_presence(a, b)
    yield from b.shape_changes_since(a)
    yield from b.changes_since(a)


def _format_keys(keys: tuple[str, ...]) -> str:
    return ", ".join([f"`{key}`" for key in keys])


def _compare_presence(a: Feature, b: Feature) -> Changes:
    def describe(feature: Feature) -> str:
        return "optional" if feature.optional else "required" if feature.required else "with a default"

    if describe(a) != describe(b):
        yield not (a.optional and b.required), f"{describe(a)} became {describe(b)}"
    elif a.has_default and repr(a.default) != repr(b.default):  # by repr, NaN equals NaN
        yield True, f"default {a.default!r} became {b.default!r}"
