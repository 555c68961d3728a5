"""Where windows begin and end in sorted rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from rekord.conversion.windows.columns import to_ticks
from rekord.conversion.windows.files import load_array, load_time_dtype
from rekord.conversion.windows.merge import RunMerge
from rekord.conversion.windows.sort import SortTask

_SEGMENTS = 1 << 16


def find_windows(task: SortTask, merge: RunMerge) -> tuple[int, int, int]:
    """Write the first row, the end and the split of each window; returns their number, that of rows in none of
    them, and that of windows that were dropped since they cross the border of two splits."""
    folder = task.folder
    series = load_array(os.path.join(folder, "series"), np.int64)
    time = load_array(os.path.join(folder, "time"), load_time_dtype(folder))
    borders = merge.borders
    total = left_over = crossing = 0
    with open(os.path.join(folder, "windows"), "wb") as file:
        for at in range(0, len(series), _SEGMENTS):
            starts = np.asarray(series[at : at + _SEGMENTS])
            following = series[at + _SEGMENTS] if at + _SEGMENTS < len(series) else merge.rows
            ends = np.append(starts[1:], following)
            if borders is None:
                for found, covered in _windows_of(task, starts, ends, time):
                    total += _write_windows(file, found, 0)
                    left_over += covered
                continue
            uncut = sum(len(found) for found, _ in _windows_of(task, starts, ends, time))
            cut = 0
            for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
                edges = [begin, *[begin + int(np.searchsorted(time[begin:end], one)) for one in borders], end]
                for split, (low, high) in enumerate(pairwise(edges)):
                    if high > low:
                        for found, covered in _windows_of(task, np.array([low]), np.array([high]), time):
                            cut += _write_windows(file, found, split)
                            left_over += covered
            crossing += max(0, uncut - cut)
            total += cut
    return total, left_over, crossing


def _write_windows(file: Any, windows: Any, split: int) -> int:
    out = np.empty((len(windows), 3), np.int64)
    out[:, :2], out[:, 2] = windows, split
    out.tofile(file)
    return len(windows)


def _windows_of(task: SortTask, starts: Any, ends: Any, time: Any) -> Iterator[tuple[Any, int]]:
    """The windows of some series as pairs of rows, and how many rows are in none of them."""
    if task.window.is_timed:
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield from _timed_windows(task, begin, end, time)
        return
    window = task.window
    size, stride = int(window.size), int(window.stride)
    lengths = ends - starts - window.horizon
    if window.incomplete == "pad":
        counts = np.where(lengths > 0, -(-np.maximum(lengths - size, 0) // stride) + 1, 0)
    else:
        counts = np.where(lengths >= size, (lengths - size) // stride + 1, 0)
    # A long series has many windows: a few at a time.
    for which, first, count in _split_counts(counts):
        number = first + np.arange(count) if which is not None else None
        if number is None:
            several = np.repeat(np.arange(len(counts)), counts)
            number = np.arange(len(several)) - np.repeat(np.cumsum(counts) - counts, counts)
        else:
            several = np.full(count, which)
        begin = starts[several] + number * stride
        stop = np.minimum(begin + size, ends[several] - window.horizon)
        yield np.stack([begin, stop], axis=1), 0
    last = np.minimum((counts - 1) * stride + size, np.maximum(lengths, 0))
    used = np.where(counts > 0, np.where(stride > size, counts * size, last + window.horizon), 0)
    yield np.zeros((0, 2), np.int64), int((ends - starts - used).clip(0).sum())


def _split_counts(counts: Any) -> Iterator[tuple[int | None, int, int]]:
    """All windows at once if they are few, else those of each series in ranges."""
    if int(counts.sum()) <= 1 << 20:
        yield None, 0, int(counts.sum())
        return
    for which, count in enumerate(counts.tolist()):
        for first in range(0, count, 1 << 20):
            yield which, first, min(1 << 20, count - first)


def _timed_windows(task: SortTask, begin: int, end: int, time: Any) -> Iterator[tuple[Any, int]]:
    """The windows of a series whose size is a duration: those that contain a row, and that the series covers."""
    unit = task.time_unit or "us"
    size = int(to_ticks("size", task.window.size, unit))
    stride = int(to_ticks("stride", task.window.stride, unit))
    horizon = task.window.horizon
    rows = end - begin - horizon
    if rows < 1:
        yield np.zeros((0, 2), np.int64), end - begin
        return
    origin, latest = int(time[begin]), int(time[begin + rows - 1])
    # The last row lasts as long as rows do on average.
    until = latest - origin + ((latest - origin) // (rows - 1) if rows > 1 else 0)
    most = (until - size) // stride  # the last window that is complete
    reached = -1
    covered = begin
    for at in range(begin, begin + rows, 1 << 18):
        inside = np.asarray(time[at : min(at + (1 << 18), begin + rows)]).astype(np.int64) - origin
        high = np.minimum(inside // stride, most)
        low = np.maximum((inside - size) // stride + 1, 0)
        before = np.concatenate([[reached], np.maximum.accumulate(high)[:-1]])
        low = np.maximum(low, np.maximum(before, reached) + 1)
        counts = np.maximum(high - low + 1, 0)
        reached = max(reached, int(high.max(initial=-1)))
        for which, first, count in _split_counts(counts):
            if which is None:
                several = np.repeat(np.arange(len(counts)), counts)
                number = low[several] + np.arange(len(several)) - np.repeat(np.cumsum(counts) - counts, counts)
            else:
                number = low[which] + first + np.arange(count)
            starts = origin + number * stride
            own = time[begin : begin + rows]
            first_row = begin + np.searchsorted(own, starts)
            stop = begin + np.searchsorted(own, starts + size)
            covered = max(covered, int(stop.max(initial=covered)))
            yield np.stack([first_row, stop], axis=1).astype(np.int64), 0
    yield np.zeros((0, 2), np.int64), end - covered - (horizon if covered > begin else 0)
