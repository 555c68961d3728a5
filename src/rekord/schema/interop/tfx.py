"""Schemas as tensorflow_metadata's text (schema.pbtxt), and the other way round."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rekord.errors import located
from rekord.schema import json_form
from rekord.schema.base import (
    ABSENT,
    Feature,
    Kind,
    Shape,
    checked_name,
    float_maximum,
)
from rekord.schema.features import Bytes, Float32, Image, Int64, Sparse, Text
from rekord.schema.interop.textproto import Message, Scalar, Word, parse, printed
from rekord.schema.messages import not_examples, refuse, shown
from rekord.schema.schema import Schema
from rekord.schema.timestamp import TIME_FORMATS, Timestamp

TYPE_NUMBERS = {0: "TYPE_UNKNOWN", 1: "BYTES", 2: "INT", 3: "FLOAT", 4: "STRUCT"}
TYPE_OF_KIND: dict[Kind, str] = {"bytes": "BYTES", "int64": "INT", "float": "FLOAT"}
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
_MOST_FILLED = 2**20  # a shape in a text is no reason to allocate without end


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a feature's meaning depends on beside its own fields."""

    domains: Mapping[str, tuple[str, Message]]  # schema-wide domains by name: which field, and its content
    ragged: bool = False  # absent lists of varying length are empty lists
    steps: bool = False


def left_out(message: Message) -> bool:
    """Whether a feature is one that the data need not have: planned, deprecated, for debugging."""
    return (
        message.flag("deprecated")
        or message.word("lifecycle_stage", _STAGE_NUMBERS) in _STAGE_NUMBERS.values()
    )


def type_of(message: Message) -> str:
    """BYTES, INT, FLOAT or STRUCT; from the domain where no type is given."""
    given = message.word("type", TYPE_NUMBERS)
    if given in (None, "TYPE_UNKNOWN"):
        return next((kind for domain, kind in _TYPE_OF_DOMAIN.items() if message.all(domain)), "TYPE_UNKNOWN")
    return str(given)


def read_feature(message: Message, around: Surroundings) -> Feature:
    """The feature that the fields of a message declare, annotations apart."""
    name = message.text("name")
    kind = type_of(message)
    if kind not in TYPE_OF_KIND.values():
        raise inexpressible(name, "type BYTES, INT or FLOAT", f"type {kind}")
    if message.all("value_counts"):
        raise inexpressible(name, "value_count: one level of values", "value_counts: lists inside lists")
    shape = _shape(message)
    presence = message.message("presence")
    optional = presence is None or (presence.number("min_fraction") or 0) < 1
    default: Any = ABSENT
    if optional and around.ragged and not around.steps and shape == (None,):
        optional, default = False, ()
    domain, content = _domain(message, around)
    if kind == "INT" and domain == "time_domain":
        unit = TIME_FORMATS.get(content.word("integer_format", _TIME_NUMBERS) or "")
        if unit is not None:
            return Timestamp(unit, shape, optional=optional, default=default)
    if kind == "INT":
        dtype = "bool" if domain == "bool_domain" else "int64"
        limits = _limits(content) if domain == "int_domain" else None
        return Int64(shape, dtype=dtype, range=limits, optional=optional, default=default)
    if kind == "FLOAT":
        limits = _float_limits(content) if domain == "float_domain" else None
        return Float32(shape, range=limits, optional=optional, default=default)
    if domain == "image_domain" and shape == ():
        return Image(optional=optional)
    text = Text if domain == "natural_language_domain" else Bytes
    return text(shape, optional=optional, default=default)


def _shape(message: Message) -> Shape:
    fixed = message.message("shape")
    if fixed is not None:
        return fixed_shape(fixed)
    count = message.message("value_count")
    if count is None:
        return (None,)
    least, most = count.number("min"), count.number("max")
    if least != most or not isinstance(least, int) or least < 1:
        return (None,)
    return () if least == 1 else (least,)


def fixed_shape(message: Message) -> Shape:
    """A FixedShape; a size that is not given varies."""
    sizes = [dim.number("size") for dim in message.messages("dim")]
    return tuple([int(size) if size is not None and size >= 0 else None for size in sizes])


def _domain(message: Message, around: Surroundings) -> tuple[str, Message]:
    for field in (*_TYPE_OF_DOMAIN, "bool_domain"):
        content = message.message(field)
        if content is not None:
            return field, content
    return around.domains.get(message.text("domain"), ("", Message()))


def _limits(domain: Message) -> Any:
    least, most = domain.number("min"), domain.number("max")
    return None if least is None and most is None else (least, most)


