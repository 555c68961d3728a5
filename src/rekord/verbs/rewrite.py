"""`rk.rewrite`: a new dataset with the records of others, copied or changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rekord.arguments import check_keywords, invalid
from rekord.conversion.derive import CopiedShard, Derivation, DerivedSplit, plan_record_ranges
from rekord.conversion.driver import Conversion, ConversionListener, ConversionResult
from rekord.conversion.record_copier import RecordSequence
from rekord.dataset.combine import concat, resolve_common_schema
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.infer import infer
from rekord.dataset.samplers import (
    EpochOrder,
    FileOrderSampler,
    FullSampler,
    Selection,
    SubsetSampler,
    digest_selection,
    expand_selection,
    normalize_selection,
)
from rekord.dataset.shard_index import detect_file_compression
from rekord.dataset.shards import Shards
from rekord.dataset.split import LazySchema, RecordView, Split
from rekord.errors import RekordError, error
from rekord.framing.deflate import compression_name
from rekord.location import Location
from rekord.schema import Feature, RecordKind, Schema
from rekord.storage.local import PathLike, Storage
from rekord.storage.router import ROUTED_STORAGE
from rekord.transforms.chain import as_chain
from rekord.verbs.derive_common import (
    SourceDataset,
    build_derivation_plan,
    check_separate_folders,
    combine_dataset_digests,
    derived_companions,
    open_source_dataset,
    read_other_companions,
    run_derivation,
    suggest_salvage,
    to_conversion_result,
)
from rekord.verbs.options import (
    OutputOptions,
    RewriteOptions,
    WriteOptions,
    output_folder,
    resolve_worker_count,
)
from rekord.verbs.schema_change import (
    RewriteInputFile,
    RewriteSource,
    SchemaChange,
    StoredRecordLayout,
    plan_schema_change,
)
from rekord.verbs.write import (
    check_tfds_output,
    make_shard_template,
    prepare_conversion,
    run_conversion,
    select_index_columns,
)
from rekord.version import VERSION

if TYPE_CHECKING:
    from rekord.transforms.base import Transform


DatasetLike: TypeAlias = "PathLike | Dataset | Split"

_REWRITE_ORIGIN: Mapping[str, Any] = MappingProxyType({"verb": "rewrite"})


def plan_copy(
    olds: Sequence[SourceDataset],
    splits: Mapping[str, Split],
    wanted: Mapping[str, Selection | None],
    out: str,
    schema: Schema,
    requested: OutputOptions,
    storage: Storage,
    origin: Mapping[str, Any] = _REWRITE_ORIGIN,
    index: Sequence[str] = (),
) -> Derivation:
    """The dataset with these records unchanged; `origin` is recorded in the manifest."""
    old = merge_source_datasets(olds, schema)
    select_index_columns(schema, index)  # refuses unknown columns
    index = tuple(dict.fromkeys([*index, *old.index]))
    compression = requested.compression or "none"
    if requested.format == "tfds":
        check_tfds_output(out, schema, tuple(splits), compression)
    template = make_shard_template(out, compression, requested.format)
    cut = requested.cut
    new: dict[str, DerivedSplit] = {}
    framed_bytes = 0
    with suggest_salvage(olds):
        for name, split in splits.items():
            records = _order_records(split, wanted[name], requested)
            shards = [CopiedShard(stretch) for stretch in plan_record_ranges(records, cut)]
            framed_bytes += _sum_framed_bytes(records)
            new[name] = DerivedSplit(shards=shards, template=template, compression=compression)
    options = {
        **origin,
        "records": {name: digest_selection(ids) for name, ids in wanted.items() if ids is not None},
        "shard_bytes": None if cut.shards is not None else cut.shard_bytes,
        "shards": cut.shards,
        "template": template,
        "compression": compression,
        "shuffle": bool(requested.shuffle),
        "seed": requested.seed,
        "format": requested.format,
    }
    return Derivation(
        out=out,
        splits=new,
        schema=schema,
        index=index,
        plan=build_derivation_plan(str(origin["verb"]), old, schema, index, options),
        version=VERSION,
        companions=derived_companions(old, schema, out, tfds=requested.format == "tfds"),
        parent=old.parent,
        workers=resolve_worker_count(requested.workers),
        fresh=bool(requested.fresh),
        storage=storage,
        framed_bytes=framed_bytes,
    )


def merge_source_datasets(olds: Sequence[SourceDataset], schema: Schema) -> SourceDataset:
    """Several datasets as one, with the companions and options that they agree on."""
    if len(olds) == 1:
        return replace(olds[0], schema=schema)
    same = all(read_other_companions(old) == read_other_companions(olds[0]) for old in olds)
    first = olds[0].manifest
    agreed = None
    if first is not None and same and all(old.inherited_options() == olds[0].inherited_options() for old in olds):
        agreed = first
    parent = combine_dataset_digests(olds) if all(old.parent is not None for old in olds) else None
    return replace(olds[0], schema=schema, manifest=agreed, digest=combine_dataset_digests(olds), parent=parent)


def _order_records(split: Split, ids: Selection | None, requested: OutputOptions) -> RecordSequence:
    shards = split.view.shards
    if ids is None and not requested.shuffle:
        return RecordSequence(shards, FileOrderSampler(shards))
    size = len(shards) if ids is None else len(ids)
    order = EpochOrder("exact" if requested.shuffle else "sequential", size, requested.seed)
    return RecordSequence(shards, FullSampler(order) if ids is None else SubsetSampler(order, ids))


def _sum_framed_bytes(records: RecordSequence) -> int:
    if records.sampler.is_file_order:
        return sum(records.frames.end(shard) for shard in range(len(records.shards.paths)))
    return sum(int(lengths.sum()) for _, lengths in records.pieces(0, len(records)))


def choose_compression(requested: str | None, paths: Sequence[str], format: str | None) -> str:
    """The requested compression, or the one that all files have; none if they differ.

    TFDS reads no compressed files: its default is none, and a requested compression is refused elsewhere.
    """
    if requested is not None:
        return compression_name(requested)
    if format == "tfds":
        return "none"
    found = {detect_file_compression(path) for path in paths}
    return found.pop() if len(found) == 1 else "none"


@dataclass(frozen=True, kw_only=True)
class PreparedRewrite:
    """A rewrite that is ready to run, as a copy or as a conversion."""

    out: str
    olds: Sequence[SourceDataset]
    copy: Derivation | None = None
    conversion: Conversion | None = None
    source: RewriteSource | None = None

    def run(self, *, progress: bool, watch: ConversionListener | None = None) -> ConversionResult:
        """Write the dataset. `watch` receives the progress of a copy instead of stderr."""
        if self.copy is not None:
            return to_conversion_result(run_derivation(self.copy, self.olds, progress=progress, watch=watch))
        assert self.conversion is not None
        assert self.source is not None
        try:
            with suggest_salvage(self.olds):
                return run_conversion(self.conversion, progress=progress)
        except RekordError as failure:
            failure.location = self.source.place(failure.location)
            raise


def prepare_rewrite(
    given: Sequence[DatasetLike], out: PathLike, requested: RewriteOptions, *, storage: Storage = ROUTED_STORAGE
) -> PreparedRewrite:
    """Validate everything that can be validated before a record is written."""
    place = output_folder(out)
    if not given:
        raise invalid("path", list(given), "at least one dataset", "rk.rewrite(path, out)")
    olds = [open_source_dataset(one, kind=requested.kind) for one in given]
    check_separate_folders(place, olds)
    splits = _merge_splits(olds)
    declared = all(split.stored_schema.declared for split in splits.values())
    before = resolve_source_schema(olds, splits, requested.schema if not declared else None)
    change = plan_schema_change(
        before,
        schema=requested.schema,
        cast=requested.cast,
        rename=requested.rename,
        drop=requested.drop,
        keep=requested.keep,
        fill=requested.fill,
        lossy=requested.lossy,
    )
    # `keep` drops all other columns, even those that the schema does not name.
    same = change.schema == before and requested.keep is None
    is_copy = same and not change.cast and not as_chain(requested.transforms).steps
    if before.kind == "bytes" and not is_copy:
        raise error(
            "U605",
            "payloads that are not Examples have no columns to change",
            location=Location(path=olds[0].name),
            expected="other shards, another compression, another order, or `where`",
            found="a change of columns",
            do="rk.write(({'payload': one} for one in rk.records(path)), out)",
        )
    unproven = not declared and requested.schema is not None
    paths = [path for split in splits.values() for path in split.paths]
    requested = replace(requested, compression=choose_compression(requested.compression, paths, requested.format))
    wanted = {name: _select_wanted_records(split, requested.where) for name, split in splits.items()}
    if requested.where is not None and not any(ids is None or len(ids) for ids in wanted.values()):
        raise error(
            "X565",
            location=Location(path=olds[0].name),
            expected="at least one record for which the condition is true",
            found=f"none of {sum(map(len, splits.values())):,}",
            do=f'rekord query {olds[0].name[:60]} "select * from records limit 10"',
        )
    if is_copy and not unproven:
        copy = plan_copy(olds, splits, wanted, place, before, requested, storage, index=requested.index)
        return PreparedRewrite(out=place, olds=olds, copy=copy)
    source = _build_source(olds, splits, wanted, change, requested, strict=is_copy or not declared)
    conversion = _build_conversion(olds, source, place, requested, storage)
    return PreparedRewrite(out=place, olds=olds, conversion=conversion, source=source)


def _merge_splits(olds: Sequence[SourceDataset]) -> dict[str, Split]:
    """The splits of all datasets; those of the same name are concatenated."""
    parts: dict[str, list[Split]] = {}
    for old in olds:
        for name, split in old.splits.items():
            parts.setdefault(name, []).append(split)
    everything = [split for several in parts.values() for split in several]
    if len(olds) > 1 and all(split.view.ids is None and not split.stored_schema.declared for split in everything):
        # The schema is inferred from all of them together.
        schema = LazySchema([path for split in everything for path in split.paths], None, None)
        return {
            name: Split(name, RecordView(Shards.concat([split.view.shards for split in several])), schema)
            for name, several in parts.items()
        }
    if len(olds) > 1:  # splits of different names must agree too: they become one dataset
        resolve_common_schema(everything)
    return {name: concat(several) for name, several in parts.items()}


def resolve_source_schema(olds: Sequence[SourceDataset], splits: Mapping[str, Split], given: Schema | None) -> Schema:
    """The declared schema, or the one inferred from all records, since the new dataset declares it."""
    if given is not None:
        return given
    parts = [split for old in olds for split in old.splits.values()]
    if any(split.stored_schema.declared for split in parts):
        return resolve_common_schema(parts).get()
    with suggest_salvage(olds):
        found = parts[0].schema
        if found.kind != "bytes":  # other payloads are copied without a schema
            found = infer([path for split in splits.values() for path in split.paths], kind=found.kind)
    return Schema.from_dict(found.to_dict(evidence=False))


def _select_wanted_records(split: Split, where: str | None) -> Selection | None:
    """The selected records of a split's shards; None for all of them."""
    if where is not None:
        from rekord.verbs.query import find_matching_records  # needs DuckDB

        return normalize_selection(find_matching_records(split, where))
    return split.view.ids


