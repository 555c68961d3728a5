"""Parses payloads with TensorFlow's own operations, into the same tensors as native mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np

from rekord.codec.plan import CodecPlan
from rekord.dataset.batches import BatchRequest
from rekord.dataset.options import BatchOptions
from rekord.dataset.postprocess import Postprocessor
from rekord.dataset.samplers import FileOrderSampler
from rekord.dataset.shard_index import detect_file_compression
from rekord.errors import RekordError, error
from rekord.schema import Feature, Schema, Tensor
from rekord.schema.interop.tf_spec import to_tf_spec

_RAW_DTYPE_SUBSTITUTES = {"uint32": "int32", "uint64": "int64"}
"""Dtypes that decode_raw lacks are decoded as another of the same width, and then bitcast."""


@dataclass(frozen=True, slots=True)
class OpsParser:
    """The selected columns of a schema, and how missing values and ragged rows are filled."""

    schema: Schema
    spec: Any
    fill: Mapping[str, Any]
    pad: Mapping[str, Any] | None

    @classmethod
    def of(cls, plan: CodecPlan, finish: Postprocessor | None) -> OpsParser:
        """The parser of a plan; raises SchemaError if TensorFlow has no spec for a column."""
        wanted = set(plan.columns)
        context = {name: feature for name, feature in plan.schema.context.items() if name in wanted}
        steps = {name: feature for name, feature in plan.schema.steps.items() if name in wanted}
        schema = Schema(context=context, steps=steps) if plan.schema.is_sequence else Schema(context)
        return cls(
            schema,
            None if schema.kind == "bytes" else to_tf_spec(schema),
            {} if finish is None else finish.fill,
            None if finish is None else finish.pad,
        )

    def parse(self, tf: Any, payloads: Any) -> dict[str, Any]:
        """In the graph: the columns of a batch of payloads."""
        out: dict[str, Any] = {}
        if self.schema.kind == "bytes":
            return dict.fromkeys(self.schema, payloads)
        if not self.schema.is_sequence:
            parsed = tf.io.parse_example(payloads, self.spec)
            for name, feature in self.schema.items():
                out[name] = self._column(tf, name, feature, parsed)
            return out
        context, steps = self.spec
        parsed, lists, lengths = tf.io.parse_sequence_example(payloads, context or None, steps or None)
        for name, feature in self.schema.context.items():
            out[name] = self._column(tf, name, feature, parsed)
        for name, feature in self.schema.steps.items():
            out[name] = self._list(tf, name, feature, lists, lengths)
        return out

    def _column(self, tf: Any, name: str, feature: Feature, parsed: Mapping[str, Any]) -> Any:
        if feature.sparse_size is not None:
            column = _parse_sparse(tf, feature, parsed[feature.key or name])
            valid = _count_row_values(tf, column) > 0 if feature.optional else None
        elif feature.storage == "parallel":
            column, valid = _parse_boxes(tf, name, feature, parsed)
        else:
            column, valid = _parse_plain(tf, feature, parsed[feature.key or name])
        return self._finished(tf, name, feature, column, valid)

    def _list(
        self, tf: Any, name: str, feature: Feature, lists: Mapping[str, Any], lengths: Mapping[str, Any]
    ) -> Any:
        key = feature.key or name
        if feature.storage == "parallel":
            column, valid = _parse_boxes(tf, name, feature, lists)
            return self._finished(tf, name, feature, column, valid)
        rows = lists[key]
        if isinstance(rows, tf.SparseTensor):
            rows = tf.RaggedTensor.from_sparse(rows)
        elif not isinstance(rows, tf.RaggedTensor):
            rows = tf.RaggedTensor.from_tensor(rows, lengths=lengths[key])
        column = _cast_column(tf, feature, _to_int64(tf, rows))
        return self._finished(tf, name, feature, column, column.row_lengths() > 0)

    def _finished(self, tf: Any, name: str, feature: Feature, column: Any, valid: Any) -> Any:
        if isinstance(column, tf.RaggedTensor) and self.pad is not None:
            usual = b"" if column.dtype == tf.string else 0
            value = self.pad.get(name, usual)
            return column.to_tensor(tf.cast(value, column.dtype) if column.dtype != tf.string else value)
        if not feature.optional:
            return column
        fillable = not isinstance(column, (tf.RaggedTensor, tf.SparseTensor)) and column.dtype != tf.string
        if name in self.fill and fillable:
            there = tf.reshape(valid, [-1, *[1] * (len(column.shape) - 1)])
            value = np.asarray(self.fill[name], feature.dtype)
            return tf.where(there, column, tf.constant(value.astype(feature.stored_dtype)))
        return {"values": column, "valid": valid}


def _parse_plain(tf: Any, feature: Feature, parsed: Any) -> tuple[Any, Any]:
    """A column of one key, and which rows are present; to TensorFlow an empty list is a missing one."""
    if isinstance(parsed, tf.SparseTensor):
        rows = _to_int64(tf, tf.RaggedTensor.from_sparse(parsed))
        valid = rows.row_lengths() > 0
        known = feature.stored_shape
        if None in known:
            return _cast_column(tf, feature, rows), valid
        usual = _make_placeholder_bytes(feature) if _is_raw(feature) else None
        dense = rows.to_tensor(usual, shape=[None, prod(known)])  # type: ignore[arg-type]
        return _cast_column(tf, feature, tf.reshape(dense, [-1, *known])), valid
    if isinstance(parsed, tf.RaggedTensor):
        rows = _to_int64(tf, parsed)
        return _cast_column(tf, feature, rows), rows.row_lengths() > 0
    return _cast_column(tf, feature, parsed), None


def _is_raw(feature: Feature) -> bool:
    """Whether values are arrays stored as raw bytes."""
    return feature.storage == "blob" and feature.dtype is not None


def _make_placeholder_bytes(feature: Feature) -> bytes:
    """The bytes for a missing tensor: zeros, or nothing if the size varies."""
    if feature.variable:
        return b""
    return bytes(prod(feature.shape) * np.dtype(feature.dtype).itemsize)  # type: ignore[arg-type]


def _cast_column(tf: Any, feature: Feature, column: Any) -> Any:
    """Stored values in the declared dtype."""
    if _is_raw(feature):
        return _decode_tensors(tf, feature, column)
    if feature.dtype is None:
        return column
    dtype = tf.as_dtype(feature.stored_dtype)
    if column.dtype == dtype:
        return column
    change = tf.bitcast if dtype == tf.uint64 else tf.cast
    return tf.ragged.map_flat_values(change, column, dtype)


def _decode_tensors(tf: Any, feature: Feature, column: Any) -> Any:
    """Raw bytes as arrays."""
    if isinstance(column, tf.RaggedTensor):
        return column.with_flat_values(_decode_tensors(tf, feature, column.flat_values))
    name = np.dtype(feature.dtype).name
    raw, wanted = tf.as_dtype(_RAW_DTYPE_SUBSTITUTES.get(name, name)), tf.as_dtype(feature.dtype)
    flat = tf.io.decode_raw(tf.strings.reduce_join(column) if feature.variable else column, raw)
    flat = flat if raw == wanted else tf.bitcast(flat, wanted)
    if not feature.variable:
        return tf.reshape(flat, [-1, *feature.shape])
    at = feature.shape.index(None)
    before, after = feature.shape[:at], feature.shape[at + 1 :]
    around = prod(before) * prod(after)  # type: ignore[arg-type]
    lengths = tf.cast(tf.strings.length(column), tf.int64) // (around * np.dtype(feature.dtype).itemsize)
    lengths = tf.repeat(lengths, prod(before))  # type: ignore[arg-type]
    out = tf.RaggedTensor.from_row_lengths(tf.reshape(flat, [-1, *after]), lengths, validate=False)
    for size in reversed(before):
        out = tf.RaggedTensor.from_uniform_row_length(out, size)
    return out


def _parse_sparse(tf: Any, feature: Feature, parsed: Any) -> Any:
    dtype = tf.as_dtype(feature.dtype)
    if parsed.dtype == dtype:
        return parsed
    change = tf.bitcast if dtype == tf.uint64 else tf.cast
    return tf.SparseTensor(parsed.indices, change(parsed.values, dtype), parsed.dense_shape)


def _count_row_values(tf: Any, column: Any) -> Any:
    """The number of values in each row of a sparse column."""
    ones = tf.ones_like(column.indices[:, 0])
    return tf.math.unsorted_segment_sum(ones, column.indices[:, 0], column.dense_shape[0])


def _parse_boxes(tf: Any, name: str, feature: Feature, parsed: Mapping[str, Any]) -> tuple[Any, Any]:
    sides = [_to_int64(tf, parsed[key]) for key in feature.record_keys(name)]
    flat = tf.stack([side.flat_values for side in sides], axis=1)
    column = sides[0].with_flat_values(flat)
    return column, column.row_lengths() > 0


def _to_int64(tf: Any, rows: Any) -> Any:
    return rows.with_row_splits_dtype(tf.int64)


SHUFFLE_RECORDS = 16_384
"""Size of the shuffle buffer, in records."""

_PARALLEL_FILES = 16
_INTERLEAVE_BLOCK_RECORDS = 16
TF_COMPRESSION = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
"""TensorFlow's `compression_type` by our name."""


