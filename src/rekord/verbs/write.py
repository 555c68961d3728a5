"""`rk.write`: raw data to a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.engines.job import RowFunction
from rekord.schema import Schema

if TYPE_CHECKING:
    from rekord.layouts.base import Layout
    from rekord.transforms.base import Transform

from rekord.storage.files import PathLike


def write(
    rows: Any,
    out: PathLike,
    *,
    schema: Schema | None = None,
    layout: Layout | str | None = None,
    map: RowFunction | None = None,
    transforms: Transform | Sequence[Transform] = (),
    names: Sequence[str] | None = None,
    split: Mapping[str, float] | str | None = None,
    split_by: str | None = None,
    stratify: str | None = None,
    key: str | None = None,
    index: Sequence[str] = (),
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    verify: Literal["full", "headers"] = "full",
    on_bad_row: Literal["stop", "reject"] = "stop",
    max_rejects: float = 0.01,
    limit: int | None = None,
    workers: int | None = None,
    engine: Literal["local"] = "local",
    staging: PathLike | None = None,
    fresh: bool = False,
    progress: bool = True,
    format: Literal["tfds"] | None = None,
) -> Dataset:
    """Write a dataset at the folder `out` from rows, and open it.

    `rows` is a source (`rk.sources`), a path that one is made of, an iterable of mappings, a dict of NumPy columns,
    a pyarrow Table, a pandas or polars DataFrame, a tf.data.Dataset, a Hugging Face dataset or a torch Dataset.
    Columns are what `schema` declares, or what a `layout` (`rk.layouts`) makes of them; without either, what fits
    the source. `transforms` (`rk.transforms`) then change the rows, and with them the schema that is stored.

    `split` is a dict of ratios, one name, "source" where the source knows splits, or None: everything goes to
    `train`. A ratio is kept by the hash of the row's identity, or of the column `split_by`: rows stay where they
    are when others are added. `stratify` makes the ratios exact within each class of a column instead.

    The dataset appears when it is complete. After a crash the same call goes on where it stopped, and ends with
    the bytes that it would have had; workers change nothing but the time. A row that does not fit ends it
    (`on_bad_row="stop"`), or is listed in `.rekord/rejects.jsonl` ("reject"), unless more than `max_rejects` are
    bad: a share of the rows below 1, a number from 1 on.
    """
    # Here, so that `import rekord` does not pay for what only writing needs.
    from rekord.verbs.prepare import prepare, run, run_aloud

    conversion = prepare(
        rows,
        out,
        schema=schema,
        layout=layout,
        map=map,
        transforms=transforms,
        names=names,
        split=split,
        split_by=split_by,
        stratify=stratify,
        key=key,
        index=index,
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        shuffle=shuffle,
        seed=seed,
        verify=verify,
        on_bad_row=on_bad_row,
        max_rejects=max_rejects,
        limit=limit,
        workers=workers,
        engine=engine,
        staging=staging,
        fresh=fresh,
        format=format,
        aloud=progress,
    )
    (run_aloud if progress else run)(conversion)
    return open_dataset(conversion.out)
