"""Ops mode: a tf.data.Dataset of TensorFlow's own operations alone, for tf.data service and TPU pods."""

from __future__ import annotations

from random import Random
from typing import Any

from rekord.dataset.batches import Request
from rekord.dataset.finish import Finish
from rekord.dataset.recipes import FileOrder
from rekord.dataset.shard_index import compression_of
from rekord.errors import RekordError, error
from rekord.feeds.tf_parse import Parser

SHUFFLE_RECORDS = 16_384
"""So many records lie in the buffer that a shuffled dataset draws from."""

_FILES_AT_A_TIME = 16
_RECORDS_AT_A_TIME = 16
_COMPRESSION = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


def check_ops(
    *, shuffle: object, epoch: object, remainder: object, decode: object, map: object, state: object
) -> None:
    """Refuse what TensorFlow's operations cannot do."""
    for name, given, can, do in (
        ("shuffle", shuffle, shuffle in (False, True), "shuffle=True draws from a buffer of records"),
        ("epoch", epoch, epoch == 0, "another seed gives another order"),
        ("remainder", remainder, remainder != "pad", 'remainder="drop"'),
        ("decode", decode, not decode, "dataset.map(…) with tf.io.decode_image"),
        ("map", map, map is None, "dataset.map(…) with functions of TensorFlow"),
        ("state", state, state is None, 'mode="native", which can go on from a state'),
    ):
        if not can:
            raise _refused(f'`{name}` cannot be {repr(given)[:60]} with mode="ops"', repr(given)[:60], do)


def ops_dataset(tf: Any, request: Request, *, shuffle: bool, seed: int, one_length: bool = False) -> Any:
    """The dataset: file order, or files in an order by the seed and records drawn from a buffer.

    A rank reads files of its own where every rank gets as many, and each `world`-th record of all files elsewhere.

    tf.data service and tf.distribute share this dataset out among workers by its source, the list of files. So
    nothing may stand between that and the reader: under dynamic sharding TensorFlow gives all files to every worker
    once they are shuffled there. Nor may it claim a number of batches, since a worker has fewer. With ranks, and
    for Keras (`one_length`), which warns of a dataset without a length, it has one and is not sharded again.
    """
    finish = request.finish if isinstance(request.finish, Finish) else None
    if not isinstance(request.recipe, FileOrder) or (finish is not None and finish.map is not None):
        raise _refused(
            'mode="ops" reads whole files, and this split is a view of some records, or has a function',
            "a view, a balanced or mixed split, or one with a `map`",
            'mode="native"',
        )
    if request.transform is not None:
        raise _refused(
            'mode="ops" has no operations for the transforms of this split',
            "split.transform(…)",
            'mode="native", or write the dataset with these transforms',
        )
    plan = request.plan()
    parser = Parser.of(plan, finish)
    paths, rank, world = request.shards.paths, request.rank, request.world
    by_file = len(paths) % world == 0
    own = list(paths[rank::world] if by_file else paths)
    if shuffle:
        # By this seed alone: ranks that share all files must see them in one order.
        Random(seed).shuffle(own)
    kinds = [_COMPRESSION[compression_of(path)] for path in own]

    def records(path: Any, kind: Any) -> Any:
        return tf.data.TFRecordDataset(path, compression_type=kind)

    if not shuffle and len(set(kinds)) == 1:
        # Files in a row, which is faster than an interleave of one at a time.
        dataset = records(own, kinds[0])
    else:
        dataset = tf.data.Dataset.from_tensor_slices(
            (tf.constant(own, tf.string, [len(own)]), tf.constant(kinds, tf.string, [len(own)]))
        )
        cycle = min(len(own), _FILES_AT_A_TIME) if shuffle else 1
        dataset = dataset.interleave(records, cycle_length=max(cycle, 1), block_length=_RECORDS_AT_A_TIME)
    if not by_file:
        dataset = dataset.shard(world, rank)
    if shuffle:
        dataset = dataset.shuffle(SHUFFLE_RECORDS, seed=seed)
    drop = request.remainder == "drop"
    dataset = dataset.batch(request.batch_size, drop_remainder=drop)
    is_sized = world > 1 or one_length
    steps = _steps(request, by_file) if is_sized else None
    if drop and steps is not None:
        dataset = dataset.take(steps)  # as many on all ranks: they would wait for each other for ever
    dataset = dataset.map(
        lambda payloads: parser.parse(tf, payloads), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    if steps is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps))
    if is_sized:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options)
    return dataset


def _steps(request: Request, by_file: bool) -> int | None:
    """How many batches this rank gets; None where that is not known without reading."""
    if not request.shards.counted:
        return None
    counts, world = request.shards.counts.tolist(), request.world
    ranks = [
        sum(counts[rank::world]) if by_file else len(range(rank, sum(counts), world)) for rank in range(world)
    ]
    if request.remainder == "drop":
        return min(ranks) // request.batch_size
    return -(-ranks[request.rank] // request.batch_size)


def _refused(what: str, found: str, do: str) -> RekordError:
    return error("U658", what, expected="what TensorFlow's own operations can do", found=found, do=do)
