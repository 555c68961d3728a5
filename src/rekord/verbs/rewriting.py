"""A rewrite from what a person asks for: whether records can be copied as they are, or go through a conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rekord.dataset.concat import concat
from rekord.dataset.infer import infer
from rekord.dataset.joined import joined_schema, joined_shards
from rekord.dataset.lazy_schema import LazySchema
from rekord.dataset.manifest import Manifest
from rekord.dataset.order import checked_seed
from rekord.dataset.selection import Selection, all_numbers, digest_of, selected
from rekord.dataset.split import Split
from rekord.engines.conversion import Conversion, Outcome
from rekord.engines.job import CutRule
from rekord.engines.publish import Companions
from rekord.engines.remake import Remake
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.anywhere import ANYWHERE
from rekord.transforms.chain import as_chain
from rekord.verbs.prepare import (
    byte_count,
    check_one_of,
    checked_out,
    checked_whole,
    prepare,
    run,
    run_aloud,
)
from rekord.verbs.remaking import (
    Old,
    as_outcome,
    check_apart,
    damage_told,
    joined_digest,
    opened,
    other_companions,
    run_remake,
)
from rekord.verbs.rewrite_asked import Asked
from rekord.verbs.rewrite_change import Change, change_of
from rekord.verbs.rewrite_copy import as_one, chosen_compression, copying
from rekord.verbs.rewrite_source import OldFile, Rewritten, Stored


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A rewrite that is ready to run, in one of its two ways."""

    out: str
    olds: Sequence[Old]
    copy: Remake | None = None
    conversion: Conversion | None = None
    source: Rewritten | None = None

    def run(self, *, progress: bool) -> Outcome:
        """Make the dataset."""
        if self.copy is not None:
            return as_outcome(run_remake(self.copy, self.olds, progress=progress))
        assert self.conversion is not None
        assert self.source is not None
        try:
            with damage_told(self.olds):
                return (run_aloud if progress else run)(self.conversion)
        except RekordError as failure:
            failure.location = self.source.place(failure.location)
            raise


def prepare_rewrite(given: Sequence[Any], out: Any, asked: Asked, *, storage: Any = None) -> Rewrite:
    """Everything that can be refused before a record is written is refused here."""
    place = checked_out(out)
    check_one_of("format", asked.format, (None, "tfds"))
    checked_seed("seed", asked.seed)
    if not given:
        raise error(
            "U605", "`path` cannot be empty", expected="a dataset", found="none", do="rk.rewrite(path, out)"
        )
    cut = CutRule(
        shard_bytes=byte_count(asked.shard_size, name="shard_size"),
        shards=None if asked.shards is None else checked_whole("shards", asked.shards, least=1, most=99_999),
    )
    olds = [opened(one, kind=asked.kind) for one in given]
    check_apart(place, olds)
    splits = _joined(olds)
    declared = all(split._schema.declared for split in splits.values())
    before = found_schema(olds, splits, asked.schema if not declared else None)
    change = change_of(
        before,
        schema=asked.schema,
        cast=asked.cast,
        rename=asked.rename,
        drop=asked.drop,
        keep=asked.keep,
        fill=asked.fill,
        lossy=asked.lossy,
    )
    # Who says which columns to keep wants no others, not even those that the schema does not name.
    same = change.schema == before and asked.keep is None
    stays = same and not change.cast and not as_chain(asked.transforms).steps
    if before.kind == "bytes" and not stays:
        raise error(
            "U698",
            "payloads that are taken as they are have no columns to change",
            location=Location(path=olds[0].name),
            expected="other shards, another compression, another order, or `where`",
            found="a change of columns",
            do="rk.write(rows, out), with rows made of the payloads that rk.records(path) gives",
        )
    unproven = not declared and asked.schema is not None
    paths = [path for split in splits.values() for path in split.paths]
    asked = replace(asked, compression=chosen_compression(asked.compression, paths, asked.format))
    wanted = {name: _wanted(split, asked.where) for name, split in splits.items()}
    if asked.where is not None and not any(ids is None or len(ids) for ids in wanted.values()):
        raise error(
            "X565",
            location=Location(path=olds[0].name),
            expected="at least one record of which the condition is true",
            found=f"none of {sum(map(len, splits.values())):,}",
            do='look at the values: rekord query IN "select … from records"',
        )
    if stays and not unproven:
        copy = copying(olds, splits, wanted, place, before, cut, asked, storage)
        return Rewrite(out=place, olds=olds, copy=copy)
    source = _source(olds, splits, wanted, change, asked, strict=stays or not declared)
    conversion = _conversion(olds, source, place, asked, storage)
    return Rewrite(out=place, olds=olds, conversion=conversion, source=source)


def _joined(olds: Sequence[Old]) -> dict[str, Split]:
    """The splits of all, those of one name as one."""
    parts: dict[str, list[Split]] = {}
    for old in olds:
        for name, split in old.splits.items():
            parts.setdefault(name, []).append(split)
    everything = [split for several in parts.values() for split in several]
    if len(olds) > 1 and all(split._ids is None and not split._schema.declared for split in everything):
        # What they hold is found out from all of them together.
        schema = LazySchema([path for split in everything for path in split.paths], None, None)
        return {
            name: Split(name, joined_shards([split._shards for split in several]), schema)
            for name, several in parts.items()
        }
    if len(olds) > 1:  # splits of other names must agree too: they become one dataset
        joined_schema(everything)
    return {name: concat(several) for name, several in parts.items()}


