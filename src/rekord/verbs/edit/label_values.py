"""The classes and labels of a split before and after, and the columns that mirror them."""

from __future__ import annotations

import csv
import hashlib
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.arguments import INT64_MAX, INT64_MIN
from rekord.codec.columns import Batch, Optional, Ragged
from rekord.dataset.samplers import Ids
from rekord.dataset.split import Split
from rekord.errors import RekordError, closest_match, error, preview
from rekord.feeds.sql.tables import IndexedColumns
from rekord.location import Location
from rekord.schema import Feature, Int64, Label, Schema, Text, of_type
from rekord.schema.interop.label_map import format_label_map
from rekord.storage.local import read_error
from rekord.verbs.derive_common import SourceDataset
from rekord.verbs.edit.append import build_layout
from rekord.verbs.query import list_file_error


@dataclass(frozen=True)
class LabelClasses:
    """The classes of a column by id.

    A Label has a list of names in order; the classes of a layout have ids of their own, which never change; numbers
    have no names.
    """

    column: str
    kind: Literal["list", "layout", "numbers"]
    names: Mapping[int, str] = field(default_factory=dict)
    count: int | None = None  # of a Label: its ids are below

    def name(self, number: int) -> str:
        """The name of a class, or its id."""
        return self.names.get(number, str(number))

    def id_of(self, value: Any) -> int:
        """The id of a class, given by name or id."""
        if isinstance(value, str):
            found = next((number for number, name in self.names.items() if name == value), None)
            if found is not None:
                return found
            if not _is_number(value) or len(value) >= 20:
                raise self.unknown(value)
            value = int(value)
        try:
            number = operator.index(value)
        except TypeError:
            raise self.unknown(value) from None
        if self.kind == "layout":
            known = number in self.names
        else:
            known = 0 <= number < self.count if self.count is not None else INT64_MIN <= number <= INT64_MAX
        if isinstance(value, bool) or not known:
            raise self.unknown(value)
        return number

    def has_name(self, value: Any) -> bool:
        """Whether a class has this name."""
        return value in self.names.values()

    def unknown(self, value: Any) -> RekordError:
        """The error for an unknown class."""
        near = closest_match(value, list(self.names.values())) if isinstance(value, str) else None
        named = f"one of {len(self.names):,} names" if self.names else ""
        ids = f"an id from 0 to {self.count - 1:,}" if self.count is not None else "a 64-bit integer"
        if self.kind == "layout":
            ids = "one of their ids"
        return error(
            "U606",
            f"`{self.column}` has no class {preview(value)}",
            location=Location(feature=self.column),
            expected=f"{named}, or {ids}" if named else ids,
            found=preview(value),
            do=f"did you mean {preview(near)}?"
            if near
            else "use an existing class, or declare all classes with names=",
        )


@dataclass(frozen=True)
class ClassMapping:
    """The classes before and after. Ids that are not mapped are kept; None removes a class."""

    before: LabelClasses
    after: LabelClasses
    base: Mapping[int, int | None]  # of every record
    hit: Mapping[int, int | None]  # of the selected records
    origin: Mapping[int, int]  # the old class of a new one, if there is one


def resolve_label_column(old: SourceDataset, column: Any) -> str:
    """The column to relabel."""
    schema = old.schema
    labels = list(of_type(schema.context, Label))
    if column is None:
        usual = [name for name in ("label", "labels") if name in schema.context]
        found = labels if len(labels) == 1 else [name for name in usual if name in labels] or usual
        if not found:
            raise relabel_error(
                "cannot determine the column to relabel",
                "the name of a Label or Int64 column",
                f"{len(labels)} Label columns",
                'column="label"',
            )
        column = found[0]
    feature = schema[column]
    if feature.value_kind != "int" or column not in schema.context or len(feature.shape) > 1:
        raise relabel_error(
            f"`{column[:60]}` does not hold classes",
            "a Label or Int64 column, of single values or lists",
            type(feature).__name__,
            f'column="{labels[0]}"' if labels else "declare it as a Label in the schema, and write the dataset again",
            feature=column,
        )
    return str(column)