def _float_limits(domain: Message) -> Any:
    least, most = (_narrowed(domain.number(name)) for name in ("min", "max"))
    open_ends = (None, float("-inf"), float("inf"))
    return None if least in open_ends and most in open_ends else (least, most)


def _narrowed(bound: float | int | None) -> float | None:
    """A bound as protobuf's float holds it: what is too large for it is infinite."""
    if bound is None or abs(bound) <= float_maximum("float32") or bound != bound:
        return bound
    return math.copysign(float("inf"), bound)


def filled(given: Message, feature: Feature, shape: Shape) -> Any:
    """The DefaultValue of a dense tensor, in each of its places."""
    one: Any = given.number("float_value" if feature.kind == "float" else "int_value")
    if feature.kind == "bytes":
        one = given.text("bytes_value")
        one = one if feature.is_text else one.encode("utf-8", "surrogateescape")
    if math.prod([size or 0 for size in shape]) > _MOST_FILLED:
        raise inexpressible("default_value", f"a default of at most {_MOST_FILLED} values", f"shape {shape}")
    for size in reversed(shape):
        one = [one] * (size or 0)
    return one


def feature_messages(column: str, feature: Feature) -> list[Message]:
    """One message for each record key of a feature, without annotations."""
    messages = []
    keys, kinds = feature.record_keys(column), feature.record_kinds()
    for key, kind in zip(keys, kinds, strict=True):
        message = Message()
        message.add("name", key)
        message.add("type", Word(TYPE_OF_KIND[kind]))
        _add_presence(message, feature, shape=feature.stored_shape if len(keys) == 1 else (None,))
        if len(keys) == 1:
            _add_domain(message, feature)
        elif feature.sparse_size is not None and key == keys[0]:
            # TFX takes the size from here.
            message.add("int_domain", submessage(min=0, max=feature.sparse_size - 1))
        messages.append(message)
    return messages


def _add_presence(message: Message, feature: Feature, *, shape: Shape) -> None:
    if not feature.optional:
        message.add("presence", submessage(min_fraction=1.0, min_count=1))
    if None in shape:
        message.add("value_count", submessage(min=0))
    elif feature.optional:
        count = math.prod([size for size in shape if size is not None])
        message.add("value_count", submessage(min=count, max=count))
    else:
        fixed = Message()
        for size in shape:
            fixed.add("dim", submessage(size=size or 0))
        message.add("shape", fixed)


def _add_domain(message: Message, feature: Feature) -> None:
    domain = feature.tfx_domain()
    if domain is not None:
        field, members = domain
        words = {name: Word(value) if isinstance(value, str) else value for name, value in members.items()}
        message.add(field, submessage(**words))


def submessage(**fields: Scalar) -> Message:
    """A message of a few scalars."""
    return Message(list(fields.items()))


def inexpressible(name: str, expected: str, found: str) -> Exception:
    """The error for what a schema.pbtxt says and no column can be."""
    return refuse(
        "S123",
        f"`{name}` in schema.pbtxt is nothing that a column can be",
        column=name or None,
        expected=expected,
        found=found,
        do=f"take `{name}` out of the text, or declare the column by hand",
    )


SEQUENCE = "##SEQUENCE##"
_TAG = "rekord:"
_DTYPES = {"INT": "int64", "FLOAT": "float32"}


def to_pbtxt(schema: Schema) -> str:
    """The text of a schema; the very text that it came from, where it came from one."""
    if schema.pbtxt is not None:
        return schema.pbtxt
    if schema.kind == "bytes":
        raise not_examples("a schema.pbtxt")
    result = _group_message(schema.context)
    if schema.is_sequence:
        steps = Message()
        steps.add("name", SEQUENCE)
        steps.add("type", Word("STRUCT"))
        steps.add("struct_domain", _group_message(schema.steps))
        result.add("feature", steps)
    return printed(result)


def _group_message(columns: Mapping[str, Feature]) -> Message:
    """The fields `feature` and `sparse_feature`, which a Schema and a StructDomain share."""
    group = Message()
    sparse = Message()
    for column, feature in columns.items():
        messages = feature_messages(column, feature)
        if len(messages) > 1 or not _says_all(messages[0], column, feature):
            tag = _TAG + json.dumps(
                {"column": column, **json_form.feature_members(feature)}, ensure_ascii=False
            )
            annotation = Message()
            annotation.add("tag", tag)
            messages[0].add("annotation", annotation)
        for message in messages:
            group.add("feature", message)
        if feature.sparse_size is not None:
            sparse.add("sparse_feature", _sparse_message(column, feature, feature.sparse_size))
    return Message(group.fields + sparse.fields)


def _says_all(message: Message, column: str, feature: Feature) -> bool:
    plain = read_feature(message, Surroundings(domains={}))
    return message.text("name") == column and plain == feature


