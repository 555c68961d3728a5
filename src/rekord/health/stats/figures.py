"""How numbers look in reports: as many digits as help, and no more."""

from __future__ import annotations

import math
from typing import Any

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def number(value: Any) -> str:
    """A value or a mean: `51,240`, `0.0125`, `1.5e-07`."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**12 else f"{value:.4g}"
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-4 <= abs(value) < 1e12:
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:.3g}"


def share(part: int, whole: int) -> str:
    """A part of a whole in percent; what is little is not said to be nothing, nor what is much to be all."""
    if not whole or part == whole:
        return "100%" if whole else "–"
    if not part:
        return "0%"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1%"
    if percent > 99.9:
        return ">99.9%"
    return f"{percent:.1f}%" if percent < 10 or percent > 90 else f"{percent:.0f}%"


def size(n_bytes: float) -> str:
    """`312 B`, `2.4 GB`."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} B"
    amount, power = n_bytes / 1000, 0
    while amount >= 999.5 and power < len(_UNITS) - 1:
        amount, power = amount / 1000, power + 1
    return f"{amount:.1f} {_UNITS[power]}" if amount < 9.95 else f"{amount:,.0f} {_UNITS[power]}"


def span(low: Any, high: Any) -> str:
    """`1`, `1–200`."""
    return number(low) if low == high else f"{number(low)}–{number(high)}"
