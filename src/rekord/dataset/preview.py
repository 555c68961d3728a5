"""The first rows of a split, read for a notebook: a few megabytes at most, from the start of its first file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rekord import _core
from rekord.codec.columns import ColumnBatch
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import compile_plan
from rekord.codec.preview import render_columns, render_rows
from rekord.dataset.infer import infer
from rekord.framing.inflate import sniff_compression
from rekord.report.formatting import format_count
from rekord.schema import Feature, Schema
from rekord.storage.local import LOCAL, read_up_to

if TYPE_CHECKING:
    from rekord.dataset.split import Split

PREVIEW_ROWS = 4
_MAX_READ_BYTES = 8 << 20
_MAX_FILES = 4  # the first ones may be empty


def render_split_parts(split: Split) -> list[str]:
    """The columns of a split, and its first rows, if they can be read at once."""
    rows, features = peek_rows(split)
    parts = [render_columns(features)] if features else []
    return parts if rows is None else [*parts, render_rows(rows, rows.features, PREVIEW_ROWS)]


def peek_rows(split: Split, count: int = PREVIEW_ROWS) -> tuple[ColumnBatch | None, Mapping[str, Feature]]:
    """The first rows, and the features, which are inferred from these rows if none are known.

    Functions of the user are not called for a look at a split, remote files are not fetched, and no index is built:
    the rows are None then.
    """
    known = split.schema if split.stored_schema.known else None
    features = {} if known is None else known.features
    changed = split.row_transforms is not None or split.batch_map is not None or split.sampling is not None
    if changed or split.view.shards.remote:
        return None, features
    if split.view.ids is None:
        payloads = _peek_payloads(split, count)
    elif split.view.shards.has_listed_counts and len(split):
        whole = split[list(range(min(count, len(split))))]
        return ColumnBatch(whole, features), features
    else:
        return None, features
    if not payloads:
        return None, features
    schema = infer(payloads) if known is None else known
    return decode_payloads(payloads, schema), schema.features


def _peek_payloads(split: Split, count: int) -> list[bytes]:
    """The payloads at the start of the first file that has any."""
    for path in split.paths[:_MAX_FILES]:
        if LOCAL.stat(path).kind != "file":
            return []  # reading a pipe would consume it
        with LOCAL.open_read(path) as file:
            data = read_up_to(file, _MAX_READ_BYTES)
        compression = sniff_compression(data)
        if compression != "none":
            data = zlib.decompressobj(wbits=31 if compression == "gzip" else 15).decompress(data, _MAX_READ_BYTES)
        extents, _, _, _ = _core.scan(data, 0, len(data), len(data))
        if len(extents):
            return list(_core.payloads(data, extents))[:count]
    return []


def decode_payloads(payloads: list[bytes], schema: Schema) -> ColumnBatch:
    """Records as columns, up to the first one that does not match the schema."""
    plan = compile_plan(schema, None)
    batch = new_batch(plan, _core.Pool(0))
    rows = 0
    for payload in payloads:
        if batch.add(payload) is not None:
            break  # this one does not match the schema; those before it are shown
        rows += 1
    return ColumnBatch(assemble_columns(plan, batch.take(), rows), schema.features)


def list_split_facts(split: Split) -> list[str]:
    """The number of records, if it is known without reading files, of files and of columns."""
    records = count_split_records(split)
    counted = "records not counted yet" if records is None else format_count(records, "record")
    if split.sampling is not None:
        counted += f" per epoch, {split.sampling.description}"
    elif split.view.ids is not None:
        counted += " selected"
    facts = [counted, format_count(len(split.view.shards.paths), "file")]
    if split.stored_schema.known:
        facts.append(format_count(len(split.schema), "column"))
    return facts if split.batch_map is None else [*facts, "mapped"]


def count_split_records(split: Split) -> int | None:
    """The number of records, if it is known without reading files."""
    if split.sampling is not None:
        return split.sampling.size
    if split.view.ids is not None:
        return len(split.view.ids)
    return int(np.sum(split.view.shards.counts)) if split.view.shards.counted else None
