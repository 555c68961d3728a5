"""Which records of a split fulfil a condition in SQL, over its columns."""

from __future__ import annotations

import numpy as np

from rekord.dataset.order import Ids
from rekord.dataset.selection import all_numbers
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.feeds.sql_answer import Answer
from rekord.location import Location
from rekord.schema.refuse import shown

_NUMBER = "_record"


def matching(split: Split, condition: str) -> Ids:
    """The numbers of those records of a split, in its order, of which a condition is true: not false, nor NULL.

    They are numbers of records of the split's shards, whatever view of them the split is.
    """
    if not isinstance(condition, str) or not condition.strip():
        raise error(
            "U605",
            f"`where` cannot be {shown(condition)}",
            expected="a condition in SQL over columns",
            found=shown(condition),
            do="where=\"label = 3 and caption like '%cat%'\"",
        )
    for name in split.schema:
        if name.casefold() == _NUMBER:
            raise error(
                "U697",
                location=Location(feature=name),
                expected="columns by other names",
                found=f"a column `{name}`",
                do=f"rekord rewrite IN OUT --rename {name}=other",
            )
    whole = split if split._ids is None else Split(split.name, split._shards, split._schema)
    found = np.zeros(len(split._shards), bool)
    found[_numbers(whole, condition)] = True
    order = all_numbers(split._all_ids())
    return order[found[order]]


def _numbers(split: Split, condition: str) -> Ids:
    """Of all records of the shards, in no order."""
    # On a line of its own, so that a comment in the condition ends there.
    with Answer([split], f"select {_NUMBER} from records where (\n{condition}\n)") as answer:
        numbers: Ids = answer.table()[_NUMBER].to_numpy()
    return numbers
