"""`rk.mix`: several splits as one, each with its share of every epoch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from rekord import _core
from rekord.dataset.dataset import Dataset
from rekord.dataset.drawn import WORD, Drawn, Quotas, checked_share, shared_out
from rekord.dataset.joined import joined_schema, joined_shards
from rekord.dataset.order import Ids
from rekord.dataset.recipes import Recipe
from rekord.dataset.split import Split
from rekord.errors import RekordError, error

Length: TypeAlias = 'int | Literal["sum", "shortest", "longest"]'


def mix(parts: Sequence[tuple[Split | Dataset, float]], *, length: Length = "sum") -> Split:
    """One split of several: `rk.mix([(a, 0.7), (b, 0.3)])` has 7 records of `a` to 3 of `b` in every epoch.

    An epoch has as many records as all of them together (`length="sum"`), as many as there are before one of them
    begins again ("shortest"), as many as it takes to deliver every record of each ("longest"), or so many as are
    said. A split that is too small for its share is repeated evenly; one that is too large goes on in the next epoch.
    """
    splits, shares = _checked_parts(parts)
    schema = joined_schema(splits)
    sizes = [len(split) for split in splits]
    for number, size in enumerate(sizes):
        if not size:
            raise _no_mix(f"part {number} has no records", "records in every part", "none", "leave it out")
    quotas = _quotas(sizes, shares, length)
    shards = joined_shards([split._shards for split in splits])
    told = hashlib.sha256("\0".join(split.digest() for split in splits).encode()).hexdigest()
    base = Split("mix", shards, schema, digest=told)
    return Drawn(base, Mixture(SplitParts(tuple(splits)), quotas))


@dataclass(frozen=True, eq=False)
class SplitParts:
    """Splits as parts. The records of one come after those of the splits before it."""

    splits: tuple[Split, ...]

    def __len__(self) -> int:
        return len(self.splits)

    def size(self, part: int) -> int:
        """How many records an epoch of the split has."""
        return len(self.splits[part])

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        """Those of one epoch of the split, in its own order."""
        own = self.recipe(part, shuffled=shuffled, seed=seed)
        before = sum(len(split._shards) for split in self.splits[:part])
        return before + own.records(round % WORD, numbers)

    def recipe(self, part: int, *, shuffled: bool, seed: int) -> Recipe:
        """The order of one split: of two that are the same, each has another."""
        own_seed = _core.order_key([seed, part]) >> 1 if shuffled else 0
        return self.splits[part]._recipe(shuffled, own_seed, 1)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Splits, each with a quota of an epoch."""

    parts: SplitParts
    quotas: Ids

    @property
    def said(self) -> str:
        """A mixture of how many."""
        return f"a mixture of {len(self.parts)} splits"

    @property
    def size(self) -> int:
        """The sum of all quotas."""
        return int(self.quotas.sum())

    @property
    def achieved(self) -> dict[int, float]:
        """The part that each split has, by its place in the list."""
        return dict(enumerate((self.quotas / max(self.size, 1)).tolist()))

    def recipe(self, *, shuffled: bool, seed: int) -> Quotas:
        """Drawn split by split."""
        parts = [self.parts.recipe(part, shuffled=shuffled, seed=seed) for part in range(len(self.parts))]
        return Quotas(self.parts, self.quotas, shuffled, seed, {"mixed": [one.to_dict() for one in parts]})


def _checked_parts(parts: object) -> tuple[list[Split], list[Fraction]]:
    given = list(parts) if isinstance(parts, (list, tuple)) else []
    splits: list[Split] = []
    shares: list[Fraction] = []
    for number, part in enumerate(given):
        split = part[0] if isinstance(part, (list, tuple)) and len(part) == 2 else None
        if isinstance(split, Dataset):
            split = split._only("mix")
        if not isinstance(split, Split):
            raise _no_mix(
                f"part {number} is no pair of a split and a share",
                "(split, share)",
                repr(part)[:60],
                "rk.mix([(a, 0.7), (b, 0.3)])",
            )
        share = checked_share("(split, 0.5)", part[1])
        if not share:
            raise _no_mix(f"part {number} has a share of 0", "shares above 0", "0", "leave it out")
        if split._map is not None:
            raise _no_mix(
                f"part {number} is mapped, and a batch has records of all parts",
                "splits without a function of their own",
                "a split with .map(…)",
                "rk.mix([…]).map(function)",
            )
        if split._transforms is not None:
            raise _no_mix(
                f"part {number} is transformed, and a batch has records of all parts",
                "splits without transforms of their own",
                "a split with .transform(…)",
                "rk.mix([…]).transform(…)",
            )
        splits.append(split)
        shares.append(share)
    if not splits:
        raise _no_mix(
            "there is nothing to mix",
            "a list of (split, share)",
            repr(parts)[:60],
            "rk.mix([(a, 0.7), (b, 0.3)])",
        )
    return splits, shares


def _quotas(sizes: Sequence[int], shares: Sequence[Fraction], length: object) -> Ids:
    total = sum(shares, Fraction(0))
    rounds = [Fraction(size) * total / share for size, share in zip(sizes, shares, strict=True)]
    if length == "sum":
        return shared_out(sum(sizes), shares)
    if length == "longest":
        n = math.ceil(max(rounds))
        while (shared_out(n, shares) < sizes).any():
            n += 1
        return shared_out(n, shares)
    if length == "shortest":
        # Rounding may leave room for a few more than the exact number. One always fits.
        n = math.floor(min(rounds)) + len(shares)
        while (shared_out(n, shares) > sizes).any():
            n -= 1
        return shared_out(n, shares)
    if isinstance(length, bool) or not hasattr(length, "__index__") or length.__index__() < 1:
        raise error(
            "U605",
            f"`length` cannot be {repr(length)[:60]}",
            expected='"sum", "shortest", "longest", or a whole number from 1 on',
            found=repr(length)[:60],
            do='length="sum"',
        )
    return shared_out(int(length.__index__()), shares)


def _no_mix(what: str, expected: str, found: str, do: str) -> RekordError:
    return error("U668", f"splits cannot be mixed: {what}", expected=expected, found=found, do=do)
