"""`split.to_jax(…)`: batches of jax arrays, on a device or shared between devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np

from rekord.codec.columns import Batch, Column, Ragged, SparseColumn
from rekord.dataset.batches import BatchReader, BatchRequest
from rekord.dataset.options import BatchOptions
from rekord.dataset.samplers import Remainder
from rekord.errors import RekordError, add_location, error
from rekord.feeds.feed import Array, Feed, convert_column, import_framework, is_image_column, with_ranks
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
    jax = import_framework("jax", "to_jax", "jax")
    chosen = with_ranks(options, lambda: _get_process_rank(jax), start="jax.distributed.initialize(…)")
    if sharding is not None:
        _check_sharding(jax, sharding, device, options.get("remainder"))
    request = split.request(batch_size, **chosen)
    put = _make_device_put(jax, sharding, device)
    return JaxFeed(request, partial(_put_batch, put=put, sharded=sharding is not None))


class JaxFeed(Feed):
    """Batches of jax arrays."""

    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[dict[str, Any]]:
        # jax copies to a device in the background, if one asks for it before it is needed.
        return _PrefetchingReader(super()._read(request, epoch, consumed), 1 if request.prefetch else 0)


class _PrefetchingReader:
    """The same, with `count` batches begun before they are asked for. A failure comes after what was before it."""

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
        # Of images one by one, devices would share the rows of each.
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
                "jax cannot place a column",
                expected="an array that the sharding can divide"
                if sharding is not None
                else "numbers of a dtype that jax has",
                found=f"shape {array.shape} of {array.dtype}"[:60],
                do='remainder="drop", and a batch_size that the devices divide'
                if sharding is not None
                else "map= with a function that converts the column",
            ) from None

    return put


def _narrow_dtype(array: Array) -> Array:
    """The array in the 32 bits that jax has, where that changes no value. Left to itself, jax cuts numbers off."""
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
        f"a column of {array.dtype} has values that {dtype} does not hold, and jax keeps 32 bits",
        expected=f"values that {dtype} holds",
        found=str(array[changed].flat[0])[:60],
        do='jax.config.update("jax_enable_x64", True), or map= with a function that converts the column',
    )


def _sharding_error(name: str, column: Column) -> RekordError:
    images = isinstance(column, np.ndarray)
    do = f'map= with a function that pads it: batch["{name[:40]}"].to_padded(0, length)'
    if images:
        do = "resize=(224, 224), so that all images have one size"
    elif isinstance(column, SparseColumn):
        do = f'map= with a function that makes it dense: batch["{name[:40]}"].to_dense()'
    return error(
        "U676",
        f"`{name}` has rows of different {'sizes' if images else 'lengths'}, which devices cannot share",
        location=Location(feature=name),
        expected="a dense column beside sharding=",
        found="an array for each row" if images else type(column).__name__,
        do=do,
    )


def _get_process_rank(jax: Any) -> tuple[int, int] | None:
    # Without jax.distributed there is one process, and that is what jax says.
    return jax.process_index(), jax.process_count()


def _check_sharding(jax: Any, sharding: Any, device: Any, remainder: Remainder | None) -> None:
    if not isinstance(sharding, jax.sharding.Sharding) or device is not None:
        both = device is not None
        raise error(
            "U605",
            "`sharding` and `device` are both given" if both else f"`sharding` cannot be {sharding!r}"[:90],
            expected="one of the two" if both else "a jax.sharding.Sharding",
            found="two places" if both else type(sharding).__name__[:60],
            do="leave `device` out" if both else 'NamedSharding(mesh, PartitionSpec("data"))',
        )
    if remainder is None:
        raise error(
            "U605",
            "`remainder` must be chosen beside a sharding",
            expected='remainder="drop", "pad" or "keep"',
            found="none given",
            do='remainder="drop": devices may not be able to share the short last batch',
        )
