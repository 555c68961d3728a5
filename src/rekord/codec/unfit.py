"""Why a value does not fit: raised where that is found out, said where the column's name is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown

_SHOWN_TEXT = 40


class Unfit(Exception):
    """A value that cannot be stored; `at` is the position of the one to blame among all values, if it is one.

    `what` follows the column's name in the error's first line.
    """

    def __init__(
        self, code: str, what: str, *, expected: str, found: str, do: str, at: int | None = None
    ) -> None:
        super().__init__(code)
        self.code = code
        self.what = what
        self.expected = expected
        self.found = found
        self.do = do
        self.at = at

    def told(self, column: str, *, row: int | None = None, step: int | None = None) -> RekordError:
        """The error, now that it is known which column this was about."""
        whose = f"`{column}`" if step is None else f"step {step:,} of `{column}`"
        return error(
            self.code,
            f"{whose} {self.what}",
            location=Location(feature=column, row=row),
            expected=self.expected,
            found=self.found,
            do=self.do,
        )


def described(value: Any) -> str:
    """A value as a message may show it: small ones as they are, large ones by type and size alone."""
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value):,} bytes" if len(value) > 16 else repr(bytes(value))
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN_TEXT else f"{value[: _SHOWN_TEXT - 1]!r}…"
    if isinstance(value, np.ndarray):
        return shown_shape(value) if value.ndim else f"{value.dtype} {value[()]!s}"[:60]
    if isinstance(value, np.generic):
        # What Python's own numbers become on the way is not worth a word.
        plain = value.dtype.name in ("int64", "float64", "bool") or value.dtype.itemsize > 8
        return f"{value!s}"[:60] if plain else f"{value.dtype} {value!s}"[:60]
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(value) > 4:
        return f"a {type(value).__name__} of {len(value):,}"
    return shown(value)


def shown_shape(array: np.ndarray[Any, Any]) -> str:
    """The type and the shape of an array."""
    return f"array of {array.dtype}, shape {array.shape}"[:60]
