"""`split.to_tensorflow(…)`: a split as a tf.data.Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rekord.dataset.finish import Batch
from rekord.dataset.steps import Remainder
from rekord.errors import error
from rekord.feeds.tensors import framework

if TYPE_CHECKING:
    from rekord.dataset.asking import Shuffle
    from rekord.dataset.split import Split

Mode: TypeAlias = Literal["native", "ops"]


def to_tensorflow(
    split: Split,
    batch_size: int,
    *,
    mode: Mode,
    columns: Sequence[str] | None,
    shuffle: Shuffle,
    seed: int,
    epoch: int,
    rank: int,
    world: int,
    remainder: Remainder,
    fill: Mapping[str, Any] | None,
    ragged: Literal["ragged", "pad"],
    pad: Mapping[str, Any] | None,
    decode: bool,
    resize: tuple[int, int] | None,
    map: Callable[[Batch], Any] | None,
    prefetch: int,
    threads: int | None,
    state: Mapping[str, Any] | None,
    one_length: bool = False,
    call: str = "to_tensorflow",
) -> Any:
    """The dataset in one of the two modes; `one_length` as for native mode."""
    if mode not in ("native", "ops"):
        raise error(
            "U605",
            f"`mode` cannot be {repr(mode)[:60]}",
            expected='"native" or "ops"',
            found=repr(mode)[:60],
            do='mode="native"',
        )
    if mode == "ops":
        from rekord.feeds.tf_ops import check_ops

        check_ops(shuffle=shuffle, epoch=epoch, remainder=remainder, decode=decode, map=map, state=state)
    request = split.request(
        batch_size,
        columns=columns,
        shuffle=shuffle if mode == "native" else False,
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
    if not request.plan().columns:
        raise error(
            "U605",
            "a tf.data.Dataset cannot have no columns",
            expected="a column at least",
            found="columns=[]" if columns is not None else "a schema without columns",
            do="leave `columns` out, or name one",
        )
    tf = framework("tensorflow", call, "tensorflow")
    if mode == "native":
        from rekord.feeds.tf_native import native_dataset

        return native_dataset(tf, request, state, one_length=one_length)
    from rekord.feeds.tf_ops import ops_dataset

    return ops_dataset(tf, request, shuffle=bool(shuffle), seed=seed, one_length=one_length)