def read_label_classes(old: SourceDataset, column: str) -> LabelClasses:
    """The classes of a column."""
    feature = old.schema[column]
    if isinstance(feature, Label):
        return LabelClasses(column, "list", dict(enumerate(feature.names or ())), feature.count)
    layout = None if old.manifest is None else old.manifest.options.get("layout")
    if isinstance(layout, dict) and layout.get("name") == "detection" and column == "labels":
        pairs = layout.get("classes")
        if isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return LabelClasses(column, "layout", {int(number): str(name) for number, name in pairs})
    return LabelClasses(column, "numbers")


def map_classes(
    before: LabelClasses, mapping: Mapping[Any, Any] | None, names: Any, *, everywhere: bool
) -> ClassMapping:
    """The new classes. With `everywhere`, a class that is mapped to another one has no records left."""
    given = mapping or {}
    if names is not None:
        after = _parse_class_list(before, names)
        base = _translate_ids(before, after)
        return _build_mapping(before, after, base, {**base, **_resolve_ids(before, after, given)})
    if not before.names:
        return _build_mapping(before, before, {}, _resolve_ids(before, before, given))
    wanted = {before.id_of(old): _resolve_target(before, target) for old, target in given.items()}
    targets = {number: wanted.get(number, name) for number, name in before.names.items()}
    if before.kind == "layout" or not everywhere:
        return _build_stable_mapping(before, targets, everywhere=everywhere)
    return _build_compact_mapping(before, targets)


def _resolve_ids(before: LabelClasses, after: LabelClasses, mapping: Mapping[Any, Any]) -> dict[int, int | None]:
    return {before.id_of(old): after.id_of(target) for old, target in mapping.items()}


def _translate_ids(before: LabelClasses, after: LabelClasses) -> dict[int, int | None]:
    """The new id of each class: by name if there are names, otherwise unchanged."""
    if before.names and after.names:
        ids = {name: number for number, name in after.names.items()}
        return {number: ids.get(name) for number, name in before.names.items()}
    return {}


def _resolve_target(before: LabelClasses, target: Any) -> str:
    """The name of the target of a class: an existing name, or a new one."""
    if isinstance(target, str) and target and (before.has_name(target) or not _is_number(target)):
        return target
    return before.name(before.id_of(target))


def _is_number(text: str) -> bool:
    return text.isascii() and text.lstrip("-").isdigit()


def _build_compact_mapping(before: LabelClasses, targets: Mapping[int, str]) -> ClassMapping:
    """A list of classes without unused ones: later ids move up."""
    kept: list[str] = []
    wanted = set(targets.values())
    for number, name in before.names.items():
        if name in wanted and name not in kept:
            kept.append(name)
        if not before.has_name(targets[number]) and targets[number] not in kept:
            kept.append(targets[number])
    after = LabelClasses(before.column, "list", dict(enumerate(kept)), len(kept))
    ids: dict[int, int | None] = {number: kept.index(name) for number, name in targets.items()}
    return _build_mapping(before, after, ids, ids)


def _build_stable_mapping(before: LabelClasses, targets: Mapping[int, str], *, everywhere: bool) -> ClassMapping:
    """Classes that keep their ids; a new name takes the id of the class that it renames, or a new one."""
    ids = {name: number for number, name in before.names.items()}
    wanted = set(targets.values())
    for number, name in targets.items():
        if name not in ids:
            free = everywhere and before.names[number] not in wanted
            taken = {one for other, one in ids.items() if other in wanted}
            ids[name] = number if free and number not in taken else max(ids.values()) + 1
    hit: dict[int, int | None] = {number: ids[name] for number, name in targets.items()}
    used = wanted if everywhere else {*before.names.values(), *wanted}
    names = {number: name for name, number in sorted(ids.items(), key=operator.itemgetter(1)) if name in used}
    count = None if before.count is None else max(before.count, len(names))
    return _build_mapping(before, LabelClasses(before.column, before.kind, names, count), {}, hit)


