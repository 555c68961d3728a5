"""`rk.split` and `rk.folds`: the records of a dataset copied to new splits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.arguments import check_keywords, conflicting_options, integer, invalid
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
from rekord.storage.router import ROUTED_STORAGE
from rekord.verbs.derive_common import (
    SourceDataset,
    check_separate_folders,
    check_split_name,
    open_source_dataset,
    suggest_salvage,
)
from rekord.verbs.options import SplitOptions, output_folder
from rekord.verbs.rewrite import (
    DatasetLike,
    PreparedRewrite,
    choose_compression,
    plan_copy,
    resolve_source_schema,
)

SplitAssignment = npt.NDArray[np.int32]
"""The split number of each record."""


def read_column_values(split: Split, name: str) -> Any:
    """The values of a column, one per record: from the index if it has them, otherwise from the records."""
    split.schema[name]  # raises for an unknown column, with near misses
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
    """The hash that determines the split of each record: of a column's value, or of its position."""
    if name is None:
        base = np.full(len(split), hash_text(seed, "split", b""), np.uint64)
        return hash_rows(base, np.arange(len(split), dtype=np.int64), None)
    return _hash_column(split, name, seed)


def compute_strata(split: Split, name: str) -> HashArray:
    """The class of each record, as a hash."""
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
    """Exact ratios, of all records or within each class, by the rank of the hashes."""
    assigned = np.zeros(len(hashes), np.int32)
    for members in _group_by_class(hashes, strata):
        assigned[members] = np.repeat(np.arange(len(rule.names), dtype=np.int32), rule.shares(len(members)))
    return assigned


def assign_folds(hashes: HashArray, strata: HashArray | None, folds: int) -> SplitAssignment:
    """Folds whose sizes differ by at most one record, overall and within each class."""
    assigned = np.zeros(len(hashes), np.int32)
    begin = 0
    for members in _group_by_class(hashes, strata):
        # Each class continues where the previous one ended, so that no fold gets all remainders.
        assigned[members] = (begin + np.arange(len(members))) % folds
        begin += len(members)
    return assigned


def assign_group_folds(groups: HashArray, folds: int) -> SplitAssignment:
    """Folds of whole groups: the largest first, each to the fold with the fewest records."""
    found, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    fold_of = np.zeros(len(found), np.int32)
    sizes = [0] * folds
    for group in np.lexsort((found, -counts)).tolist():
        fold = min(range(folds), key=lambda one: (sizes[one], one))
        fold_of[group] = fold
        sizes[fold] += int(counts[group])
    return fold_of[which]


def _group_by_class(hashes: HashArray, strata: HashArray | None) -> list[Any]:
    """The records of each class, ordered by hash."""
    if strata is None:
        return [np.argsort(hashes, kind="stable")]
    order = np.lexsort((hashes, strata))
    edges = np.flatnonzero(np.diff(strata[order])) + 1
    return [part for part in np.split(order, edges) if len(part)]


_MAX_FOLDS = 1000


def prepare_split(
    path: DatasetLike, out: PathLike, options: SplitOptions, *, storage: Storage = ROUTED_STORAGE
) -> PreparedRewrite:
    """Validate everything that can be validated before a record is copied."""
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
                expected="records to split",
                found="none",
                do=f"rekord show {old.name[:60]}",
            )
        schema = resolve_source_schema([old], {whole.name: whole}, None)
        assigned = _assign_records(whole, old, rule, options)
    numbers = expand_selection(whole.view.all_ids)
    wanted = {name: normalize_selection(numbers[assigned == i]) for i, name in enumerate(rule.names)}
    origin = {
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
    copy = plan_copy([old], splits, wanted, place, schema, replace(options, compression=packed), storage, origin)
    return PreparedRewrite(out=place, olds=[old], copy=copy)


def _parse_rule(options: SplitOptions) -> SplitRule:
    """The names of the new splits, and their ratios."""
    split, split_by = options.split, options.split_by
    if options.folds is None:
        if split is None or isinstance(split, str):
            raise invalid("split", split, "ratios by split name, or folds=", 'split={"train": 0.8, "val": 0.2}')
        return parse_split_rule(split, by=split_by, stratify=options.stratify, known=None)
    if split is not None:
        raise conflicting_options("split", "folds")
    count = integer("folds", options.folds, least=2, most=_MAX_FOLDS)
    if split_by is not None and options.stratify is not None:
        raise conflicting_options("split_by", "stratify")
    return SplitRule(names=tuple([f"fold{i}" for i in range(count)]))


def _concat_splits(old: SourceDataset, only: str | None) -> Split:
    """All records to be split, concatenated."""
    if only is None:
        return concat(list(old.splits.values()))
    check_split_name(old, only, "only")
    return concat([old.splits[only]])


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
    """Re-split a dataset: write the records of all splits, or of `only` one, to new splits in `out`, and open it.

    `split={"train": 0.8, "val": 0.2}` assigns exact ratios, within each class of the column `stratify` if given.
    With `split_by`, all records with the same value of a column go to the same split, by the hash that `rk.write`
    uses: ratios are approximate, and records keep their split when others are added. A dataset that was written with
    `key=` is split by that column by default.

    `folds=5` writes `fold0` to `fold4` instead, whose sizes differ by at most one record; classes of `stratify` are
    spread evenly, and `split_by` keeps groups together. `rk.folds` returns the pairs to train with.

    Without a column, a record is identified by its position. Records keep their order within a split unless
    `shuffle` is set. They are copied without decoding.
    """
    prepared = prepare_split(path, out, SplitOptions.of(locals()))
    prepared.run(progress=progress)
    return open_dataset(prepared.out)


_FOLD = re.compile(r"fold(0|[1-9]\d*)")


@check_keywords
def folds(dataset: Dataset) -> list[tuple[Split, Split]]:
    """For each fold of a dataset (`rk.split(…, folds=5)`), all other folds as one split, and the fold itself.

    Nothing is copied: the first of each pair is a view, as from `rk.concat`.
    """
    if not isinstance(dataset, Dataset):
        raise invalid("dataset", dataset, "an open dataset", "rk.folds(rk.open(path))")
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
