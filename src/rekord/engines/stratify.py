"""Splits that are exact within each class: every row is counted before any row finds its split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.engines.keys import HASH_BITS, Hashes
from rekord.engines.spill import Segment
from rekord.engines.splits import SplitRule

_BIN_BITS = 12
"""A class's hashes are counted in so many bins; only those bins that hold an edge are then looked at closely."""

Edges = dict[int, npt.NDArray[np.uint64]]


def edges_of(tables: Callable[[], Iterator[pa.Table]], rule: SplitRule) -> Edges:
    """For each class the hashes at which its splits after the first begin; `tables` can be asked twice."""
    counts: dict[int, npt.NDArray[np.int64]] = {}
    for stratum, hashes in _by_stratum(tables()):
        bins = np.bincount(
            (hashes >> np.uint64(HASH_BITS - _BIN_BITS)).astype(np.int64), minlength=1 << _BIN_BITS
        )
        counts[stratum] = counts[stratum] + bins if stratum in counts else bins
    ranks = {stratum: np.cumsum(rule.shares(int(bins.sum())))[:-1] for stratum, bins in counts.items()}
    ends = {stratum: np.cumsum(bins) for stratum, bins in counts.items()}
    wanted = {
        stratum: set(np.searchsorted(ends[stratum], ranks[stratum], side="right").tolist())
        for stratum in counts
    }
    near: dict[int, list[Hashes]] = {stratum: [] for stratum in counts}
    for stratum, hashes in _by_stratum(tables()):
        bins = (hashes >> np.uint64(HASH_BITS - _BIN_BITS)).astype(np.int64)
        near[stratum].append(hashes[np.isin(bins, list(wanted[stratum]))])
    return {
        stratum: _edges(
            np.sort(np.concatenate(near[stratum])), counts[stratum], ranks[stratum], wanted[stratum]
        )
        for stratum in counts
    }


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


def _by_stratum(tables: Iterator[pa.Table]) -> Iterator[tuple[int, Hashes]]:
    for table in tables:
        strata = table["stratum"].to_numpy()
        hashes = table["hash"].to_numpy()
        for stratum in np.unique(strata).tolist():
            yield stratum, hashes[strata == stratum]


def resplit(table: pa.Table, segments: Sequence[Segment], edges: Edges) -> tuple[pa.Table, list[Segment]]:
    """The index of a part with its rows sorted by their splits, run by run."""
    strata = table["stratum"].to_numpy()
    hashes = table["hash"].to_numpy()
    splits = np.zeros(len(table), np.uint8)
    for stratum in np.unique(strata).tolist():
        mine = strata == stratum
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
