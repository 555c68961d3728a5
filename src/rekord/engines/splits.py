"""Which split a row goes to: by the hash of what identifies it, by its class, or as its source says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.engines.keys import HASH_BITS, Hashes
from rekord.errors import RekordError, error
from rekord.schema.refuse import shown

_MOST_SPLITS = 255
_EXAMPLE = 'split={"train": 0.9, "val": 0.1}'
_FORBIDDEN = frozenset("/\\\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """The names of the splits, and how rows find theirs.

    `ends` cut the range of a 64-bit hash: split i takes the hashes below `ends[i]` that no earlier one takes. The
    hash is that of the row's identity, or of the column `by`. With `stratify` each class is cut by itself, by
    the ranks of its rows' hashes. With `from_source` each row says its own.
    """

    names: tuple[str, ...]
    ratios: tuple[float, ...] = ()
    by: str | None = None
    stratify: str | None = None
    from_source: bool = False

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple([round(end * (1 << HASH_BITS)) for end in self._sums()])

    def of_hashes(self, hashes: Hashes) -> npt.NDArray[np.uint8]:
        """The number of each row's split."""
        if len(self.names) == 1:
            return np.zeros(len(hashes), np.uint8)
        inner = np.array(self.ends[:-1], np.uint64)
        return np.searchsorted(inner, hashes, side="right").astype(np.uint8)

    def shares(self, rows: int) -> list[int]:
        """How many of `rows` rows of one class each split gets: off by less than one from its ratio."""
        ends = [int(end * rows + Fraction(1, 2)) for end in self._sums()]
        return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _sums(self) -> list[Fraction]:
        if len(self.names) == 1:
            return [Fraction(1)]
        parts = [Fraction(ratio).limit_denominator(10**12) for ratio in self.ratios]
        whole = sum(parts, Fraction(0))
        sums, so_far = [], Fraction(0)
        for part in parts:
            so_far += part
            sums.append(so_far / whole)
        return sums

    def options(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return {
            "names": list(self.names),
            "ratios": list(self.ratios),
            "by": self.by,
            "stratify": self.stratify,
            "from_source": self.from_source,
        }


def split_rule(
    split: object, *, by: str | None, stratify: str | None, known: Sequence[str] | None
) -> SplitRule:
    """The rule that `split=`, `split_by=` and `stratify=` ask for; `known` are the source's own splits."""
    if by is not None and stratify is not None:
        raise _refused("split_by", by, "either split_by= or stratify=", "both", "leave one of them out")
    if isinstance(split, str) and split == "source":
        if not known:
            raise _refused(
                "split",
                split,
                "a source that knows splits",
                "one that does not",
                'split={"train": 0.9, "val": 0.1}',
            )
        _no_key(by, stratify, "the source says the splits")
        return SplitRule(names=_names(tuple(known)), from_source=True)
    if split is None or isinstance(split, str):
        _no_key(by, stratify, "there is one split only")
        return SplitRule(names=_names(("train" if split is None else split,)))
    if not isinstance(split, Mapping) or not split:
        raise _refused(
            "split",
            split,
            'ratios by name, one name, "source" or None',
            shown(split),
            'split={"train": 0.9, "val": 0.1}',
        )
    ratios = []
    for name, ratio in split.items():
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
            raise _refused(
                "split",
                split,
                "a ratio above 0 and up to 1 for each name",
                f"{shown(name)}: {shown(ratio)}",
                "0.9",
            )
        ratios.append(float(ratio))
    if abs(sum(ratios) - 1) > 1e-6:
        terms = " + ".join([f"{ratio:g}" for ratio in ratios])
        found = terms if len(ratios) == 1 else f"{terms} = {sum(ratios):g}"
        raise _refused("split", split, "ratios that add up to 1", found, "make them add up to 1")
    names = _names(tuple(split))
    if len(names) == 1:
        _no_key(by, stratify, "there is one split only")
    return SplitRule(names=names, ratios=tuple(ratios), by=by, stratify=stratify)


def _names(names: tuple[Any, ...]) -> tuple[str, ...]:
    for name in names:
        if (
            not isinstance(name, str)
            or not name
            or name.startswith(".")
            or _FORBIDDEN & set(name)
            or len(name.encode("utf-8", "surrogatepass")) > 100
            or not name.isprintable()
        ):
            raise _refused("split", name, "names that a file can begin with", shown(name), "train")
    if len(set(names)) < len(names) or len(names) > _MOST_SPLITS:
        raise _refused(
            "split", names, f"up to {_MOST_SPLITS} different names", f"{len(names)}", "fewer splits"
        )
    return names


def _no_key(by: str | None, stratify: str | None, why: str) -> None:
    for name, value in (("split_by", by), ("stratify", stratify)):
        if value is not None:
            raise _refused(
                name, value, f"no {name}=, since {why}", shown(value), f"leave {name}= out, or give ratios"
            )


def _refused(name: str, value: object, expected: str, found: str, do: str) -> RekordError:
    return error("U617", f"`{name}` cannot be {shown(value)}", expected=expected, found=found, do=do)
