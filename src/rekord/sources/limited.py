"""The first rows of a source, for trying a conversion out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from rekord.sources.base import Chunk, Columns, Facts, Row, Source, is_parted


@dataclass(frozen=True, slots=True)
class Limited:
    """At most `limit` rows, read from the beginning, the bad ones counted too."""

    source: Source
    limit: int

    @property
    def kind(self) -> str:
        return self.source.kind

    @property
    def root(self) -> str:
        root: str = getattr(self.source, "root", "")
        return root

    def options(self) -> Mapping[str, Any]:
        return {**self.source.options(), "limit": self.limit}

    def facts(self) -> Facts:
        facts = self.source.facts()
        return replace(facts, rows=None if facts.rows is None else min(facts.rows, self.limit))

    def rows(self) -> Iterator[Chunk]:
        left = self.limit
        for chunk in self._all():
            if isinstance(chunk, Row):
                left -= 1
                yield chunk
            else:
                kept = min(left, chunk.rows)
                left -= kept
                yield _first(chunk, kept)
            # Before the next one is asked for: it may take long, or be the one that fails.
            if not left:
                return

    def _all(self) -> Iterator[Chunk]:
        source: Any = self.source
        if is_parted(source):
            return chain.from_iterable(source.read(part) for part in source.parts())
        chunks: Iterator[Chunk] = source.rows()
        return chunks


def _first(chunk: Columns, rows: int) -> Columns:
    if rows == chunk.rows:
        return chunk
    values = chunk.values
    if isinstance(values, pa.RecordBatch):
        kept: Any = values.slice(0, rows)
    else:
        kept = {name: column[:rows] for name, column in values.items()}
    return replace(chunk, values=kept, rows=rows)
