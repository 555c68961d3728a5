"""Where something happened: a file, a record, a byte, a feature."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a dataset, as far as it is known.

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
        """This place, with what an outer layer knows filled in. What is already known wins."""
        missing = {name: value for name, value in outer.items() if getattr(self, name) is None}
        return replace(self, **missing) if missing else self

    def to_dict(self) -> dict[str, Any]:
        """The known fields, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        parts = []
        if self.path is not None:
            parts.append(self.path)
        if self.row is not None:
            parts.append(f"row {self.row:,}")
        if self.line is not None:
            parts.append(f"line {self.line:,}")
        if self.record is not None:
            parts.append(f"record {self.record:,}")
        if self.offset is not None:
            parts.append(f"byte {self.offset:,}")
        if self.payload_offset is not None:
            parts.append(f"payload byte {self.payload_offset:,}")
        if self.compressed_offset is not None:
            parts.append(f"compressed byte {self.compressed_offset:,}")
        if self.feature is not None:
            parts.append(f"feature `{self.feature}`")
        return ", ".join(parts)
