"""Which features of a record are what they were: 32 bits of each, kept on disk until two records are compared.

Rows are as wide as there were features when they were written, so that a file of a thousand shards is a few blocks:

    | offset, 64 bits | feature 0 | feature 1 | …      0 where a record lacks the feature
"""

from __future__ import annotations

import tempfile
from typing import IO, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.errors import RekordError, error
from rekord.health.diff_digest import mix_column, mix_steps
from rekord.health.keyed import KeyedBatch
from rekord.location import Location

MOST_FEATURES = 1024
"""So many features are told apart; the rest are one, since keys in such numbers are data and not names."""

OTHERS = "(other keys)"

Words: TypeAlias = npt.NDArray[np.uint32]
Rows: TypeAlias = npt.NDArray[np.int64]

_OFFSET_WORDS = 2


class Features:
    """The numbers of the features of both sides, in the order in which they were met."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bool, str], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, key: str, *, step: bool) -> int:
        """The number of a feature, a new one where it has none."""
        known = self._numbers.get((step, key))
        if known is not None:
            return known
        if len(self._numbers) >= MOST_FEATURES - 1:
            step, key = False, OTHERS
        return self._numbers.setdefault((step, key), len(self._numbers))

    def names(self) -> list[str]:
        """The features' keys, by number. A key may be both one of the context and one of the steps."""
        return [key for _, key in self._numbers]


class Prints:
    """The rows of one side. `add` gives them numbers from 0 on."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._file: IO[bytes] | None = None
        self._words = 0  # that have been written
        self._rows = 0
        # Of each run of rows of one width: its first row, its first word, and the words of a row.
        self._blocks: list[tuple[int, int, int]] = []

    def add(self, batch: KeyedBatch) -> int:
        """Keep the prints of a batch; gives the number of its first row."""
        numbers = [self._features.number(key, step=False) for key in batch.context]
        step_numbers = [self._features.number(key, step=True) for key in batch.steps]
        prints = np.zeros((len(batch), _OFFSET_WORDS + len(self._features)), np.uint32)
        prints[:, :_OFFSET_WORDS] = batch.offsets.view(np.uint32).reshape(-1, _OFFSET_WORDS)
        for number, (key, column) in zip(numbers, batch.context.items(), strict=True):
            digests = np.zeros((len(batch), 2), np.uint64)
            mix_column(key, column, digests)
            prints[:, _OFFSET_WORDS + number] ^= digests[:, 0].astype(np.uint32)
        for number, (key, steps) in zip(step_numbers, batch.steps.items(), strict=True):
            digests = np.zeros((len(batch), 2), np.uint64)
            mix_steps(key, steps, digests)
            prints[:, _OFFSET_WORDS + number] ^= digests[:, 0].astype(np.uint32)
        return self._keep(prints)

    def read(self, rows: Rows) -> tuple[Rows, Words]:
        """The offsets and the prints of some rows, as wide as there are features by now."""
        out = np.zeros((len(rows), _OFFSET_WORDS + len(self._features)), np.uint32)
        if len(rows):
            assert self._file is not None
            words = np.memmap(self._file, np.uint32, "r")
            blocks = np.array(self._blocks)
            block = np.searchsorted(blocks[:, 0], rows, "right") - 1
            for number in np.unique(block).tolist():
                first_row, first_word, width = self._blocks[number]
                which = block == number
                begins = first_word + (rows[which] - first_row) * width
                out[which, :width] = words[begins[:, None] + np.arange(width)]
        return np.ascontiguousarray(out[:, :_OFFSET_WORDS]).view(np.int64)[:, 0], out[:, _OFFSET_WORDS:]

    def close(self) -> None:
        """Let go of the disk."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _keep(self, prints: Words) -> int:
        first, width = self._rows, prints.shape[1]
        if not self._blocks or self._blocks[-1][2] != width:
            self._blocks.append((first, self._words, width))
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            left = prints.reshape(-1).view(np.uint8).data
            while left:
                left = left[self._file.write(left) :]
        except OSError as failure:
            raise _no_room(failure, 4 * (self._words + prints.size)) from None
        self._rows += len(prints)
        self._words += prints.size
        return first


def _no_room(failure: OSError, size_bytes: int) -> RekordError:
    try:
        folder: str | None = tempfile.gettempdir()
    except OSError:
        folder = None
    return error(
        "X546",
        location=Location(path=folder),
        expected=f"room for {size_bytes:,} bytes or more",
        found=(failure.strerror or str(failure))[:60],
        do="TMPDIR=/a/folder/with/room rekord diff …",
    )
