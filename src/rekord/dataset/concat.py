"""`rk.concat`: splits one behind another, as one split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from rekord.dataset.dataset import Dataset
from rekord.dataset.drawn import Drawn
from rekord.dataset.joined import joined_schema, joined_shards
from rekord.dataset.selection import Selection, all_numbers, joined
from rekord.dataset.split import Split
from rekord.dataset.transformed import same_transforms
from rekord.errors import error


def concat(splits: Iterable[Split | Dataset]) -> Split:
    """All records of these splits as one split, in this order; nothing is copied.

    Views may be among them, and datasets of one split. Their schemas need not be equal: one of them must read all of
    the records, without leaving out a column that another one has.
    """
    parts = _checked_parts(splits)
    if len(parts) == 1:
        return parts[0]
    schema = joined_schema(parts)
    names = "+".join(dict.fromkeys([part.name for part in parts]))
    return Split(
        names,
        joined_shards([part._shards for part in parts]),
        schema,
        ids=_joined_ids(parts),
        map=parts[0]._map,
        transforms=None if parts[0]._transforms is None else parts[0]._transforms.on(schema),
        block_records=_joined_block(parts),
        digest=_joined_digest(parts),
    )


def _checked_parts(splits: Any) -> list[Split]:
    given = list(splits) if isinstance(splits, Iterable) and not isinstance(splits, (Split, Dataset)) else []
    parts = [one._only("concat") if isinstance(one, Dataset) else one for one in given]
    wrong = [one for one in parts if not isinstance(one, Split)]
    if not parts or wrong:
        found = f"{type(wrong[0]).__name__}: {repr(wrong[0])[:40]}" if wrong else repr(splits)[:60]
        raise error(
            "U605",
            "`concat` was given something else than splits",
            expected="a list of one or more splits",
            found=found,
            do='rk.concat([dataset["train"], dataset["val"]])',
        )
    for one in parts:
        if isinstance(one, Drawn):
            raise one._no_view("concat")
        if not same_transforms(one._transforms, parts[0]._transforms):
            raise error(
                "U657",
                "splits with different transforms cannot be put together",
                expected="splits without transforms, or all with the same",
                found=f"`{parts[0].name}` and `{one.name}` with different ones",
                do="rk.concat([a, b]).transform(…)",
            )
        if one._map is not parts[0]._map:
            raise error(
                "U657",
                expected="splits without a function, or all with one and the same",
                found=f"`{parts[0].name}` and `{one.name}` with different ones",
                do="rk.concat([a, b]).map(function)",
            )
    return parts


def _joined_ids(parts: Sequence[Split]) -> Selection | None:
    """The numbers of the records in the joined numbering; None where they are all, in order."""
    if all(part._ids is None for part in parts):
        return None
    ids: list[Selection] = []
    begin = 0
    for part in parts:
        ids.append(all_numbers(part._all_ids()) + begin)
        begin += len(part._shards)
    return joined(ids)


def _joined_block(parts: Sequence[Split]) -> int | None:
    known = [part._block_records for part in parts if part._block_records is not None]
    return min(known) if len(known) == len(parts) else None


def _joined_digest(parts: Sequence[Split]) -> str | None:
    """One for all where each is known without a look at the files; else it is found out when it is needed."""
    known = [part._digest for part in parts if part._digest is not None]
    if len(known) < len(parts):
        return None
    return hashlib.sha256("+".join([f"{part.name}:{part._digest}" for part in parts]).encode()).hexdigest()
