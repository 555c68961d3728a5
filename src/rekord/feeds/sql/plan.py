"""What a query needs of its tables: columns, and records by their indexed values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.dataset.samplers import Ids, expand_selection
from rekord.feeds.sql.engine import import_duckdb
from rekord.feeds.sql.tables import QueryTable, QueryTablePart

_EXPRESSIONS = frozenset(
    {"COLUMN_REF", "CONSTANT", "FUNCTION", "COMPARISON", "CONJUNCTION", "BETWEEN", "CAST", "OPERATOR", "CASE"}
)
_FUNCTIONS = frozenset(
    {"count_star", "count", "sum", "min", "max", "avg", "abs", "round", "+", "-", "*", "/", "//", "%"}
    | {"length", "lower", "upper", "contains", "prefix", "suffix", "~~", "!~~"}
)
"""None of them takes longer than a moment for a record, nor makes many values out of one."""
_CLAUSES = ("select_list", "where_clause", "group_expressions", "having", "modifiers")
_UNSUPPORTED_CLAUSES = ("sample", "qualify")


@dataclass(frozen=True)
class SimpleQuery:
    """What such a query names."""

    table: str
    words: frozenset[str]  # columns, and names that the query itself gives, without their case
    given: frozenset[str]  # the names that the query itself gives
    filtered: bool

    def uses_only(self, columns: Iterable[str]) -> bool:
        """Whether everything that the query names is a column or a name of its own."""
        return self.words <= self.given | {name.casefold() for name in columns}


def parse_simple_query(connection: Any, sql: str, failed: type[Exception]) -> SimpleQuery | None:
    """A query that is simple; None for one that is not, or of which DuckDB does not say so."""
    try:
        told = connection.execute("select json_serialize_sql($1)", [sql]).fetchall()[0][0]
        parsed = json.loads(told)
        return None if parsed["error"] else _parse_select_node(parsed["statements"][0]["node"])
    except (failed, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None  # a DuckDB that writes queries down in another way


def _parse_select_node(node: dict[str, Any]) -> SimpleQuery | None:
    source = node["from_table"]
    if node["type"] != "SELECT_NODE" or source["type"] != "BASE_TABLE":
        return None
    beside = [node["cte_map"]["map"], source["schema_name"], source["catalog_name"], source["sample"]]
    beside += [source.get("column_name_alias"), source.get("at_clause"), *map(node.get, _UNSUPPORTED_CLAUSES)]
    if any(beside):
        return None
    tables = {name.casefold() for name in (source["table_name"], source["alias"]) if name}
    words: set[str] = set()
    waiting: list[Any] = [node[clause] for clause in _CLAUSES]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            kind = one.get("class")
            if kind is not None and kind not in _EXPRESSIONS:
                return None
            if kind == "FUNCTION" and one["function_name"] not in _FUNCTIONS:
                return None
            if kind == "COLUMN_REF":
                *before, name = [part.casefold() for part in one["column_names"]]
                # The name of a table alone is a whole row.
                if name in tables or not (not before or (len(before) == 1 and before[0] in tables)):
                    return None
                words.add(name)
            elif kind != "CONSTANT":
                waiting += one.values()
    given = {one["alias"].casefold() for one in node["select_list"] if one["alias"]}
    filtered = node["where_clause"] is not None
    return SimpleQuery(source["table_name"], frozenset(words), frozenset(given), filtered)


_SCAN = "ARROW_SCAN"
_COLUMN = re.compile(r"\brk(\d+)c(\d+)\b")
_TABLE = re.compile(r"\brk(\d+)[cn]")

_PURE_EXPRESSIONS = frozenset(
    {"CONJUNCTION", "COMPARISON", "BETWEEN", "CONSTANT", "COLUMN_REF", "CAST", "OPERATOR", "CASE", "TYPE"}
)
_PURE_FUNCTIONS = frozenset(
    {"prefix", "suffix", "contains", "lower", "upper", "length", "abs", "+", "-", "*", "//", "%", "~~", "!~~"}
)
"""Expressions that say the same each time they are asked: what is chosen once is looked at again by the query."""


@dataclass(frozen=True)
class QueryPlan:
    """Which columns each table is asked for, and what the records must fulfil of tables that are scanned once."""

    columns: dict[int, set[int]]
    filters: dict[int, str]


def plan_query(connection: Any, sql: str, tables: Sequence[QueryTable]) -> QueryPlan:
    """The plan of a query. What it does not say clearly counts as needed."""
    text = connection.execute("explain (format json) " + sql).fetchall()[0][1]
    everything = QueryPlan({table.number: set(range(len(table.columns))) for table in tables}, {})
    try:
        nodes = list(_iter_nodes(json.loads(text)))
    except (ValueError, RecursionError):
        return everything
    columns: dict[int, set[int]] = {table.number: set() for table in tables}
    for number, place in _COLUMN.findall(text):
        if int(number) in columns:
            columns[int(number)].add(int(place))
    scans = [number for node, _ in nodes if _SCAN in _operator_name(node) for number in [_find_scanned_table(node)]]
    if None in scans:
        return everything
    filters: dict[int, str] = {}
    for node, above in nodes:
        number = _find_scanned_table(node) if _SCAN in _operator_name(node) else None
        if (
            number is not None
            and scans.count(number) == 1
            and above is not None
            and _operator_name(above) == "FILTER"
        ):
            told = above.get("extra_info", {}).get("Expression")
            if isinstance(told, str):
                filters[number] = told
    return QueryPlan(columns, filters)


def apply_index_filter(connection: Any, table: QueryTable, condition: str) -> None:
    """Let a table read those records alone that fulfil what the indexes can say of a condition.

    The query looks at all of its conditions again, so that here one may be left out, but none be added.
    """
    package = import_duckdb()
    for number, part in enumerate(table.parts):
        if not table.reads(part):
            continue
        try:
            sure = _extract_indexed_condition(connection, condition, table, part)
            if sure is None or not part.indexed.has_random_access():
                continue
            table.choose(number, _find_matching_records(connection, table, part, *sure))
        except package.Error:
            continue  # what fails on a value here fails, and is said, when the query runs


def _iter_nodes(plan: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Every step of a plan, and the step that takes what it gives."""
    waiting: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
        (node, None) for node in (plan if isinstance(plan, list) else [plan])
    ]
    while waiting:
        node, above = waiting.pop()
        yield node, above
        waiting += [(child, node) for child in node.get("children", [])]


