"""Digests of what records store under their keys."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.health.key_columns import KeyColumn, StepColumn

DigestArray: TypeAlias = npt.NDArray[np.uint64]
"""Two numbers per row: the low half, then the high half."""

DigestGroup: TypeAlias = Literal["context", "steps", "payload", "key"]


def mix_column(key: str, column: KeyColumn, into: DigestArray) -> None:
    """Mix what each row has under a key into its digest."""
    _core.digest_column(
        compute_key_seed("context", column.kind, key), column.values, column.offsets, column.valid, into
    )


def mix_steps(key: str, column: StepColumn, into: DigestArray) -> None:
    """Mix the steps that each row has under a key into its digest."""
    steps = column.steps
    number = compute_key_seed("steps", steps.kind, key)
    each = np.zeros((len(steps), 2), np.uint64)
    _core.digest_column(number, steps.values, steps.offsets, steps.valid, each)
    _core.digest_column(number, each.reshape(-1), column.offsets * 2, column.valid, into)


@lru_cache(maxsize=4096)
def compute_key_seed(group: DigestGroup, kind: str, key: str) -> int:
    """A stable number for a key and its kind: the same in every run."""
    text = f"{group}\0{kind}\0{key}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
