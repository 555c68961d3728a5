"""How numbers are said: counts, bytes and times, short enough to read at a glance."""

from __future__ import annotations

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def count(number: int, noun: str) -> str:
    """`1 record`, `51,240 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def byte_size(n_bytes: int) -> str:
    """`312 bytes`, `2.4 GB`: three digits at most, in powers of ten as disks are sold."""
    if n_bytes < 1000:
        return count(n_bytes, "byte")
    size = float(n_bytes)
    for unit in _UNITS:
        size /= 1000
        # 999.6 kB would be said as 1000 kB.
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}" if size < 9.95 else f"{size:,.0f} {unit}"


def duration(seconds: float) -> str:
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
