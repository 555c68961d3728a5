"""What a rule of `check` is, and how a thousand findings of one sort become a few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from rekord.health.finding import Finding, Severity
from rekord.health.keyed import KeyedBatch

ENOUGH_RECORDS = 20
"""With fewer records, nothing is concluded that holds only because no record contradicts it."""

EACH = 20
"""So many findings of one code, feature and file are told one by one; the rest are one finding with a count."""


class Rule(Protocol):
    """Something that records are held against, batch by batch."""

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with these records."""

    def end_file(self, path: str) -> Iterator[Finding]:
        """What remains to be said after the last batch of a file."""

    def end(self) -> Iterator[Finding]:
        """What remains to be said after the last file."""


class Repeated:
    """Findings of one rule in one file: the first few as they are met, the rest counted until the file ends."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], int] = {}
        self._more: dict[tuple[str, str | None], Finding] = {}

    def tell(
        self,
        batch: KeyedBatch,
        rows: Iterable[int],
        code: str,
        severity: Severity,
        feature: str | None,
        say: Callable[[int], dict[str, Any]],
    ) -> Iterator[Finding]:
        """A finding for each of the rows; `say` gives what there is to say of one: message, expected, found, …"""
        where = code, feature
        for row in rows:
            told = self._told.get(where, 0)
            if told >= EACH and (more := self._more.get(where)) is not None:
                more.count += 1
                continue
            said = {"message": None, **say(row)}
            finding = Finding.of(
                code,
                severity,
                path=batch.path,
                record=int(batch.records[row]),
                offset=int(batch.offsets[row]),
                feature=feature,
                **{name: text for name, text in said.items() if text is not None},
            )
            self._told[where] = told + 1
            if told < EACH:
                yield finding
            else:
                self._more[where] = finding

    def end_file(self) -> Iterator[Finding]:
        """The findings that were only counted, one a code and feature; then begin again."""
        rest = list(self._more.values())
        self._told.clear()
        self._more.clear()
        yield from rest
