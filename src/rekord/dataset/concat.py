"""`rk.concat`: splits one behind another, as one split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from rekord.dataset.dataset import Dataset
from rekord.dataset.drawn import Drawn
from rekord.dataset.lazy_schema import LazySchema
from rekord.dataset.selection import Selection, all_numbers, joined
from rekord.dataset.shards import Shards
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.compat import compat


def concat(splits: Iterable[Split | Dataset]) -> Split:
    """All records of these splits as one split, in this order; nothing is copied.

    Views may be among them, and datasets of one split. Their schemas need not be equal: one of them must read all of
    the records, without leaving out a column that another one has.
    """
    parts = _checked_parts(splits)
    if len(parts) == 1:
        return parts[0]
    schema = _joined_schema(parts)
    names = "+".join(dict.fromkeys([part.name for part in parts]))
    return Split(
        names,
        _joined_shards([part._shards for part in parts]),
        schema,
        ids=_joined_ids(parts),
        map=parts[0]._map,
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
        if one._map is not parts[0]._map:
            raise error(
                "U657",
                expected="splits without a function, or all with one and the same",
                found=f"`{parts[0].name}` and `{one.name}` with different ones",
                do="rk.concat([a, b]).map(function)",
            )
    return parts


# Numbers.


def _joined_shards(parts: Sequence[Shards]) -> Shards:
    paths = [path for part in parts for path in part.paths]
    # What was found out by a look at files is found out again: only a manifest's word is passed on as one.
    if any(part._told is None for part in parts):
        return Shards(paths)
    return Shards(paths, [count for part in parts for count in part.counts], told_by=parts[0]._told_by)


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


# Schemas.


def _joined_schema(parts: Sequence[Split]) -> LazySchema:
    """The schema of the first part that reads the records of all."""
    first = parts[0]._schema
    if all(part._schema is first for part in parts):
        return first
    schemas = [part.schema for part in parts]
    chosen = next((one for one in schemas if all(_misfit(other, one) is None for other in schemas)), None)
    if chosen is None:
        raise _misfitting(parts, schemas)
    paths = [path for part in parts for path in part.paths]
    if any(part._schema.declared for part in parts):
        return LazySchema(paths, chosen, None)
    return LazySchema(paths, None, None, inferred=chosen)


def _misfit(written: Schema, read: Schema) -> tuple[str | None, str] | None:
    """The first column, and why, that keeps one schema from reading all that another has written."""
    for change in compat(written, read).changes:
        if change.verdict == "breaking":
            return change.column, change.what
    for before, after in ((written.context, read.context), (written.steps, read.steps)):
        kept = {key for name, feature in after.items() for key in feature.record_keys(name)}
        for name, feature in before.items():
            if not kept.issuperset(feature.record_keys(name)):
                return name, "only one of them has it"
    return None


def _misfitting(parts: Sequence[Split], schemas: Sequence[Schema]) -> RekordError:
    """What to say: of the first part and one of those that its schema does not read."""
    unread = []
    for part, schema in zip(parts, schemas, strict=True):
        misfit = _misfit(schema, schemas[0])
        if misfit is not None:
            unread.append((part, schema, misfit))
    # Rather one that does not read the first either: the other way round the two would do.
    other, against, misfit = next(
        (one for one in unread if _misfit(schemas[0], one[1]) is not None), unread[0]
    )
    return _told(parts[0], schemas[0], other, against, misfit)


def _told(
    first: Split, schema: Schema, other: Split, against: Schema, misfit: tuple[str | None, str]
) -> RekordError:
    column, why = misfit
    return error(
        "U656",
        "the splits hold records of two kinds"
        if column is None
        else f"`{column}` does not fit together: {why}",
        location=Location(path=next(iter(other.paths), None), feature=column),
        expected=f"{_shown(schema, column)}, as in {next(iter(first.paths), 'the first split')}",
        found=_shown(against, column),
        do="rk.open(path, schema=…) with one schema that reads all of them",
    )


def _shown(schema: Schema, column: str | None) -> str:
    if column is None:
        return "SequenceExamples" if schema.is_sequence else "Examples"
    return repr(schema[column])[:60] if column in tuple(schema) else "no such column"
