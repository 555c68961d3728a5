"""Conversion between schemas and the text of tensorflow_metadata (schema.pbtxt)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rekord.errors import add_location, not_examples_error, preview, schema_error
from rekord.schema import json_form
from rekord.schema.base import (
    ABSENT,
    Feature,
    ListKind,
    Shape,
    float_maximum,
    validate_name,
)
from rekord.schema.features import Bytes, Float32, Image, Int64, Sparse, Text
from rekord.schema.interop.textproto import (
    EnumName,
    TextprotoMessage,
    build_message,
    format_message,
    parse_textproto,
)
from rekord.schema.schema import Schema
from rekord.schema.timestamp import TIME_FORMATS, Timestamp

TYPE_NUMBERS = {0: "TYPE_UNKNOWN", 1: "BYTES", 2: "INT", 3: "FLOAT", 4: "STRUCT"}
TYPE_OF_KIND: dict[ListKind, str] = {"bytes": "BYTES", "int64": "INT", "float": "FLOAT"}
_STAGE_NUMBERS = {
    1: "PLANNED",
    2: "ALPHA",
    5: "DEPRECATED",
    6: "DEBUG_ONLY",
    7: "DISABLED",
    9: "VALIDATION_DERIVED",
}
_TYPE_OF_DOMAIN = {
    "int_domain": "INT",
    "float_domain": "FLOAT",
    "string_domain": "BYTES",
    "natural_language_domain": "BYTES",
    "image_domain": "BYTES",
    "url_domain": "BYTES",
    "time_domain": "INT",
}
_TIME_NUMBERS = {
    1: "UNIX_SECONDS",
    2: "UNIX_MILLISECONDS",
    3: "UNIX_MICROSECONDS",
    4: "UNIX_NANOSECONDS",
    5: "UNIX_DAYS",
}
_MAX_DEFAULT_VALUES = 2**20  # limits what an untrusted shape can allocate


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureContext:
    """What the meaning of a feature depends on, other than its own fields."""

    domains: Mapping[str, tuple[str, TextprotoMessage]]  # schema-wide domains by name: field and content
    ragged: bool = False  # missing lists of varying length are empty
    steps: bool = False


def is_left_out(message: TextprotoMessage) -> bool:
    """Whether the data may lack a feature: planned, deprecated, for debugging."""
    return message.flag("deprecated") or message.word("lifecycle_stage", _STAGE_NUMBERS) in _STAGE_NUMBERS.values()


def infer_type(message: TextprotoMessage) -> str:
    """BYTES, INT, FLOAT or STRUCT; from the domain if there is no type."""
    given = message.word("type", TYPE_NUMBERS)
    if given in (None, "TYPE_UNKNOWN"):
        return next((kind for domain, kind in _TYPE_OF_DOMAIN.items() if message.all(domain)), "TYPE_UNKNOWN")
    return str(given)


def read_feature(message: TextprotoMessage, around: FeatureContext) -> Feature:
    """The feature that a message declares, without its annotations."""
    name = message.text("name")
    kind = infer_type(message)
    if kind not in TYPE_OF_KIND.values():
        raise inexpressible_error(name, "type BYTES, INT or FLOAT", f"type {kind}")
    if message.all("value_counts"):
        raise inexpressible_error(name, "value_count: one level of values", "value_counts: nested lists")
    shape = _parse_shape(message)
    presence = message.message("presence")
    optional = presence is None or (presence.number("min_fraction") or 0) < 1
    default: Any = ABSENT
    if optional and around.ragged and not around.steps and shape == (None,):
        optional, default = False, ()
    domain, content = _find_domain(message, around)
    if kind == "INT" and domain == "time_domain":
        unit = TIME_FORMATS.get(content.word("integer_format", _TIME_NUMBERS) or "")
        if unit is not None:
            return Timestamp(unit, shape, optional=optional, default=default)
    if kind == "INT":
        dtype = "bool" if domain == "bool_domain" else "int64"
        limits = _parse_limits(content) if domain == "int_domain" else None
        return Int64(shape, dtype=dtype, range=limits, optional=optional, default=default)
    if kind == "FLOAT":
        limits = _parse_float_limits(content) if domain == "float_domain" else None
        return Float32(shape, range=limits, optional=optional, default=default)
    if domain == "image_domain" and shape == ():
        return Image(optional=optional)
    text = Text if domain == "natural_language_domain" else Bytes
    return text(shape, optional=optional, default=default)


def _parse_shape(message: TextprotoMessage) -> Shape:
    fixed = message.message("shape")
    if fixed is not None:
        return parse_fixed_shape(fixed)
    count = message.message("value_count")
    if count is None:
        return (None,)
    least, most = count.number("min"), count.number("max")
    if least != most or not isinstance(least, int) or least < 1:
        return (None,)
    return () if least == 1 else (least,)


def parse_fixed_shape(message: TextprotoMessage) -> Shape:
    """A FixedShape; a missing size varies."""
    sizes = [dim.number("size") for dim in message.messages("dim")]
    return tuple([int(size) if size is not None and size >= 0 else None for size in sizes])


def _find_domain(message: TextprotoMessage, around: FeatureContext) -> tuple[str, TextprotoMessage]:
    for field in (*_TYPE_OF_DOMAIN, "bool_domain"):
        content = message.message(field)
        if content is not None:
            return field, content
    return around.domains.get(message.text("domain"), ("", TextprotoMessage()))


def _parse_limits(domain: TextprotoMessage) -> Any:
    least, most = domain.number("min"), domain.number("max")
    return None if least is None and most is None else (least, most)


def _parse_float_limits(domain: TextprotoMessage) -> Any:
    least, most = (_narrow_to_float32(domain.number(name)) for name in ("min", "max"))
    open_ends = (None, float("-inf"), float("inf"))
    return None if least in open_ends and most in open_ends else (least, most)


def _narrow_to_float32(bound: float | int | None) -> float | None:
    """A bound as a protobuf float: infinite if it is too large."""
    if bound is None or abs(bound) <= float_maximum("float32") or bound != bound:
        return bound
    return math.copysign(float("inf"), bound)


def fill_default(given: TextprotoMessage, feature: Feature, shape: Shape) -> Any:
    """The DefaultValue of a dense tensor, repeated for its shape."""
    one: Any = given.number("float_value" if feature.kind == "float" else "int_value")
    if feature.kind == "bytes":
        one = given.text("bytes_value")
        one = one if feature.is_text else one.encode("utf-8", "surrogateescape")
    if math.prod([size or 0 for size in shape]) > _MAX_DEFAULT_VALUES:
        raise inexpressible_error(
            "default_value", f"a default of at most {_MAX_DEFAULT_VALUES} values", f"shape {shape}"
        )
    for size in reversed(shape):
        one = [one] * (size or 0)
    return one


def build_feature_messages(column: str, feature: Feature) -> list[TextprotoMessage]:
    """One message per record key of a feature, without annotations."""
    messages = []
    keys, kinds = feature.record_keys(column), feature.record_kinds()
    for key, kind in zip(keys, kinds, strict=True):
        message = TextprotoMessage()
        message.add("name", key)
        message.add("type", EnumName(TYPE_OF_KIND[kind]))
        _add_presence(message, feature, shape=feature.stored_shape if len(keys) == 1 else (None,))
        if len(keys) == 1:
            _add_domain(message, feature)
        elif feature.sparse_size is not None and key == keys[0]:
            # TFX reads the size from here.
            message.add("int_domain", build_message(min=0, max=feature.sparse_size - 1))
        messages.append(message)
    return messages


def _add_presence(message: TextprotoMessage, feature: Feature, *, shape: Shape) -> None:
    if not feature.optional:
        message.add("presence", build_message(min_fraction=1.0, min_count=1))
    if None in shape:
        message.add("value_count", build_message(min=0))
    elif feature.optional:
        count = math.prod([size for size in shape if size is not None])
        message.add("value_count", build_message(min=count, max=count))
    else:
        fixed = TextprotoMessage()
        for size in shape:
            fixed.add("dim", build_message(size=size or 0))
        message.add("shape", fixed)


def _add_domain(message: TextprotoMessage, feature: Feature) -> None:
    domain = feature.tfx_domain()
    if domain is not None:
        field, members = domain
        words = {name: EnumName(value) if isinstance(value, str) else value for name, value in members.items()}
        message.add(field, build_message(**words))


def inexpressible_error(name: str, expected: str, found: str) -> Exception:
    """The error for what a schema.pbtxt declares and a schema cannot express."""
    return schema_error(
        "S123",
        f"`{name}` in schema.pbtxt cannot be expressed as a column",
        column=name or None,
        expected=expected,
        found=found,
        do=f"remove `{name}` from schema.pbtxt, or declare its column in a schema",
    )


SEQUENCE_NAME = "##SEQUENCE##"
_ANNOTATION_PREFIX = "rekord:"
_DTYPES = {"INT": "int64", "FLOAT": "float32"}


def to_pbtxt(schema: Schema) -> str:
    """The text of a schema; unchanged if the schema was read from one."""
    if schema.pbtxt is not None:
        return schema.pbtxt
    if schema.kind == "bytes":
        raise not_examples_error("a schema.pbtxt")
    result = _build_group_message(schema.context)
    if schema.is_sequence:
        domain = _build_group_message(schema.steps)
        result.add("feature", build_message(name=SEQUENCE_NAME, type=EnumName("STRUCT"), struct_domain=domain))
    return format_message(result)


def _build_group_message(columns: Mapping[str, Feature]) -> TextprotoMessage:
    """The fields `feature` and `sparse_feature`, common to Schema and StructDomain."""
    group = TextprotoMessage()
    sparse = TextprotoMessage()
    for column, feature in columns.items():
        messages = build_feature_messages(column, feature)
        if len(messages) > 1 or not _is_lossless(messages[0], column, feature):
            tag = _ANNOTATION_PREFIX + json.dumps(
                {"column": column, **json_form.feature_to_json(feature)}, ensure_ascii=False
            )
            annotation = TextprotoMessage()
            annotation.add("tag", tag)
            messages[0].add("annotation", annotation)
        for message in messages:
            group.add("feature", message)
        if feature.sparse_size is not None:
            sparse.add("sparse_feature", _build_sparse_message(column, feature, feature.sparse_size))
    return TextprotoMessage(group.fields + sparse.fields)


def _is_lossless(message: TextprotoMessage, column: str, feature: Feature) -> bool:
    plain = read_feature(message, FeatureContext(domains={}))
    return message.text("name") == column and plain == feature


def _build_sparse_message(column: str, feature: Feature, size: int) -> TextprotoMessage:
    index_key, value_key = feature.record_keys(column)
    return build_message(
        name=feature.key or column,
        dense_shape=build_message(dim=build_message(size=size)),
        index_feature=build_message(name=index_key),
        value_feature=build_message(name=value_key),
    )


def from_pbtxt(text: str) -> Schema:
    """The schema that a text declares. The text is kept, with comments and unknown fields."""
    if not isinstance(text, str):
        raise schema_error(
            "S122",
            "schema.pbtxt text is not a str",
            expected="a str",
            found=preview(text),
            do='Path("schema.pbtxt").read_text()',
        )
    root = parse_textproto(text)
    domains = {
        domain.text("name"): (field, domain)
        for field in ("string_domain", "int_domain", "float_domain")
        for domain in root.messages(field)
    }
    ragged = root.flag("represent_variable_length_as_ragged")
    sequences = [one for one in root.messages("feature") if _is_sequence(one)]
    context = _FeatureGroup(root, FeatureContext(domains=domains, ragged=ragged))
    steps = _FeatureGroup(_find_steps(sequences), FeatureContext(domains=domains, ragged=ragged, steps=True))
    for name, representation in _find_representations(root):
        with add_location(feature=name):
            path = _parse_path(representation)
            group = steps if path[:1] == [SEQUENCE_NAME] else context
            group.apply_representation(name, representation, path)
    if sequences:
        return Schema(context=context.columns(), steps=steps.columns(), pbtxt=text)
    return Schema(context.columns(), pbtxt=text)


def _is_sequence(message: TextprotoMessage) -> bool:
    return message.text("name") == SEQUENCE_NAME and infer_type(message) == "STRUCT"


def _find_steps(sequences: list[TextprotoMessage]) -> TextprotoMessage:
    found = [domain for one in sequences for domain in one.messages("struct_domain")]
    return TextprotoMessage([field for domain in found for field in domain.fields])


def _find_representations(root: TextprotoMessage) -> list[tuple[str, TextprotoMessage]]:
    """The tensor representations of the default group: the one without a name."""
    result = []
    for group in root.messages("tensor_representation_group"):
        content = group.message("value")
        if group.text("key") == "" and content is not None:
            for entry in content.messages("tensor_representation"):
                result.append((entry.text("key"), entry.message("value") or TextprotoMessage()))
    return result


def _parse_path(representation: TextprotoMessage) -> list[str]:
    ragged = representation.message("ragged_tensor")
    path = ragged.message("feature_path") if ragged is not None else None
    return _decode_texts(path.all("step")) if path is not None else []


def _decode_texts(values: list[Any]) -> list[str]:
    return [value.decode("utf-8", "surrogateescape") for value in values if isinstance(value, bytes)]


class _FeatureGroup:
    """The features of the context or the steps, while columns are built from them."""

    def __init__(self, message: TextprotoMessage, around: FeatureContext) -> None:
        self.around = around
        self.messages: dict[str, TextprotoMessage] = {}
        self.found: dict[str, tuple[str, Feature]] = {}  # by the record key whose position the column takes
        self.taken: set[str] = set()
        for one in message.messages("feature"):
            name = validate_name(one.text("name"), "a feature in schema.pbtxt")
            if _is_sequence(one) or is_left_out(one):
                continue
            if name in self.messages:
                raise inexpressible_error(name, "unique features", "a duplicate")
            self.messages[name] = one
        for name, one in self.messages.items():
            tag = _find_annotation(one)
            if tag is not None:
                with add_location(feature=name):
                    self._add_annotated_column(name, tag)
        for sparse in message.messages("sparse_feature"):
            name = validate_name(sparse.text("name"), "a sparse feature in schema.pbtxt")
            if not is_left_out(sparse):
                with add_location(feature=name):
                    self._add_sparse_column(name, sparse)

    def columns(self) -> dict[str, Feature]:
        """All columns, in the order of the text."""
        columns: dict[str, Feature] = {}
        for name, message in self.messages.items():
            if name in self.found:
                column, feature = self.found[name]
            elif name in self.taken:
                continue
            else:
                with add_location(feature=name):
                    column, feature = name, read_feature(message, self.around)
            if column in columns:
                raise inexpressible_error(column, "unique columns", "a duplicate")
            columns[column] = feature
        return columns

    def _add_annotated_column(self, name: str, tag: str) -> None:
        members = json_form.parse_json(tag)
        column = members.pop("column", None) if isinstance(members, dict) else None
        feature = json_form.feature_from_json(members, validate_name(column, "an annotated column in schema.pbtxt"))
        expected = build_feature_messages(str(column), feature)
        for ours in expected:
            key = ours.text("name")
            theirs = self.messages.get(key)
            if theirs is None or read_feature(theirs, self.around) != read_feature(ours, self.around):
                raise inexpressible_error(
                    key,
                    "fields that match the annotation of rekord",
                    "other fields" if theirs is not None else "no feature of this name",
                )
        self._take(expected[0].text("name"), [one.text("name") for one in expected], str(column), feature)

    def _add_sparse_column(self, name: str, sparse: TextprotoMessage) -> None:
        indices = [one.text("name") for one in sparse.messages("index_feature")]
        value = sparse.message("value_feature")
        keys = [*indices, value.text("name") if value is not None else ""]
        if set(keys) <= self.taken:  # an annotated column
            return
        shape = sparse.message("dense_shape")
        presence = sparse.message("presence")
        required = presence is not None and (presence.number("min_fraction") or 0) >= 1
        self._add_sparse(name, keys, parse_fixed_shape(shape) if shape is not None else (), sparse, required)

    def _add_sparse(
        self,
        name: str,
        keys: list[str],
        shape: tuple[int | None, ...],
        message: TextprotoMessage,
        required: bool,
    ) -> None:
        if len(keys) != 2:
            raise inexpressible_error(
                name, "one index feature: Sparse is a vector", f"{len(keys) - 1} index features"
            )
        shared = [key for key in keys if key in self.taken]
        if shared:
            raise inexpressible_error(name, "unshared indices and values", f"`{shared[0]}` of another column")
        index, value = (self.messages.get(key, TextprotoMessage()) for key in keys)
        kind = infer_type(value) if infer_type(value) != "TYPE_UNKNOWN" else infer_type(message)
        if kind not in _DTYPES:
            raise inexpressible_error(name, "values of type INT or FLOAT", f"type {kind}")
        domain = index.message("int_domain")
        most = domain.number("max") if domain is not None else None
        size = shape[0] if len(shape) == 1 else None
        if size is None and most is not None:
            size = int(most) + 1
        if size is None:
            raise inexpressible_error(name, "dense_shape, or an int_domain for the indices", "neither")
        usual = Sparse("int64", 1).record_keys(name)
        absent: Any = ABSENT if required or self.around.steps else ((), ())
        feature = Sparse(
            _DTYPES[kind],
            size,
            index_key=keys[0] if keys[0] != usual[0] else None,
            value_key=keys[1] if keys[1] != usual[1] else None,
            optional=not required and self.around.steps,
            default=absent,
        )
        for key in keys:
            self.messages.setdefault(key, TextprotoMessage([("name", key.encode("utf-8", "surrogateescape"))]))
        self._take(keys[0], keys, name, feature)

    def apply_representation(self, name: str, representation: TextprotoMessage, path: list[str]) -> None:
        """Apply one tensor representation, if it adds to the feature."""
        dense = representation.message("dense_tensor")
        sparse = representation.message("sparse_tensor")
        ragged = representation.message("ragged_tensor")
        if sparse is not None:
            keys = [*_decode_texts(sparse.all("index_column_names")), sparse.text("value_column_name")]
            if not set(keys) <= self.taken:
                shape = parse_fixed_shape(sparse.message("dense_shape") or TextprotoMessage())
                self._add_sparse(name, keys, shape, TextprotoMessage(), False)
        elif dense is not None and dense.text("column_name") in self.messages:
            self._dense(dense.text("column_name"), dense)
        elif ragged is not None and path and path[-1] in self.messages and ragged.all("partition"):
            self._partitioned(path[-1], ragged)

    def _dense(self, key: str, dense: TextprotoMessage) -> None:
        if key in self.taken:
            return
        feature = read_feature(self.messages[key], self.around)
        shape, given = dense.message("shape"), dense.message("default_value")
        if feature.storage != "list" or (shape is None and given is None):
            return
        sizes = parse_fixed_shape(shape) if shape is not None else feature.shape
        default = ABSENT if given is None else fill_default(given, feature, sizes)
        changed = replace(feature, shape=sizes, optional=False, default=default)  # type: ignore[call-arg]
        self._take(key, [key], key, changed)

    def _partitioned(self, key: str, ragged: TextprotoMessage) -> None:
        if key in self.taken:
            return
        lengths: list[str] = []
        sizes: list[int] = []
        for partition in ragged.messages("partition"):
            uniform = partition.number("uniform_row_length")
            if uniform is not None:
                sizes.append(int(uniform))
            elif sizes:
                raise inexpressible_error(key, "row lengths outside, uniform lengths inside", "row_length inside")
            else:
                lengths.append(partition.text("row_length"))
        feature = read_feature(self.messages[key], self.around)
        if feature.storage != "list":
            raise inexpressible_error(key, "numbers, bytes or text in a ragged tensor", type(feature).__name__)
        shape = (None,) * (1 + len(lengths)) + tuple(sizes)
        optional = not feature.required
        changed = replace(  # type: ignore[call-arg]
            feature, shape=shape, partitions=tuple(lengths), optional=optional, default=ABSENT
        )
        self._take(key, [key, *lengths], key, changed)

    def _take(self, at: str, keys: list[str], column: str, feature: Feature) -> None:
        self.found[at] = column, feature
        self.taken.update(keys)


def _find_annotation(message: TextprotoMessage) -> str | None:
    for annotation in message.messages("annotation"):
        for tag in annotation.all("tag"):
            if isinstance(tag, bytes) and tag.startswith(_ANNOTATION_PREFIX.encode()):
                return tag[len(_ANNOTATION_PREFIX) :].decode("utf-8", "surrogateescape")
    return None
