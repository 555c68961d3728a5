"""`split.to_jax(…)`: batches of jax arrays, on one device or sharded over several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np

from rekord.arguments import invalid
from rekord.codec.columns import Batch, Column, Ragged, SparseColumn
from rekord.dataset.batches import BatchReader, BatchRequest
from rekord.dataset.options import BatchOptions
from rekord.dataset.samplers import Remainder
from rekord.errors import RekordError, add_location, error
from rekord.feeds.feed import Array, Feed, convert_column, import_package, is_image_column, with_ranks
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.dataset.split import Split

DevicePut: TypeAlias = Callable[[Array], Any]

_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def to_jax(
    split: Split,
    batch_size: int,
    *,
    sharding: Any,
    device: Any,
    **options: Unpack[BatchOptions],
) -> Feed:
    """Batches of jax arrays; with a sharding, global batches of all processes."""
    jax = import_package("jax", "`to_jax`", "'rekord[jax]'")
    chosen = with_ranks(options, lambda: _get_process_rank(jax), start="jax.distributed.initialize(…)")
    if sharding is not None:
        _check_sharding(jax, sharding, device, options.get("remainder"))
    request = split.request(batch_size, **chosen)
    put = _make_device_put(jax, sharding, device)
    return JaxFeed(request, partial(_put_batch, put=put, sharded=sharding is not None))


class JaxFeed(Feed):
    """Batches of jax arrays."""

    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[dict[str, Any]]:
        # jax copies to a device in the background, if the copy is started before it is needed.
        return _PrefetchingReader(super()._read(request, epoch, consumed), 1 if request.prefetch else 0)


class _PrefetchingReader:
    """A reader that starts `count` batches in advance. An error is raised after the batches before it."""

    def __init__(self, reading: BatchReader[dict[str, Any]], count: int) -> None:
        self._reading = reading
        self._count = count
        self._waiting: deque[tuple[dict[str, Any], int]] = deque()
        self._end: Exception | None = None

    def __next__(self) -> tuple[dict[str, Any], int]:
        while self._end is None and len(self._waiting) <= self._count:
            try:
                self._waiting.append(next(self._reading))
            except Exception as raised:  # StopIteration too
                self._end = raised
        if self._waiting:
            return self._waiting.popleft()
        assert self._end is not None
        raise self._end

    def close(self) -> None:
        self._waiting.clear()
        self._reading.close()


def _put_batch(batch: Batch, put: DevicePut, *, sharded: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, column in batch.items():
        # For images one by one, jax would shard the rows of pixels.
        if sharded and (isinstance(column, (Ragged, SparseColumn)) or is_image_column(column)):
            raise _sharding_error(name, column)
        with add_location(feature=name):
            out[name] = convert_column(column, put)
    return out


def _make_device_put(jax: Any, sharding: Any, device: Any) -> DevicePut:
    def put(array: Array) -> Any:
        if not jax.config.jax_enable_x64 and array.dtype.name in _NARROW:
            array = _narrow_dtype(array)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        try:
            if sharding is not None:
                return jax.make_array_from_process_local_data(sharding, array)
            return jax.device_put(array, device)
        except (TypeError, ValueError):
            raise error(
                "U676",
                "jax cannot transfer a column to the device",
                expected="an array that the sharding can divide"
                if sharding is not None
                else "a dtype that jax supports",
                found=f"shape {array.shape} of {array.dtype}"[:60],
                do='remainder="drop", and a batch size divisible by the number of devices'
                if sharding is not None
                else "convert the column with map=…",
            ) from None

    return put


def narrow_integers(name: str, array: Array) -> Array:
    """The integers of a column in the bits that jax uses now, provided that no value changes."""
    jax: Any = import_module("jax")
    if array.dtype.kind not in "iu" or array.dtype.name not in _NARROW or jax.config.jax_enable_x64:
        return array
    with add_location(feature=name):
        return _narrow_dtype(array)


def _narrow_dtype(array: Array) -> Array:
    """The array in 32 bits, provided that no value changes; jax itself truncates silently."""
    dtype = np.dtype(_NARROW[array.dtype.name])
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = array.astype(dtype)
    changed = narrow != array
    if array.dtype.kind in "fc":
        changed &= array == array  # NaN stays NaN
    if not changed.any():
        return narrow
    raise error(
        "U676",
        f"column of {array.dtype} has values that do not fit into {dtype}",
        expected=f"values that fit into {dtype}, since jax uses 32 bits by default",
        found=str(array[changed].flat[0])[:60],
        do='jax.config.update("jax_enable_x64", True), or convert the column with map=…',
    )


def _sharding_error(name: str, column: Column) -> RekordError:
    images = isinstance(column, np.ndarray)
    do = f'pad it with map=…: batch["{name[:40]}"].to_padded(0, length)'
    if images:
        do = "resize=(224, 224) to give all images one size"
    elif isinstance(column, SparseColumn):
        do = f'make it dense with map=…: batch["{name[:40]}"].to_dense()'
    return error(
        "U676",
        f"`{name}` has rows of different {'sizes' if images else 'lengths'}, which cannot be sharded",
        location=Location(feature=name),
        expected="a dense column with sharding=…",
        found="one array per row" if images else type(column).__name__,
        do=do,
    )


def _get_process_rank(jax: Any) -> tuple[int, int] | None:
    # Without jax.distributed, jax reports a single process.
    return jax.process_index(), jax.process_count()


def _check_sharding(jax: Any, sharding: Any, device: Any, remainder: Remainder | None) -> None:
    if device is not None:
        what = "`sharding` and `device` cannot be combined"
        raise error("U605", what, expected="one of the two", found="both", do="omit `device`")
    if not isinstance(sharding, jax.sharding.Sharding):
        do = 'sharding=NamedSharding(mesh, PartitionSpec("data"))'
        raise invalid("sharding", sharding, "a jax.sharding.Sharding", do, found=type(sharding).__name__[:60])
    if remainder is None:
        raise error(
            "U605",
            "`remainder` is required with `sharding`",
            expected='remainder="drop", "pad" or "keep"',
            found="no `remainder`",
            do='remainder="drop": the devices may not divide the short last batch',
        )
