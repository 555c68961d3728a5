"""Two datasets side by side: their records paired by a key, as `diff` pairs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.codec.decode import decode
from rekord.errors import RekordError, error
from rekord.health.diff.match import digest_keys, digest_records
from rekord.health.finding import Report
from rekord.health.key_columns import KeyedBatch
from rekord.health.scan import scan_file
from rekord.schema import Schema
from rekord.viewer.records import Pending
from rekord.viewer.session import Session, Side

MAX_RECORDS = 4_000_000
"""Records per side: their digests are kept in memory."""

STATUSES = ("changed", "left", "right", "same")
_CHANGED, _LEFT, _RIGHT, _SAME = range(4)
_MAX_DIFFERENCES = 100
_LIKELY_KEYS = ("source_id", "id", "key", "filename", "file_name", "name", "path", "index")
_ROWS = np.dtype([("low", "<u8"), ("high", "<u8"), ("content", "<u8"), ("split", "<i4"), ("number", "<i8")])


@dataclass
class _SideRows:
    rows: list[npt.NDArray[Any]] = field(default_factory=list)
    without_key: int = 0

    def whole(self) -> npt.NDArray[Any]:
        return np.concatenate(self.rows) if self.rows else np.zeros(0, _ROWS)


def list_key_candidates(session: Session) -> list[str]:
    """The columns of both sides that may identify a record, the likeliest first."""
    one, other = (side.schema for side in session.sides)
    names = [name for name in one.context if _can_be_key(one, name) and _can_be_key(other, name)]

    def rank(name: str) -> tuple[int, int]:
        stem = name.lower().rsplit("/", 1)[-1]
        return (_LIKELY_KEYS.index(stem) if stem in _LIKELY_KEYS else len(_LIKELY_KEYS), names.index(name))

    return sorted(names, key=rank)


def _can_be_key(schema: Schema, name: str) -> bool:
    feature = schema.context.get(name)
    if feature is None or feature.shape != () or feature.is_image or feature.class_count is not None:
        return False
    return feature.kind in ("int64", "bytes") and len(feature.record_keys(name)) == 1


class KeyComparison:
    """The pairs of one key, found in the background."""

    def __init__(self, session: Session, key: str) -> None:
        self.key = key
        self.state = "running"
        self.error: RekordError | None = None
        self.counts = dict.fromkeys(STATUSES, 0)
        self._session = session
        self._stop = Event()
        self._pairs: npt.NDArray[np.int64] = np.zeros((0, 5), np.int64)
        self.repeated = 0
        self._lock = Lock()
        Thread(target=self._run, name="rekord-view-compare", daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()

    def to_dict(self, only: str, first: int, count: int) -> dict[str, Any]:
        """Some of the pairs: those that differ unless `only` names others."""
        pairs = self._pairs
        if only in STATUSES:
            pairs = pairs[pairs[:, 0] == STATUSES.index(only)]
        elif only != "all":
            pairs = pairs[pairs[:, 0] != _SAME]
        return {
            "state": self.state,
            "key": [self.key],
            "keys": list_key_candidates(self._session),
            "counts": self.counts,
            "repeated": self.repeated,
            "total": len(pairs),
            "pairs": [self._describe(pair.tolist()) for pair in pairs[first : first + count]],
            "error": None if self.error is None else self.error.to_dict(),
        }

    def _describe(self, pair: list[int]) -> dict[str, Any]:
        status, *places = pair
        records: list[list[Any] | None] = []
        values: list[Mapping[str, Any] | None] = []
        for side, (split, number) in zip(self._session.sides, (places[:2], places[2:]), strict=True):
            if split < 0:
                records.append(None)
                values.append(None)
                continue
            name = list(side.splits)[split]
            records.append([name, number])
            values.append(self._read(side, name, number))
        one, other = values
        known = one or other or {}
        return {
            "key": self._key_text(known),
            "status": STATUSES[status],
            "a": records[0],
            "b": records[1],
            "features": _find_differences(one, other) if status == _CHANGED else [],
        }

    def _read(self, side: Side, split: str, number: int) -> Mapping[str, Any] | None:
        try:
            raw = side.get_split(split).read([number])[0][1]
            return decode(raw.payload) if raw.state == "ok" else None
        except (RekordError, Pending):
            return None

    def _key_text(self, values: Mapping[str, Any]) -> str:
        value = values.get(self._record_key(self._session.sides[0]))
        if value is None or not len(value):
            return ""
        text = value[0].decode(errors="replace") if isinstance(value[0], bytes) else str(value[0])
        return text[:120]

    def _record_key(self, side: Side) -> str:
        feature = side.schema.context.get(self.key)
        return self.key if feature is None else feature.record_keys(self.key)[0]

    def _run(self) -> None:
        try:
            found = [self._collect(side) for side in self._session.sides]
            if self._stop.is_set():
                return
            self._match(*(one.whole() for one in found))
            self.state = "done"
        except RekordError as failure:
            self.error, self.state = failure, "failed"
        except Exception as failure:
            self.error, self.state = error("U682", "records cannot be compared", found=str(failure)[:60]), "failed"

    def _collect(self, side: Side) -> _SideRows:
        found = _SideRows()
        key = self._record_key(side)
        total = 0
        for place, split in enumerate(side.splits.values()):
            while not split.is_complete and not self._stop.wait(0.02):
                pass
            if split.has_oversized:
                raise error(
                    "U682", "records of more than 64 MiB are not compared in the viewer", do="rekord diff A B"
                )
            before = 0
            for file in split.files:
                for item in scan_file(file.path, Report()):
                    if self._stop.is_set():
                        return found
                    if isinstance(item, KeyedBatch):
                        self._add(found, item, key, place, before)
                        total += len(item)
                    if total > MAX_RECORDS:
                        raise error(
                            "U646", "too many records to compare in the viewer",
                            expected=f"at most {MAX_RECORDS:,} records per side", do="rekord diff A B --key KEY",
                        )  # fmt: skip
                before += len(file)
        if total and found.without_key == total:
            raise error("U606", f"no record has the key `{self.key[:60]}`", expected="a key of the records")
        return found

    def _add(self, found: _SideRows, batch: KeyedBatch, key: str, split: int, before: int) -> None:
        column = batch.context.get(key)
        if column is None or not column.present:
            found.without_key += len(batch)
            return
        have = column.counts == 1
        found.without_key += len(batch) - int(np.count_nonzero(have))
        keys, content = digest_keys(column), digest_records(batch)
        rows = np.zeros(len(batch), _ROWS)
        rows["low"], rows["high"], rows["content"] = keys[:, 0], keys[:, 1], content[:, 0]
        rows["split"], rows["number"] = split, batch.records + before
        found.rows.append(rows[have])

    def _match(self, one: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
        both = np.concatenate([one, other])
        side = np.repeat([0, 1], [len(one), len(other)])
        order = np.lexsort((side, both["high"], both["low"]))
        both, side = both[order], side[order]
        if not len(both):
            return
        new = np.ones(len(both), np.bool_)
        new[1:] = (both["low"][1:] != both["low"][:-1]) | (both["high"][1:] != both["high"][:-1])
        group = np.cumsum(new) - 1
        in_a = np.bincount(group[side == 0], minlength=group[-1] + 1)
        in_b = np.bincount(group[side == 1], minlength=group[-1] + 1)
        self.repeated = int(np.count_nonzero((in_a > 1) | (in_b > 1)))
        first = np.flatnonzero(new)
        once = (in_a <= 1) & (in_b <= 1)
        pairs = np.full((len(first), 5), -1, np.int64)
        for number, has in ((0, in_a == 1), (1, in_b == 1)):
            places = first[has] if number == 0 else (first + in_a)[has]
            pairs[has, 1 + 2 * number] = both["split"][places]
            pairs[has, 2 + 2 * number] = both["number"][places]
        matched = (in_a == 1) & (in_b == 1)
        same = np.zeros(len(first), np.bool_)
        same[matched] = both["content"][first[matched]] == both["content"][first[matched] + 1]
        pairs[:, 0] = np.select([same, matched, in_a == 1], [_SAME, _CHANGED, _LEFT], _RIGHT)
        pairs = pairs[once]
        # In the order of A, then what only B has.
        splits = np.where(pairs[:, 1] < 0, 1 << 40, pairs[:, 1])
        pairs = pairs[np.lexsort((pairs[:, 4], pairs[:, 2], splits))]
        self.counts = {name: int(np.count_nonzero(pairs[:, 0] == i)) for i, name in enumerate(STATUSES)}
        self._pairs = pairs


def _find_differences(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> list[str]:
    """The record keys whose lists differ."""
    if one is None or other is None:
        return []
    names = sorted({*one, *other})
    return [name for name in names if not _is_equal(one.get(name), other.get(name))][:_MAX_DIFFERENCES]


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)
