"""`rk.query`: SQL over the records of a dataset, which reads only what the query needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa

from rekord.arguments import check_keywords, non_blank
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.samplers import Ids, expand_selection
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.feeds.sql.answer import QueryResult
from rekord.location import Location
from rekord.schema import RecordKind, Schema
from rekord.storage.local import PathLike
from rekord.verbs.options import reject_reading_options


@overload
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    stream: Literal[False] = False,
) -> pa.Table: ...


@overload
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    stream: Literal[True],
) -> pa.RecordBatchReader: ...


@check_keywords
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    stream: bool = False,
) -> pa.Table | pa.RecordBatchReader:
    """Run a DuckDB query over the records of a dataset; returns a `pyarrow.Table`.

    The table `records` holds all records, or those of one `split`; each split is also a table of its own name.
    Columns have the names of the schema, in double quotes if they are not plain identifiers: `"image/encoded"`. The
    columns `_split` and `_record` identify a record in its split, `_shard` and `_shard_record` in its file, and
    `label_name` is the class name of `label`. Only the columns that the query needs are decoded, and no record is
    read if the index contains them.

    Payloads that are not Examples are one column, `payload`, of bytes. `kind` ("example", "sequence", "bytes")
    overrides the detected kind of payload.

    With `stream`, the result is a `pyarrow.RecordBatchReader` that computes its batches on demand.
    """
    answer = QueryResult(select_query_splits(path, split, schema, kind), sql)
    if not stream:
        with answer:
            return answer.table()
    return pa.RecordBatchReader.from_batches(answer.schema, answer.batches())


def select_query_splits(path: Any, split: str | None, schema: Any, kind: RecordKind | None = None) -> list[Split]:
    """The splits that a query reads."""
    reject_reading_options(path, schema, kind)
    dataset = path if isinstance(path, Dataset) else open_dataset(path, schema=schema, kind=kind)
    return list(dataset.splits.values()) if split is None else [dataset[split]]


_RECORD_COLUMN = "_record"


def find_matching_records(split: Split, condition: str) -> Ids:
    """The records of a split for which a condition is true (not false or NULL), in the order of the split.

    The numbers are those of records in the split's shards, even if the split is a view.
    """
    do = "where=\"label = 3 and caption like '%cat%'\""
    non_blank("where", condition, expected="an SQL condition over columns", do=do)
    for name in split.schema:
        if name.casefold() == _RECORD_COLUMN:
            raise error(
                "U680",
                "column name is reserved for conditions",
                location=Location(feature=name),
                expected="other column names",
                found=f"a column `{name}`",
                do=f"rekord rewrite {(split.paths or ('IN',))[0][:60]} renamed --rename {name}=other",
            )
    whole = split if split.view.ids is None else Split(split.name, split.view.whole(), split.stored_schema)
    found = np.zeros(len(split.view.shards), bool)
    found[_query_record_numbers(whole, condition)] = True
    order = expand_selection(split.view.all_ids)
    return order[found[order]]


def _query_record_numbers(split: Split, condition: str) -> Ids:
    """Of all records of the shards, in no particular order."""
    # On a line of its own, so that a comment in the condition ends there.
    with QueryResult([split], f"select {_RECORD_COLUMN} from records where (\n{condition}\n)") as answer:
        numbers: Ids = answer.table()[_RECORD_COLUMN].to_numpy()
    return numbers
