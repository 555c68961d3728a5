"""`rk.resplit`: the records of a dataset dealt to other splits, each copied as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.storage.files import PathLike


def resplit(
    path: Any,
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
    """Write the records of all splits of a dataset, or of `only` one, to other splits at `out`, and open it.

    `split={"train": 0.8, "val": 0.2}` gives each split its ratio of the records: exact, and within each class of
    the column `stratify` where that is given. With `split_by` all records of one value of a column go to the same
    split, by the hash that `rk.write` uses too: ratios are then near ones, and records stay where they are when
    others are added. A dataset that was written with `key=` is split by that column unless told otherwise.

    `folds=5` makes `fold0` to `fold4` instead, whose sizes differ by one record at the most; each class of `stratify`
    is spread over them as evenly, and `split_by` keeps groups together. `rk.folds` gives the pairs to train with.

    Without a column, what identifies a record is its position. Records keep their order within a split, unless
    `shuffle`. They are copied as they are, without being decoded.
    """
    # Here, so that `import rekord` does not pay for what only writing needs.
    from rekord.verbs.resplitting import prepare_resplit

    prepared = prepare_resplit(
        path,
        out,
        split=split,
        split_by=split_by,
        stratify=stratify,
        folds=folds,
        only=only,
        shuffle=shuffle,
        seed=seed,
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        format=format,
        workers=workers,
        fresh=fresh,
    )
    prepared.run(progress=progress)
    return open_dataset(prepared.out)
