"""What a record holds as 128 bits: the same for the same features, however they are stored.

The order of keys, the compression and the shard make no difference; a single bit of a value does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.keyed import KeyColumn, KeyedBatch, StepColumn

Digests: TypeAlias = npt.NDArray[np.uint64]
"""Two numbers a row: the low half, then the high one."""

Group: TypeAlias = Literal["context", "steps", "payload", "key"]


def record_digests(batch: KeyedBatch) -> Digests:
    """The digest of every record of a batch."""
    into = np.zeros((len(batch), 2), np.uint64)
    for key in sorted(batch.context):
        mix_column(key, batch.context[key], into)
    for key in sorted(batch.steps):
        mix_steps(key, batch.steps[key], into)
    return into


def mix_column(key: str, column: KeyColumn, into: Digests) -> None:
    """Mix what each row has under a key into its digest."""
    _core.digest_column(seed("context", column.kind, key), column.values, column.offsets, column.valid, into)


def mix_steps(key: str, column: StepColumn, into: Digests) -> None:
    """Mix the steps that each row has under a key into its digest."""
    steps = column.steps
    number = seed("steps", steps.kind, key)
    each = np.zeros((len(steps), 2), np.uint64)
    _core.digest_column(number, steps.values, steps.offsets, steps.valid, each)
    _core.digest_column(number, each.reshape(-1), column.offsets * 2, column.valid, into)


def key_digests(column: KeyColumn) -> Digests:
    """The digest of every row's value of the column that tells records apart."""
    into = np.zeros((len(column), 2), np.uint64)
    _core.digest_column(seed("key", column.kind, ""), column.values, column.offsets, column.valid, into)
    return into


def payload_digests(path: str) -> Iterator[tuple[int, list[int], Digests]]:
    """The digests of whole payloads, for files that hold no Examples: (first record, offsets, digests).

    Damage is passed over in silence: it was said by the pass that found out what the payloads are.
    """
    number = seed("payload", "bytes", "")
    with open_frames(path) as reader:
        goes_on = True
        while goes_on:
            goes_on = False
            try:
                for stretch in reader.stretches():
                    payloads = stretch.payloads()
                    into = np.zeros((len(payloads), 2), np.uint64)
                    _core.digest_column(number, _core.strings(payloads), None, None, into)
                    yield stretch.first_record, [stretch.offset(i) for i in range(len(payloads))], into
            except RekordError as failure:
                _, goes_on = reader.recover(failure)


@lru_cache(maxsize=4096)
def seed(group: Group, kind: str, key: str) -> int:
    """A number that stands for a key and its kind, today and tomorrow."""
    text = f"{group}\0{kind}\0{key}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def order_sum(digests: Digests, positions: npt.NDArray[np.int64]) -> int:
    """A number that depends on which digest stands where. The sum over parts is that of the whole."""
    weights = positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        weights = (weights ^ (weights >> np.uint64(shift))) * np.uint64(factor)
    weights ^= weights >> np.uint64(31)
    return int((digests[:, 0] * weights).sum(dtype=np.uint64))
