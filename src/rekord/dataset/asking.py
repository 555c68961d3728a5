"""What can be asked of a split: its records in batches, in which order, in which form."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from rekord.codec.decoding_pictures import DecodedPictures
from rekord.dataset.batches import Batches, Request, checked_count, usual_threads
from rekord.dataset.finish import Map, checked_pictures, composed, finisher, pictures_of
from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.lazy_schema import LazySchema
from rekord.dataset.numbered import Numbered
from rekord.dataset.order import Order, OrderKind, checked_seed
from rekord.dataset.recipes import FileOrder, Recipe, Selected, Whole
from rekord.dataset.remote_shards import KEPT_BYTES
from rekord.dataset.selection import selected
from rekord.dataset.steps import Remainder, checked_ranks
from rekord.errors import error
from rekord.storage.anywhere import ANYWHERE, each
from rekord.storage.files import Stat

Shuffle: TypeAlias = 'bool | Literal["exact", "block"]'

Fill: TypeAlias = "Mapping[str, Any] | None"
Self = TypeVar("Self", bound="Asked")

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
        self: Self, keep: Callable[[dict[str, Any]], Any], *, columns: Sequence[str] | None = None
    ) -> Self:
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
