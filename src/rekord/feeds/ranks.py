"""The ranks of feeds for training in several processes, where ranks with different numbers of batches would hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from rekord.dataset.steps import Remainder, checked_ranks
from rekord.errors import error

Rank: TypeAlias = 'int | Literal["auto"]'
Group: TypeAlias = "Callable[[], tuple[int, int] | None]"
"""Gives the rank of this process and how many there are; None where the framework does not know yet."""


def chosen_ranks(
    rank: Rank, world: int, remainder: Remainder | None, group: Group, *, start: str
) -> tuple[int, int, Remainder]:
    """Rank, world and remainder as asked for: read from the framework for "auto", and safe for several ranks.

    `start` is the call that makes the framework know its ranks.
    """
    if rank == "auto":
        rank, world = _found(world, group, start)
    number, size, checked = checked_ranks(rank, world, "keep" if remainder is None else remainder)
    if remainder is None and size > 1:
        raise error(
            "U661",
            f"`remainder` must be chosen for a world of {size}",
            expected='remainder="drop", "pad" or "keep"',
            found="none given",
            do='remainder="drop", or "pad" to leave no record out',
        )
    return number, size, checked


def _found(world: int, group: Group, start: str) -> tuple[int, int]:
    found = group()
    if found is None:
        raise error(
            "U662",
            'rank="auto" finds no ranks',
            expected=f"{start} before this call",
            found="a process that belongs to no group",
            do=f"{start} first, or rank=0 for a process on its own",
        )
    if world not in (1, found[1]):
        raise error(
            "U662",
            f"`world` is {repr(world)[:60]}, and the group of this process has {found[1]}",
            expected=f"world={found[1]}",
            found=f"world={repr(world)[:60]}",
            do='leave `world` out beside rank="auto"',
        )
    return found
