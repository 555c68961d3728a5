"""Hashes of rows: what decides their order and their split, and nothing else does.

A row's hash is made from the seed, its file below the root, its position there and its copy number. Workers,
parts and time do not enter, so a conversion gives the same bytes wherever and however often it is run.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = "npt.NDArray[np.uint64]"
Salt: TypeAlias = Literal["order", "split"]

HASH_BITS = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_COPY = np.uint64(0xD1B54A32D192ED03)


def text_hash(seed: int, salt: Salt, text: bytes) -> int:
    """The 64-bit hash of a text: a path, or a value that rows are grouped by."""
    keyed = hashlib.blake2b(
        text, digest_size=8, key=seed.to_bytes(16, "little", signed=True), person=salt.encode()
    )
    return int.from_bytes(keyed.digest(), "little")


def row_hashes(
    bases: Hashes, positions: npt.NDArray[np.int64], copies: npt.NDArray[np.int64] | None
) -> Hashes:
    """The hashes of rows, from the `text_hash` of each one's path, its position and its copy number."""
    with np.errstate(over="ignore"):
        mixed = bases + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        if copies is not None:
            mixed = mixed + copies.astype(np.uint64) * _COPY
    return _scattered(mixed)


def _scattered(x: Hashes) -> Hashes:
    """The finaliser of splitmix64: each bit of the input changes half of the output's."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scattered: Hashes = x ^ (x >> np.uint64(31))
    return scattered


def value_bytes(value: Any) -> bytes:
    """A value to be hashed: equal values give equal bytes, and "1" is not 1."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (bool, int)):
        return b"i%d" % int(value)
    return b"o" + repr(value).encode("utf-8", "surrogatepass")
