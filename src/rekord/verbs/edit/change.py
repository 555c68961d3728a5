"""`rk.delete` and `rk.relabel`: a dataset without some records, or with other labels. Other shards are linked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rekord.arguments import as_path, check_keywords, conflicting_options
from rekord.codec.columns import Batch
from rekord.conversion.derive import CopiedShard, DerivedShard
from rekord.conversion.derive import ReencodedShard as ChangedShard
from rekord.conversion.plan import digest_function
from rekord.conversion.record_copier import RecordRange, RecordSequence
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.samplers import Ids, digest_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, add_location, error, preview
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import LOCAL, PathLike
from rekord.storage.publication import read_bytes
from rekord.transforms.base import rebuild_schema
from rekord.verbs.derive_common import SourceDataset, select_split_records
from rekord.verbs.edit.common import (
    DatasetEdit,
    EditResult,
    EditTarget,
    build_recovered_result,
    digest_options,
    drop_records,
    keep_shard,
    open_edit,
    open_editable,
    resolve_edit_target,
    run_edit,
)
from rekord.verbs.edit.label_values import (
    ClassMapping,
    Flags,
    LabelFile,
    LabelUpdate,
    LabelValues,
    build_label_update,
    map_classes,
    map_label_ids,
    read_label_classes,
    read_label_file,
    read_label_values,
    relabel_error,
    resolve_label_column,
    update_companions,
    update_feature,
)
from rekord.verbs.options import DeleteOptions, RecordCondition, RecordPairs, RelabelOptions
from rekord.verbs.query import RecordSelector, select_records


@check_keywords
def delete(
    path: PathLike,
    out: PathLike | None = None,
    *,
    where: RecordCondition | None = None,
    records: RecordPairs | None = None,
    split: str | Sequence[str] | None = None,
    replace: bool = False,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset to `out` without the records that `where` or `records` selects, and open it.

    `where` is an SQL condition over columns (records for which it is NULL are kept), a function that returns True or
    False for each record of a batch, or record numbers: of the only split, or `{"train": [3, 7]}`. `records` is a
    list of pairs of split and record number, `[("train", 3), ("val", 7)]`, or the path of a file that lists them.
    `split` restricts the deletion to some splits. Shards without deleted records are linked, not copied; the others
    are written again. An empty split keeps one shard without records.

    With `replace`, the new dataset replaces the old one, atomically if the system supports it.
    """
    options = DeleteOptions.of(locals())
    target = resolve_edit_target(out, options, progress=progress)
    return open_dataset(delete_records(path, target, options).dataset)


def delete_records(path: PathLike, target: EditTarget, options: DeleteOptions) -> EditResult:
    """Run `delete`, and report the result."""
    if options.where is None and options.records is None:
        raise error(
            "U605",
            "`where` or `records` is required",
            expected="the records to delete",
            found="neither",
            do='where="label = 3"',
        )
    which = RecordSelector.of(options)
    request_digest = digest_options("delete", which.words(), which.split)
    with open_edit(path, target) as (work, done):
        if done is not None and done.request_digest == request_digest:
            return build_recovered_result(done, path, target)
        old = open_editable(path, target)
        gone = which.numbers(old)
        shards: dict[str, list[DerivedShard]] = {}
        for name, one in old.splits.items():
            stored = select_split_records(one)
            made = [
                keep_shard(old, name, stored, number) if not len(here) else drop_records(stored, number, here)
                for number, here in enumerate(_group_by_shard(stored, gone[name]))
            ]
            shards[name] = [shard for shard in made if shard is not None]
            if not shards[name]:
                shards[name] = [CopiedShard(RecordRange(stored, 0, 0))]
        # Nothing of the deleted records may remain: not even the condition, which may contain their values.
        digests = {name: digest_selection(ids) for name, ids in gone.items() if len(ids)}
        edit = DatasetEdit(
            verb="delete",
            old=old,
            shards=shards,
            counts={name: len(ids) for name, ids in gone.items()},
            options={"deleted": digests},
            request_digest=request_digest,
            notes=which.notes,
        )
        return run_edit(edit, path, target, work)


