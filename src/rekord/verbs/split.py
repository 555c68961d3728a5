"""`rk.split` and `rk.folds`: the records of a dataset assigned to other splits, each copied as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.arguments import check_keywords, integer, invalid
from rekord.conversion.splits import (
    HashArray,
    SplitRule,
    hash_rows,
    hash_text,
    hash_values,
    parse_split_rule,
    select_split_column,
)
from rekord.dataset.combine import concat
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.samplers import expand_selection, normalize_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.feeds.dataframes import infer_arrow_schema, iter_arrow_batches
from rekord.feeds.sql.tables import IndexedColumns
from rekord.location import Location
from rekord.storage.local import PathLike, Storage
from rekord.verbs.derive_common import (
    SourceDataset,
    check_separate_folders,
    check_split_name,
    open_source_dataset,
    suggest_salvage,
)
from rekord.verbs.options import SplitOptions, output_folder
from rekord.verbs.rewrite.rewrite import (
    DatasetLike,
    PreparedRewrite,
    choose_compression,
    plan_copy,
    resolve_source_schema,
)

SplitAssignment = npt.NDArray[np.int32]
"""The number of the split of each record."""


def read_column_values(split: Split, name: str) -> Any:
    """The values of a column, one a record: from the index where that keeps them, else from the records."""
    split.schema[name]  # one that is not there names its near misses
    kinds = {one.name: one.type for one in infer_arrow_schema(split)}
    select_split_column({name: pa.array([], kinds[name])} if name in kinds else {}, name, set(kinds))
    indexed = IndexedColumns(split.view.shards, kinds)
    if indexed.has([name]):
        parts = [columns[name] for columns, _ in indexed.batches([name])]
        whole = pa.concat_arrays(parts) if parts else pa.array([], kinds[name])
        return whole if split.view.ids is None else whole.take(pa.array(expand_selection(split.view.ids)))
    parts = [batch.column(0) for batch in iter_arrow_batches(split, [name])[1]]
    return pa.concat_arrays(parts) if parts else pa.array([], kinds[name])


def hash_records(split: Split, name: str | None, seed: int) -> HashArray:
    """What decides the split of each record: the hash of a column's value, or that of its position."""
    if name is None:
        base = np.full(len(split), hash_text(seed, "split", b""), np.uint64)
        return hash_rows(base, np.arange(len(split), dtype=np.int64), None)
    return _hash_column(split, name, seed)


def compute_strata(split: Split, name: str) -> HashArray:
    """The class of each record, as a number that stands for it."""
    return _hash_column(split, name, 0)


def _hash_column(split: Split, name: str, seed: int) -> HashArray:
    try:
        return hash_values(seed, read_column_values(split, name))
    except RekordError as failure:
        row = failure.location.row
        if row is not None and failure.code == "E381":
            number = int(expand_selection(split.view.all_ids)[row])
            where = split.view.shards.where(number)
            failure.location = Location(feature=name).within(**where.to_dict())
        raise


def assign_by_ratio(hashes: HashArray, strata: HashArray | None, rule: SplitRule) -> SplitAssignment:
    """Exact ratios, of all records or within each class: the ranks of hashes are cut."""
    dealt = np.zeros(len(hashes), np.int32)
    for mine in _group_by_class(hashes, strata):
        dealt[mine] = np.repeat(np.arange(len(rule.names), dtype=np.int32), rule.shares(len(mine)))
    return dealt


def assign_folds(hashes: HashArray, strata: HashArray | None, folds: int) -> SplitAssignment:
    """Folds whose sizes differ by one at the most, and so those of each class in them."""
    dealt = np.zeros(len(hashes), np.int32)
    begin = 0
    for mine in _group_by_class(hashes, strata):
        # Each class goes on where the one before it ended, so that no fold gets all that is left over.
        dealt[mine] = (begin + np.arange(len(mine))) % folds
        begin += len(mine)
    return dealt


def assign_group_folds(groups: HashArray, folds: int) -> SplitAssignment:
    """Folds of whole groups: the largest first, each to the fold that has the fewest records."""
    found, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    fold_of = np.zeros(len(found), np.int32)
    sizes = [0] * folds
    for group in np.lexsort((found, -counts)).tolist():
        fold = min(range(folds), key=lambda one: (sizes[one], one))
        fold_of[group] = fold
        sizes[fold] += int(counts[group])
    return fold_of[which]


def _group_by_class(hashes: HashArray, strata: HashArray | None) -> list[Any]:
    """The records of each class, in the order of their hashes."""
    if strata is None:
        return [np.argsort(hashes, kind="stable")]
    order = np.lexsort((hashes, strata))
    edges = np.flatnonzero(np.diff(strata[order])) + 1
    return [part for part in np.split(order, edges) if len(part)]


_MAX_FOLDS = 1000
_EXAMPLE = 'split={"train": 0.8, "val": 0.2}'


