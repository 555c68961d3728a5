"""Several splits as one: their shards one behind another, and a schema that reads the records of all."""

from __future__ import annotations

from collections.abc import Sequence

from rekord.dataset.compact_manifest import ListedSplits
from rekord.dataset.lazy_schema import LazySchema
from rekord.dataset.shards import Shards
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.compat import compat


def joined_shards(parts: Sequence[Shards]) -> Shards:
    """The shards of all, in this order."""
    listed = [part._listed for part in parts if part._listed is not None]
    if len(listed) == len(parts):
        return Shards(listed=ListedSplits(tuple(listed)))
    paths = [path for part in parts for path in part.paths]
    # What was found out by a look at files is found out again: only a file's word is passed on as one.
    if not all(part.is_told for part in parts):
        return Shards(paths)
    return Shards(paths, [count for part in parts for count in part.counts], told_by=parts[0]._told_by)


def joined_schema(parts: Sequence[Split]) -> LazySchema:
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
