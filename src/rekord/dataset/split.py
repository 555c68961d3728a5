"""A split: a named subset of a dataset, or a view of some of its records.

It is composed of a view of records (`RecordView`), a schema (`LazySchema`), row transforms and a batch function.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from rekord import _core
from rekord.arguments import integer, invalid
from rekord.codec.columns import Batch, to_batch
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.dataset.batches import Batches, BatchRequest
from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.infer import Kind, infer_files
from rekord.dataset.options import (
    BatchOptions,
    CheckedOptions,
    ClassKey,
    ClassShares,
    MapFunction,
    Shuffle,
    accepts_batch_options,
)
from rekord.dataset.postprocess import build_image_decoder, build_postprocessor, compose_maps
from rekord.dataset.read_transforms import SplitTransforms
from rekord.dataset.readers.pipeline import BatchDecoder
from rekord.dataset.readers.remote import MAX_CACHED_BYTES
from rekord.dataset.samplers import (
    EpochOrder,
    FileOrderSampler,
    FullSampler,
    Ids,
    OrderKind,
    Sampler,
    Sampling,
    Selection,
    SubsetSampler,
    concat_selections,
    expand_selection,
    normalize_selection,
    select_numbers,
    slice_selection,
)
from rekord.dataset.shards import RecordIndexError, Shards
from rekord.errors import error
from rekord.report.notebook import never_raises, render_fragment, safe_repr
from rekord.schema import Schema
from rekord.schema.schema import shorten_name, summarize_columns
from rekord.storage.local import Stat

if TYPE_CHECKING:
    import jax
    import keras
    import pyarrow as pa
    import tensorflow as tf
    import torch.utils.data

    from rekord.feeds.dataframes import PandasDataFrame, PolarsDataFrame
    from rekord.feeds.feed import Feed
    from rekord.transforms.base import Transform

_FILTERED_ROWS = 1024


class RecordView:
    """Records of some shards: those with the numbers `ids`, or all of them."""

    def __init__(
        self,
        shards: Shards,
        ids: Selection | None = None,
        *,
        block_records: int | None = None,
        digest: str | None = None,
    ) -> None:
        self.shards = shards
        self.ids = ids
        self.block_records = block_records
        self.known_digest = digest

    @classmethod
    def concat(cls, views: Sequence[RecordView], *, digest: str | None = None) -> RecordView:
        """The records of all views, in this order."""
        ids = None
        if any(view.ids is not None for view in views):
            begins = np.cumsum([0, *(len(view.shards) for view in views[:-1])])
            ids = concat_selections(
                [expand_selection(view.all_ids) + int(begin) for view, begin in zip(views, begins, strict=True)]
            )
        blocks = [view.block_records for view in views if view.block_records is not None]
        return cls(
            Shards.concat([view.shards for view in views]),
            ids,
            block_records=min(blocks) if len(blocks) == len(views) else None,
            digest=digest,
        )

    def __len__(self) -> int:
        return len(self.shards) if self.ids is None else len(self.ids)

    @property
    def all_ids(self) -> Selection:
        """The numbers of its records in the shards."""
        return range(len(self.shards)) if self.ids is None else self.ids

    def ids_at(self, places: Ids) -> Ids:
        """The numbers in the shards of the records at some positions of this view."""
        return places if self.ids is None else select_numbers(self.ids, places)

    def select(self, ids: Selection) -> RecordView:
        """A view of records by their numbers in the shards."""
        return RecordView(self.shards, ids, block_records=self.block_records, digest=self.known_digest)

    def whole(self) -> RecordView:
        """All records of the shards."""
        return RecordView(self.shards, block_records=self.block_records, digest=self.known_digest)

    def at(self, places: Ids) -> RecordView:
        """A view of the records at some positions of this one."""
        return self.select(normalize_selection(self.ids_at(places)))

    def slice(self, which: slice) -> RecordView:
        """A view of a slice of this one."""
        try:
            which.indices(len(self))
        except (TypeError, ValueError):
            raise RecordIndexError(which, "a slice of integers, with a step other than 0") from None
        return self.select(slice_selection(self.all_ids, which))

    def id_of(self, which: object) -> int:
        """The number in the shards of one record; a negative index counts from the end."""
        size = len(self)
        if isinstance(which, bool) or not hasattr(which, "__index__"):
            raise RecordIndexError(which, "an integer, a list of integers, or a slice")
        number = int(which.__index__())
        if not -size <= number < size:
            raise RecordIndexError(
                number, f"an integer from {-size:,} to {size - 1:,}" if size else "no index: the split is empty"
            )
        return int(self.ids_at(np.array([number % size], np.int64))[0])

    def ids_of(self, numbers: Any) -> Ids:
        """The numbers in the shards of several records, or of those selected by a boolean mask."""
        size = len(self)
        given = np.asarray(numbers)
        if given.dtype == np.bool_ and given.shape == (size,):
            given = np.flatnonzero(given)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise RecordIndexError(numbers, "a list of integers")
        outside = (given < -size) | (given >= size)  # before the cast to int64, which turns 2^64 - 1 into -1
        if outside.any():
            raise RecordIndexError(int(given[outside][0]), f"integers from {-size:,} to {size - 1:,}")
        ids = given.astype(np.int64)
        return self.ids_at(np.where(ids < 0, ids + size, ids))

    def digest(self) -> str:
        """What identifies the files: the digest of the manifest, or of their names, sizes and times."""
        if self.known_digest is None:
            digest = hashlib.sha256()
            for path, found in zip(self.shards.paths, self.stats(), strict=True):
                name = os.path.basename(path)
                digest.update(f"{name}\0{found.size_bytes}\0{found.mtime_ns}\0".encode(errors="replace"))
            self.known_digest = digest.hexdigest()
        return self.known_digest

    def stats(self) -> list[Stat]:
        """The current state of each file."""
        return self.shards.stats()

    def sampler(self, shuffle: Shuffle, seed: int, world: int, nodes: int = 1) -> Sampler:
        """Every record once per epoch, in an order computed from seed and epoch."""
        kind: OrderKind = "sequential"
        if shuffle is True:
            # From remote storage neighbours come together; each of them alone would be a request.
            kind = "block" if self.shards.remote else "exact"
        elif shuffle:
            kind = shuffle
        if kind == "sequential" and self.ids is None:
            return FileOrderSampler(self.shards)
        is_block = kind == "block"
        if nodes > 1 and not is_block:
            raise invalid("nodes", nodes, '1, unless shuffle="block"', 'shuffle="block"')
        order = EpochOrder(kind, len(self), seed)
        if is_block:
            order = EpochOrder(kind, len(self), seed, block=self._block(), lanes=world, nodes=nodes)
        return FullSampler(order) if self.ids is None else SubsetSampler(order, self.ids)

    def shards_for(self, sampler: Sampler) -> Shards:
        """The shards; remote ones in whole blocks where these are used up soon, or all fit in the cache."""
        if not self.shards.remote or not isinstance(sampler, (FullSampler, SubsetSampler)):
            return self.shards
        kind = sampler.order.kind
        fits = kind == "exact" and self.shards.total_bytes <= MAX_CACHED_BYTES
        return self.shards.in_blocks(self._block()) if fits or kind == "block" else self.shards

    def _block(self) -> int:
        if self.block_records is None:
            self.block_records = BLOCK_BYTES * len(self.shards) // max(self.shards.total_bytes, 1)
        return max(1, self.block_records)  # a manifest may hold any number


class LazySchema:
    """The schema of all splits of a dataset, inferred at first use if none is declared."""

    def __init__(
        self,
        paths: Sequence[str],
        declared: Schema | None,
        kind: Kind | None,
        *,
        inferred: Schema | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._declared = declared
        self._kind = kind
        self._inferred = inferred

    @property
    def declared(self) -> bool:
        """Whether the schema was declared, not inferred."""
        return self._declared is not None

    @property
    def known(self) -> bool:
        """Whether the schema is known without reading records."""
        return self._declared is not None or self._inferred is not None

    def get(self) -> Schema:
        """The schema, inferred from the first records if none is declared."""
        if self._declared is not None:
            return self._declared
        if self._inferred is None:
            self._inferred, _ = infer_files(self._paths, kind=self._kind)
        return self._inferred

    def plan(self, columns: tuple[str, ...] | None) -> CodecPlan:
        """The plan to decode records, or some of their columns."""
        # A declared schema may ignore other keys; an inferred one claims to know them all.
        return compile_plan(self.get(), columns, strict=self._declared is None)


class SplitMethods(ABC):
    """The methods of a split, and of a dataset with one split."""

    @abstractmethod
    def only_split(self, method: str) -> Split:
        """The split that a method is called on; an error if there are several."""

    def take(self, count: int) -> Split:
        """A view of the first records."""
        split = self.only_split("take")
        return split.replace(view=split.require_view("take").slice(slice(integer("count", count, least=0))))

    def select(self, numbers: Sequence[int]) -> Split:
        """A view of these records, in this order; duplicates are kept."""
        split = self.only_split("select")
        view = split.require_view("select")
        return split.replace(view=view.select(normalize_selection(view.ids_of(numbers))))

    def filter(self, keep: Callable[[dict[str, Any]], object], *, columns: Sequence[str] | None = None) -> Split:
        """A view of the rows for which `keep` is true. All rows are read once, now: only `columns`, if given."""
        split = self.only_split("filter")
        view = split.require_view("filter")
        if not callable(keep):
            do = "split.filter(lambda row: row['label'] == 1, columns=['label'])"
            raise invalid("keep", keep, "a function that takes a row and returns True or False", do)
        kept: list[int] = []
        batches, first = iter(split.batches(_FILTERED_ROWS, columns=columns)), 0
        for batch in batches:
            names, rows = list(batch), batches.consumed - first
            if names and len(batch[names[0]]) != rows:
                raise error(
                    "U605",
                    "`filter` cannot match rows to records: `map` changed their number",
                    expected=f"a function that returns {rows:,} rows for {rows:,}",
                    found=f"{len(batch[names[0]]):,} rows",
                    do="split.filter(keep).map(function)",
                )
            for row in range(rows):
                if keep({name: batch[name][row] for name in names}):
                    kept.append(first + row)
            first += rows
        return split.replace(view=view.at(np.array(kept, np.int64)))

    def map(self, function: Callable[[Batch], dict[str, Any]]) -> Split:
        """The same records with a function applied to every batch, after earlier ones."""
        split = self.only_split("map")
        return split.replace(batch_map=compose_maps(split.batch_map, function))

    def transform(self, *transforms: Transform) -> Split:
        """The same records with `rk.transforms` applied to each row, as `rk.write(…, transforms=…)` stores them."""
        from rekord.dataset.read_transforms import extended

        split = self.only_split("transform")
        return split.replace(row_transforms=extended(split, transforms))

    def balanced(self, by: str = "label", target: ClassShares | Literal["present"] | None = None) -> Split:
        """A split of the same size in which all classes of a column have equal shares, or those of `target`."""
        from rekord.dataset.balanced import balanced_sampling

        split = self.only_split("balanced")
        view = split.require_view("balanced")
        return split.replace(view=view.whole(), sampling=balanced_sampling(split, by, target))

    @overload
    def class_weights(self, by: str = "label", *, names: Literal[True]) -> dict[str, float]: ...
    @overload
    def class_weights(self, by: str = "label", *, names: bool = False) -> dict[ClassKey, float]: ...
    def class_weights(self, by: str = "label", *, names: bool = False) -> dict[ClassKey, float] | dict[str, float]:
        """The weight n / (k · count) of each of the k classes with records, by id, or by name with `names=True`."""
        from rekord.dataset.balanced import class_weights

        split = self.only_split("class_weights")
        split.require_view("class_weights")
        return class_weights(split, by, names=names)

    @accepts_batch_options
    def batches(self, batch_size: int, **options: Unpack[BatchOptions]) -> Batches:
        """Decoded batches: `{column: values}` each, the last one perhaps shorter.

        Columns of fixed shape are NumPy arrays, optional ones `rk.Optional` (dense with `fill={name: value}`), those
        of varying length `rk.Ragged` (dense with ragged="pad"); bytes, text, images and masks are `rk.Strings`. With
        `columns`, only these are decoded.

        `decode=True` decodes images and masks too: to uint8 of shape (rows, height, width, channels), with the
        declared number of channels, or 3, and to class ids of shape (rows, height, width). `resize=(height, width)`
        gives all of them one size: images by bilinear interpolation with antialiasing, masks by the nearest pixel.
        Without it, images of different sizes are an object array with one array per row; ragged="pad" pads them to
        the largest. As in TensorFlow, EXIF rotation is ignored, alpha dropped, and the upper 8 of 16 bits are kept.

        shuffle="exact" permutes all records: every order is possible, computed from `seed` and `epoch`, not stored.
        "block" shuffles blocks of neighbours, for storage that reads those much faster. True is "block" for remote
        files, else "exact". The ranks of a `world` partition each epoch, without duplicates or gaps. With `nodes`
        machines of as many consecutive ranks each, a block shuffle gives each of them the same part of the records in
        every epoch, so that a cache on its disk has to hold no others. The
        `remainder` that does not fill a step of all ranks is kept, dropped, or padded from the start of the epoch.

        `threads` prepare `prefetch` batches ahead in the background; with threads=1 and prefetch=0 nothing runs in
        the background. Unless `threads` is given, that is also so for small batches of local files in file order that
        are only decoded: `next()` decodes them faster than a thread could hand them over.
        """
        split = self.only_split("batches")
        return Batches(split.request(batch_size, **options), lambda: split.schema.features)

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All records as a `pyarrow.Table`."""
        from rekord.feeds.dataframes import split_to_arrow

        return split_to_arrow(self.only_split("to_arrow"), columns)

    def to_pandas(self, *, columns: Sequence[str] | None = None) -> PandasDataFrame:
        """All records as a `pandas.DataFrame`."""
        from rekord.feeds.dataframes import split_to_pandas

        return split_to_pandas(self.only_split("to_pandas"), columns)

    def to_polars(self, *, columns: Sequence[str] | None = None) -> PolarsDataFrame:
        """All records as a `polars.DataFrame`."""
        from rekord.feeds.dataframes import split_to_polars

        return split_to_polars(self.only_split("to_polars"), columns)

    def sql(self, query: str) -> pa.Table:
        """The result of a DuckDB query over the table `records`, as a `pyarrow.Table`."""
        from rekord.feeds.sql.answer import query_split

        return query_split(self.only_split("sql"), query)

    @accepts_batch_options
    def to_tensorflow(
        self,
        batch_size: int,
        *,
        mode: Literal["native", "ops"] = "native",
        state: Mapping[str, Any] | None = None,
        **options: Unpack[BatchOptions],
    ) -> tf.data.Dataset:
        """A tf.data.Dataset in the order of `batches`; mode="ops" uses TensorFlow's own operations only."""
        from rekord.feeds.tensorflow.native import to_tensorflow

        return to_tensorflow(self.only_split("to_tensorflow"), batch_size, mode=mode, state=state, **options)

    @partial(accepts_batch_options, without=("columns",))
    def to_keras(
        self,
        batch_size: int,
        *,
        x: str | Sequence[str] | Mapping[str, str] | None = None,
        y: str | Sequence[str] | Mapping[str, str] | None = None,
        sample_weight: str | None = None,
        class_weight: Literal["balanced"] | ClassShares | None = None,
        mode: Literal["native", "ops"] = "native",
        state: Mapping[str, Any] | None = None,
        **options: Unpack[BatchOptions],
    ) -> tf.data.Dataset | keras.utils.PyDataset:
        """Batches (x, y) or (x, y, weights) for Keras `fit` on any backend; `y` defaults to the only Label.

        On the TensorFlow backend this is a tf.data.Dataset, otherwise a `keras.utils.PyDataset` of arrays. `x` and
        `y` name a column, or several: a list gives a dict by column, a dict one by the model's inputs or outputs, and
        a tuple a tuple.
        """
        from rekord.feeds.keras import to_keras

        return to_keras(
            self.only_split("to_keras"),
            batch_size,
            x=x,
            y=y,
            sample_weight=sample_weight,
            class_weight=class_weight,
            mode=mode,
            state=state,
            **options,
        )

    @overload
    def to_torch(
        self,
        batch_size: int,
        *,
        style: Literal["loader"] = "loader",
        workers: int = 0,
        **options: Unpack[BatchOptions],
    ) -> Feed: ...
    @overload
    def to_torch(
        self, batch_size: int, *, style: Literal["iterable"], **options: Unpack[BatchOptions]
    ) -> torch.utils.data.IterableDataset[dict[str, Any]]: ...
    @overload
    def to_torch(
        self, *, style: Literal["map"], **options: Unpack[BatchOptions]
    ) -> torch.utils.data.Dataset[dict[str, Any]]: ...
    @accepts_batch_options
    def to_torch(
        self,
        batch_size: int | None = None,
        *,
        style: Literal["loader", "iterable", "map"] = "loader",
        workers: int = 0,
        **options: Unpack[BatchOptions],
    ) -> Feed | torch.utils.data.Dataset[dict[str, Any]]:
        """Batches of torch tensors in the order of `batches`; `style` gives a dataset for a DataLoader instead."""
        from rekord.feeds.torch.loader import to_torch

        return to_torch(self.only_split("to_torch"), batch_size, style=style, workers=workers, **options)

    @accepts_batch_options
    def to_jax(
        self,
        batch_size: int,
        *,
        sharding: jax.sharding.Sharding | None = None,
        device: jax.Device | None = None,
        **options: Unpack[BatchOptions],
    ) -> Feed:
        """Batches of JAX arrays in the order of `batches`, on one device or sharded over several."""
        from rekord.feeds.jax import to_jax

        return to_jax(self.only_split("to_jax"), batch_size, sharding=sharding, device=device, **options)


