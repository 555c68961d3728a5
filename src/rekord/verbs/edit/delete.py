"""`rk.delete`: a dataset without some of its records, which leaves all other shards as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.arguments import check_keywords, invalid
from rekord.codec.columns import Batch
from rekord.conversion.copy_records import RecordRange, RecordSequence
from rekord.conversion.derive import CopiedShard, DerivedShard
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
from rekord.verbs.options import DeleteOptions, RecordCondition, RecordPairs
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
    """Make a dataset at `out` of one without the records that `where` or `records` says, and open it.

    `where` is a condition in SQL over columns (a record of which it is NULL stays), a function that gives True or
    False for each record of a batch, or numbers of records: of the only split, or `{"train": [3, 7]}`. `records`
    are pairs of a split and a number, `[("train", 3), ("val", 7)]`, or the path of a file of them. `split` leaves
    all other splits alone. Shards without such records are linked, not copied; the others are written anew.
    A split of which nothing is left keeps one shard without records.

    With `replace` the new dataset takes the place of the old one, in one step where the system can.
    """
    options = DeleteOptions.of(locals())
    target = resolve_edit_target(out, options, progress=progress)
    return open_dataset(delete_records(path, target, options).dataset)


def delete_records(path: PathLike, target: EditTarget, options: DeleteOptions) -> EditResult:
    """What `delete` does, and how it ended."""
    if (options.where is None) == (options.records is None):
        raise error(
            "U605",
            "`where` and `records` cannot both be given"
            if options.records is not None
            else "nothing says which records are to be deleted",
            expected="either `where` or `records`",
            found="none of them" if options.records is None else "both",
            do='where="label = 3", or records=[("train", 3)]',
        )
    which = RecordSelector.of(options)
    said = digest_options("delete", which.words(), which.split)
    with open_edit(path, target) as (work, done):
        if done is not None and done.request_digest == said:
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
        # Of what was deleted nothing is to be left: not even the condition, which may name it.
        digests = {name: digest_selection(ids) for name, ids in gone.items() if len(ids)}
        edit = DatasetEdit(
            verb="delete",
            old=old,
            shards=shards,
            counts={name: len(ids) for name, ids in gone.items()},
            options={"deleted": digests},
            request_digest=said,
            notes=which.notes,
        )
        return run_edit(edit, path, target, work)


@dataclass(frozen=True)
class RecordSelector:
    """The records that an edit is about: those that a condition says, or those of a list."""

    where: RecordCondition | None
    listed: RecordList | None
    split: list[str] | None

    @classmethod
    def of(cls, options: DeleteOptions) -> RecordSelector:
        """Refuse what cannot stand together, and read the list."""
        if options.records is not None and options.split is not None:
            raise error(
                "U605",
                "`split` cannot be given beside `records`",
                expected="one of them: a list names the split of each record",
                found="both",
                do="leave `split` out",
            )
        return cls(
            options.where,
            None if options.records is None else parse_record_list(options.records),
            None if options.split is None else to_split_names(options.split),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the list."""
        return () if self.listed is None else self.listed.notes

    def words(self) -> Any:
        """What was asked for, in words that are the same in every run."""
        if self.listed is not None:
            return ["records", sorted(one.pair for one in self.listed.records)]
        return None if self.where is None else describe_condition(self.where)

    def numbers(self, old: SourceDataset) -> dict[str, Ids]:
        """The numbers of these records in each split, in order."""
        if self.listed is None:
            return select_records(old, self.where, self.split)
        return {name: np.zeros(0, np.int64) for name in old.splits} | resolve_record_numbers(old, self.listed)


def select_records(old: SourceDataset, where: Any, split: list[str] | None) -> dict[str, Ids]:
    """The numbers of the records of each split that `where` is about, in order."""
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
    """What was asked for, in words that are the same in every run."""
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
        "a condition in SQL, a function of a batch, or numbers of records",
        'where="label = 3"',
    )


def to_split_names(split: str | Sequence[str]) -> list[str]:
    """The names of splits, where there may be one or several."""
    if isinstance(split, str):
        return [split]
    if not isinstance(split, Sequence) or not all(isinstance(name, str) for name in split):
        raise invalid("split", split, "the name of a split, or a list of them", 'split="train"')
    return list(split)


def _numbers_by_split(old: SourceDataset, where: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """Numbers of records by split, where that is what was given."""
    if isinstance(where, str) or callable(where):
        return None
    if isinstance(where, Mapping):
        for name in where:
            check_split_name(old, name)
        return where
    if len(names) != 1:
        raise error(
            "U605",
            "numbers of records need the name of their split",
            expected=f'{{"{names[0]}": [0, 1]}}' if names else "a dataset with splits",
            found=f"numbers alone, and {len(names)} splits",
            do="where={split: numbers}, or split=",
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
        f"`where` names no record of the split `{name[:60]}`",
        expected=f"whole numbers from 0 to {count - 1:,}" if count else "no numbers: the split has no records",
        found=found,
        do="a record is numbered as in split[number]",
    )


def _evaluate_condition(split: Split, function: Callable[[Batch], Any]) -> Ids:
    """The records for which a function says True."""
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
    """Sorted numbers, those of each shard by themselves."""
    inner = records.shards.starts[1:-1]
    return np.split(ids, np.searchsorted(ids, inner))
