"""What is read of an object: the same ranges for all."""

from __future__ import annotations

import random
from collections.abc import Iterator

BUCKET, OBJECT = "rekord-bench", "object"
PIECE_BYTES = 1 << 20
TURN_RANGES = 100
"""Ranges that are asked for at once, as a few batches of scattered records do."""

_TURNS = 10


def range_starts(size_bytes: int) -> Iterator[list[int]]:
    """The starts of 1,000 ranges, far enough apart that none are merged."""
    chance = random.Random(0)
    for _ in range(_TURNS):
        yield [chance.randrange(size_bytes - PIECE_BYTES) for _ in range(TURN_RANGES)]