def _build_source(
    olds: Sequence[SourceDataset],
    splits: Mapping[str, Split],
    wanted: Mapping[str, Selection | None],
    change: SchemaChange,
    requested: RewriteOptions,
    *,
    strict: bool,
) -> RewriteSource:
    if len(splits) > 1 and "split" in change.schema:
        raise error(
            "U605",
            "dataset with several splits cannot have a column `split`",
            location=Location(feature="split"),
            expected="another column name",
            found="a column `split`, and splits " + ", ".join(splits)[:40],
            do='rename={"split": "other"}',
        )
    files: list[RewriteInputFile] = []
    rows: int | None = 0
    for name, split in splits.items():
        ids = wanted[name]
        chosen = None if ids is None else _group_by_shard(split, ids)
        known = len(ids) if ids is not None else len(split.view.shards) if split.view.shards.counted else None
        rows = None if rows is None or known is None else rows + known
        for shard, path in enumerate(split.paths):
            stat = ROUTED_STORAGE.stat(path)
            selected = None if chosen is None else chosen[shard]
            files.append(RewriteInputFile(path, name, stat.size_bytes, stat.mtime_ns, selected))
    origin: dict[str, Any] = {"verb": "rewrite", "of": combine_dataset_digests(olds)}
    if requested.where is not None:
        origin["where"] = {name: digest_selection(ids) for name, ids in wanted.items() if ids is not None}
    return RewriteSource(
        files=tuple(files),
        change=change,
        strict=strict,
        splits=tuple(splits) if len(splits) > 1 else None,
        extra=origin,
        rows=rows,
    )


