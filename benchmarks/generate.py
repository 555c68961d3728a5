"""The record files of a workload, generated once: Examples assembled column by column with NumPy.

rekord's encoder is not used, so that a bug in it cannot hide in the data that it is measured on.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
from workloads import Column, Lists, Values, Workload, fill_once

from rekord import _core

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_KIND_TAGS = {"bytes": b"\x0a", "text": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
_LONG = 256  # bytes per row from which copying rows is faster than indexing bytes
SHARDS = 2


def prepare(workload: Workload) -> None:
    """Generate the files of a workload if they do not exist."""

    def fill(folder: Path) -> None:
        for name in ("records", "index"):
            (folder / name).mkdir()
        chunks = np.array_split(np.arange(workload.chunks()), SHARDS)
        if len(chunks[1]) == 0:
            raise ValueError(f"{workload.name}: {workload.records} records do not fill {SHARDS} shards")
        with ProcessPoolExecutor(SHARDS, get_context("spawn")) as pool:
            tasks = [
                pool.submit(_write_shard, workload, numbers.tolist(), folder, shard_name(shard, SHARDS))
                for shard, numbers in enumerate(chunks)
            ]
            for task in tasks:
                task.result()

    fill_once(workload.folder, fill)


def repeated(workload: Workload, times: int) -> str:
    """A folder that holds the shards of a workload `times` times, as links."""
    shards = workload.shards()

    def fill(folder: Path) -> None:
        for i in range(times * len(shards)):
            os.link(shards[i % len(shards)], folder / shard_name(i, times * len(shards)))

    folder = workload.folder / f"repeated-{times}"
    fill_once(folder, fill)
    return str(folder)


def shard_name(shard: int, shards: int) -> str:
    return f"train-{shard:05d}-of-{shards:05d}.tfrecord"


def _write_shard(workload: Workload, chunks: list[int], folder: Path, name: str) -> None:
    offset = 0
    with (
        open(folder / "records" / name, "wb") as records,
        open((folder / "index" / name).with_suffix(".idx"), "w") as index,
    ):
        for chunk in chunks:
            frames = [_core.frame(payload) for payload in _payloads(workload, chunk)]
            records.writelines(frames)
            for frame in frames:
                index.write(f"{offset} {len(frame)}\n")
                offset += len(frame)
    if workload.compressed:
        _compress(folder / "records" / name)


def _compress(path: Path) -> None:
    packer = zlib.compressobj(6, wbits=31)
    packed = packer.compress(path.read_bytes()) + packer.flush()
    path.write_bytes(packed)


def _payloads(workload: Workload, chunk: int) -> Iterator[bytes]:
    rows = workload.rows(chunk)
    entries = [_entry(column, rows[column.name]) for column in workload.columns]
    if workload.shuffled_keys:
        body = _shuffled(entries, np.random.default_rng([chunk]))
    else:
        body = _join(entries)
    examples = _join([_varints_of(body.lengths, b"\x0a"), body])
    flat = examples.values.tobytes()
    for start, length in zip(examples.starts.tolist(), examples.lengths.tolist(), strict=True):
        yield flat[start : start + length]


def _entry(column: Column, values: Values) -> Lists:
    """An entry of the features map: key, then Feature { list { values } }, each after its length."""
    key = column.name.encode()
    stored = _stored(column, values)
    listed = _join([_varints_of(stored.lengths, b"\x0a"), stored])
    feature = _join([_varints_of(listed.lengths, _KIND_TAGS[column.kind]), listed])
    body = _join([_varints_of(feature.lengths, b"\x0a" + bytes([len(key)]) + key + b"\x12"), feature])
    return _join([_varints_of(body.lengths, b"\x0a"), body])


def _stored(column: Column, values: Values) -> Lists:
    """The bytes of the values of each row: packed numbers, or the one string."""
    if column.is_string:
        return values if isinstance(values, Lists) else _even(values)
    if column.kind == "float":
        assert not isinstance(values, Lists), "ragged floats are not supported"
        return _even(values.astype("<f4", copy=False))
    flat = values if isinstance(values, Lists) else _rows(values)
    packed = _varints(flat.values.astype(np.int64))
    ends = np.cumsum(packed.lengths)
    last = np.cumsum(flat.lengths) - 1
    return Lists(packed.values, np.diff(ends[last], prepend=0))


def _rows(array: npt.NDArray[np.generic]) -> Lists:
    return Lists(array.reshape(-1), np.full(len(array), array.size // len(array)))


def _even(array: npt.NDArray[np.generic]) -> Lists:
    """Fixed-size rows, as bytes."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Lists(flat, np.full(len(array), len(flat) // len(array)))


def _varints(numbers: Ints) -> Lists:
    widths = np.ones(len(numbers), np.int64)
    for bits in range(7, 63, 7):
        widths += numbers >= 1 << bits
    out = np.empty(int(widths.sum()), np.uint8)
    starts = np.cumsum(widths) - widths
    for i in range(int(widths.max(initial=1))):
        has = widths > i
        more = (widths[has] > i + 1).astype(np.int64) << 7
        out[starts[has] + i] = numbers[has] >> 7 * i & 0x7F | more
    return Lists(out, widths)


def _varints_of(lengths: Ints, before: bytes) -> Lists:
    """In each row the bytes `before`, then a length."""
    fixed = Lists(np.tile(np.frombuffer(before, np.uint8), len(lengths)), np.full(len(lengths), len(before)))
    return _join([fixed, _varints(lengths)])


def _join(pieces: list[Lists]) -> Lists:
    lengths = np.sum([piece.lengths for piece in pieces], axis=0)
    out = np.empty(int(lengths.sum()), np.uint8)
    at = np.cumsum(lengths) - lengths
    for piece in pieces:
        _place(out, at, piece)
        at = at + piece.lengths
    return Lists(out, lengths)


def _shuffled(pieces: list[Lists], rng: np.random.Generator) -> Lists:
    """Like `_join`, with a different order in every row."""
    lengths = np.stack([piece.lengths for piece in pieces], axis=1)
    order = rng.permuted(np.tile(np.arange(len(pieces)), (len(lengths), 1)), axis=1)
    ordered = np.take_along_axis(lengths, order, axis=1)
    totals = ordered.sum(axis=1)
    starts = np.cumsum(ordered, axis=1) - ordered + (np.cumsum(totals) - totals)[:, None]
    at = np.empty_like(starts)
    np.put_along_axis(at, order, starts, axis=1)
    out = np.empty(int(totals.sum()), np.uint8)
    for i, piece in enumerate(pieces):
        _place(out, at[:, i], piece)
    return Lists(out, totals)


def _place(out: Bytes, at: Ints, piece: Lists) -> None:
    """Copy each row of a piece to its offset in `out`."""
    widths = piece.lengths
    if len(piece.values) > _LONG * len(widths):
        for to, start, width in zip(at.tolist(), piece.starts.tolist(), widths.tolist(), strict=True):
            out[to : to + width] = piece.values[start : start + width]
    elif widths[0] == widths.max() == widths.min():
        out[at[:, None] + np.arange(widths[0])] = piece.values.reshape(len(widths), -1)
    else:
        out[np.repeat(at - piece.starts, widths) + np.arange(len(piece.values))] = piece.values