def validate_ops_options(options: BatchOptions, state: object) -> None:
    """Refuse options that TensorFlow's operations do not support."""
    given: Mapping[str, Any] = {**options, "state": state}
    for name, supported, do in (
        ("shuffle", (False, True), "shuffle=True, which uses a shuffle buffer"),
        ("epoch", (0,), "seed=1 for another order"),
        ("nodes", (1,), 'mode="native"'),
        ("remainder", ("keep", "drop"), 'remainder="drop"'),
        ("decode", (False,), "dataset.map(…) with tf.io.decode_image"),
        ("map", (None,), "dataset.map(…) with TensorFlow functions"),
        ("state", (None,), 'mode="native", which can resume from a state'),
    ):
        value = given.get(name, supported[0])
        if value not in supported:
            raise _ops_option_error(f'`{name}` cannot be {repr(value)[:60]} with mode="ops"', repr(value)[:60], do)


def build_ops_dataset(tf: Any, request: BatchRequest, *, shuffle: bool, seed: int, one_length: bool = False) -> Any:
    """The dataset: in file order, or with files shuffled by the seed and records drawn from a shuffle buffer.

    A rank reads its own files if all ranks get the same number of them, else every `world`-th record of all files.

    tf.data service and tf.distribute shard this dataset by its source, the list of files. So nothing may stand
    between that and the reader: under dynamic sharding TensorFlow gives all files to every worker if they are
    shuffled there. Nor may it claim a number of batches, since a worker has fewer. With ranks, and for Keras
    (`one_length`), which warns about a dataset without a length, it has one and is not sharded again.
    """
    finish = request.finish if isinstance(request.finish, Postprocessor) else None
    if not isinstance(request.sampler, FileOrderSampler) or (finish is not None and finish.map is not None):
        raise _ops_option_error(
            'mode="ops" can only read whole files',
            "a view of some records, a balanced or mixed split, or one with a `map`",
            'mode="native"',
        )
    if request.transform is not None:
        raise _ops_option_error(
            'mode="ops" does not support transforms',
            "split.transform(…)",
            'mode="native", or write the dataset with these transforms',
        )
    plan = request.plan()
    for name in plan.columns:
        feature = plan.schema[name]
        if isinstance(feature, Tensor) and feature.stores_shape:
            raise _ops_option_error(
                'mode="ops" does not support tensors with several unknown sizes',
                f"`{name}`: {feature!r}"[:60],
                'mode="native"',
            )
    parser = OpsParser.of(plan, finish)
    paths, rank, world = request.shards.paths, request.rank, request.world
    by_file = len(paths) % world == 0
    own = list(paths[rank::world] if by_file else paths)
    if shuffle:
        # By the seed alone: ranks that share all files must see them in the same order.
        Random(seed).shuffle(own)
    kinds = [TF_COMPRESSION[detect_file_compression(path)] for path in own]

    def records(path: Any, kind: Any) -> Any:
        return tf.data.TFRecordDataset(path, compression_type=kind)

    if not shuffle and len(set(kinds)) == 1:
        # Sequential files, which is faster than an interleave of one at a time.
        dataset = records(own, kinds[0])
    else:
        dataset = tf.data.Dataset.from_tensor_slices(
            (tf.constant(own, tf.string, [len(own)]), tf.constant(kinds, tf.string, [len(own)]))
        )
        cycle = min(len(own), _PARALLEL_FILES) if shuffle else 1
        dataset = dataset.interleave(records, cycle_length=max(cycle, 1), block_length=_INTERLEAVE_BLOCK_RECORDS)
    if not by_file:
        dataset = dataset.shard(world, rank)
    if shuffle:
        dataset = dataset.shuffle(SHUFFLE_RECORDS, seed=seed)
    drop = request.remainder == "drop"
    dataset = dataset.batch(request.batch_size, drop_remainder=drop)
    is_sized = world > 1 or one_length
    steps = _count_steps(request, by_file) if is_sized else None
    if drop and steps is not None:
        dataset = dataset.take(
            steps
        )  # the same number on all ranks, which would otherwise wait for each other forever
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


def _count_steps(request: BatchRequest, by_file: bool) -> int | None:
    """The number of batches of this rank; None if that is unknown without reading."""
    if not request.shards.counted:
        return None
    counts, world = request.shards.counts.tolist(), request.world
    ranks = [sum(counts[rank::world]) if by_file else len(range(rank, sum(counts), world)) for rank in range(world)]
    if request.remainder == "drop":
        return min(ranks) // request.batch_size
    return -(-ranks[request.rank] // request.batch_size)


def _ops_option_error(what: str, found: str, do: str) -> RekordError:
    return error("U651", what, expected="an option that TensorFlow's operations support", found=found, do=do)
