"""The numbers of the records that are asked for at random: the same ones for every peer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from workloads import Workload

_RECORDS = 2_000
_DRAWS = 20


def drawn_numbers(workload: Workload) -> Iterator[list[int]]:
    """Lists of 2,000 numbers, none of them twice in a list."""
    rng = np.random.default_rng(0)
    for _ in range(_DRAWS):
        yield rng.choice(workload.records, _RECORDS, replace=False).tolist()
