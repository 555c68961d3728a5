"""`rk.query`: SQL over the records of a dataset, which reads no more of them than the answer needs."""

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
    """What DuckDB answers to a query over the records of a dataset, as a `pyarrow.Table`.

    `records` are all records, or those of one `split`; each split is a table by its own name too. A column has the
    name that the schema gives it, in double quotes where it is no plain word: `"image/encoded"`. Where the
    query names them, `_split` and `_record` number each record in its split, `_shard` and `_shard_record` in its
    file, and `label_name` is the class that `label` is the number of. Only columns that the query needs are decoded,
    and no record is read where the index knows them.

    Payloads that are no Examples have one column, `payload`: their bytes. `kind` says what payloads are ("example",
    "sequence", "bytes"), where that is not to be guessed.

    With `stream` the answer is a `pyarrow.RecordBatchReader`, whose batches are made as they are asked for.
    """
    answer = QueryResult(select_query_splits(path, split, schema, kind), sql)
    if not stream:
        with answer:
            return answer.table()
    return pa.RecordBatchReader.from_batches(answer.schema, answer.batches())


def select_query_splits(path: Any, split: str | None, schema: Any, kind: RecordKind | None = None) -> list[Split]:
    """The splits that a query is about."""
    dataset = path if isinstance(path, Dataset) else open_dataset(path, schema=schema, kind=kind)
    if isinstance(path, Dataset) and (schema is not None or kind is not None):
        name = "kind" if schema is None else "schema"
        raise error(
            "U605",
            f"`{name}` cannot be given beside a dataset that is open",
            expected=f"a path, or no {name}",
            found="a Dataset",
            do=f"rk.query(path, sql, {name}=…)",
        )
    return list(dataset.splits.values()) if split is None else [dataset[split]]


_RECORD_COLUMN = "_record"


def find_matching_records(split: Split, condition: str) -> Ids:
    """The numbers of those records of a split, in its order, of which a condition is true: not false, nor NULL.

    They are numbers of records of the split's shards, whatever view of them the split is.
    """
    do = "where=\"label = 3 and caption like '%cat%'\""
    non_blank("where", condition, expected="a condition in SQL over columns", do=do)
    for name in split.schema:
        if name.casefold() == _RECORD_COLUMN:
            raise error(
                "U680",
                "column name is reserved for conditions",
                location=Location(feature=name),
                expected="columns by other names",
                found=f"a column `{name}`",
                do=f"rekord rewrite IN OUT --rename {name}=other",
            )
    whole = split if split.view.ids is None else Split(split.name, split.view.whole(), split.stored_schema)
    found = np.zeros(len(split.view.shards), bool)
    found[_query_record_numbers(whole, condition)] = True
    order = expand_selection(split.view.all_ids)
    return order[found[order]]


def _query_record_numbers(split: Split, condition: str) -> Ids:
    """Of all records of the shards, in no order."""
    # On a line of its own, so that a comment in the condition ends there.
    with QueryResult([split], f"select {_RECORD_COLUMN} from records where (\n{condition}\n)") as answer:
        numbers: Ids = answer.table()[_RECORD_COLUMN].to_numpy()
    return numbers