def found_schema(olds: Sequence[Old], splits: Mapping[str, Split], given: Schema | None) -> Schema:
    """What the records hold: declared, or else found out from all of them, since it is declared from now on."""
    if given is not None:
        return given
    parts = [split for old in olds for split in old.splits.values()]
    if any(split._schema.declared for split in parts):
        return joined_schema(parts).get()
    with damage_told(olds):
        found = parts[0].schema
        if found.kind != "bytes":  # of payloads that are copied as they are nothing more is to be known
            found = infer([path for split in splits.values() for path in split.paths], kind=found.kind)
    return Schema.from_dict(found.to_dict(evidence=False))


def _wanted(split: Split, where: str | None) -> Selection | None:
    """Which records of a split's shards are wanted; None where that is all of them."""
    if where is not None:
        from rekord.verbs.matching import matching  # which needs DuckDB

        return selected(matching(split, where))
    return split._ids


# Changed on their way.


def _source(
    olds: Sequence[Old],
    splits: Mapping[str, Split],
    wanted: Mapping[str, Selection | None],
    change: Change,
    asked: Asked,
    *,
    strict: bool,
) -> Rewritten:
    if len(splits) > 1 and "split" in change.schema:
        raise error(
            "U698",
            "a column `split` cannot be kept in a dataset of several splits",
            location=Location(feature="split"),
            expected="a column of another name",
            found="a column `split`, and splits " + ", ".join(splits)[:40],
            do="--rename split=other",
        )
    files: list[OldFile] = []
    rows: int | None = 0
    for name, split in splits.items():
        ids = wanted[name]
        chosen = None if ids is None else _by_shard(split, ids)
        known = len(ids) if ids is not None else len(split._shards) if split._shards.counted else None
        rows = None if rows is None or known is None else rows + known
        for shard, path in enumerate(split.paths):
            told = ANYWHERE.stat(path)
            mine = None if chosen is None else chosen[shard]
            files.append(OldFile(path, name, told.size_bytes, told.mtime_ns, mine))
    told_of: dict[str, Any] = {"verb": "rewrite", "of": joined_digest(olds)}
    if asked.where is not None:
        told_of["where"] = {name: digest_of(ids) for name, ids in wanted.items() if ids is not None}
    return Rewritten(
        files=tuple(files),
        change=change,
        strict=strict,
        splits=tuple(splits) if len(splits) > 1 else None,
        told=told_of,
        rows=rows,
    )


def _by_shard(split: Split, ids: Selection) -> list[Any]:
    """The numbers of records within each shard, which must stay in their order."""
    numbers = all_numbers(ids)
    if len(numbers) > 1 and not bool((np.diff(numbers) > 0).all()):
        raise error(
            "U698",
            "the records of a view in an order of its own can only be copied",
            expected="a view in the order of its files, each record once",
            found="another order",
            do="rewrite the view first, and change its columns then",
        )
    edges = np.searchsorted(numbers, split._shards.starts)
    return [
        numbers[begin:end] - start
        for begin, end, start in zip(edges[:-1], edges[1:], split._shards.starts[:-1], strict=True)
    ]


def _conversion(olds: Sequence[Old], source: Rewritten, out: str, asked: Asked, storage: Any) -> Conversion:
    schema = source.change.schema
    renamed = {one.old: one.new for one in source.change.columns}
    old = as_one(olds, source.change.before)
    kept = [renamed[name] for name in old.index if name in renamed and renamed[name] in schema.context]
    plain = not as_chain(asked.transforms).steps
    names = tuple(dict.fromkeys(file.split for file in source.files))
    conversion = prepare(
        source,
        out,
        schema=None,
        layout=Stored(schema),
        map=None,
        transforms=asked.transforms,
        names=None,
        split="source" if source.splits is not None else names[0],
        split_by=None,
        stratify=None,
        key=None,
        # A transform may take a column away: what is then asked for by name is refused there.
        index=tuple(dict.fromkeys([*asked.index, *(kept if plain else ())])),
        shard_size=asked.shard_size,
        shards=asked.shards,
        compression=asked.compression,
        shuffle=asked.shuffle,
        seed=asked.seed,
        verify="headers",
        on_bad_row="stop",
        max_rejects=0,
        limit=None,
        workers=asked.workers,
        engine="local",
        staging=None,
        fresh=asked.fresh,
        format=asked.format,
    )
    conversion = replace(
        conversion, parent=old.parent, companions=_Beside(conversion.companions, other_companions(old))
    )
    return conversion if storage is None else replace(conversion, storage=storage)


@dataclass(frozen=True)
class _Beside:
    """The companions of a conversion, and those that the old dataset had."""

    made: Companions
    kept: Mapping[str, bytes]

    def __call__(self, manifest: Manifest) -> dict[str, bytes]:
        return {**self.kept, **self.made(manifest)}
