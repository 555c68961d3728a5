"""The hash that puts words into buckets: the same on every machine, in every version, for ever.

BLAKE2b of the UTF-8 bytes, 8 bytes long, keyed by the salt as 8 little-endian bytes, read as a little-endian number,
modulo the number of buckets.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache


@lru_cache(maxsize=1 << 17)
def bucket_of(word: bytes, buckets: int, salt: int) -> int:
    """The bucket of a word."""
    keyed = hashlib.blake2b(word, digest_size=8, key=salt.to_bytes(8, "little", signed=True))
    return int.from_bytes(keyed.digest(), "little") % buckets