def _parse_class_list(before: LabelClasses, names: Any) -> LabelClasses:
    """The classes of a complete list, or of their number."""
    if before.kind != "list":
        raise relabel_error(
            f"`names` does not apply to `{before.column[:60]}`, which is not a Label",
            "no names",
            preview(names),
            "leave out names=",
            feature=before.column,
        )
    label = Label(names)  # raises for invalid names
    return LabelClasses(before.column, "list", dict(enumerate(label.names or ())), label.count)


def _build_mapping(
    before: LabelClasses, after: LabelClasses, base: Mapping[int, int | None], hit: Mapping[int, int | None]
) -> ClassMapping:
    names = {name: number for number, name in before.names.items()}
    origin = {number: names[name] for number, name in after.names.items() if name in names}
    for old, new in hit.items():
        if new is not None:
            origin.setdefault(new, old)
    return ClassMapping(before, after, base, hit, origin)


def update_feature(feature: Feature, changed: ClassMapping) -> Feature:
    """The column's feature with the new classes."""
    if changed.after == changed.before:
        return feature
    if changed.after.kind == "layout" and isinstance(feature, Int64):
        return replace(feature, range=(1, max(changed.after.names)))
    if not isinstance(feature, Label):
        return feature
    default = feature.default
    if isinstance(default, str):
        number = feature.id_of(default)
        new = None if number is None else changed.hit.get(number, number)
        default = default if new is None else changed.after.name(new)
    elif isinstance(default, int):
        default = changed.hit.get(default, default)
    classes: Sequence[str] | int = tuple(changed.after.names.values()) or (changed.after.count or 0)
    return Label(classes, shape=feature.shape, key=feature.key, optional=feature.optional, default=default)


def relabel_error(what: str, expected: str, found: str, do: str, *, feature: str | None = None) -> RekordError:
    """The error for an invalid change of labels."""
    return error("U605", what, location=Location(feature=feature), expected=expected, found=found, do=do)


_LABEL_MAP = "label_map.pbtxt"


@dataclass(frozen=True)
class LabelCompanions:
    """What changes together with the labels."""

    texts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)  # by column, then by class
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def update_companions(old: SourceDataset, changed: ClassMapping, schema: Schema) -> LabelCompanions:
    """The companions of the labels, if the dataset has a layout; `schema` is the new one."""
    assert old.manifest is not None
    recorded = old.manifest.options.get("layout")
    layout = recorded if isinstance(recorded, dict) else {}
    column, name = changed.after.column, layout.get("name")
    texts: dict[str, Mapping[int, str]] = {}
    notes: list[str] = []
    new: dict[str, Any] | None = None
    if name == "classification" and column == "label" and changed.after.names:
        texts["text"] = changed.after.names
        new, synsets = _update_classification_layout(layout, changed)
        if synsets is not None:
            texts["synset"] = synsets
    elif name == "detection" and column == "labels":
        texts["class_names"] = changed.after.names
        new = {**layout, "classes": [[number, one] for number, one in sorted(changed.after.names.items())]}
    texts = {one: by_id for one, by_id in texts.items() if isinstance(schema.context.get(one), Text)}
    if changed.after == changed.before:
        return LabelCompanions(texts, notes=tuple(notes))
    files: dict[str, bytes] = {}
    if _LABEL_MAP in old.manifest.companions:
        if new is not None and name == "detection":
            files[_LABEL_MAP] = format_label_map(changed.after.names).encode()
        else:
            notes.append(f"{_LABEL_MAP} was not changed: it may contain classes that no longer exist")
    options: dict[str, Any] = {}
    if layout and name != "plain":
        options["layout"] = new if new is not None and _is_layout_of_schema(new, schema) else None
    return LabelCompanions(texts, options, files, tuple(notes))


