"""`rk.delete`: a dataset without some of its records. Shards without deleted records are linked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.arguments import check_keywords, invalid
from rekord.codec.columns import Batch
from rekord.conversion.derive import CopiedShard, DerivedShard, RecordRange, RecordSequence
from rekord.conversion.plan import digest_function
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.samplers import Ids, digest_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, error, preview
from rekord.storage.local import PathLike
from rekord.verbs.derive_common import SourceDataset, check_split_name, select_split_records
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
from rekord.verbs.edit.record_list import RecordList, parse_record_list, resolve_record_numbers
from rekord.verbs.options import DeleteOptions, RecordCondition, RecordPairs, conflicting_options
from rekord.verbs.query import find_matching_records

_ROWS = 1024


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


@dataclass(frozen=True)
class RecordSelector:
    """The records of an edit: selected by a condition, or listed."""

    where: RecordCondition | None
    listed: RecordList | None
    split: list[str] | None

    @classmethod
    def of(cls, options: DeleteOptions) -> RecordSelector:
        """Refuse conflicting options, and read the list."""
        if options.where is not None and options.records is not None:
            raise conflicting_options("where", "records")
        if options.records is not None and options.split is not None:
            expected = "one of the two: a list names the split of each record"
            raise conflicting_options("split", "records", expected=expected, do="leave out split=")
        return cls(
            options.where,
            None if options.records is None else parse_record_list(options.records),
            None if options.split is None else to_split_names(options.split),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the list."""
        return () if self.listed is None else self.listed.notes

    def words(self) -> Any:
        """The selection in a form that is the same in every run."""
        if self.listed is not None:
            return ["records", sorted(one.pair for one in self.listed.records)]
        return None if self.where is None else describe_condition(self.where)

    def numbers(self, old: SourceDataset) -> dict[str, Ids]:
        """The record numbers in each split, in order."""
        if self.listed is None:
            return select_records(old, self.where, self.split)
        return {name: np.zeros(0, np.int64) for name in old.splits} | resolve_record_numbers(old, self.listed)


def select_records(old: SourceDataset, where: Any, split: list[str] | None) -> dict[str, Ids]:
    """The record numbers in each split that `where` selects, in order."""
    names = list(old.splits) if split is None else split
    for name in names:
        check_split_name(old, name)
    by_split = _numbers_by_split(old, where, names)
    found: dict[str, Ids] = {}
    for name, one in old.splits.items():
        if name not in names:
            found[name] = np.zeros(0, np.int64)
        elif by_split is not None:
            found[name] = _validate_numbers(name, one, by_split.get(name, ()))
        elif isinstance(where, str):
            found[name] = np.sort(find_matching_records(one, where))
        else:
            found[name] = _evaluate_condition(one, where)
    return found


def describe_condition(where: Any) -> Any:
    """A condition in a form that is the same in every run."""
    if isinstance(where, str):
        return where
    if callable(where):
        return ["function", digest_function(where)]
    if isinstance(where, Mapping):
        return {str(name): _to_array(numbers).tolist() for name, numbers in where.items()}
    if isinstance(where, (Sequence, np.ndarray)) and not isinstance(where, bytes):
        return _to_array(where).tolist()
    raise invalid(
        "where",
        where,
        "an SQL condition, a function of a batch, or record numbers",
        'where="label = 3"',
    )


def to_split_names(split: str | Sequence[str]) -> list[str]:
    """One or several split names as a list."""
    if isinstance(split, str):
        return [split]
    if not isinstance(split, Sequence) or not all(isinstance(name, str) for name in split):
        raise invalid("split", split, "the name of a split, or a list of them", 'split="train"')
    return list(split)


def _numbers_by_split(old: SourceDataset, where: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """Record numbers by split; None for a condition or a function."""
    if isinstance(where, str) or callable(where):
        return None
    if isinstance(where, Mapping):
        for name in where:
            check_split_name(old, name)
        return where
    if len(names) != 1:
        raise error(
            "U605",
            "record numbers need the name of their split",
            expected=f'{{"{names[0]}": [0, 1]}}' if names else "a dataset with splits",
            found=f"numbers only, and {len(names)} splits",
            do=f"split={names[0]!r}" if names else None,
        )
    return {names[0]: where}


def _validate_numbers(name: str, split: Split, given: Any) -> Ids:
    numbers = _to_array(given)
    if not numbers.size:
        return np.zeros(0, np.int64)
    count = len(split)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise _missing_record_error(name, count, preview(given))
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if len(outside):
        raise _missing_record_error(name, count, str(int(outside[0])))
    return np.unique(numbers).astype(np.int64)


def _to_array(given: Any) -> Any:
    try:
        return np.asarray(given)
    except ValueError:  # lists of several lengths
        return np.asarray(given, dtype=object)


def _missing_record_error(name: str, count: int, found: str) -> RekordError:
    return error(
        "U605",
        f"`where` selects records that split `{name[:60]}` does not have",
        expected=f"integers from 0 to {count - 1:,}" if count else "no numbers: the split has no records",
        found=found,
        do=f'where={{"{name[:40]}": [0]}}' if count else f"leave out `{name[:40]}`",
    )


def _evaluate_condition(split: Split, function: Callable[[Batch], Any]) -> Ids:
    """The records for which a function returns True."""
    found = [np.zeros(0, np.int64)]
    begin = 0
    for batch in split.batches(_ROWS):
        rows = len(next(iter(batch.values())))
        answer = np.asarray(function(batch))
        if answer.shape != (rows,) or answer.dtype != bool:
            raise error(
                "U622",
                "function must return one value per record",
                expected=f"True or False for each of {rows:,} records",
                found=f"{answer.dtype} of shape {answer.shape}"[:60],
                do='where=lambda batch: batch["label"] == 3',
            )
        found.append(begin + np.flatnonzero(answer))
        begin += rows
    return np.concatenate(found).astype(np.int64)


def _group_by_shard(records: RecordSequence, ids: Ids) -> list[Ids]:
    """Sorted record numbers, grouped by shard."""
    inner = records.shards.starts[1:-1]
    return np.split(ids, np.searchsorted(ids, inner))
