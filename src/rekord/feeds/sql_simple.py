"""Queries so simple that their words alone say what they need: one table, and its columns by name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_EXPRESSIONS = frozenset(
    {"COLUMN_REF", "CONSTANT", "FUNCTION", "COMPARISON", "CONJUNCTION", "BETWEEN", "CAST", "OPERATOR", "CASE"}
)
_FUNCTIONS = frozenset(
    {"count_star", "count", "sum", "min", "max", "avg", "abs", "round", "+", "-", "*", "/", "//", "%"}
    | {"length", "lower", "upper", "contains", "prefix", "suffix", "~~", "!~~"}
)
"""None of them takes longer than a moment for a record, nor makes many values out of one."""
_CLAUSES = ("select_list", "where_clause", "group_expressions", "having", "modifiers")
_NOTHING_ELSE = ("sample", "qualify")


@dataclass(frozen=True)
class Simple:
    """What such a query names."""

    table: str
    words: frozenset[str]  # columns, and names that the query itself gives, without their case
    given: frozenset[str]  # the names that the query itself gives
    filtered: bool

    def among(self, columns: Iterable[str]) -> bool:
        """Whether everything that the query names is a column or a name of its own."""
        return self.words <= self.given | {name.casefold() for name in columns}


def simple_query(connection: Any, sql: str, failed: type[Exception]) -> Simple | None:
    """A query that is simple; None for one that is not, or of which DuckDB does not say so."""
    try:
        told = connection.execute("select json_serialize_sql($1)", [sql]).fetchall()[0][0]
        parsed = json.loads(told)
        return None if parsed["error"] else _simple(parsed["statements"][0]["node"])
    except (failed, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None  # a DuckDB that writes queries down in another way


def _simple(node: dict[str, Any]) -> Simple | None:
    source = node["from_table"]
    if node["type"] != "SELECT_NODE" or source["type"] != "BASE_TABLE":
        return None
    beside = [node["cte_map"]["map"], source["schema_name"], source["catalog_name"], source["sample"]]
    beside += [source.get("column_name_alias"), source.get("at_clause"), *map(node.get, _NOTHING_ELSE)]
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
    return Simple(source["table_name"], frozenset(words), frozenset(given), filtered)