def _update_classification_layout(
    layout: Mapping[str, Any], changed: ClassMapping
) -> tuple[dict[str, Any] | None, dict[int, str] | None]:
    """The layout with the new classes, and the synset of each class that has one, by id."""
    first = 1 if layout.get("background", not layout.get("zero_based", True)) else 0
    names = [name for number, name in changed.after.names.items() if number >= first]
    before = layout.get("synsets")
    if not isinstance(before, list):
        return {**layout, "classes": names}, None
    by_id = {
        new: str(before[old - first]) for new, old in changed.origin.items() if first <= old < len(before) + first
    }
    whole = [by_id.get(number) for number in changed.after.names if number >= first]
    return (None if None in whole else {**layout, "classes": names, "synsets": whole}), by_id


def _is_layout_of_schema(layout: Mapping[str, Any], schema: Schema) -> bool:
    """Whether a layout gives this schema, so that it can still be used to append rows."""
    try:
        return not layout.get("transforms") and build_layout(layout).schema == schema
    except (KeyError, TypeError, ValueError, AttributeError, RekordError):
        return False


_LABEL_FILE_EXAMPLE = "fix the file: a header with column names, then one key and one label per line"
_label_file_error = partial(list_file_error, do=_LABEL_FILE_EXAMPLE)


@dataclass(frozen=True)
class LabelFile:
    """The labels in a file: by the value of a column, or by split and number."""

    path: str
    key: str | None
    labels: Mapping[str | tuple[str, int], tuple[str, int]]  # label and line


def read_label_file(path: str | os.PathLike[str], column: str, schema: Schema, key: str | None) -> LabelFile:
    """The labels in a CSV file with a header."""
    place = os.fspath(path)
    lines = _iter_csv_lines(place)
    _, header = next(lines, (1, []))
    named = {name: i for i, name in enumerate(header)}
    label = column if column in named else "label"
    if label not in named:
        raise _label_file_error(place, 1, f"a column `{column[:60]}`", ", ".join(header)[:60] or "an empty file")
    key = _choose_key_column(place, named, label, schema, key)
    found: dict[str | tuple[str, int], tuple[str, int]] = {}
    for line, fields in lines:
        if not fields:
            continue
        if len(fields) != len(header):
            raise _label_file_error(place, line, f"{len(header)} fields, as in the header", f"{len(fields)}")
        name: str | tuple[str, int]
        if key is not None:
            name = fields[named[key]]
        else:
            number = fields[named["record"]]
            if not (number.isascii() and number.isdigit() and len(number) < 19):
                raise _label_file_error(place, line, "a record number", repr(number)[:60])
            name = fields[named["split"]], int(number)
        before = found.setdefault(name, (fields[named[label]], line))
        if before[0] != fields[named[label]]:
            raise _label_file_error(
                place, line, f"one label per record: line {before[1]:,} has another one", repr(name)[:60]
            )
    return LabelFile(place, key, found)


def _choose_key_column(
    path: str, named: Mapping[str, int], label: str, schema: Schema, key: str | None
) -> str | None:
    """The column that identifies records; None if split and number do."""
    if key is not None:
        if key not in named:
            raise _label_file_error(path, 1, f"a column `{key[:60]}`", ", ".join(named)[:60])
        _check_key(path, key, schema)
        return key
    if {"split", "record"} <= set(named):
        return None
    shared = [name for name in named if name in schema.context and name != label]
    if len(shared) != 1:
        raise _label_file_error(
            path,
            1,
            "one column of the dataset that identifies records, or the columns split and record",
            ", ".join(shared)[:60] or "none",
            do=f'key="{shared[0][:40]}"' if shared else _LABEL_FILE_EXAMPLE,
        )
    _check_key(path, shared[0], schema)
    return shared[0]


def _check_key(path: str, key: str, schema: Schema) -> None:
    feature = schema[key]
    if key not in schema.context or feature.value_kind not in ("int", "str", "bytes") or feature.shape:
        raise _label_file_error(path, 1, "a key of one string or one integer", f"`{key[:60]}`")


