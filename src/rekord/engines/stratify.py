"""Splits that are exact within each class: every row is counted before any row finds its split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.engines.keys import HASH_BITS, Hashes
from rekord.engines.spill import Segment
from rekord.engines.splits import SplitRule

_BIN_BITS = 12
_BINS = 1 << _BIN_BITS
"""A class's hashes are counted in so many bins; only those bins that hold an edge are then looked at closely."""

_FEW_ROWS = _BINS
"""A class of no more has no bins: its hashes are fewer than they would be, and such classes may be very many."""

Edges = dict[int, npt.NDArray[np.uint64]]


def edges_of(tables: Callable[[], Iterator[pa.Table]], rule: SplitRule) -> Edges:
    """For each class the hashes at which its splits after the first begin; `tables` can be asked three times."""
    sizes: Counter[int] = Counter()
    for table in tables():
        found, counts = np.unique(table["stratum"].to_numpy(), return_counts=True)
        sizes.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    bins = {stratum: np.zeros(_BINS, np.int64) for stratum, size in sizes.items() if size > _FEW_ROWS}
    for table in tables() if bins else ():
        for stratum, hashes in _by_stratum(table):
            if stratum in bins:
                bins[stratum] += np.bincount(_bin_of(hashes), minlength=_BINS)
    ranks = {stratum: _ranks(rule, sizes[stratum]) for stratum in bins}
    wanted = {
        stratum: set(np.searchsorted(np.cumsum(bins[stratum]), ranks[stratum], side="right").tolist())
        for stratum in bins
    }
    near: dict[int, list[Hashes]] = {stratum: [] for stratum in sizes}
    for table in tables():
        for stratum, hashes in _by_stratum(table):
            close = hashes
            if stratum in bins:
                close = hashes[np.isin(_bin_of(hashes), list(wanted[stratum]))]
            near[stratum].append(close)
    edges: Edges = {}
    for stratum, size in sizes.items():
        sorted_hashes = np.sort(np.concatenate(near.pop(stratum)))
        if stratum in bins:
            edges[stratum] = _edges(sorted_hashes, bins[stratum], ranks[stratum], wanted[stratum])
        else:
            edges[stratum] = _edges(sorted_hashes, np.array([size]), _ranks(rule, size), {0})
    return edges


def _ranks(rule: SplitRule, rows: int) -> Any:
    """Of the first row of each split after the first."""
    return np.cumsum(rule.shares(rows))[:-1]


def _bin_of(hashes: Hashes) -> npt.NDArray[np.int64]:
    bins: npt.NDArray[np.int64] = (hashes >> np.uint64(HASH_BITS - _BIN_BITS)).astype(np.int64)
    return bins


def _edges(near: Hashes, bins: Any, ranks: Any, wanted: set[int]) -> npt.NDArray[np.uint64]:
    """The hash of the row of each rank; one past the last for a rank that no row has."""
    ends = np.cumsum(bins)
    out = []
    for rank in ranks.tolist():
        if rank >= int(ends[-1]):
            out.append(np.iinfo(np.uint64).max)
            continue
        at = int(np.searchsorted(ends, rank, side="right"))
        before = int(ends[at] - bins[at])  # rows in the bins before this one
        earlier = sum(int(bins[other]) for other in wanted if other < at and other < len(bins))
        out.append(int(near[earlier + rank - before]))
    return np.array(out, np.uint64)


def _by_stratum(table: pa.Table) -> Iterator[tuple[int, Hashes]]:
    hashes = table["hash"].to_numpy()
    for stratum, rows in _rows_by_stratum(table):
        yield stratum, hashes[rows]


def _rows_by_stratum(table: pa.Table) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each class of a table, and where its rows are: sorted once, since classes may be as many as rows."""
    strata = table["stratum"].to_numpy()
    order = np.argsort(strata, kind="stable")
    found, firsts = np.unique(strata[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(order)]
    for stratum, first, end in zip(found.tolist(), firsts.tolist(), ends, strict=True):
        yield stratum, order[first:end]


def resplit(table: pa.Table, segments: Sequence[Segment], edges: Edges) -> tuple[pa.Table, list[Segment]]:
    """The index of a part with its rows sorted by their splits, run by run."""
    hashes = table["hash"].to_numpy()
    splits = np.zeros(len(table), np.uint8)
    for stratum, mine in _rows_by_stratum(table):
        splits[mine] = np.searchsorted(edges[stratum], hashes[mine], side="right")
    lengths = table["length"].to_numpy()
    orders, out = [], []
    for run in segments:
        inside = splits[run.first : run.first + run.count]
        order = run.first + np.argsort(inside, kind="stable")
        orders.append(order)
        found, firsts = np.unique(splits[order], return_index=True)
        ends = [*firsts[1:].tolist(), run.count]
        for split, first, end in zip(found.tolist(), firsts.tolist(), ends, strict=True):
            framed = int(lengths[order[first:end]].sum())
            out.append(Segment(split, run.first + first, end - first, framed))
    order = np.concatenate(orders) if orders else np.zeros(0, np.int64)
    return table.take(pa.array(order)), out
