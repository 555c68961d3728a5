"""The one pass over each side of a comparison: what is kept of every record, and what went wrong on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import numpy.typing as npt

from rekord.errors import RekordError, error
from rekord.health.diff_digest import Digests, key_digests, order_sum, payload_digests, record_digests
from rekord.health.diff_match import place_rows
from rekord.health.diff_prints import Features, Prints
from rekord.health.external_sort import ExternalSort
from rekord.health.finding import Finding, Report
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.health.scan import scan_file
from rekord.health.stats.accumulate import Accumulator
from rekord.location import Location
from rekord.schema.refuse import near_miss, shown

MOST_FINDINGS = 1000
"""So many findings of a side are listed; the rest is counted."""

MOST_KEYED_RECORDS = 1 << 32
"""The sort has so much room for the number of a record."""

_NO_EXAMPLES = ("H711", "H712", "H713", "H714", "H715")
_TOO_MANY_KEYS = "H727"
_SHOWN_KEYS = 8


@dataclass(kw_only=True)
class SideSeen:
    """What was read of one side."""

    records: Counter[int] = field(default_factory=Counter)  # that were compared, by split
    order: Counter[int] = field(default_factory=Counter)  # by split, modulo 2^64
    payload_bytes: int = 0
    statistics: Accumulator = field(default_factory=Accumulator)
    findings: list[Finding] = field(default_factory=list)
    not_listed: int = 0
    unreadable: int = 0
    without_key: int = 0
    raw_files: int = 0  # that hold no Examples
    wide_records: int = 0  # that have too many keys to compare key by key


class Comparing:
    """Both sides while they are read. Use it in a `with` block: it holds memory and disk."""

    def __init__(self, keys: tuple[str, str] | None, report: Report) -> None:
        self._keys = keys
        self._report = report
        self.files: list[str] = []
        self.content = ExternalSort()
        self.keyed = ExternalSort() if keys is not None else None
        self.features = Features()
        self.prints = Prints(self.features), Prints(self.features)
        self.sides = SideSeen(), SideSeen()
        self._key_kind: str | None = None

    def __enter__(self) -> Comparing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.content.close()
        if self.keyed is not None:
            self.keyed.close()
        for prints in self.prints:
            prints.close()

    def read(self, side: int, split: int, paths: Sequence[str]) -> None:
        """Read the files of one split of one side, in their order."""
        base = self._report.records
        for path in paths:
            self._read_file(side, split, path, self._report.records - base)

    def end(self, side: int) -> None:
        """After the last file of a side. Raises where a key was asked for that no record has."""
        seen = self.sides[side]
        seen.statistics.flush()
        compared = seen.records.total()
        if self._keys is not None and compared and seen.without_key == compared:
            raise self._no_such_key(side)

    def _read_file(self, side: int, split: int, path: str, before: int) -> None:
        seen = self.sides[side]
        unreadable, payload_bytes = self._report.unreadable, self._report.payload_bytes
        file = len(self.files)
        self.files.append(path)
        raw = False
        wide: list[int] = []
        for item in scan_file(path, self._report):
            if isinstance(item, KeyedBatch):
                seen.statistics.add(item)
                digests = record_digests(item)
                self._take(side, split, file, before, digests, item.records, item.offsets)
                if self._keys is not None:
                    self._take_keys(side, split, file, digests, item)
                continue
            raw = raw or item.code in _NO_EXAMPLES
            if item.code == _TOO_MANY_KEYS and item.record is not None:
                wide.append(item.record)
            if item.severity == "error":
                self._report.errors += 1
                if len(seen.findings) < MOST_FINDINGS:
                    seen.findings.append(item)
                else:
                    seen.not_listed += 1
        seen.raw_files += raw
        seen.wide_records += len(wide)
        if raw or wide:
            for first, offsets, digests in payload_digests(path):
                records, places = np.arange(first, first + len(offsets)), np.array(offsets, np.int64)
                if not raw:
                    # The other records of the file were compared key by key.
                    chosen = np.isin(records, wide)
                    digests, records, places = digests[chosen], records[chosen], places[chosen]
                if len(records):
                    self._take(side, split, file, before, digests, records, places)
                    seen.without_key += len(records)
        seen.unreadable += self._report.unreadable - unreadable
        seen.payload_bytes += self._report.payload_bytes - payload_bytes

    def _take(
        self,
        side: int,
        split: int,
        file: int,
        before: int,
        digests: Digests,
        records: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
    ) -> None:
        seen = self.sides[side]
        seen.records[split] += len(records)
        seen.order[split] = (seen.order[split] + order_sum(digests, before + records)) % (1 << 64)
        self.content.add(
            place_rows(digests, records=records, offsets=offsets, file=file, split=split, side=side)
        )

    def _take_keys(self, side: int, split: int, file: int, digests: Digests, batch: KeyedBatch) -> None:
        assert self._keys is not None
        assert self.keyed is not None
        key = self._keys[side]
        numbers = np.arange(len(batch), dtype=np.int64) + self.prints[side].add(batch)
        if numbers[-1] >= MOST_KEYED_RECORDS:
            raise error(
                "U647",
                location=Location(path=batch.path),
                expected=f"at most {MOST_KEYED_RECORDS:,} records a side",
                found="more than that",
                do="compare split by split, or leave --key out",
            )
        column = batch.context.get(key)
        if column is None or not column.present:
            self.sides[side].without_key += len(batch)
            return
        self._check_key(key, column, batch)
        have = column.counts == 1
        self.sides[side].without_key += len(batch) - int(np.count_nonzero(have))
        rows = place_rows(
            key_digests(column),
            records=batch.records,
            offsets=digests[:, 0].view(np.int64),  # what is compared; where it is, its print knows
            file=file,
            split=split,
            side=side,
            numbers=numbers,
        )
        self.keyed.add(rows if have.all() else rows[have])

    def _check_key(self, key: str, column: KeyColumn, batch: KeyedBatch) -> None:
        found = None
        row = int(np.argmax(column.counts > 0))
        several = np.flatnonzero(column.counts > 1)
        if column.kind == "float":
            found = "floats"
        elif len(several):
            row = int(several[0])
            found = f"{int(column.counts[row]):,} values"
        elif self._key_kind not in (None, column.kind):
            found = f"{column.kind} here, and {self._key_kind} in another record"
        self._key_kind = self._key_kind or column.kind
        if found is not None:
            raise error(
                "U646",
                f"`{key[:60]}` cannot tell records apart",
                location=Location(
                    path=batch.path,
                    record=int(batch.records[row]),
                    offset=int(batch.offsets[row]),
                    feature=key[:60],
                ),
                expected="one whole number or one byte string in each record, the same kind everywhere",
                found=found,
                do="name another key, or leave --key out to compare records by what they hold",
            )

    def _no_such_key(self, side: int) -> RekordError:
        assert self._keys is not None
        key = self._keys[side]
        known = sorted({name for step, name in self.sides[side].statistics.features if not step})
        near = near_miss(key, known)
        some = ", ".join([f"`{name[:60]}`" for name in known[:_SHOWN_KEYS]])
        return error(
            "U645",
            f"no record of {'AB'[side]} has the key {shown(key)}",
            location=Location(path=self.files[-1] if self.files else None),
            expected=f"one of {some}{', …' if len(known) > _SHOWN_KEYS else ''}"
            if known
            else "records with keys",
            found=shown(key),
            likely=f"`{near}` is meant" if near else None,
            do=f"--key {near}" if near else "name a key that the records have, or leave --key out",
        )