def _iter_csv_lines(path: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each line, and its fields."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for fields in reader:
                yield reader.line_num, fields
    except OSError as failure:
        raise read_error(path, failure) from failure
    except UnicodeDecodeError as failure:
        raise _label_file_error(path, None, "text in UTF-8", failure.object[failure.start :][:8].hex(" ")) from None
    except csv.Error as failure:
        raise _label_file_error(path, reader.line_num, "a CSV file", str(failure)[:60]) from None


Flags = npt.NDArray[np.bool_]

_ROWS = 8192


@dataclass(frozen=True, eq=False)
class LabelValues:
    """The class ids of all records: one per record, or `ids[offsets[i]:offsets[i + 1]]` for record i."""

    ids: Ids
    valid: Flags  # of each record
    offsets: Ids | None = None

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.valid)

    def expand_to_values(self, flags: Flags) -> Flags:
        """Flags of records as flags of their values."""
        return flags if self.offsets is None else np.repeat(flags, np.diff(self.offsets))

    def reduce_to_records(self, flags: Flags) -> Flags:
        """The records with any flagged value."""
        if self.offsets is None:
            return flags
        sums = np.concatenate([[0], np.cumsum(flags)])
        return np.asarray(sums[self.offsets[1:]] > sums[self.offsets[:-1]])


def read_label_values(split: Split, column: str, feature: Feature) -> LabelValues:
    """The labels of a split: from its index if it has them, otherwise from the records."""
    if not feature.shape:
        indexed = IndexedColumns(split.view.shards, {column: pa.int64()})
        if indexed.has([column]):
            arrays = [columns[column] for columns, _ in indexed.batches([column])]
            valid = [~np.asarray(array.is_null()) for array in arrays]
            filled = [np.asarray(array.fill_null(0)) for array in arrays]
            return LabelValues(_concat_arrays(filled, np.int64), _concat_arrays(valid, bool))
    found = [_extract_label_values(batch[column]) for batch in split.batches(_ROWS, columns=[column])]
    lengths = [one.offsets for one in found]
    offsets = None
    if feature.shape:
        counts = [np.diff(one) for one in lengths if one is not None]
        offsets = np.concatenate([[0], np.cumsum(_concat_arrays(counts, np.int64))]).astype(np.int64)
    return LabelValues(
        _concat_arrays([one.ids for one in found], np.int64),
        _concat_arrays([one.valid for one in found], bool),
        offsets,
    )


def _extract_label_values(column: Any) -> LabelValues:
    if isinstance(column, Ragged):
        valid = np.ones(len(column), bool) if column.valid is None else np.asarray(column.valid)
        return LabelValues(np.asarray(column.values, np.int64), valid, np.asarray(column.offsets, np.int64))
    if isinstance(column, Optional):
        inner = _extract_label_values(column.values)
        return LabelValues(inner.ids, np.asarray(column.valid), inner.offsets)
    rows = len(column)
    valid = np.ones(rows, bool)
    if column.ndim == 1:
        return LabelValues(column.astype(np.int64), valid)
    width = column.shape[1]
    return LabelValues(column.reshape(-1).astype(np.int64), valid, np.arange(rows + 1, dtype=np.int64) * width)


def _concat_arrays(parts: list[Any], kind: Any) -> Any:
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind)


def map_label_ids(ids: Ids, by: Mapping[int, int | None], changed: ClassMapping) -> Ids:
    """Map ids; unmapped ones are kept. A removed class that has records is refused."""
    found, places = np.unique(ids, return_inverse=True)
    made = np.array([_map_label_id(int(number), by, changed) for number in found], np.int64)
    return made[places.reshape(-1)] if len(found) else ids


