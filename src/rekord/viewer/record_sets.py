"""Which records a view shows, and in what order: filters, a condition, a finding, a cell, a tag."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rekord.dataset.samplers import Ids
from rekord.errors import error
from rekord.viewer.predictions import ShownPredictions, find_predictions
from rekord.viewer.session import Session, Side, SplitRecords

if TYPE_CHECKING:
    from rekord.viewer.facets import FacetTable
    from rekord.viewer.queries import QueryRunner

FACET_SECONDS = 20.0
"""How long a filter or an order waits for the facets of all records."""

_MAX_CACHED = 16
_MAX_CACHED_BYTES = 64 << 20


@dataclass(frozen=True)
class RecordSet:
    """Records of one split, by number; all of them if `ids` is None."""

    split: SplitRecords
    ids: Ids | None
    complete: bool

    def __len__(self) -> int:
        return len(self.split) if self.ids is None else len(self.ids)

    def slice(self, first: int, count: int) -> list[int]:
        """The numbers of some of them."""
        end = min(first + count, len(self))
        return list(range(first, end)) if self.ids is None else [int(one) for one in self.ids[first:end]]


@dataclass(frozen=True, slots=True)
class RecordSetQuery:
    """The parameters that choose records, as the page sends them."""

    filter: str = ""
    sql: str = ""
    finding: str = ""
    cell: str = ""
    tag: str = ""
    order: str = "file"

    @property
    def filters(self) -> Mapping[str, Any]:
        """The filters by column."""
        if not self.filter:
            return {}
        try:
            found = msgspec.json.decode(self.filter)
        except (msgspec.MsgspecError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise error(
                "U605", "`filter` is not a JSON object", expected='{"label": {"in": [3]}}', found=self.filter[:60]
            )
        return found


class RecordSets:
    """The record sets of a session; those used last are kept."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: OrderedDict[Any, Ids] = OrderedDict()
        self._lock = Lock()

    def facets(self, side: Side, split: SplitRecords) -> FacetTable:
        """The facets of a split, which are read from now on."""
        from rekord.viewer.facets import FacetTable

        key = ("facets", side.number, split.name)
        made: FacetTable = self._session.part(key, lambda: FacetTable(side, split))
        return made

    def facet_status(self) -> list[dict[str, Any]]:
        """How far the facets are that were asked for."""
        keys = [("facets", side.number, name) for side in self._session.sides for name in side.splits]
        return [table.status() for table in map(self._session.find_part, keys) if table is not None]

    @property
    def predictions(self) -> ShownPredictions:
        """The predictions for this dataset."""
        path = find_predictions(self._session)
        if path is None:
            raise error(
                "U606", "there are no predictions", expected="a file predictions.arrow", do="rekord train PATH"
            )
        made: ShownPredictions = self._session.part("predictions", lambda: ShownPredictions(path, self._session))
        return made

    @property
    def queries(self) -> QueryRunner:
        """Runs the conditions, and all other SQL."""
        from rekord.viewer.queries import QueryRunner

        made: QueryRunner = self._session.part("queries", lambda: QueryRunner(self._session))
        return made

    def resolve(self, side: Side, split: SplitRecords, query: RecordSetQuery) -> RecordSet:
        """The records that a query chooses, in its order."""
        filters = query.filters
        is_plain = not (filters or query.sql or query.finding or query.cell or query.tag)
        if is_plain and query.order in ("", "file") and split.subset is None:
            return RecordSet(split, None, split.is_complete)
        complete = True
        table = None
        if filters or query.order not in ("", "file"):
            table = self.facets(side, split)
            table.wait(FACET_SECONDS)
            complete = table.complete
        version = (len(split), 0 if table is None else (table.version, table.records))
        key = (side.number, split.name, query, version)
        with self._lock:
            known = self._kept.get(key)
        # Tags change, and a finding grows while the check runs.
        if known is not None and not query.tag and not query.finding:
            return RecordSet(split, known, complete)
        ids = self._within(side, split, query)
        if filters and table is not None:
            matching = table.matching(filters)
            ids = matching if ids is None else np.intersect1d(ids, matching)
        if query.order not in ("", "file") and table is not None:
            ids = _in_order(table, ids, query.order)
        elif ids is None:
            ids = np.arange(len(split), dtype=np.int64)
        self._keep(key, ids)
        return RecordSet(split, ids, complete)

    def within(self, side: Side, split: SplitRecords, query: RecordSetQuery) -> Ids | None:
        """The records that everything but the filters chooses; None for all."""
        if not (query.sql or query.finding or query.cell or query.tag) and split.subset is None:
            return None
        key = (side.number, split.name, query.sql, query.cell, len(split), "within")
        with self._lock:
            known = self._kept.get(key)
        if known is not None and not query.tag and not query.finding:
            return known
        ids = self._within(side, split, query)
        if ids is not None:
            self._keep(key, ids)
        return ids

    def _within(self, side: Side, split: SplitRecords, query: RecordSetQuery) -> Ids | None:
        parts = [] if split.subset is None else [split.subset]
        if query.sql:
            parts.append(self.queries.find_records(side, split, query.sql))
        if query.finding:
            from rekord.viewer.findings import get_check

            pairs = get_check(self._session, side).records_of(_to_integer("finding", query.finding))
            parts.append(_numbers_of(pairs, split.name))
        if query.cell:
            truth, _, predicted = query.cell.partition(",")
            pair = _to_integer("cell", truth), _to_integer("cell", predicted)
            parts.append(self.predictions.numbers(*pair, split.name))
        if query.tag:
            from rekord.viewer.tags import tagged_records

            parts.append(_numbers_of(tagged_records(self._session, side, query.tag), split.name))
        if not parts:
            return None
        found = parts[0]
        for part in parts[1:]:
            found = np.intersect1d(found, part)
        return found[found < len(split)]

    def _keep(self, key: Any, ids: Ids) -> None:
        with self._lock:
            self._kept[key] = ids
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and (
                len(self._kept) > _MAX_CACHED or sum(one.nbytes for one in self._kept.values()) > _MAX_CACHED_BYTES
            ):
                self._kept.popitem(last=False)


def _in_order(table: FacetTable, ids: Ids | None, order: str) -> Ids:
    descending = order.startswith("-")
    name = order.removeprefix("-").removeprefix("class:")
    ranked = table.order(name, descending=descending)
    if ids is None:
        return ranked
    chosen = np.zeros(max(len(ranked), int(ids.max(initial=-1)) + 1), np.bool_)
    chosen[ids] = True
    return ranked[chosen[ranked]]


def _numbers_of(pairs: list[tuple[str, int]], split: str) -> Ids:
    return np.unique(np.array([number for name, number in pairs if name == split], np.int64))


def _to_integer(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise error("U605", f"`{name}` cannot be {text[:60]!r}", expected="an integer ≥ 0", found=text[:60])
    return int(text)
