"""Records of two sides matched: by what they hold, and by a key."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rekord.health.diff_prints import Prints
from rekord.health.external_sort import PLACE, ExternalSort, Places, group_starts

MOST_EXAMPLES = 10
"""Of what is added, removed, changed and moved so many records each are told by their places."""

_PAIRS_AT_ONCE = 1 << 14

Groups = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class ByContent:
    """How many records are in one side only, or in both but in another split; and the first of each."""

    added: int = 0
    removed: int = 0
    moved: int = 0
    added_places: Places = field(default_factory=lambda: np.empty(0, PLACE))
    removed_places: Places = field(default_factory=lambda: np.empty(0, PLACE))


@dataclass(kw_only=True)
class ByKey:
    """What became of keys that are there once on either side, and which features changed under them."""

    changed: int = 0
    features: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    repeated_in_a: int = 0  # keys that are there more than once
    repeated_in_b: int = 0
    added_places: Places = field(default_factory=lambda: np.empty(0, PLACE))
    removed_places: Places = field(default_factory=lambda: np.empty(0, PLACE))
    changed_places: list[tuple[Places, Places]] = field(default_factory=list)  # in A, in B


def place_rows(
    digests: npt.NDArray[np.uint64],
    *,
    records: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    file: int,
    split: int,
    side: int,
    numbers: npt.NDArray[np.int64] | int = 0,
) -> Places:
    """Records as the sort takes them. Its `split` holds the side too, its `feature` a number of ours."""
    rows = np.empty(len(digests), PLACE)
    rows["low"], rows["high"] = digests[:, 0], digests[:, 1]
    rows["record"], rows["offset"] = records, offsets
    rows["file"], rows["split"], rows["feature"], rows["count"] = file, 2 * split + side, numbers, 1
    return rows


def match_content(sort: ExternalSort) -> ByContent:
    """Compare the two sides as what they are: bags of records."""
    found = ByContent()
    for places in sort.parts():
        if not len(places):
            continue
        starts = group_starts(places)
        in_a, in_b = _counts(places, starts)
        found.added += int(np.maximum(in_b - in_a, 0).sum())
        found.removed += int(np.maximum(in_a - in_b, 0).sum())
        split = places["split"] >> 1
        starts_here = starts.copy()
        starts_here[1:] |= split[1:] != split[:-1]
        stayed = int(np.minimum(*_counts(places, starts_here)).sum())
        found.moved += int(np.minimum(in_a, in_b).sum()) - stayed
        found.added_places = _first_places(found.added_places, _last_of(places, starts, in_b > in_a, side=1))
        found.removed_places = _first_places(
            found.removed_places, _last_of(places, starts, in_a > in_b, side=0)
        )
    return found


def match_keys(sort: ExternalSort, prints: tuple[Prints, Prints]) -> ByKey:
    """Compare the records of each key. Where a key is not there once on both sides, no record is another's."""
    found = ByKey()
    for places in sort.parts():
        if not len(places):
            continue
        starts = group_starts(places)
        in_a, in_b = _counts(places, starts)
        found.repeated_in_a += int(np.count_nonzero(in_a > 1))
        found.repeated_in_b += int(np.count_nonzero(in_b > 1))
        found.added_places = _first_places(found.added_places, _last_of(places, starts, in_a == 0, side=1))
        found.removed_places = _first_places(
            found.removed_places, _last_of(places, starts, in_b == 0, side=0)
        )
        once = (in_a == 1) & (in_b == 1)
        ours, theirs = (_last_of(places, starts, once, side=side) for side in (0, 1))
        changed = ours["offset"] != theirs["offset"]  # half of the digest of what they hold
        _note_changed(found, ours[changed], theirs[changed], prints)
    for side, rows in enumerate((found.removed_places, found.added_places)):
        rows["offset"], _ = prints[side].read(rows["feature"].astype(np.int64))
    return found


def _note_changed(found: ByKey, ours: Places, theirs: Places, prints: tuple[Prints, Prints]) -> None:
    found.changed += len(ours)
    for begin in range(0, len(ours), _PAIRS_AT_ONCE):
        pair = ours[begin : begin + _PAIRS_AT_ONCE], theirs[begin : begin + _PAIRS_AT_ONCE]
        # In the order in which they were written, which is how a disk likes to be read.
        order = np.argsort(pair[0]["feature"], kind="stable")
        a, b = (rows[order] for rows in pair)
        (a["offset"], before), (b["offset"], after) = (
            prints[side].read(rows["feature"].astype(np.int64)) for side, rows in enumerate((a, b))
        )
        counts = np.count_nonzero(before != after, axis=0)
        found.features = _sum(found.features, counts)
        both = [
            *found.changed_places,
            *((a[i : i + 1], b[i : i + 1]) for i in range(min(len(a), MOST_EXAMPLES))),
        ]
        both.sort(key=lambda each: (int(each[0]["file"][0]), int(each[0]["record"][0])))
        found.changed_places = both[:MOST_EXAMPLES]


def _sum(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    out = np.zeros(max(len(a), len(b)), np.int64)
    out[: len(a)] += a
    out[: len(b)] += b
    return out


def _counts(places: Places, starts: npt.NDArray[np.bool_]) -> tuple[Groups, Groups]:
    """How many records each group has in A and in B."""
    first = np.flatnonzero(starts)
    counts, in_b = places["count"].astype(np.int64), (places["split"] & 1).astype(np.bool_)
    return (
        np.add.reduceat(np.where(in_b, 0, counts), first),
        np.add.reduceat(np.where(in_b, counts, 0), first),
    )


def _last_of(
    places: Places, starts: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_], *, side: int
) -> Places:
    """Of each group that is wanted the last place on one side."""
    at = np.where((places["split"] & 1) == side, np.arange(len(places)), -1)
    last = np.maximum.reduceat(at, np.flatnonzero(starts))[wanted]
    return places[last]


def _first_places(known: Places, more: Places) -> Places:
    both = np.concatenate([known, more])
    return both[np.lexsort((both["record"], both["file"]))[:MOST_EXAMPLES]]
