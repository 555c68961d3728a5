"""A split: a named subset of a dataset, or a view of some of its records."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from rekord import _core
from rekord.codec.columns import Column
from rekord.codec.images.decode import DecodedPictures
from rekord.dataset.batches import Batches, Request, checked_count, usual_threads
from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.infer import LazySchema
from rekord.dataset.order import Ids, Order, OrderKind, Remainder, checked_ranks, checked_seed
from rekord.dataset.postprocess import Batch, Map, checked_pictures, composed, finisher, pictures_of
from rekord.dataset.read_transforms import Transforms
from rekord.dataset.readers.indexed import IndexedDecoder
from rekord.dataset.readers.remote import KEPT_BYTES
from rekord.dataset.samplers import FileOrder, Recipe, Selected, Selection, Whole, cut, numbers_at, selected
from rekord.dataset.shards import NoRecord, Shards
from rekord.errors import error
from rekord.schema import Schema
from rekord.storage.local import Stat
from rekord.storage.router import ANYWHERE, each

Self = TypeVar("Self", bound="Numbered")


class Numbered:
    """Records, each with a number. A view has some of them, in an order of its own."""

    def __init__(
        self,
        name: str,
        shards: Shards,
        schema: LazySchema,
        *,
        ids: Selection | None = None,
        map: Map = None,
        transforms: Transforms | None = None,
        block_records: int | None = None,
        digest: str | None = None,
    ) -> None:
        self._name = name
        self._shards = shards
        self._schema = schema
        self._ids = ids
        self._map = map
        self._transforms = transforms
        self._block_records = block_records
        self._digest = digest

    @property
    def name(self) -> str:
        """What the dataset calls it."""
        return self._name

    @property
    def paths(self) -> tuple[str, ...]:
        """The record files."""
        return tuple(self._shards.paths)

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records; that of what transforms make of them."""
        return self._schema.get() if self._transforms is None else self._transforms.schema

    def __len__(self) -> int:
        return len(self._shards) if self._ids is None else len(self._ids)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return self._view(cut(self._all_ids(), _checked_slice(which, len(self))))
        self._shards.check_any_order()
        if isinstance(which, (list, tuple, np.ndarray, range)):
            return self._mapped(self._at(self._checked_ids(which)))
        number = _checked_number(which, len(self))
        batch = self._mapped(self._at(self._numbered(np.array([number], np.int64))))
        return {name: column[0] for name, column in batch.items()}

    def take(self: Self, count: int) -> Self:
        """A view of the first records."""
        return self._view(cut(self._all_ids(), slice(checked_count("count", count, least=0))))

    def select(self: Self, numbers: Sequence[int]) -> Self:
        """A view of these records, in this order; one that is named twice comes twice."""
        return self._view(selected(self._checked_ids(numbers)))

    def map(self: Self, function: Callable[[Batch], Any]) -> Self:
        """The same records with a function applied to every batch, after those that were applied before."""
        return self._copy(ids=self._ids, map=composed(self._map, function))

    def _at(self, ids: Ids) -> dict[str, Column]:
        if self._transforms is None:
            return IndexedDecoder(self._shards, self._schema.plan(None), _core.Pool(0)).decode(ids)
        made = self._transforms.of(None)
        return IndexedDecoder(self._shards, made.reading(), _core.Pool(0), made.then(None)).decode(ids)

    def _mapped(self, batch: Batch) -> Batch:
        finish = finisher((), fill=None, ragged="ragged", pad=None, map=self._map)
        return batch if finish is None else finish(batch)

    def _all_ids(self) -> Selection:
        return range(len(self._shards)) if self._ids is None else self._ids

    def _numbered(self, numbers: Ids) -> Ids:
        return numbers if self._ids is None else numbers_at(self._ids, numbers)

    def _checked_ids(self, numbers: Any) -> Ids:
        size = len(self)
        given = np.asarray(numbers)
        if given.dtype == np.bool_ and given.shape == (size,):
            given = np.flatnonzero(given)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise _no_records(numbers, "a list of whole numbers")
        outside = (given < -size) | (given >= size)  # before they are int64: of 2^64 - 1 that makes -1
        if outside.any():
            raise _no_records(int(given[outside][0]), f"numbers from {-size:,} to {size - 1:,}")
        ids = given.astype(np.int64)
        return self._numbered(np.where(ids < 0, ids + size, ids))

    def _view(self: Self, ids: Selection) -> Self:
        return self._copy(ids=ids, map=self._map)

    def _copy(self: Self, *, ids: Selection | None, map: Map) -> Self:
        return type(self)(
            self.name,
            self._shards,
            self._schema,
            ids=ids,
            map=map,
            transforms=self._transforms,
            block_records=self._block_records,
            digest=self._digest,
        )

    def __repr__(self) -> str:
        if self._ids is not None:
            return f"Split({self.name!r}, {len(self):,} of its records)"
        files = len(self._shards.paths)
        return f"Split({self.name!r}, {files} file{'s' if files != 1 else ''})"


