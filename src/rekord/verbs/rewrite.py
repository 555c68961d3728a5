"""`rk.rewrite`: a dataset as another one, with its records copied as they are, or changed where that is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.schema import Feature, RecordKind, Schema

if TYPE_CHECKING:
    from rekord.dataset.split import Split
    from rekord.transforms.base import Transform

from rekord.storage.files import PathLike

Given: TypeAlias = "PathLike | Dataset | Split"


def rewrite(
    path: Given | Iterable[Given],
    out: PathLike,
    *,
    kind: RecordKind | None = None,
    schema: Schema | None = None,
    cast: Mapping[str, str | Feature] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    fill: Mapping[str, Any] | None = None,
    where: str | None = None,
    transforms: Transform | Sequence[Transform] = (),
    index: Sequence[str] = (),
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    lossy: bool = False,
    format: Literal["tfds"] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset anew at the folder `out`, and open it. What is read stays as it is.

    `path` is whatever `rk.open` takes, an open dataset, a split or a view. Several of these in a list are merged:
    splits of one name follow each other, and one of their schemas must read the records of all.

    Where only their places change (`shard_size`, `shards`, `compression`, `shuffle`, `where`, a merge), records are
    copied as they are, without being decoded. `where` is a condition in SQL over the columns: records are kept of
    which it is true. Compression is that of before, unless it is given. Payloads that are no Examples can only be
    copied; `kind` says what payloads are ("example", "sequence", "bytes"), where that is not to be guessed.

    `cast={"label": "int64"}` makes a column another type, whatever kinds its records hold; a value that would not
    survive ends it, unless `lossy`. `rename={"old": "new"}` changes the name of a column, and its key in the record
    unless the schema declares one. `drop` or `keep` say which columns are left, and `fill={"score": 0.0}` what
    stands in for missing values. `schema` says all of that at once: the columns that are to be, each cast to what it
    declares. All names are those of before, of columns or of their keys; `transforms` (`rk.transforms`) come last.

    The dataset appears when it is complete, and after a crash the same call goes on where it stopped.
    """
    # Here, so that `import rekord` does not pay for what only writing needs.
    from rekord.verbs.rewrite_asked import Asked
    from rekord.verbs.rewriting import prepare_rewrite

    several = (
        isinstance(path, Iterable) and not isinstance(path, (str, bytes, os.PathLike)) and _is_many(path)
    )
    prepared = prepare_rewrite(
        list(path) if several else [path],  # type: ignore[arg-type]
        out,
        Asked(
            kind=kind,
            schema=schema,
            cast=cast,
            rename=rename,
            drop=drop,
            keep=keep,
            fill=fill,
            where=where,
            transforms=transforms,
            index=index,
            shard_size=shard_size,
            shards=shards,
            compression=compression,
            shuffle=shuffle,
            seed=seed,
            lossy=lossy,
            format=format,
            workers=workers,
            fresh=fresh,
        ),
    )
    prepared.run(progress=progress)
    return open_dataset(prepared.out)


def _is_many(given: object) -> bool:
    """Datasets and splits can be iterated too."""
    from rekord.dataset.split import Split

    return not isinstance(given, (Dataset, Split))