def _operator_name(node: dict[str, Any]) -> str:
    return str(node.get("name", "")).strip()


def _find_scanned_table(node: dict[str, Any]) -> int | None:
    """The number of the table that is scanned; DuckDB names at least one column of it."""
    found = _TABLE.search(json.dumps(node.get("extra_info", {}).get("Projections", "")))
    return None if found is None else int(found[1])


def _extract_indexed_condition(
    connection: Any, condition: str, table: QueryTable, part: QueryTablePart
) -> tuple[dict[str, Any], list[int]] | None:
    """The parts of a condition that the index of a split answers, as a parsed query, and their columns."""
    sql = f"select rkrow from rkindex where {condition}"
    parsed = json.loads(connection.execute("select json_serialize_sql($1)", [sql]).fetchall()[0][0])
    if parsed.get("error") or len(parsed["statements"]) != 1:
        return None
    node = parsed["statements"][0]["node"]
    where = node["where_clause"]
    terms = where["children"] if where["type"] == "CONJUNCTION_AND" else [where]
    kept: list[Any] = []
    places: set[int] = set()
    for term in terms:
        used = _find_columns(term)
        if used and all(number == table.number and table.known(part, place) for number, place in used):
            kept.append(term)
            places |= {place for _, place in used}
    if not kept:
        return None
    if where["type"] == "CONJUNCTION_AND" and len(kept) > 1:
        where["children"] = kept
    else:
        node["where_clause"] = kept[0]
    return parsed, sorted(places)


def _find_columns(term: Any) -> set[tuple[int, int]] | None:
    """The columns of an expression; None where it is not sure to say the same a second time."""
    found: set[tuple[int, int]] = set()
    waiting = [term]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            kind = one.get("class")
            if kind == "FUNCTION":
                if one.get("function_name") not in _PURE_FUNCTIONS:
                    return None
            elif kind is not None and kind not in _PURE_EXPRESSIONS:
                return None
            if kind == "COLUMN_REF":
                named = _COLUMN.fullmatch(one["column_names"][-1])
                if named is None:
                    return None
                found.add((int(named[1]), int(named[2])))
            waiting += one.values()
    return found


def _find_matching_records(
    connection: Any, table: QueryTable, part: QueryTablePart, parsed: dict[str, Any], places: list[int]
) -> Ids:
    """The numbers of the records of a split that fulfil a condition on columns that its index knows."""
    sql = connection.execute("select json_deserialize_sql($1::json)", [json.dumps(parsed)]).fetchall()[0][0]
    stream = _IndexStream(table, part, places)
    connection.register("rkindex", stream)
    try:
        answer = connection.sql(sql)
        rows = (getattr(answer, "to_arrow_table", None) or answer.fetch_arrow_table)()
    except import_duckdb().Error:
        if stream.failure is not None:
            raise stream.failure from None
        raise
    finally:
        stream.close()
        connection.unregister("rkindex")
    chunks = [np.asarray(chunk) for chunk in rows.column(0).chunks]
    return np.concatenate(chunks).astype(np.int64) if chunks else np.zeros(0, np.int64)


class _IndexStream:
    """Indexed columns of a split as DuckDB takes a table, with the numbers of the records."""

    def __init__(self, table: QueryTable, part: QueryTablePart, places: list[int]) -> None:
        fields = [pa.field(table.column(place), table.columns[place].kind) for place in places]
        self.schema = pa.schema([pa.field("rkrow", pa.int64()), *fields])
        self.failure: BaseException | None = None
        self._table = table
        self._part = part
        self._places = places
        self._running: list[Iterator[Any]] = []

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        running = self._batches()
        self._running.append(running)
        return pa.RecordBatchReader.from_batches(self.schema, running).__arrow_c_stream__()

    def close(self) -> None:
        """Stop reading."""
        for one in self._running:
            one.close()  # type: ignore[attr-defined]

    def _batches(self) -> Iterator[Any]:
        try:
            for arrays, ids in self._table.read_indexed(self._part, self._places):
                yield pa.RecordBatch.from_arrays([pa.array(expand_selection(ids)), *arrays], schema=self.schema)
        except GeneratorExit:
            raise
        except BaseException as failure:
            self.failure = failure
            raise
