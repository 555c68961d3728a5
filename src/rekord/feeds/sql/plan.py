"""What a query needs from its tables: columns, and records by their indexed values."""

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
from rekord.feeds.sql.tables import ArrowStream, QueryTable, QueryTablePart

_EXPRESSIONS = frozenset(
    {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "CAST", "OPERATOR", "CASE"}
)
_FUNCTIONS = frozenset(
    {"count_star", "count", "sum", "min", "max", "avg", "abs", "round", "+", "-", "*", "/", "//", "%"}
    | {"length", "lower", "upper", "contains", "prefix", "suffix", "~~", "!~~"}
)
"""Functions that are fast for every record, and do not turn one value into many."""
_CLAUSES = ("select_list", "where_clause", "group_expressions", "having", "modifiers")
_UNSUPPORTED_CLAUSES = ("sample", "qualify")


@dataclass(frozen=True)
class SimpleQuery:
    """The names in a query over one table that uses only simple expressions."""

    table: str
    words: frozenset[str]  # columns and aliases, casefolded
    given: frozenset[str]  # aliases
    filtered: bool

    def uses_only(self, columns: Iterable[str]) -> bool:
        """Whether every name in the query is a column or an alias."""
        return self.words <= self.given | {name.casefold() for name in columns}


def parse_simple_query(connection: Any, sql: str, failed: type[Exception]) -> SimpleQuery | None:
    """A simple query; None for any other, or if DuckDB does not serialize it as expected."""
    try:
        parsed = _serialize_query(connection, sql)
        return None if parsed["error"] else _parse_select_node(parsed["statements"][0]["node"])
    except (failed, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None  # a version of DuckDB with another format


def _serialize_query(connection: Any, sql: str) -> Any:
    """The syntax tree of a query."""
    return json.loads(connection.execute("select json_serialize_sql($1)", [sql]).fetchall()[0][0])


def _iter_expressions(node: Any, kinds: frozenset[str], functions: frozenset[str]) -> Iterator[dict[str, Any] | None]:
    """The expressions of a syntax tree; None for one of another kind, or a call of another function."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            kind = one.get("class")
            if kind is not None:
                allowed = one.get("function_name") in functions if kind == "FUNCTION" else kind in kinds
                yield one if allowed else None
            if kind not in ("COLUMN_REF", "CONSTANT"):
                waiting += one.values()


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
    for one in _iter_expressions([node[clause] for clause in _CLAUSES], _EXPRESSIONS, _FUNCTIONS):
        if one is None:
            return None
        if one["class"] == "COLUMN_REF":
            *before, name = [part.casefold() for part in one["column_names"]]
            # The name of a table alone is a whole row.
            if name in tables or not (not before or (len(before) == 1 and before[0] in tables)):
                return None
            words.add(name)
    given = {one["alias"].casefold() for one in node["select_list"] if one["alias"]}
    filtered = node["where_clause"] is not None
    return SimpleQuery(source["table_name"], frozenset(words), frozenset(given), filtered)


_SCAN = "ARROW_SCAN"
_COLUMN = re.compile(r"\brk(\d+)c(\d+)\b")
_TABLE = re.compile(r"\brk(\d+)[cn]")

_PURE_EXPRESSIONS = _EXPRESSIONS | {"TYPE"}
_PURE_FUNCTIONS = frozenset(
    {"prefix", "suffix", "contains", "lower", "upper", "length", "abs", "+", "-", "*", "//", "%", "~~", "!~~"}
)
"""Deterministic functions: the query evaluates its conditions again on the records that are selected here."""


@dataclass(frozen=True)
class QueryPlan:
    """The columns that each table must provide, and the filters of tables that are scanned once."""

    columns: dict[int, set[int]]
    filters: dict[int, str]


def plan_query(connection: Any, sql: str, tables: Sequence[QueryTable]) -> QueryPlan:
    """The plan of a query. In doubt, a column counts as needed."""
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
    scans = [(_find_scanned_table(node), above) for node, above in nodes if _SCAN in _operator_name(node)]
    scanned = [number for number, _ in scans]
    if None in scanned:
        return everything
    filters: dict[int, str] = {}
    for number, above in scans:
        if number is not None and scanned.count(number) == 1 and above and _operator_name(above) == "FILTER":
            condition = above.get("extra_info", {}).get("Expression")
            if isinstance(condition, str):
                filters[number] = condition
    return QueryPlan(columns, filters)


def apply_index_filter(connection: Any, table: QueryTable, condition: str) -> None:
    """Let a table read only the records that satisfy the parts of a condition that the indexes can answer.

    The query evaluates all of its conditions again, so a part may be left out here, but none added.
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
            continue  # an error on a value is reported when the query runs


def _iter_nodes(plan: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Every node of a plan, and its parent."""
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
    """The number of the table that is scanned; DuckDB names at least one of its columns."""
    found = _TABLE.search(json.dumps(node.get("extra_info", {}).get("Projections", "")))
    return None if found is None else int(found[1])


def _extract_indexed_condition(
    connection: Any, condition: str, table: QueryTable, part: QueryTablePart
) -> tuple[dict[str, Any], list[int]] | None:
    """The parts of a condition that the index of a split answers, as a parsed query, and their columns."""
    parsed = _serialize_query(connection, f"select rkrow from rkindex where {condition}")
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
    """The columns of an expression; None if it may not be deterministic."""
    found: set[tuple[int, int]] = set()
    for one in _iter_expressions(term, _PURE_EXPRESSIONS, _PURE_FUNCTIONS):
        if one is None:
            return None
        if one["class"] == "COLUMN_REF":
            named = _COLUMN.fullmatch(one["column_names"][-1])
            if named is None:
                return None
            found.add((int(named[1]), int(named[2])))
    return found


def _find_matching_records(
    connection: Any, table: QueryTable, part: QueryTablePart, parsed: dict[str, Any], places: list[int]
) -> Ids:
    """The numbers of the records of a split that satisfy a condition on indexed columns."""
    sql = connection.execute("select json_deserialize_sql($1::json)", [json.dumps(parsed)]).fetchall()[0][0]
    stream = _IndexStream(table, part, places)
    connection.register("rkindex", stream)
    try:
        answer = connection.sql(sql)
        rows = (getattr(answer, "to_arrow_table", None) or answer.fetch_arrow_table)()
    except import_duckdb().Error:
        if (failure := stream.take_failure()) is not None:
            raise failure from None
        raise
    finally:
        stream.close()
        connection.unregister("rkindex")
    chunks = [np.asarray(chunk) for chunk in rows.column(0).chunks]
    return np.concatenate(chunks).astype(np.int64) if chunks else np.zeros(0, np.int64)


class _IndexStream(ArrowStream):
    """Indexed columns of a split for DuckDB, with the numbers of the records."""

    def __init__(self, table: QueryTable, part: QueryTablePart, places: list[int]) -> None:
        super().__init__()
        self._table = table
        self._part = part
        self._places = places

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(self._table.column(place), self._table.columns[place].kind) for place in self._places]
        return pa.schema([pa.field("rkrow", pa.int64()), *fields])

    def _scan(self) -> Iterator[list[Any]]:
        for arrays, ids in self._table.read_indexed(self._part, self._places):
            yield [pa.array(expand_selection(ids)), *arrays]
