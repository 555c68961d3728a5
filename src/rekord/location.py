"""Where something happened: a file, a record, a byte, a feature."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A location in a dataset, as far as it is known.

    `offset` is that of the frame's first byte in the decompressed stream. `payload_offset` counts from the
    payload's first byte, `compressed_offset` from the compressed file's.
    """

    path: str | None = None
    record: int | None = None
    offset: int | None = None
    feature: str | None = None
    payload_offset: int | None = None
    compressed_offset: int | None = None
    row: int | None = None
    line: int | None = None  # in a text file, from 1

    def within(self, **outer: Any) -> Location:
        """This location, with unknown fields filled in from `outer`."""
        missing = {name: value for name, value in outer.items() if getattr(self, name) is None}
        return replace(self, **missing) if missing else self

    def to_dict(self) -> dict[str, Any]:
        """The known fields, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        numbers = {
            "row": self.row,
            "line": self.line,
            "record": self.record,
            "byte": self.offset,
            "payload byte": self.payload_offset,
            "compressed byte": self.compressed_offset,
        }
        parts = [] if self.path is None else [self.path]
        parts += [f"{name} {number:,}" for name, number in numbers.items() if number is not None]
        if self.feature is not None:
            parts.append(f"feature `{self.feature}`")
        return ", ".join(parts)
