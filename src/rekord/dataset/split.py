"""A split: a named subset of a dataset, or a view of some of its records, and the feeds that it is handed to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rekord.dataset.asking import Asked, Fill, Shuffle
from rekord.dataset.finish import Map
from rekord.dataset.steps import Remainder


class Split(Asked):
    """Records of a dataset, by number and in batches. Small to pickle, shared freely by threads.

    `split[i]` is a row, `split[[3, 1, 2]]` a batch of these rows, `split[10:20]` a view, which is a Split itself.
    """

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `pyarrow.Table`."""
        from rekord.feeds.arrow import split_to_arrow

        return split_to_arrow(self, columns)

    def to_pandas(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `pandas.DataFrame`."""
        from rekord.feeds.pandas import split_to_pandas

        return split_to_pandas(self, columns)

    def to_polars(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `polars.DataFrame`."""
        from rekord.feeds.polars import split_to_polars

        return split_to_polars(self, columns)

    def sql(self, query: str) -> Any:
        """What DuckDB answers to a query over the table `records`, as a `pyarrow.Table`."""
        from rekord.feeds.sql import split_sql

        return split_sql(self, query)

    def transform(self, *transforms: Any) -> Split:
        """The same records with `rk.transforms` applied to each row: what `rk.write(…, transforms=…)` would store."""
        from rekord.dataset.transformed import transformed

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
        from rekord.feeds.tensorflow import to_tensorflow

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
        from rekord.feeds.torch import to_torch

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