def _group_by_shard(split: Split, ids: Selection) -> list[Any]:
    """The record numbers within each shard, which must be in order."""
    numbers = expand_selection(ids)
    if len(numbers) > 1 and not bool((np.diff(numbers) > 0).all()):
        raise error(
            "U605",
            "columns of a reordered view cannot be changed",
            expected="a view in file order, without duplicates",
            found="another order",
            do="rk.rewrite(view, out) first, then change the columns of the copy",
        )
    edges = np.searchsorted(numbers, split.view.shards.starts)
    return [
        numbers[begin:end] - start
        for begin, end, start in zip(edges[:-1], edges[1:], split.view.shards.starts[:-1], strict=True)
    ]


def _build_conversion(
    olds: Sequence[SourceDataset],
    source: RewriteSource,
    out: str,
    requested: RewriteOptions,
    storage: Storage,
) -> Conversion:
    schema = source.change.schema
    renamed = {one.old: one.new for one in source.change.columns}
    old = merge_source_datasets(olds, source.change.before)
    kept = [renamed[name] for name in old.index if name in renamed and renamed[name] in schema.context]
    plain = not as_chain(requested.transforms).steps
    names = tuple(dict.fromkeys(file.split for file in source.files))
    output = {one.name: getattr(requested, one.name) for one in fields(OutputOptions)}
    options = WriteOptions(
        **output,
        layout=StoredRecordLayout(schema),
        transforms=requested.transforms,
        split="source" if source.splits is not None else names[0],
        # A transform may remove a column: a requested index of it is refused there.
        index=tuple(dict.fromkeys([*requested.index, *(kept if plain else ())])),
        verify="headers",
        max_rejects=0,
    )
    conversion = prepare_conversion(source, out, options, storage=storage)
    new_companions, old_companions = conversion.companions, read_other_companions(old)
    return replace(
        conversion,
        parent=old.parent,
        companions=lambda manifest: {**old_companions, **new_companions(manifest)},
    )


