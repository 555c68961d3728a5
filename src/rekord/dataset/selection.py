"""Which records a view has: a range of their numbers where it is one, however long, and else a list of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from rekord.dataset.order import Ids

Selection: TypeAlias = "range | Ids"


def selected(ids: Ids) -> Selection:
    """These numbers; a range where they have equal gaps, so that a view is the same however it was made."""
    if len(ids) < 2:
        return range(int(ids[0]), int(ids[0]) + 1) if len(ids) else range(0)
    step = int(ids[1]) - int(ids[0])
    if step and bool((np.diff(ids) == step).all()):
        return range(int(ids[0]), int(ids[-1]) + step, step)
    return ids


def cut(within: Selection, which: slice) -> Selection:
    """A slice of a selection."""
    part = within[which]
    if not isinstance(part, range):
        return selected(part)
    if len(part) < 2:
        return range(part[0], part[0] + 1) if part else range(0)
    return part if part[-1] + part.step == part.stop else range(part[0], part[-1] + part.step, part.step)


def numbers_at(selection: Selection, places: Ids) -> Ids:
    """The numbers that stand at some places of a selection."""
    if isinstance(selection, range):
        return selection.start + places * selection.step
    return selection[places]


def all_numbers(selection: Selection) -> Ids:
    """Every number of a selection."""
    if isinstance(selection, range):
        return np.arange(selection.start, selection.stop, selection.step, dtype=np.int64)
    return selection


def joined(selections: Sequence[Selection]) -> Selection:
    """One selection behind another."""
    return selected(np.concatenate([all_numbers(one) for one in selections]))


def digest_of(selection: Selection) -> str:
    """A few letters that tell a selection from others."""
    if isinstance(selection, range):
        told = f"{selection.start}:{selection.stop}:{selection.step}".encode()
    else:
        told = np.ascontiguousarray(selection, np.int64).tobytes()
    return hashlib.sha256(told).hexdigest()[:16]