def prepare_split(
    path: DatasetLike, out: PathLike, options: SplitOptions, *, storage: Storage | None = None
) -> PreparedRewrite:
    """Everything that can be refused before a record is copied is refused here."""
    place = output_folder(out)
    rule = _parse_rule(options)
    old = open_source_dataset(path)
    check_separate_folders(place, [old])
    whole = _concat_splits(old, options.only)
    with suggest_salvage([old]):
        if not len(whole):
            raise error(
                "X565",
                location=Location(path=old.name),
                expected="records to be split",
                found="none",
                do="look at the dataset: rekord show PATH",
            )
        schema = resolve_source_schema([old], {whole.name: whole}, None)
        dealt = _assign_records(whole, old, rule, options)
    numbers = expand_selection(whole.view.all_ids)
    wanted = {name: normalize_selection(numbers[dealt == i]) for i, name in enumerate(rule.names)}
    told = {
        "verb": "split",
        "split": {
            **rule.options(),
            "by": options.split_by,
            "stratify": options.stratify,
            "folds": options.folds,
            "only": options.only,
        },
    }
    splits = dict.fromkeys(rule.names, whole)
    packed = choose_compression(options.compression, whole.paths, options.format)
    copy = plan_copy([old], splits, wanted, place, schema, replace(options, compression=packed), storage, told)
    return PreparedRewrite(out=place, olds=[old], copy=copy)


def _parse_rule(options: SplitOptions) -> SplitRule:
    """The names of the new splits, and their ratios."""
    split, split_by = options.split, options.split_by
    if options.folds is None:
        if split is None or isinstance(split, str):
            raise invalid("split", split, "ratios by name, or folds=", _EXAMPLE)
        return parse_split_rule(split, by=split_by, stratify=options.stratify, known=None)
    if split is not None:
        raise invalid("split", split, "either split= or folds=", "leave one of them out")
    count = integer("folds", options.folds, least=2, most=_MAX_FOLDS)
    if split_by is not None and options.stratify is not None:
        expected = "either split_by= or stratify="
        raise invalid("split_by", split_by, expected, "leave one of them out")
    return SplitRule(names=tuple([f"fold{i}" for i in range(count)]))


def _concat_splits(old: SourceDataset, only: str | None) -> Split:
    """All records that are dealt, one behind another."""
    if only is not None:
        check_split_name(old, only, "--only ")
    parts = list(old.splits.values()) if only is None else [old.splits[only]]
    return concat(parts)


def _assign_records(whole: Split, old: SourceDataset, rule: SplitRule, options: SplitOptions) -> SplitAssignment:
    split_by, stratify, folds, seed = options.split_by, options.stratify, options.folds, options.seed
    key = old.inherited_options().get("key") if stratify is None and folds is None else None
    by = split_by or (key if isinstance(key, str) and key in whole.schema.context else None)
    if folds is not None and split_by is not None:
        return assign_group_folds(hash_records(whole, split_by, seed), folds)
    strata = None if stratify is None else compute_strata(whole, stratify)
    if folds is not None:
        return assign_folds(hash_records(whole, None, seed), strata, folds)
    if by is not None:
        return rule.assign_splits(hash_records(whole, by, seed)).astype(np.int32)
    return assign_by_ratio(hash_records(whole, None, seed), strata, rule)


@check_keywords
def split(
    path: DatasetLike,
    out: PathLike,
    *,
    split: Mapping[str, float] | None = None,
    split_by: str | None = None,
    stratify: str | None = None,
    folds: int | None = None,
    only: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    format: Literal["tfds"] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write the records of all splits of a dataset, or of `only` one, to other splits at `out`, and open it.

    `split={"train": 0.8, "val": 0.2}` gives each split its ratio of the records: exact, and within each class of
    the column `stratify` where that is given. With `split_by` all records of one value of a column go to the same
    split, by the hash that `rk.write` uses too: ratios are then near ones, and records stay where they are when
    others are added. A dataset that was written with `key=` is split by that column unless told otherwise.

    `folds=5` makes `fold0` to `fold4` instead, whose sizes differ by one record at the most; each class of `stratify`
    is spread over them as evenly, and `split_by` keeps groups together. `rk.folds` gives the pairs to train with.

    Without a column, what identifies a record is its position. Records keep their order within a split, unless
    `shuffle`. They are copied as they are, without being decoded.
    """

    prepared = prepare_split(path, out, SplitOptions.of(locals()))
    prepared.run(progress=progress)
    return open_dataset(prepared.out)


_FOLD = re.compile(r"fold(0|[1-9]\d*)")


@check_keywords
def folds(dataset: Dataset) -> list[tuple[Split, Split]]:
    """For each fold of a dataset (`rk.split(…, folds=5)`) all others as one split, and the fold itself.

    Nothing is copied: the first of each pair is a view of the other folds' records, as `rk.concat` makes it.
    """
    if not isinstance(dataset, Dataset):
        raise error(
            "U605",
            f"`folds` cannot be given {repr(dataset)[:60]}",
            expected="an open dataset",
            found=type(dataset).__name__[:60],
            do="rk.folds(rk.open(path))",
        )
    names = [name for name in dataset.splits if _FOLD.fullmatch(name)]
    names.sort(key=lambda name: int(name[4:]))
    if len(names) < 2:
        first = next((path for split in dataset.splits.values() for path in split.paths), None)
        raise error(
            "U606",
            "dataset has no folds",
            location=Location(path=first),
            expected="splits named fold0, fold1, …",
            found=", ".join(dataset.splits)[:60],
            do="rk.split(path, out, folds=5)",
        )
    return [(concat([dataset[other] for other in names if other != name]), dataset[name]) for name in names]
