"""Numbers, sizes and durations as text, in a terminal and in reports."""

from __future__ import annotations

import math
from typing import Any

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def format_number(value: Any) -> str:
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


def format_share(part: int, whole: int) -> str:
    """A share in percent; a small one is `<0.1%`, not 0, and a large one `>99.9%`, not 100."""
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


def format_size(n_bytes: float) -> str:
    """`312 B`, `2.4 GB`."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} B"
    amount, power = n_bytes / 1000, 0
    # 999.6 kB would be shown as 1000 kB.
    while amount >= 999.5 and power < len(_UNITS) - 1:
        amount, power = amount / 1000, power + 1
    return f"{amount:.1f} {_UNITS[power]}" if amount < 9.95 else f"{amount:,.0f} {_UNITS[power]}"


def format_range(low: Any, high: Any) -> str:
    """`1`, `1–200`."""
    return format_number(low) if low == high else f"{format_number(low)}–{format_number(high)}"


def format_count(number: int, noun: str) -> str:
    """`1 record`, `51,240 records`, `3 classes`."""
    plural = noun if number == 1 else noun + ("es" if noun.endswith(("s", "x", "tch")) else "s")
    return f"{number:,} {plural}"


def format_byte_size(n_bytes: int) -> str:
    """`312 bytes`, `2.4 GB`: at most three digits, in powers of ten."""
    return format_count(n_bytes, "byte") if n_bytes < 1000 else format_size(n_bytes)


def format_duration(seconds: float) -> str:
    """`85 ms`, `1.1 s`, `2 min 5 s`."""
    if seconds < 0.001:
        return "less than 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"