def _checked_slice(which: slice, size: int) -> slice:
    try:
        which.indices(size)
    except (TypeError, ValueError):
        raise _no_records(which, "a slice of whole numbers, whose step is not 0") from None
    return which


def _checked_number(which: object, size: int) -> int:
    if isinstance(which, bool) or not hasattr(which, "__index__"):
        raise _no_records(which, "a whole number, a list of them, or a slice")
    number = int(which.__index__())
    if not -size <= number < size:
        raise _no_records(number, f"a number from {-size:,} to {size - 1:,}" if size else "no records at all")
    return number + size if number < 0 else number


def _no_records(found: object, expected: str) -> Exception:
    # An IndexError too: that is what ends a loop over `split[0]`, `split[1]`, … in Python.
    return NoRecord(found, expected)


Shuffle: TypeAlias = 'bool | Literal["exact", "block"]'

Fill: TypeAlias = "Mapping[str, Any] | None"
AskedSelf = TypeVar("AskedSelf", bound="Asked")

_FILTERED_ROWS = 1024


class Asked(Numbered):
    """Records in batches, and all that says which ones, how many at a time, and what becomes of them."""

    def batches(
        self,
        batch_size: int,
        *,
        columns: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        remainder: Remainder = "keep",
        fill: Fill = None,
        ragged: Literal["ragged", "pad"] = "ragged",
        pad: Mapping[str, Any] | None = None,
        decode: bool = False,
        resize: tuple[int, int] | None = None,
        map: Map = None,
        prefetch: int = 2,
        threads: int | None = None,
    ) -> Batches:
        """Decoded batches: `{column: values}` each, the last one perhaps shorter.

        Fixed shapes are NumPy arrays, optional ones `rk.Optional` (dense with `fill={name: value}`); varying ones
        `rk.Ragged` (dense with ragged="pad"); bytes, texts, images and masks `rk.Strings`. Only `columns` are
        decoded where they are given.

        With `decode` images and masks are decoded too: to uint8 of (rows, height, width, channels), with the channels
        that the schema declares, or 3, and to class ids of (rows, height, width). `resize=(height, width)` makes them
        all one size, images by averaging what falls into a pixel (bilinear, antialiased), masks by the nearest pixel.
        Without it, pictures of different sizes are an object array of one array a row; ragged="pad" fills them up to
        the largest. EXIF turns no image, alpha is dropped, and of 16 bits the upper 8 are kept, as TensorFlow does.

        `shuffle` is exact: every order of all records is possible, computed from `seed` and `epoch`, not stored;
        "block" shuffles blocks of neighbours, for storage that reads those much faster. True is "block" where a
        file is in a remote place, else "exact". Ranks of a `world` share each epoch: nothing twice, nothing lost.
        What does not fill a step of all ranks is kept, dropped, or padded from the epoch's start.

        `prefetch` batches are made ahead in the background by `threads`; with threads=1 and prefetch=0 nothing runs
        in the background.
        """
        return Batches(
            self.request(
                batch_size,
                columns=columns,
                shuffle=shuffle,
                seed=seed,
                epoch=epoch,
                rank=rank,
                world=world,
                remainder=remainder,
                fill=fill,
                ragged=ragged,
                pad=pad,
                decode=decode,
                resize=resize,
                map=map,
                prefetch=prefetch,
                threads=threads,
            )
        )

    def request(
        self,
        batch_size: int,
        *,
        columns: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        remainder: Remainder = "keep",
        fill: Fill = None,
        ragged: Literal["ragged", "pad"] = "ragged",
        pad: Mapping[str, Any] | None = None,
        decode: bool = False,
        resize: tuple[int, int] | None = None,
        map: Map = None,
        prefetch: int = 2,
        threads: int | None = None,
        recipe: Recipe | None = None,
    ) -> Request:
        """What `batches` would iterate over, checked: for feeds, which share its arguments. Can be pickled."""
        wanted = None if columns is None else checked_columns(columns)
        made = None if self._transforms is None else self._transforms.of(wanted)
        plan = _Plan(self._schema, wanted) if made is None else made.plan
        if self._schema.known:
            plan()  # a column that is not there is said now, not at the first batch
        number, size, rest = checked_ranks(rank, world, remainder)
        if shuffle or size > 1 or rest == "pad" or recipe is not None or self._ids is not None:
            self._shards.check_any_order()  # before a compressed file is read to count its records
        needs_names = fill or pad
        names = wanted if wanted is not None else tuple(self.schema) if needs_names else ()
        finish = finisher(names, fill=fill, ragged=ragged, pad=pad, map=composed(self._map, map))
        recipe = self._recipe(shuffle, seed, size) if recipe is None else recipe
        return Request(
            shards=self._shards.in_blocks(self._usual_block()) if self._is_by_block(recipe) else self._shards,
            plan=plan,
            recipe=recipe,
            batch_size=checked_count("batch_size", batch_size, least=1),
            split=self.name,
            dataset=self.digest,
            epoch=checked_seed("epoch", epoch),
            rank=number,
            world=size,
            remainder=rest,
            transform=made,
            pictures=self._pictures(wanted, decode, resize),
            finish=finish,
            prefetch=checked_count("prefetch", prefetch, least=0),
            threads=usual_threads() if threads is None else checked_count("threads", threads, least=1),
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, in order."""
        batches, before = iter(self.batches(_FILTERED_ROWS)), 0
        for batch in batches:
            names = list(batch)
            rows = len(batch[names[0]]) if names else batches.consumed - before
            before = batches.consumed
            for row in range(rows):
                yield {name: batch[name][row] for name in names}

    def filter(
        self: AskedSelf, keep: Callable[[dict[str, Any]], Any], *, columns: Sequence[str] | None = None
    ) -> AskedSelf:
        """A view of the rows that `keep` is true of. They are read once, now: only `columns`, where given."""
        if not callable(keep):
            raise error(
                "U605",
                f"`filter` cannot use {repr(keep)[:60]}",
                expected="a function of a row that says whether it is kept",
                found=repr(keep)[:60],
                do="filter(lambda row: row['label'] == 1, columns=['label'])",
            )
        kept: list[int] = []
        batches, first = iter(self.batches(_FILTERED_ROWS, columns=columns)), 0
        for batch in batches:
            names, rows = list(batch), batches.consumed - first
            if names and len(batch[names[0]]) != rows:
                raise error(
                    "U605",
                    "`filter` cannot tell which records these rows are: `map` changed their number",
                    expected=f"a function that gives {rows:,} rows for {rows:,}",
                    found=f"{len(batch[names[0]]):,} rows",
                    do="filter first, and map what it gives",
                )
            for row in range(rows):
                if keep({name: batch[name][row] for name in names}):
                    kept.append(first + row)
            first += rows
        return self._view(selected(self._numbered(np.array(kept, np.int64))))

    def digest(self) -> str:
        """What tells the files of this split from others: of the manifest, or of names, sizes and times."""
        if self._digest is None:
            told = hashlib.sha256()
            for path, found in zip(self.paths, self._stats(), strict=True):
                told.update(
                    f"{os.path.basename(path)}\0{found.size_bytes}\0{found.mtime_ns}\0".encode(
                        errors="replace"
                    )
                )
            self._digest = told.hexdigest()
        return self._digest

    def _recipe(self, shuffle: object, seed: int, world: int) -> Recipe:
        checked = checked_seed("seed", seed)
        kinds: dict[Any, OrderKind] = {False: "sequential", True: "exact", "exact": "exact", "block": "block"}
        if not isinstance(shuffle, (bool, str)) or shuffle not in kinds:
            raise error(
                "U605",
                f"`shuffle` cannot be {repr(shuffle)[:60]}",
                expected='False, True, "exact" or "block"',
                found=repr(shuffle)[:60],
                do="shuffle=True",
            )
        kind = kinds[shuffle]
        if shuffle is True and self._shards.remote:
            kind = "block"  # there neighbours come together, and each of them alone would be a request
        if kind == "sequential" and self._ids is None:
            return FileOrder(self._shards)
        block = self._usual_block() if kind == "block" else 1
        order = Order(kind, len(self), checked, block=block, lanes=world if kind == "block" else 1)
        return Whole(order) if self._ids is None else Selected(order, self._ids)

    def _usual_block(self) -> int:
        if self._block_records is None:
            size_bytes = sum(found.size_bytes for found in self._stats())
            self._block_records = BLOCK_BYTES * len(self._shards) // max(size_bytes, 1)
        return max(1, self._block_records)  # a manifest may say anything

    def _is_by_block(self, recipe: Recipe) -> bool:
        """Whether whole blocks are to be fetched: they are used up soon, or all of them can be kept."""
        if not self._shards.remote or not isinstance(recipe, (Whole, Selected)):
            return False
        fits = recipe.order.kind == "exact" and sum(one.size_bytes for one in self._stats()) <= KEPT_BYTES
        return fits or recipe.order.kind == "block"

    def _stats(self) -> list[Stat]:
        return each(ANYWHERE.stat, self.paths, remote=self._shards.remote)

    def _pictures(
        self, columns: tuple[str, ...] | None, decode: object, resize: object
    ) -> DecodedPictures | None:
        size = checked_pictures(decode, resize)
        return pictures_of(self.schema, columns, size) if decode else None


class _Plan:
    """The plan of some columns, compiled when it is needed. Unlike a closure it can be pickled."""

    def __init__(self, schema: LazySchema, columns: tuple[str, ...] | None) -> None:
        self._schema = schema
        self._columns = columns

    def __call__(self) -> Any:
        return self._schema.plan(self._columns)


def checked_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, each once."""
    single = isinstance(columns, (str, bytes)) or not hasattr(columns, "__iter__")
    given: list[Any] = [columns] if single else list(columns)
    if single or not all(isinstance(name, str) for name in given):
        wrong = next((name for name in given if not isinstance(name, str)), columns)
        raise error(
            "U605",
            f"`columns` cannot be {repr(columns)[:60]}",
            expected="a list of column names",
            found="one str" if isinstance(columns, str) else f"{repr(wrong)[:60]}",
            do=f"columns=[{columns[:60]!r}]" if isinstance(columns, str) else 'columns=["label"]',
        )
    return tuple(dict.fromkeys(given))


class Split(Asked):
    """Records of a dataset, by number and in batches. Small to pickle, shared freely by threads.

    `split[i]` is a row, `split[[3, 1, 2]]` a batch of these rows, `split[10:20]` a view, which is a Split itself.
    """

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `pyarrow.Table`."""
        from rekord.feeds.dataframes import split_to_arrow

        return split_to_arrow(self, columns)

    def to_pandas(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `pandas.DataFrame`."""
        from rekord.feeds.dataframes import split_to_pandas

        return split_to_pandas(self, columns)

    def to_polars(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `polars.DataFrame`."""
        from rekord.feeds.dataframes import split_to_polars

        return split_to_polars(self, columns)

    def sql(self, query: str) -> Any:
        """What DuckDB answers to a query over the table `records`, as a `pyarrow.Table`."""
        from rekord.feeds.sql.answer import split_sql

        return split_sql(self, query)

    def transform(self, *transforms: Any) -> Split:
        """The same records with `rk.transforms` applied to each row: what `rk.write(…, transforms=…)` would store."""
        from rekord.dataset.read_transforms import transformed

        return transformed(self, transforms)

    def balanced(
        self, by: str = "label", target: Mapping[Any, Any] | Literal["present"] | None = None
    ) -> Split:
        """A split of as many records in which all classes of a column have equal shares, or those of `target`."""
        from rekord.dataset.balanced import balanced_split

        return balanced_split(self, by, target)

    def class_weights(self, by: str = "label", *, names: bool = False) -> dict[Any, float]:
        """n / (k · count) of each of the k classes that have records, by id, or by name with `names`."""
        from rekord.dataset.balanced import class_weights

        return class_weights(self, by, names=names)

    def to_tensorflow(
        self,
        batch_size: int,
        *,
        mode: Literal["native", "ops"] = "native",
        columns: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        remainder: Remainder = "keep",
        fill: Fill = None,
        ragged: Literal["ragged", "pad"] = "ragged",
        pad: Mapping[str, Any] | None = None,
        decode: bool = False,
        resize: tuple[int, int] | None = None,
        map: Map = None,
        prefetch: int = 2,
        threads: int | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Any:
        """A tf.data.Dataset in the order of `batches`, or with mode="ops" of TensorFlow's own operations alone."""
        from rekord.feeds.tensorflow.native import to_tensorflow

        return to_tensorflow(
            self,
            batch_size,
            mode=mode,
            columns=columns,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world=world,
            remainder=remainder,
            fill=fill,
            ragged=ragged,
            pad=pad,
            decode=decode,
            resize=resize,
            map=map,
            prefetch=prefetch,
            threads=threads,
            state=state,
        )

    def to_keras(
        self,
        batch_size: int,
        *,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        mode: Literal["native", "ops"] = "native",
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        remainder: Remainder = "keep",
        fill: Fill = None,
        ragged: Literal["ragged", "pad"] = "ragged",
        pad: Mapping[str, Any] | None = None,
        decode: bool = False,
        resize: tuple[int, int] | None = None,
        map: Map = None,
        prefetch: int = 2,
        threads: int | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Any:
        """A tf.data.Dataset of (x, y), or (x, y, weights), for Keras's `fit`; `y` is the only Label unless told."""
        from rekord.feeds.keras import to_keras

        return to_keras(
            self,
            batch_size,
            x=x,
            y=y,
            sample_weight=sample_weight,
            class_weight=class_weight,
            mode=mode,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world=world,
            remainder=remainder,
            fill=fill,
            ragged=ragged,
            pad=pad,
            decode=decode,
            resize=resize,
            map=map,
            prefetch=prefetch,
            threads=threads,
            state=state,
        )

    def to_torch(
        self,
        batch_size: int | None = None,
        *,
        style: Literal["loader", "iterable", "map"] = "loader",
        workers: int = 0,
        columns: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int | Literal["auto"] = 0,
        world: int = 1,
        remainder: Remainder | None = None,
        fill: Fill = None,
        ragged: Literal["ragged", "pad"] = "ragged",
        pad: Mapping[str, Any] | None = None,
        decode: bool = False,
        resize: tuple[int, int] | None = None,
        map: Map = None,
        prefetch: int = 2,
        threads: int | None = None,
    ) -> Any:
        """Batches of torch tensors in the order of `batches`, or with `style` a dataset for torch's DataLoader."""
        from rekord.feeds.torch.loader import to_torch

        return to_torch(
            self,
            batch_size,
            style=style,
            workers=workers,
            columns=columns,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world=world,
            remainder=remainder,
            fill=fill,
            ragged=ragged,
            pad=pad,
            decode=decode,
            resize=resize,
            map=map,
            prefetch=prefetch,
            threads=threads,
        )

    def to_jax(
        self,
        batch_size: int,
        *,
        sharding: Any = None,
        device: Any = None,
        columns: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int | Literal["auto"] = 0,
        world: int = 1,
        remainder: Remainder | None = None,
        fill: Fill = None,
        ragged: Literal["ragged", "pad"] = "ragged",
        pad: Mapping[str, Any] | None = None,
        decode: bool = False,
        resize: tuple[int, int] | None = None,
        map: Map = None,
        prefetch: int = 2,
        threads: int | None = None,
    ) -> Any:
        """Batches of jax arrays in the order of `batches`, on a device or shared between devices by a sharding."""
        from rekord.feeds.jax import to_jax

        return to_jax(
            self,
            batch_size,
            sharding=sharding,
            device=device,
            columns=columns,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world=world,
            remainder=remainder,
            fill=fill,
            ragged=ragged,
            pad=pad,
            decode=decode,
            resize=resize,
            map=map,
            prefetch=prefetch,
            threads=threads,
        )