class Split(SplitMethods):
    """Records of a dataset, by number and in batches. Small to pickle, and thread-safe.

    `split[i]` is a row, `split[[3, 1, 2]]` a batch of these rows, `split[10:20]` a view, which is a Split itself.

    A balanced or mixed split is sampled: an epoch may have some records several times and others not at all. Such a
    split has batches in every form, but no records by number.
    """

    def __init__(
        self,
        name: str,
        view: RecordView,
        stored_schema: LazySchema,
        *,
        sampling: Sampling | None = None,
        row_transforms: SplitTransforms | None = None,
        batch_map: MapFunction = None,
    ) -> None:
        self.name = name
        self.view = view
        self.stored_schema = stored_schema
        self.sampling = sampling
        self.row_transforms = row_transforms
        self.batch_map = batch_map

    def replace(self, **changes: Any) -> Split:
        """The same split with some parts replaced."""
        parts = {**self.__dict__, **changes}
        return Split(parts.pop("name"), parts.pop("view"), parts.pop("stored_schema"), **parts)

    def only_split(self, method: str) -> Split:
        return self

    def require_view(self, method: str) -> RecordView:
        """Its records by number; an error that names the method if the split is sampled."""
        if self.sampling is None:
            return self.view
        raise error(
            "U651",
            f"`{method}` needs records by number, and this split is {self.sampling.description}",
            expected="a split that is neither balanced nor mixed",
            found=f"a split of {self.sampling.size:,} records per epoch",
            do="index the split before it is balanced or mixed"
            if method == "[…]"
            else f"call `{method}` before `balanced` or `mix`",
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """The record files."""
        return tuple(self.view.shards.paths)

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records, after transforms."""
        return self.stored_schema.get() if self.row_transforms is None else self.row_transforms.schema

    @property
    def achieved(self) -> dict[ClassKey, float]:
        """The share of each class or component in an epoch of a balanced or mixed split; empty for other splits.

        The shares of a list column are expected values, not exact.
        """
        return {} if self.sampling is None else dict(self.sampling.achieved)

    def digest(self) -> str:
        """What identifies the files of this split: the digest of the manifest, or of names, sizes and times."""
        return self.view.digest()

    def __len__(self) -> int:
        return len(self.view) if self.sampling is None else self.sampling.size

    @overload
    def __getitem__(self, which: slice) -> Split: ...
    @overload
    def __getitem__(self, which: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, which: Sequence[int] | np.ndarray[Any, Any]) -> Batch: ...
    def __getitem__(self, which: Any) -> Split | dict[str, Any] | Batch:
        view = self.require_view("[…]")
        if isinstance(which, slice):
            return self.replace(view=view.slice(which))
        view.shards.check_random_access()
        if isinstance(which, (list, tuple, np.ndarray, range)):
            return self._batch(view.ids_of(which))
        batch = self._batch(np.array([view.id_of(which)], np.int64))
        return {name: column[0] for name, column in batch.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, in order."""
        batches, before = iter(self.batches(_FILTERED_ROWS)), 0
        for batch in batches:
            names = list(batch)
            rows = len(batch[names[0]]) if names else batches.consumed - before
            before = batches.consumed
            for row in range(rows):
                yield {name: batch[name][row] for name in names}

    def sampler(self, shuffle: Shuffle, seed: int, world: int = 1, nodes: int = 1) -> Sampler:
        """Which record is at each position of an epoch."""
        if self.sampling is None:
            return self.view.sampler(shuffle, seed, world, nodes)
        if nodes > 1:
            raise invalid("nodes", nodes, "1 for a balanced or mixed split", "nodes=1")
        if shuffle == "block":
            expected = 'False, True or "exact" for a balanced or mixed split'
            raise invalid("shuffle", shuffle, expected, "shuffle=True")
        return self.sampling.sampler(shuffled=bool(shuffle), seed=seed)

    @accepts_batch_options
    def request(self, batch_size: int, **options: Unpack[BatchOptions]) -> BatchRequest:
        """The checked request that `batches` iterates over, also for feeds. Can be pickled."""
        checked = CheckedOptions(**options)  # type: ignore[arg-type]  # "auto" is refused there
        made = None if self.row_transforms is None else self.row_transforms.of(checked.columns)
        plan = partial(self.stored_schema.plan, checked.columns) if made is None else made.plan
        if self.stored_schema.known:
            plan()  # an unknown column is reported now, not at the first batch
        is_whole = self.sampling is None and self.view.ids is None
        if checked.shuffle or checked.world > 1 or checked.remainder == "pad" or not is_whole:
            self.view.shards.check_random_access()  # before a compressed file is read to count its records
        names = checked.columns
        if names is None:
            names = tuple(self.schema) if checked.fill or checked.pad else ()
        sampler = self.sampler(checked.shuffle, checked.seed, checked.world, checked.nodes)
        return BatchRequest(
            shards=self.view.shards_for(sampler),
            plan=plan,
            sampler=sampler,
            batch_size=integer("batch_size", batch_size, least=1, do="batch_size=1024"),
            split=self.name,
            dataset=self.view.digest,
            epoch=checked.epoch,
            rank=checked.rank,
            world=checked.world,
            remainder=checked.remainder,
            transform=made,
            images=build_image_decoder(self.schema, checked.columns, checked.resize) if checked.decode else None,
            finish=build_postprocessor(
                names,
                fill=checked.fill,
                ragged=checked.ragged,
                pad=checked.pad,
                map=compose_maps(self.batch_map, checked.map),
            )
            if checked.has_postprocessing or self.batch_map is not None
            else None,
            prefetch=checked.prefetch,
            threads=checked.threads,
        )

    def _batch(self, ids: Ids) -> Batch:
        """The records of these numbers in the shards, transformed and mapped."""
        made = None if self.row_transforms is None else self.row_transforms.of(None)
        plan, then = (self.stored_schema.plan(None), None) if made is None else (made.reading(), made.then(None))
        decoder = BatchDecoder(plan, _core.Pool(0), then)
        batch = decoder.decode(self.view.shards.gather(ids, decoder.pool))
        finish = build_postprocessor((), fill=None, ragged="ragged", pad=None, map=self.batch_map)
        return to_batch(batch if finish is None else finish(batch), self.schema.features)

    @safe_repr
    def __repr__(self) -> str:
        from rekord.dataset.preview import list_split_facts

        columns = summarize_columns(self.schema.features) if self.stored_schema.known else []
        return "\n".join([f"Split {shorten_name(self.name)!r}: {', '.join(list_split_facts(self))}", *columns])

    @never_raises
    def _repr_html_(self) -> str:
        from rekord.dataset.preview import list_split_facts, render_split_parts

        title = f"Split {shorten_name(self.name)!r}"
        return render_fragment(title, list_split_facts(self), *render_split_parts(self))
