"""`split.to_torch(…)`: batches of torch tensors, or datasets for torch's own DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rekord.dataset.batches import checked_count
from rekord.dataset.finish import Batch
from rekord.dataset.steps import Remainder
from rekord.errors import RekordError, error
from rekord.feeds.ranks import Rank, chosen_ranks
from rekord.feeds.tensors import converted, framework
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.dataset.asking import Shuffle
    from rekord.dataset.split import Split

Style: TypeAlias = Literal["loader", "iterable", "map"]

_CALL = "to_torch"


def to_torch(
    split: Split,
    batch_size: int | None,
    *,
    style: Style,
    workers: int,
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
) -> Any:
    """What `style` names: our loader, an IterableDataset of batches, or a map-style Dataset of rows."""
    _check_style(style)
    framework("torch", _CALL, "torch")
    if style == "map":
        _check_unordered(
            batch_size=batch_size is not None,
            shuffle=shuffle is not False,
            rank=rank != 0,
            world=world != 1,
            remainder=remainder is not None,
            workers=workers != 0,
        )
        batch_size = 1
    number, size, rest = chosen_ranks(
        rank, world, remainder, _process_group, start="torch.distributed.init_process_group(…)"
    )
    request = split.request(
        batch_size,  # type: ignore[arg-type]
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
    count = checked_count("workers", workers, least=0)
    if style == "map":
        from rekord.feeds.torch_map import map_dataset

        return map_dataset(request)
    from rekord.feeds.torch_loader import iterable_dataset, loader

    if style == "loader":
        return loader(request, count)
    _check_unordered(workers=count != 0)
    return iterable_dataset(request)


def tensors(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch with tensors in place of arrays. They share memory with these, which nobody else writes to."""
    out = {}
    for name, column in batch.items():
        try:
            out[name] = converted(column, tensor)
        except TypeError as failure:
            raise no_tensor(name, failure) from None
    return out


def tensor(array: np.ndarray[Any, Any]) -> Any:
    """An array of numbers as a tensor, without a copy unless torch needs one."""
    import torch

    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    elif not array.flags.writeable or any(step < 0 or step % array.itemsize for step in array.strides):
        array = array.copy()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def no_tensor(name: str, failure: Exception) -> RekordError:
    """The error for a column that torch has no dtype for."""
    found = str(failure).split(". The only", 1)[0]
    return error(
        "U663",
        f"`{name}` cannot become a tensor of torch",
        location=Location(feature=name),
        expected="numbers of a dtype that torch has",
        found=found[:60],
        do=f"columns= without {name!r}, or map= with a function that converts it",
    )


def _process_group() -> tuple[int, int] | None:
    import torch.distributed as group

    if not group.is_available() or not group.is_initialized():
        return None
    return group.get_rank(), group.get_world_size()


def _check_style(style: object) -> None:
    if style not in ("loader", "iterable", "map"):
        raise error(
            "U605",
            f"`style` cannot be {repr(style)[:60]}",
            expected='"loader", "iterable" or "map"',
            found=repr(style)[:60],
            do='style="loader"',
        )


def _check_unordered(**given: bool) -> None:
    """Raise where something is asked for that torch's DataLoader decides in this style."""
    for name, asked in given.items():
        if asked:
            raise error(
                "U605",
                f"`{name}` means nothing in this style: torch's DataLoader decides it",
                expected=f"no `{name}`",
                found=f"`{name}` given",
                do=f"leave `{name}` out, and give it to the DataLoader or its sampler",
            )
