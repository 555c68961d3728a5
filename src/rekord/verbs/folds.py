"""`rk.folds`: the folds of a dataset as pairs of what to train with and what to validate with."""

from __future__ import annotations

import re

from rekord.dataset.concat import concat
from rekord.dataset.dataset import Dataset
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.location import Location

_FOLD = re.compile(r"fold(0|[1-9]\d*)")


def folds(dataset: Dataset) -> list[tuple[Split, Split]]:
    """For each fold of a dataset (`rk.resplit(…, folds=5)`) all others as one split, and the fold itself.

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
            "U699",
            location=Location(path=first),
            expected="splits named fold0, fold1, …",
            found=", ".join(dataset.splits)[:60],
            do="rk.resplit(path, out, folds=5)",
        )
    return [(concat([dataset[other] for other in names if other != name]), dataset[name]) for name in names]
