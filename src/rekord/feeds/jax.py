"""`split.to_jax(…)`: batches of jax arrays, on a device or shared between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rekord.codec.columns import Column, Ragged, SparseColumn
from rekord.dataset.batches import Batches, Request
from rekord.dataset.finish import Batch
from rekord.dataset.order import checked_seed
from rekord.dataset.state import State
from rekord.dataset.steps import Remainder
from rekord.errors import RekordError, error, located
from rekord.feeds.ranks import Rank, chosen_ranks
from rekord.feeds.tensors import Array, converted, framework
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.dataset.split import Shuffle, Split

Put: TypeAlias = Callable[[Array], Any]

_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def to_jax(
    split: Split,
    batch_size: int,
    *,
    sharding: Any,
    device: Any,
    columns: Sequence[str] | None,
    shuffle: Shuffle,
    seed: int,
    epoch: int,
    rank: Rank,
    world: int,
    remainder: Remainder | None,
    fill: Mapping[str, Any] | None,
    ragged: Literal["ragged", "pad"],
    pad: Mapping[str, Any] | None,
    decode: bool,
    resize: tuple[int, int] | None,
    map: Callable[[Batch], Any] | None,
    prefetch: int,
    threads: int | None,
) -> JaxBatches:
    """An iterator over batches of jax arrays; with a sharding, over global batches of all processes."""
    jax = framework("jax", "to_jax", "jax")
    number, size, rest = chosen_ranks(
        rank, world, remainder, lambda: _processes(jax), start="jax.distributed.initialize(…)"
    )
    if sharding is not None:
        _check_sharding(jax, sharding, device, remainder)
    request = split.request(
        batch_size,
        columns=columns,
        shuffle=shuffle,
        seed=seed,
        epoch=epoch,
        rank=number,
        world=size,
        remainder=rest,
        fill=fill,
        ragged=ragged,
        pad=pad,
        decode=decode,
        resize=resize,
        map=map,
        prefetch=prefetch,
        threads=threads,
    )
    return JaxBatches(request, _placer(jax, sharding, device), sharded=sharding is not None)


class JaxBatches(Iterator[Batch]):
    """Batches of jax arrays. The next one is on its way to the device while one is in use, unless prefetch=0.

    Its own iterator, for one consumer: after the last batch, the next `iter()` begins the next epoch. `state_dict()`
    counts what was delivered, never what was only prefetched; it has the form of those of `split.batches`.
    """

    def __init__(self, request: Request, put: Put, *, sharded: bool) -> None:
        self._request = request
        self._put = put
        self._sharded = sharded
        self._batches = Batches(request)
        self._go_to(0)

    def _go_to(self, consumed: int) -> None:
        self._begun_at = consumed
        self._delivered = 0
        self._ahead: list[Batch] = []
        self._ended: BaseException | None = None  # what ended the batches: StopIteration, or a failure
        self._over = False

    @property
    def epoch(self) -> int:
        """The epoch that is being delivered, or was last."""
        return self._batches.epoch

    @property
    def padded(self) -> int:
        """How many records of an epoch, over all ranks, come a second time, with remainder="pad"."""
        return self._batches.padded

    def __len__(self) -> int:
        """How many batches this rank has in an epoch, from where it began."""
        return len(self._batches)

    def __iter__(self) -> JaxBatches:
        if self._over:
            iter(self._batches)
            self._go_to(0)
        return self

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        if not self._ahead:
            self._fetch()
        if not self._ahead:
            self._over = True
            assert self._ended is not None
            raise self._ended
        ready = self._ahead.pop()
        if self._request.prefetch:
            self._fetch()  # a failure waits until what came before it is delivered
        self._delivered += 1
        return ready

    def _fetch(self) -> None:
        if self._ended is not None:
            return
        try:
            self._ahead.append(self._placed(next(self._batches)))
        except Exception as ended:
            self._ended = ended

    def _placed(self, batch: Batch) -> Batch:
        out: dict[str, Any] = {}
        for name, column in batch.items():
            if self._sharded and isinstance(column, (Ragged, SparseColumn)):
                raise _not_shared(name, column)
            with located(feature=name):
                out[name] = converted(column, self._put)
        return out

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        request = self._request
        order = request.recipe.to_dict()
        state = State(request.dataset(), request.split, order, checked_seed("epoch", epoch), 0)
        self.load_state_dict(state.to_dict())

    def state_dict(self) -> dict[str, Any]:
        """Where this is: a few numbers, fit for JSON. At a synchronous step it is the same on all ranks."""
        state = self._batches.state_dict()
        if not isinstance(self._ended, StopIteration):
            # The batches may be one ahead. All but the last of an epoch are of whole steps.
            state["consumed"] = (
                self._begun_at + self._delivered * self._request.batch_size * self._request.world
            )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with any rank, world, batch size and columns."""
        self._batches.load_state_dict(state)
        self._go_to(int(state["consumed"]))

    def close(self) -> None:
        """Stop early: threads end, and what was prefetched is let go."""
        self._batches.close()
        self._ahead.clear()
        self._over = True


def _placer(jax: Any, sharding: Any, device: Any) -> Put:
    def put(array: Array) -> Any:
        if not jax.config.jax_enable_x64 and array.dtype.name in _NARROW:
            array = _narrowed(array)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        try:
            if sharding is not None:
                return jax.make_array_from_process_local_data(sharding, array)
            return jax.device_put(array, device)
        except (TypeError, ValueError) as failure:
            raise error(
                "U663",
                "jax cannot place a column",
                expected="an array that the sharding can divide" if sharding is not None else "an array",
                found=f"shape {array.shape} of {array.dtype}"[:60],
                likely=str(failure).split("\n", 1)[0][:120],
                do='remainder="drop", and a batch_size that the devices divide'
                if sharding is not None
                else "map= with a function that converts the column",
            ) from None

    return put


def _narrowed(array: Array) -> Array:
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
        "U663",
        f"a column of {array.dtype} has values that {dtype} does not hold, and jax keeps 32 bits",
        expected=f"values that {dtype} holds",
        found=str(array[changed].flat[0])[:60],
        do='jax.config.update("jax_enable_x64", True), or map= with a function that converts the column',
    )


def _not_shared(name: str, column: Column) -> RekordError:
    return error(
        "U663",
        f"`{name}` has rows of different lengths, which devices cannot share",
        location=Location(feature=name),
        expected="a dense column beside sharding=",
        found=type(column).__name__,
        do=f'map= with a function that pads it: batch["{name[:40]}"].to_padded(0, length)',
    )


def _processes(jax: Any) -> tuple[int, int] | None:
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
            "U661",
            "`remainder` must be chosen beside a sharding",
            expected='remainder="drop", "pad" or "keep"',
            found="none given",
            do='remainder="drop": devices may not be able to share the short last batch',
        )
