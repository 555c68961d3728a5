"""A folder that `tfds.builder_from_directory` opens, written as any dataset is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rekord.engines.journal import remove_tree, stagings
from rekord.errors import RekordError, error
from rekord.schema import Schema
from rekord.sources.records import records as record_source
from rekord.sources.rows import rows as row_source
from rekord.storage.files import LOCAL
from rekord.verbs.exports.reading import Options, Records
from rekord.verbs.write import write


def export_tfds(every: list[Records], out: str, options: Options) -> tuple[dict[str, int], int, int]:
    """Splits as a TFDS folder: how many records each has, how many files there are, and how large they are."""
    schema = _schema(every[0])
    rows, split = _source(every, schema)
    try:
        dataset = write(rows, out, schema=schema, split=split, format="tfds", progress=False)
    except BaseException:
        # A conversion would go on from here; an export leaves nothing behind.
        with suppress(RekordError):
            for staging in stagings(out, LOCAL):
                remove_tree(LOCAL, staging.folder)
        raise
    counts = {name: len(one) for name, one in dataset.splits.items()}
    options.on_records(sum(counts.values()))
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(out) for name in names]
    return counts, len(paths), sum(os.path.getsize(path) for path in paths)


def _schema(records: Records) -> Schema:
    whole = records.split.schema
    if whole.is_sequence:
        return whole  # which TFDS has no like of, and `write` says so
    return Schema(dict(records.features))


def _source(every: list[Records], schema: Schema) -> tuple[Any, str]:
    """Rows to write, and which splits they go to."""
    views = [one for one in every if one.split._ids is not None or one.limit is not None]
    splits = {path: one.name for one in every for path in one.split.paths}
    once = len(splits) == sum(len(one.split.paths) for one in every)  # what was joined may have a file twice
    if once and not views and not any(one.split._shards.remote for one in every):
        return record_source(list(splits), schema=schema, splits=splits), "source"
    if len(every) > 1:
        raise error(
            "U673",
            "a part of several splits cannot be written as tfds at once",
            expected="whole splits that are on this machine, or one split",
            found=f"{len(every)} splits" + (f", of each the first {views[0].limit:,}" if views else ""),
            do=f"--split {every[0].name[:40]}, or leave the limit out",
        )
    return row_source(_Rows(every[0])), every[0].name


class _Rows:
    """The rows of a split, from the first one each time they are asked for."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch, _, rows in self._records.batches():
            for row in range(rows):
                yield {name: column[row] for name, column in batch.items()}