@check_keywords
def rewrite(
    path: DatasetLike | Iterable[DatasetLike],
    out: PathLike,
    *,
    kind: RecordKind | None = None,
    schema: Schema | None = None,
    cast: Mapping[str, str | Feature] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    fill: Mapping[str, object] | None = None,
    where: str | None = None,
    transforms: Transform | Sequence[Transform] = (),
    index: Sequence[str] = (),
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    lossy: bool = False,
    format: Literal["tfds"] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset again to the folder `out`, and open it. The input is not changed.

    `path` is anything that `rk.open` accepts, an open dataset, a split or a view. A list of them is merged: splits of
    the same name are concatenated, and one of their schemas must fit all records.

    If only the arrangement of records changes (`shard_size`, `shards`, `compression`, `shuffle`, `where`, a merge),
    they are copied without decoding. `where` is an SQL condition over the columns: only records for which it is true
    are kept. Compression stays the same unless given. Payloads that are not Examples can only be copied; `kind`
    ("example", "sequence", "bytes") overrides the detected kind of payload.

    `cast={"label": "int64"}` changes the type of a column, whatever kind its records hold; a value that would change
    raises, unless `lossy`. `rename={"old": "new"}` renames a column, and its key in the record unless the schema
    declares one. `drop` or `keep` select columns, and `fill={"score": 0.0}` replaces missing values. `schema` does
    all of this at once: it declares the new columns, and each is cast to its new type. All names are the old ones, of
    columns or of keys. `transforms` (`rk.transforms`) are applied last.

    The dataset appears when it is complete. After a crash, run the same call again to resume.
    """
    options = RewriteOptions.of(locals())
    # Datasets and splits can be iterated too.
    several = isinstance(path, Iterable) and not isinstance(path, (str, bytes, os.PathLike, Dataset, Split))
    given: list[DatasetLike] = list(path) if several else [path]  # type: ignore[arg-type, list-item]
    prepared = prepare_rewrite(given, out, options)
    prepared.run(progress=progress)
    return open_dataset(prepared.out)
