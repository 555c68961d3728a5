"""Whether float32 can tell the values of a float64 column apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_FIRST_LOOK = 1 << 16
_MOST_KEPT = 1 << 22


def float32_loses(values: Any) -> bool:
    """Whether float32 would make one value of two, make one infinite, or change a whole number."""
    array = np.asarray(values, np.float64)
    merging = Merging()
    merging.add(array)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = array == np.floor(array)
        changed = array.astype(np.float32).astype(np.float64) != array
    return merging.merges() or bool(np.any(whole & changed & np.isfinite(array)))


class Merging:
    """Distinct float64 values, and whether float32 makes one of two of them, or makes one infinite.

    Beyond four million distinct values no more are kept, and new ones are compared with those only.
    """

    def __init__(self) -> None:
        self._kept: npt.NDArray[np.float64] = np.empty(0)
        self._waiting: list[npt.NDArray[np.float64]] = []
        self._waiting_values = 0
        self._found = False

    def add(self, values: Any) -> None:
        """Look at more values."""
        if self._found:
            return
        array = np.asarray(values, np.float64).ravel()
        self._waiting.append(array)
        self._waiting_values += array.size
        # As many new as old ones, so that all the sorting together is not much more than one.
        if self._waiting_values >= max(_FIRST_LOOK, self._kept.size):
            self._look()

    def merges(self) -> bool:
        """Whether declaring float32 would lose more than digits."""
        self._look()
        return self._found

    def _look(self) -> None:
        if self._found or not self._waiting:
            return
        distinct = np.unique(np.concatenate([self._kept, *self._waiting]))
        self._waiting, self._waiting_values = [], 0
        distinct = distinct[np.isfinite(distinct)]
        with np.errstate(over="ignore"):
            rounded = distinct.astype(np.float32)
        self._found = bool(np.isinf(rounded).any() or (rounded[1:] == rounded[:-1]).any())
        if distinct.size <= _MOST_KEPT or not self._kept.size:
            self._kept = distinct[:_MOST_KEPT]
