"""Records dealt to splits: by the hash of a value, by ranks within classes, or in folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.dataset.selection import all_numbers
from rekord.dataset.split import Split
from rekord.engines.keys import Hashes, row_hashes, text_hash
from rekord.engines.own_values import column_to_split_by, value_hashes
from rekord.engines.splits import SplitRule
from rekord.errors import RekordError
from rekord.feeds.arrow import arrow_batches, arrow_schema
from rekord.feeds.sql_index import Indexed
from rekord.location import Location

Dealt = npt.NDArray[np.int32]
"""The number of the split of each record."""


def column_of(split: Split, name: str) -> Any:
    """The values of a column, one a record: from the index where that keeps them, else from the records."""
    split.schema[name]  # one that is not there names its near misses
    kinds = {one.name: one.type for one in arrow_schema(split)}
    column_to_split_by({name: pa.array([], kinds[name])} if name in kinds else {}, name, set(kinds))
    indexed = Indexed(split._shards, kinds)
    if indexed.has([name]):
        parts = [columns[name] for columns, _ in indexed.batches([name])]
        whole = pa.concat_arrays(parts) if parts else pa.array([], kinds[name])
        return whole if split._ids is None else whole.take(pa.array(all_numbers(split._ids)))
    parts = [batch.column(0) for batch in arrow_batches(split, [name])[1]]
    return pa.concat_arrays(parts) if parts else pa.array([], kinds[name])


def hashes_of(split: Split, name: str | None, seed: int) -> Hashes:
    """What decides the split of each record: the hash of a column's value, or that of its position."""
    if name is None:
        base = np.full(len(split), text_hash(seed, "split", b""), np.uint64)
        return row_hashes(base, np.arange(len(split), dtype=np.int64), None)
    return _hashed(split, name, seed)


def strata_of(split: Split, name: str) -> Hashes:
    """The class of each record, as a number that stands for it."""
    return _hashed(split, name, 0)


def _hashed(split: Split, name: str, seed: int) -> Hashes:
    try:
        return value_hashes(seed, column_of(split, name))
    except RekordError as failure:
        row = failure.location.row
        if row is not None and failure.code == "E381":
            number = int(all_numbers(split._all_ids())[row])
            where = split._shards.where(number)
            failure.location = Location(feature=name).within(**where.to_dict())
        raise


def by_ratio(hashes: Hashes, strata: Hashes | None, rule: SplitRule) -> Dealt:
    """Exact ratios, of all records or within each class: the ranks of hashes are cut."""
    dealt = np.zeros(len(hashes), np.int32)
    for mine in _classes(hashes, strata):
        dealt[mine] = np.repeat(np.arange(len(rule.names), dtype=np.int32), rule.shares(len(mine)))
    return dealt


def in_folds(hashes: Hashes, strata: Hashes | None, folds: int) -> Dealt:
    """Folds whose sizes differ by one at the most, and so those of each class in them."""
    dealt = np.zeros(len(hashes), np.int32)
    begin = 0
    for mine in _classes(hashes, strata):
        # Each class goes on where the one before it ended, so that no fold gets all that is left over.
        dealt[mine] = (begin + np.arange(len(mine))) % folds
        begin += len(mine)
    return dealt


def groups_in_folds(groups: Hashes, folds: int) -> Dealt:
    """Folds of whole groups: the largest first, each to the fold that has the fewest records."""
    found, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    fold_of = np.zeros(len(found), np.int32)
    sizes = [0] * folds
    for group in np.lexsort((found, -counts)).tolist():
        fold = min(range(folds), key=lambda one: (sizes[one], one))
        fold_of[group] = fold
        sizes[fold] += int(counts[group])
    return fold_of[which]


def _classes(hashes: Hashes, strata: Hashes | None) -> list[Any]:
    """The records of each class, in the order of their hashes."""
    if strata is None:
        return [np.argsort(hashes, kind="stable")]
    order = np.lexsort((hashes, strata))
    edges = np.flatnonzero(np.diff(strata[order])) + 1
    return [part for part in np.split(order, edges) if len(part)]