def _sparse_message(column: str, feature: Feature, size: int) -> Message:
    index_key, value_key = feature.record_keys(column)
    message = Message()
    message.add("name", feature.key or column)
    shape = Message()
    shape.add("dim", submessage(size=size))
    message.add("dense_shape", shape)
    message.add("index_feature", submessage(name=index_key.encode("utf-8")))
    message.add("value_feature", submessage(name=value_key.encode("utf-8")))
    return message


def from_pbtxt(text: str) -> Schema:
    """The schema that a text declares. The text itself is kept, with its comments and unknown fields."""
    if not isinstance(text, str):
        raise refuse(
            "S122",
            "the text of a schema is given as something else",
            expected="a str",
            found=shown(text),
            do='Path("schema.pbtxt").read_text()',
        )
    root = parse(text)
    domains = {
        domain.text("name"): (field, domain)
        for field in ("string_domain", "int_domain", "float_domain")
        for domain in root.messages(field)
    }
    ragged = root.flag("represent_variable_length_as_ragged")
    sequences = [one for one in root.messages("feature") if _is_sequence(one)]
    context = _Group(root, Surroundings(domains=domains, ragged=ragged))
    steps = _Group(_steps_of(sequences), Surroundings(domains=domains, ragged=ragged, steps=True))
    for name, representation in _representations(root):
        with located(feature=name):
            path = _path(representation)
            group = steps if path[:1] == [SEQUENCE] else context
            group.represent(name, representation, path)
    if sequences:
        return Schema(context=context.columns(), steps=steps.columns(), pbtxt=text)
    return Schema(context.columns(), pbtxt=text)


def _is_sequence(message: Message) -> bool:
    return message.text("name") == SEQUENCE and type_of(message) == "STRUCT"


def _steps_of(sequences: list[Message]) -> Message:
    found = [domain for one in sequences for domain in one.messages("struct_domain")]
    return Message([field for domain in found for field in domain.fields])


def _representations(root: Message) -> list[tuple[str, Message]]:
    """The tensor representations of the group that everybody reads: the one without a name."""
    result = []
    for group in root.messages("tensor_representation_group"):
        content = group.message("value")
        if group.text("key") == "" and content is not None:
            for entry in content.messages("tensor_representation"):
                result.append((entry.text("key"), entry.message("value") or Message()))
    return result


def _path(representation: Message) -> list[str]:
    ragged = representation.message("ragged_tensor")
    path = ragged.message("feature_path") if ragged is not None else None
    return _texts(path.all("step")) if path is not None else []


def _texts(values: list[Any]) -> list[str]:
    return [value.decode("utf-8", "surrogateescape") for value in values if isinstance(value, bytes)]