def _group_by_shard(records: RecordSequence, ids: Ids) -> list[Ids]:
    """Sorted record numbers, grouped by shard."""
    inner = records.shards.starts[1:-1]
    return np.split(ids, np.searchsorted(ids, inner))


LabelChange: TypeAlias = "Mapping[Any, Any] | Callable[[Batch], Any] | str | int"

_ROWS = 1024
_SAMPLE_RECORDS = 200


@check_keywords
def relabel(
    path: PathLike,
    out: PathLike | None = None,
    change: LabelChange | None = None,
    *,
    column: str | None = None,
    where: RecordCondition | None = None,
    records: RecordPairs | None = None,
    file: PathLike | None = None,
    key: str | None = None,
    names: Sequence[str] | int | None = None,
    split: str | Sequence[str] | None = None,
    replace: bool = False,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset to `out` with changed labels, and open it.

    `change` is a dict from class to class (by name or id), a class for all records that `where` or `records` selects,
    or a function of a batch that returns a class for each record (None keeps the label). Alternatively, `file` is a
    CSV file of labels: by the value of the column `key`, or by the columns `split` and `record`. `where` and
    `records` are those of `rk.delete`; they and `split` select the records to change.

    A dict renames and merges classes: a class that is mapped to a new name is renamed; one that is mapped to another
    class is merged into it and removed from the list of names, and later ids move up. With `where`, `records` or
    `split`, the list is kept, and new names are added at its end. `names` is the complete new list, or the number of
    classes. `column` defaults to the only Label, or to `label`.

    With `replace`, the new dataset replaces the old one, atomically if the system supports it.
    """
    options = RelabelOptions.of(locals())
    target = resolve_edit_target(out, options, progress=progress)
    return open_dataset(relabel_records(path, target, change, options).dataset)


def relabel_records(
    path: PathLike, target: EditTarget, change: LabelChange | None, options: RelabelOptions
) -> EditResult:
    """Run `relabel`, and report the result."""
    _check_options(change, options)
    which = RecordSelector.of(options)
    file, key, names = options.file, options.key, options.names
    content = None if file is None else hashlib.sha256(read_bytes(LOCAL, os.fspath(file))).hexdigest()
    request = (_describe_change(change), options.column, which.words(), content, key, names, which.split)
    request_digest = digest_options("relabel", *request)
    with open_edit(path, target) as (work, done):
        if done is not None and done.request_digest == request_digest:
            return build_recovered_result(done, path, target)
        old = open_editable(path, target)
        label = resolve_label_column(old, options.column)
        everywhere = which.where is None and which.listed is None and which.split is None
        mapping = change if isinstance(change, Mapping) else None
        changed = map_classes(read_label_classes(old, label), mapping, names, everywhere=everywhere)
        schema = _update_schema(old.schema, label, changed)
        companions = update_companions(old, changed, schema)
        chosen = None if everywhere else _select_record_masks(old, which)
        listed = None if file is None else read_label_file(file, label, old.schema, key)
        used: set[Any] = set()
        shards: dict[str, list[DerivedShard]] = {}
        counts: dict[str, int] = {}
        made: dict[str, LabelUpdate] = {}
        for name, one in old.splits.items():
            before = read_label_values(one, label, old.schema[label])
            mask = np.ones(before.records, bool) if chosen is None else chosen[name]
            after = _compute_new_labels(one, before, mask, changed, change, listed, used)
            new = build_label_update(label, old.schema[label], before, after, changed, companions.texts)
            made[name], counts[name] = new, int(new.renamed.sum())
            shards[name] = _build_shards(old, name, select_split_records(one), made[name])
        _check_all_lines_used(listed, used)
        edit = DatasetEdit(
            verb="relabel",
            old=old,
            shards=shards,
            counts=counts,
            options={
                "column": label,
                "relabelled": {name: new.digest() for name, new in made.items() if new.affected.any()},
                **companions.options,
            },
            request_digest=request_digest,
            schema=schema if schema != old.schema else None,
            companions=companions.files,
            notes=(*which.notes, *companions.notes, *_find_stale_text_columns(old, made, changed, companions.texts)),
        )
        return run_edit(edit, path, target, work)


def _check_options(change: LabelChange | None, options: RelabelOptions) -> None:
    where, records, file = options.where, options.records, options.file
    if change is not None and file is not None:
        raise conflicting_options("change", "file")
    if change is None and file is None and options.names is None:
        raise relabel_error(
            "`change` is required",
            "a dict of classes, a class, a function, a file of labels or the names of all classes",
            "none of them",
            'change={"old": "new"}',
        )
    if change is None and (where is not None or records is not None):
        named = "records" if where is None else "where"
        what = f"`{named}` selects records, but no class is given for them"
        raise relabel_error(what, "a class, a dict or a function", "none", f"leave out {named}=")
    if file is not None:
        as_path("file", file, expected="the path of a CSV file", do='file="labels.csv"')
    elif options.key is not None:
        raise relabel_error("`key` does not apply without `file`", "a file of labels", "none", 'file="labels.csv"')


def _describe_change(change: Any) -> Any:
    if isinstance(change, Mapping):
        return sorted([[str(old), str(new)] for old, new in change.items()])
    if callable(change):
        return ["function", digest_function(change)]
    if change is None or isinstance(change, (str, int, np.integer)):
        return str(change)
    raise relabel_error(
        f"`change` cannot be {preview(change)}",
        "a dict of classes, a class, or a function of a batch",
        preview(change),
        'change={"old": "new"}',
    )


def _update_schema(schema: Schema, column: str, changed: ClassMapping) -> Schema:
    return rebuild_schema(schema, {**schema.features, column: update_feature(schema.context[column], changed)})


def _select_record_masks(old: SourceDataset, which: RecordSelector) -> dict[str, Flags]:
    """The selected records of each split."""
    if which.where is None and which.listed is None:
        names = which.split or []
        found = select_records(old, dict.fromkeys(names, ()), names)
        return {name: np.full(len(old.splits[name]), name in names) for name in found}
    flags = {}
    for name, ids in which.numbers(old).items():
        flags[name] = np.zeros(len(old.splits[name]), bool)
        flags[name][ids] = True
    return flags


def _compute_new_labels(
    split: Split,
    before: LabelValues,
    mask: Flags,
    changed: ClassMapping,
    change: Any,
    listed: LabelFile | None,
    used: set[Any],
) -> LabelValues:
    """The new labels of a split."""
    each = before.expand_to_values(mask & before.valid)
    ids = before.ids.copy()
    others = before.expand_to_values(~mask & before.valid)
    ids[others] = map_label_ids(before.ids[others], changed.base, changed)
    if isinstance(change, Mapping) or (change is None and listed is None):
        ids[each] = map_label_ids(before.ids[each], changed.hit, changed)
        return LabelValues(ids, before.valid, before.offsets)
    if before.offsets is not None:
        raise relabel_error(
            f"`{changed.before.column[:60]}` holds several classes per record",
            "a dict of classes",
            preview(change) if listed is None else "a file of labels",
            'change={"old": "new"}',
            feature=changed.before.column,
        )
    if listed is None and not callable(change):
        numbers = np.flatnonzero(mask)
        new = np.full(len(numbers), changed.after.id_of(change), np.int64)
    else:
        given = (
            _apply_function(split, mask, change, changed)
            if listed is None
            else _apply_label_file(split, listed, changed, used)
        )
        meant = [number for number in given if mask[number]]
        numbers = np.array(meant, np.int64)
        new = np.array([given[number] for number in meant], np.int64)
    ungiven = mask & before.valid
    ungiven[numbers] = False
    ids[ungiven] = map_label_ids(before.ids[ungiven], changed.base, changed)
    ids[numbers] = new
    valid = before.valid.copy()
    valid[numbers] = True
    return LabelValues(ids, valid)


def _apply_function(
    split: Split, mask: Flags, function: Callable[[Batch], Any], changed: ClassMapping
) -> dict[int, int]:
    """The class that a function returns for each selected record."""
    given: dict[int, int] = {}
    meant = np.flatnonzero(mask)
    if not len(meant):
        return given
    done = 0
    for batch in split.select(meant.tolist()).batches(_ROWS):
        rows = len(next(iter(batch.values())))
        answer = function(batch)
        try:
            answers = answer.tolist() if isinstance(answer, np.ndarray) else list(answer)
        except TypeError:
            answers = None
        if answers is None or isinstance(answer, (str, bytes, Mapping)) or len(answers) != rows:
            raise error(
                "U622",
                "function must return one value per record",
                expected=f"a class for each of {rows:,} records",
                found=preview(answer) if answers is None else f"{len(answers):,} values",
                do="return a list or an array of class names or ids",
            )
        for row, value in enumerate(answers):
            number = int(meant[done + row])
            if value is not None:
                given[number] = _resolve_class(value, changed, split, number)
        done += rows
    return given


def _resolve_class(value: Any, changed: ClassMapping, split: Split, number: int) -> int:
    try:
        return changed.after.id_of(value)
    except RekordError as failure:
        failure.location = failure.location.within(**split.view.shards.where(number).to_dict())
        raise


def _apply_label_file(split: Split, listed: LabelFile, changed: ClassMapping, used: set[Any]) -> dict[int, int]:
    """The class of each record of a split according to a file."""
    ids: dict[str, int] = {}

    def class_of(label: str, line: int) -> int:
        if label not in ids:
            with add_location(path=listed.path, line=line):
                ids[label] = changed.after.id_of(label)
        return ids[label]

    given: dict[int, int] = {}
    if listed.key is None:
        for name, (label, line) in listed.labels.items():
            assert isinstance(name, tuple)
            if name[0] == split.name and name[1] < len(split):
                given[name[1]] = class_of(label, line)
                used.add(name)
        return given
    number = 0
    for batch in split.batches(_ROWS, columns=[listed.key]):
        for value in batch[listed.key].tolist():
            text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
            if value is not None and text in listed.labels:
                given[number] = class_of(*listed.labels[text])
                used.add(text)
            number += 1
    return given


def _check_all_lines_used(listed: LabelFile | None, used: set[Any]) -> None:
    """Raise for lines about unknown records."""
    if listed is None or len(used) == len(listed.labels):
        return
    unused = [(line, name) for name, (_, line) in listed.labels.items() if name not in used]
    line, name = min(unused)
    raise error(
        "X571",
        f"{len(unused):,} of {len(listed.labels):,} lines refer to records that do not exist",
        location=Location(path=listed.path, line=line),
        expected="records of the dataset" if listed.key is None else f"values of `{listed.key[:60]}`",
        found=preview(name if isinstance(name, str) else f"{name[0]} {name[1]}"),
        do="remove these lines from the file",
    )


def _build_shards(old: SourceDataset, name: str, records: RecordSequence, new: LabelUpdate) -> list[DerivedShard]:
    """The shards of a split: those with affected records are written again."""
    starts = records.shards.starts
    shards: list[DerivedShard] = []
    for number in range(len(records.shards.paths)):
        begin, end = int(starts[number]), int(starts[number + 1])
        if new.affected[begin:end].any():
            shards.append(ChangedShard(RecordRange(records, begin, end), old.schema, new, numbered=True))
        else:
            shards.append(keep_shard(old, name, records, number))
    return shards


def _find_stale_text_columns(
    old: SourceDataset, made: Mapping[str, LabelUpdate], changed: ClassMapping, known: Mapping[str, Any]
) -> list[str]:
    """Remarks about text columns that seem to mirror the class, and are not changed."""
    feature = old.schema[changed.before.column]
    if feature.class_count is None or feature.shape or not changed.before.names:
        return []
    columns = [
        name for name, one in old.schema.context.items() if one.is_text and not one.shape and name not in known
    ]
    for split, new in made.items():
        numbers = np.flatnonzero(new.renamed & new.before.valid)[:_SAMPLE_RECORDS].tolist()
        if not numbers or not columns:
            continue
        names = [changed.before.name(int(new.before.ids[number])) for number in numbers]
        batch = old.splits[split][numbers]
        columns = [name for name in columns if batch[name].tolist() == names]
    if not any(new.renamed.any() for new in made.values()):
        return []
    return [f"`{name[:60]}` also holds the class names, and was not changed" for name in columns]