def _map_label_id(number: int, by: Mapping[int, int | None], changed: ClassMapping) -> int:
    new = by.get(number, number)
    before, after = changed.before.count, changed.after.count
    if new is None or (before is not None and after is not None and number < before and new >= after):
        name = changed.before.name(number)
        raise relabel_error(
            f"class `{name[:60]}` has records, but is not among the new classes",
            "every class that has records, or a class to map it to",
            f"no class `{name[:60]}`",
            f'change={{"{name[:40]}": "another"}}',
            feature=changed.before.column,
        )
    return new


@dataclass(frozen=True, eq=False)
class LabelUpdate:
    """The new labels of a split. It is called with decoded records and their numbers."""

    column: str
    optional: bool
    before: LabelValues
    after: LabelValues
    texts: Mapping[str, Mapping[int, str]]
    affected: Flags  # the records whose bytes change
    renamed: Flags  # the records whose class changes

    def __call__(self, batch: Batch, numbers: Ids) -> Batch:
        made: dict[str, Any] = dict(batch)
        made[self.column] = self._labels(batch[self.column], numbers)
        rows = np.flatnonzero(self.affected[numbers]).tolist()
        for name, by_id in self.texts.items():
            texts = batch[name].tolist()
            for row in rows:
                texts[row] = self._text(texts[row], by_id, int(numbers[row]))
            made[name] = texts
        return made

    def digest(self) -> str:
        """A short digest of these labels."""
        digest = hashlib.sha256(np.packbits(self.affected).tobytes())
        digest.update(self.after.ids.tobytes())
        digest.update(np.packbits(self.after.valid).tobytes())
        return digest.hexdigest()[:16]

    def _labels(self, column: Any, numbers: Ids) -> Any:
        if self.after.offsets is None:
            ids, valid = self.after.ids[numbers], self.after.valid[numbers]
            return Optional(ids, valid) if self.optional else ids
        begins, ends = self.after.offsets[numbers], self.after.offsets[numbers + 1]
        pieces = [self.after.ids[begin:end] for begin, end in zip(begins, ends, strict=True)]
        ids = _concat_arrays(pieces, np.int64)
        if isinstance(column, Ragged):
            return Ragged(ids, column.offsets - column.offsets[0], valid=column.valid)
        if isinstance(column, Optional):
            return Optional(ids.reshape(column.values.shape), column.valid)
        return ids.reshape(column.shape)

    def _text(self, text: Any, by_id: Mapping[int, str], number: int) -> Any:
        """The text that mirrors a label; unchanged if there is none for the class."""
        if not self.after.valid[number]:
            return None
        if self.after.offsets is None:
            return by_id.get(int(self.after.ids[number]), text)
        begin, end = (int(one) for one in self.after.offsets[number : number + 2])
        ids = self.after.ids[begin:end].tolist()
        if len(text) != len(ids):
            return text  # it does not mirror the labels
        return [by_id.get(one, word) for one, word in zip(ids, text, strict=True)]


def build_label_update(
    column: str,
    feature: Feature,
    before: LabelValues,
    after: LabelValues,
    changed: ClassMapping,
    texts: Mapping[str, Mapping[int, str]],
) -> LabelUpdate:
    """The update from the old to the new labels of a split."""
    same_valid = before.expand_to_values(before.valid == after.valid)
    other_id = (before.ids != after.ids) | ~same_valid
    codes: dict[str, int] = {}
    other_name = _encode_class_names(before.ids, changed.before, codes) != _encode_class_names(
        after.ids, changed.after, codes
    )
    other_class = (other_name | ~same_valid) & before.expand_to_values(after.valid | before.valid)
    affected = before.reduce_to_records(other_id | other_class if texts else other_id)
    renamed = before.reduce_to_records(other_class)
    return LabelUpdate(column, feature.optional, before, after, texts, affected, renamed)


def _encode_class_names(ids: Ids, classes: LabelClasses, codes: dict[str, int]) -> Ids:
    """A code for each class name, the same for equal names."""
    found, places = np.unique(ids, return_inverse=True)
    named = [codes.setdefault(classes.name(int(number)), len(codes)) for number in found]
    return np.array(named, np.int64)[places.reshape(-1)]