class _Group:
    """The features of a context or of steps, while columns are made of them."""

    def __init__(self, message: Message, around: Surroundings) -> None:
        self.around = around
        self.messages: dict[str, Message] = {}
        self.found: dict[str, tuple[str, Feature]] = {}  # by the record key that a column appears at
        self.taken: set[str] = set()
        for one in message.messages("feature"):
            name = checked_name(one.text("name"), "a feature of schema.pbtxt")
            if _is_sequence(one) or left_out(one):
                continue
            if name in self.messages:
                raise inexpressible(name, "each feature once", "two of this name")
            self.messages[name] = one
        for name, one in self.messages.items():
            tag = _annotated(one)
            if tag is not None:
                with located(feature=name):
                    self._annotated_column(name, tag)
        for sparse in message.messages("sparse_feature"):
            name = checked_name(sparse.text("name"), "a sparse feature of schema.pbtxt")
            if not left_out(sparse):
                with located(feature=name):
                    self._sparse_column(name, sparse)

    def columns(self) -> dict[str, Feature]:
        """All columns, in the order of the text."""
        columns: dict[str, Feature] = {}
        for name, message in self.messages.items():
            if name in self.found:
                column, feature = self.found[name]
            elif name in self.taken:
                continue
            else:
                with located(feature=name):
                    column, feature = name, read_feature(message, self.around)
            if column in columns:
                raise inexpressible(column, "one column of this name", "two")
            columns[column] = feature
        return columns

    def _annotated_column(self, name: str, tag: str) -> None:
        members = json_form.parsed(tag)
        column = members.pop("column", None) if isinstance(members, dict) else None
        feature = json_form.feature_from(members, checked_name(column, "an annotated column"))
        said = feature_messages(str(column), feature)
        for ours in said:
            key = ours.text("name")
            theirs = self.messages.get(key)
            if theirs is None or read_feature(theirs, self.around) != read_feature(ours, self.around):
                raise inexpressible(
                    key,
                    "fields that agree with the annotation that rekord made",
                    "other fields" if theirs is not None else "no feature of this name",
                )
        self._take(said[0].text("name"), [one.text("name") for one in said], str(column), feature)

    def _sparse_column(self, name: str, sparse: Message) -> None:
        indices = [one.text("name") for one in sparse.messages("index_feature")]
        value = sparse.message("value_feature")
        keys = [*indices, value.text("name") if value is not None else ""]
        if set(keys) <= self.taken:  # an annotated column of ours
            return
        shape = sparse.message("dense_shape")
        presence = sparse.message("presence")
        required = presence is not None and (presence.number("min_fraction") or 0) >= 1
        self._add_sparse(name, keys, fixed_shape(shape) if shape is not None else (), sparse, required)

    def _add_sparse(
        self, name: str, keys: list[str], shape: tuple[int | None, ...], message: Message, required: bool
    ) -> None:
        if len(keys) != 2:
            raise inexpressible(
                name, "one index feature: a Sparse is a vector", f"{len(keys) - 1} index features"
            )
        shared = [key for key in keys if key in self.taken]
        if shared:
            raise inexpressible(name, "indices and values of its own", f"`{shared[0]}` of another column")
        index, value = (self.messages.get(key, Message()) for key in keys)
        kind = type_of(value) if type_of(value) != "TYPE_UNKNOWN" else type_of(message)
        if kind not in _DTYPES:
            raise inexpressible(name, "values of type INT or FLOAT", f"type {kind}")
        domain = index.message("int_domain")
        most = domain.number("max") if domain is not None else None
        size = shape[0] if len(shape) == 1 else None
        if size is None and most is not None:
            size = int(most) + 1
        if size is None:
            raise inexpressible(name, "dense_shape, or an int_domain of the indices", "neither")
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
            self.messages.setdefault(key, Message([("name", key.encode("utf-8", "surrogateescape"))]))
        self._take(keys[0], keys, name, feature)

    def represent(self, name: str, representation: Message, path: list[str]) -> None:
        """Apply one tensor representation, where it says more than the feature itself."""
        dense = representation.message("dense_tensor")
        sparse = representation.message("sparse_tensor")
        ragged = representation.message("ragged_tensor")
        if sparse is not None:
            keys = [*_texts(sparse.all("index_column_names")), sparse.text("value_column_name")]
            if not set(keys) <= self.taken:
                shape = fixed_shape(sparse.message("dense_shape") or Message())
                self._add_sparse(name, keys, shape, Message(), False)
        elif dense is not None and dense.text("column_name") in self.messages:
            self._dense(dense.text("column_name"), dense)
        elif ragged is not None and path and path[-1] in self.messages and ragged.all("partition"):
            self._partitioned(path[-1], ragged)

    def _dense(self, key: str, dense: Message) -> None:
        if key in self.taken:
            return
        feature = read_feature(self.messages[key], self.around)
        shape, given = dense.message("shape"), dense.message("default_value")
        if feature.storage != "list" or (shape is None and given is None):
            return
        sizes = fixed_shape(shape) if shape is not None else feature.shape
        default = ABSENT if given is None else filled(given, feature, sizes)
        changed = replace(feature, shape=sizes, optional=False, default=default)  # type: ignore[call-arg]
        self._take(key, [key], key, changed)

    def _partitioned(self, key: str, ragged: Message) -> None:
        if key in self.taken:
            return
        lengths: list[str] = []
        sizes: list[int] = []
        for partition in ragged.messages("partition"):
            uniform = partition.number("uniform_row_length")
            if uniform is not None:
                sizes.append(int(uniform))
            elif sizes:
                raise inexpressible(key, "row lengths outside, uniform lengths inside", "row_length inside")
            else:
                lengths.append(partition.text("row_length"))
        feature = read_feature(self.messages[key], self.around)
        if feature.storage != "list":
            raise inexpressible(key, "numbers, bytes or text in a ragged tensor", type(feature).__name__)
        shape = (None,) * (1 + len(lengths)) + tuple(sizes)
        optional = not feature.required
        changed = replace(  # type: ignore[call-arg]
            feature, shape=shape, partitions=tuple(lengths), optional=optional, default=ABSENT
        )
        self._take(key, [key, *lengths], key, changed)

    def _take(self, at: str, keys: list[str], column: str, feature: Feature) -> None:
        self.found[at] = column, feature
        self.taken.update(keys)


def _annotated(message: Message) -> str | None:
    for annotation in message.messages("annotation"):
        for tag in annotation.all("tag"):
            if isinstance(tag, bytes) and tag.startswith(_TAG.encode()):
                return tag[len(_TAG) :].decode("utf-8", "surrogateescape")
    return None
