"""Which features of a record are what they were: 32 bits of each, kept on disk until two records are compared.

Rows are as wide as there were features when they were written, so that a file of a thousand shards is a few blocks:

    | offset, 64 bits | feature 0 | feature 1 | …      0 where a record lacks the feature
"""

from __future__ import annotations

import os
import tempfile
from typing import IO, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.errors import RekordError, error
from rekord.health.diff_digest import mix_column, mix_steps
from rekord.health.keyed import KeyedBatch
from rekord.location import Location
from rekord.storage.files import read_error

MOST_FEATURES = 1024
"""So many features are told apart; the rest are one, since keys in such numbers are data and not names."""

OTHERS = "(other keys)"

Words: TypeAlias = npt.NDArray[np.uint32]
Rows: TypeAlias = npt.NDArray[np.int64]

_OFFSET_WORDS = 2
_READ_BYTES = 1 << 20
"""Rows that are this close are read together."""


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
            order = np.argsort(rows, kind="stable")
            ends = [*(first for first, _, _ in self._blocks[1:]), self._rows]
            cuts = np.searchsorted(rows[order], ends).tolist()
            for (first_row, first_word, width), begin, end in zip(
                self._blocks, [0, *cuts], cuts, strict=False
            ):
                which = order[begin:end]
                out[which, :width] = self._block_rows(first_word, width, rows[which] - first_row)
        return np.ascontiguousarray(out[:, :_OFFSET_WORDS]).view(np.int64)[:, 0], out[:, _OFFSET_WORDS:]

    def close(self) -> None:
        """Let go of the disk."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _block_rows(self, first_word: int, width: int, rows: Rows) -> Words:
        """These rows of a block, which are in order. Read and not mapped: what a disk cannot read of a mapped file
        would end the process."""
        assert self._file is not None
        out = np.empty((len(rows), width), np.uint32)
        rows_at_once = max(1, _READ_BYTES // (4 * width))
        begin = 0
        while begin < len(rows):
            first = int(rows[begin])
            end = int(np.searchsorted(rows, first + rows_at_once))
            stretch = np.empty((int(rows[end - 1]) + 1 - first, width), np.uint32)
            self._read(stretch, 4 * (first_word + first * width))
            out[begin:end] = stretch[rows[begin:end] - first]
            begin = end
        return out

    def _read(self, into: Words, offset: int) -> None:
        assert self._file is not None
        left = into.reshape(-1).view(np.uint8).data
        try:
            while left:
                count = os.preadv(self._file.fileno(), [left], offset)
                if not count:
                    raise OSError("the file of prints is shorter than what was written to it")
                left, offset = left[count:], offset + count
        except OSError as failure:
            raise read_error(tempfile.gettempdir(), failure) from failure

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
