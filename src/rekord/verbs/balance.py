"""`rk.balance`: a dataset whose classes have as many records as a strategy says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.storage.files import PathLike


def balance(
    path: Any,
    out: PathLike,
    *,
    by: str = "label",
    method: Literal["oversample", "undersample", "smote"] = "oversample",
    sampling_strategy: Any = "auto",
    splits: str | Sequence[str] | None = None,
    augment: str | Sequence[str] | None = None,
    per_box: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    k_neighbors: int = 5,
    shuffle: bool = True,
    seed: int = 0,
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    format: Literal["tfds"] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset at `out` in which the classes of `by` have the numbers that are asked for, and open it.

    "oversample" adds copies of records, as many of each record of a class as of any other, give or take one.
    "undersample" leaves records out. Both copy records as they are. "smote" adds new ones between those of a class,
    made by imbalanced-learn of the numbers in `columns` (the extra `balance`).

    `sampling_strategy` is what imbalanced-learn takes: "auto", "minority", "majority", "not minority",
    "not majority", "all", a ratio for two classes, `{class: records}`, or a function of the classes of all records.

    Each split is balanced on its own, and only those of `splits`: by default `train`. All others stay as they are.
    Records without a class stay too. `augment` varies the pictures of copies, with their masks and boxes, by "flip",
    "crop", "rotate" and "colour". With `shuffle` the records of a balanced split are in a new order; without, copies
    come behind all others.
    """
    # Here, so that `import rekord` does not pay for what only writing needs.
    from rekord.verbs.balance_prepare import Asked, prepare_balance

    asked = Asked(
        by=by,
        method=method,
        sampling_strategy=sampling_strategy,
        splits=splits,
        augment=augment,
        per_box=per_box,
        columns=columns,
        k_neighbors=k_neighbors,
        shuffle=shuffle,
        seed=seed,
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        format=format,
        workers=workers,
        fresh=fresh,
    )
    prepared = prepare_balance(path, out, asked)
    prepared.run(progress=progress)
    return open_dataset(prepared.out)
