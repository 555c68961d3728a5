"""Records as they are on their way to another dataset: in which order, to which shards, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from rekord.dataset.order import Order
from rekord.dataset.recipes import FileOrder, Selected, Whole
from rekord.dataset.selection import Selection, digest_of
from rekord.dataset.shard_index import compression_of
from rekord.dataset.split import Split
from rekord.engines.copied import Records, cut_records
from rekord.engines.job import CutRule
from rekord.engines.remake import Copied, NewSplit, Remake
from rekord.layouts.tfds import check_tfds
from rekord.records.compress import checked_compression
from rekord.schema import Schema
from rekord.verbs.prepare import (
    TFDS_VERSION,
    index_columns,
    shard_template,
    tfds_name,
    worker_count,
)
from rekord.verbs.remaking import (
    Old,
    RemadeCompanions,
    damage_told,
    joined_digest,
    other_companions,
    remake_plan,
)
from rekord.verbs.rewrite_asked import Asked
from rekord.version import VERSION

_REWRITE: Mapping[str, Any] = MappingProxyType({"verb": "rewrite"})


def copying(
    olds: Sequence[Old],
    splits: Mapping[str, Split],
    wanted: Mapping[str, Selection | None],
    out: str,
    schema: Schema,
    cut: CutRule,
    asked: Asked,
    storage: Any,
    told: Mapping[str, Any] = _REWRITE,
) -> Remake:
    """The dataset of these records as they are; `told` is what the manifest says of how they were chosen."""
    old = as_one(olds, schema)
    index_columns(schema, asked.index)  # refuses what is no column
    index = tuple(dict.fromkeys([*asked.index, *old.index]))
    compression = asked.compression or "none"
    if asked.format == "tfds":
        check_tfds(
            schema,
            tfds_name(out),
            TFDS_VERSION,
            tuple(splits),
            None if compression == "none" else compression,
        )
    template = shard_template(out, compression, asked.format)
    new: dict[str, NewSplit] = {}
    framed_bytes = 0
    with damage_told(olds):
        for name, split in splits.items():
            records = _ordered(split, wanted[name], asked)
            stretches = cut_records(records, cut)
            framed_bytes += _framed_bytes(records)
            new[name] = NewSplit(
                shards=[Copied(stretch) for stretch in stretches], template=template, compression=compression
            )
    options = {
        **told,
        "records": {name: digest_of(ids) for name, ids in wanted.items() if ids is not None},
        "shard_bytes": None if cut.shards is not None else cut.shard_bytes,
        "shards": cut.shards,
        "template": template,
        "compression": compression,
        "shuffle": bool(asked.shuffle),
        "seed": asked.seed,
        "format": asked.format,
    }
    made = Remake(
        out=out,
        splits=new,
        schema=schema,
        index=index,
        plan=remake_plan(str(told["verb"]), old, schema, index, options),
        version=VERSION,
        companions=RemadeCompanions(old, schema, out, tfds=asked.format == "tfds"),
        parent=old.parent,
        workers=worker_count(asked.workers),
        fresh=bool(asked.fresh),
        framed_bytes=framed_bytes,
    )
    return made if storage is None else replace(made, storage=storage)


def as_one(olds: Sequence[Old], schema: Schema) -> Old:
    """Several datasets as one: what they agree on is true of what is made of them."""
    if len(olds) == 1:
        return replace(olds[0], schema=schema)
    same = all(other_companions(old) == other_companions(olds[0]) for old in olds)
    first = olds[0].manifest
    agreed = None
    if first is not None and same and all(old.passed_on() == olds[0].passed_on() for old in olds):
        agreed = first
    parent = joined_digest(olds) if all(old.parent is not None for old in olds) else None
    return replace(olds[0], schema=schema, manifest=agreed, digest=joined_digest(olds), parent=parent)


def _ordered(split: Split, ids: Selection | None, asked: Asked) -> Records:
    shards = split._shards
    if ids is None and not asked.shuffle:
        return Records(shards, FileOrder(shards))
    size = len(shards) if ids is None else len(ids)
    order = Order("exact" if asked.shuffle else "sequential", size, asked.seed)
    return Records(shards, Whole(order) if ids is None else Selected(order, ids))


def _framed_bytes(records: Records) -> int:
    if records.recipe.is_file_order:
        return sum(records.frames.end(shard) for shard in range(len(records.shards.paths)))
    return sum(int(lengths.sum()) for _, lengths in records.pieces(0, len(records)))


def chosen_compression(asked: str | None, paths: Sequence[str], format: str | None) -> str:
    """The compression that was asked for, or the one that all of the files have; none where they differ.

    TFDS reads no compressed files: for it there is none, unless asked for, which is refused.
    """
    if asked is not None:
        return checked_compression(asked)
    if format == "tfds":
        return "none"
    found = {compression_of(path) for path in paths}
    return found.pop() if len(found) == 1 else "none"
