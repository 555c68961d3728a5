"""`rk.open`: datasets and their splits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from rekord.arguments import check_keywords
from rekord.codec.columns import Batch
from rekord.dataset.index import Stamp
from rekord.dataset.infer import PAYLOAD_COLUMN, Kind
from rekord.dataset.manifest import (
    CompactManifest,
    CompactSplit,
    SplitListing,
    check_shard,
    has_manifest,
    load_manifest,
    manifest_path,
)
from rekord.dataset.read import check_complete, group_by_split, list_record_files, read_tfds_listing
from rekord.dataset.shards import Shards
from rekord.dataset.split import LazySchema, RecordView, Split, SplitMethods
from rekord.errors import DatasetError, add_location, closest_match, error
from rekord.report.formatting import format_count
from rekord.report.notebook import never_raises, render_fragment, render_table, safe_repr
from rekord.schema import Payload, Schema
from rekord.schema.interop.tfds import INFO_NAME, read_tfds_folder
from rekord.schema.schema import KIND_NAMES, check_kind, shorten_name, summarize_columns
from rekord.storage.cache import DiskCache, resolve_cache
from rekord.storage.local import PathLike
from rekord.storage.publication import check_finished
from rekord.storage.router import ROUTED_STORAGE, get_path_kind, is_remote, map_concurrently

if TYPE_CHECKING:
    from rekord.transforms.chain import Chain

MAX_CHECKED_AT_OPEN = 1024
"""Splits with at most this many shards are compared with the manifest when a dataset is opened."""

_MAX_SHOWN = 8
"""Splits that `repr` lists."""


@check_keywords
def open(
    path: PathLike | Sequence[PathLike],
    schema: Schema | PathLike | None = None,
    kind: Kind | None = None,
    allow_missing: bool = False,
    *,
    cache: bool | PathLike | None = None,
    cache_size: int | str | None = None,
    cache_ahead: int | None = None,
) -> Dataset:
    """Open the dataset in a record file, a folder or a glob, without reading records.

    Splits and schema come from the manifest (`rekord.json`), or from the `dataset_info.json` and `features.json` of
    TensorFlow Datasets; otherwise splits follow from the file names. If no schema is given or found, one is inferred
    when it is needed, from the first 10,000 records or 64 MiB. `kind` says whether these are Examples ("example") or
    SequenceExamples ("sequence") instead of guessing. Payloads that are neither have one column, `payload`, with the
    raw bytes; `kind="bytes"` reads any payloads that way. An incomplete set of `-of-N` shards is an error unless
    `allow_missing=True`.

    With a `cache`, shards in remote storage are copied to the local disk when they are first read: to this folder,
    or, with True, to that of REKORD_CACHE. It has at most `cache_size` of files ("64GiB" by default), of which the
    least recently used are removed first, and `cache_ahead` shards (2) are copied before they are needed.
    """
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema.load(schema)
    _check_kind(kind, schema)
    if kind == "bytes" and schema is None:
        schema = Schema({PAYLOAD_COLUMN: Payload()})
    # Without either there is none, and nothing to resolve.
    asks = cache is not None or "REKORD_CACHE_SIZE" in os.environ
    disk = resolve_cache(cache, cache_size, cache_ahead) if asks else None
    root = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if isinstance(root, str):
        listed = _open_from_manifest(root, schema, disk, allow_missing=allow_missing)
        if listed is not None:
            return listed
        listed = _open_from_tfds(root, schema, kind, allow_missing=allow_missing)
        if listed is not None:
            check_finished(ROUTED_STORAGE, root)  # below, listing the files checks it
            return listed
    paths = list_record_files(path)
    path_kind = None if root is None else get_path_kind(root)
    # A single file is opened as it is, even if its name belongs to a larger set.
    if not allow_missing and path_kind != "file":
        check_complete(paths)
    declared = LazySchema(paths, schema, kind)
    splits = group_by_split(paths, root if path_kind == "folder" else None)
    views = {name: RecordView(Shards(files, cache=disk)) for name, files in splits.items()}
    return Dataset([Split(name, view, declared) for name, view in views.items()], declared)


def _open_from_manifest(
    folder: str, schema: Schema | None, cache: DiskCache | None, *, allow_missing: bool
) -> Dataset | None:
    """The dataset that a manifest lists, if the folder has one."""
    if not has_manifest(folder):
        return None
    manifest = load_manifest(folder)
    declared = LazySchema((), manifest.schema if schema is None else schema, None)
    splits = [
        Split(
            name,
            RecordView(
                _open_shards(manifest, name, cache if is_remote(folder) else None, allow_missing=allow_missing),
                block_records=split.block_records,
                digest=manifest.digest,
            ),
            declared,
        )
        for name, split in manifest.splits.items()
    ]
    return Dataset(splits, declared, recorded=(folder, manifest.layout))


def _open_shards(manifest: CompactManifest, name: str, cache: DiskCache | None, *, allow_missing: bool) -> Shards:
    """The shards of a split that a manifest lists, as they are now: files that replace them later are not read.

    Up to MAX_CHECKED_AT_OPEN files are compared with the manifest now, so that missing ones are reported at once. Of
    larger splits, each file is compared when it is first used.
    """
    folder, split = manifest.folder, manifest.splits[name]
    listed = SplitListing.of(manifest, name)
    if (len(split.records) > MAX_CHECKED_AT_OPEN or cache is not None) and not allow_missing:
        return Shards(listed=listed, cache=cache)
    check = partial(_stat_shard, split, folder, allow_missing=allow_missing)
    found = map_concurrently(check, range(len(split.records)), remote=is_remote(folder))
    listed.check_current()
    present = [shard for shard, stamp in enumerate(found) if stamp is not None]
    if len(present) < len(found):
        listed = replace(listed, present=np.array(present, np.int64))
    return Shards(listed=listed, stamps=[stamp for stamp in found if stamp is not None], cache=cache)


def _stat_shard(split: CompactSplit, folder: str, shard: int, *, allow_missing: bool) -> Stamp | None:
    """The stamp of a shard; None if it is missing, with `allow_missing`."""
    found = check_shard(folder, split.file_name(shard), int(split.bytes[shard]), allow_missing=allow_missing)
    return None if found is None else (found[1].size_bytes, found[1].mtime_ns, found[1].identity)


def _open_from_tfds(folder: str, schema: Schema | None, kind: Kind | None, *, allow_missing: bool) -> Dataset | None:
    """The dataset that the files of TensorFlow Datasets describe, if the folder has them."""
    listing = read_tfds_listing(folder, allow_missing=allow_missing)
    if listing is None:
        return None
    if schema is None and kind != "sequence" and (tfds := read_tfds_folder(folder)) is not None:
        schema = tfds.schema
    declared = LazySchema([shard for paths, _ in listing.values() for shard in paths], schema, kind)
    splits = [
        Split(name, RecordView(Shards(paths, counts, counts_origin=INFO_NAME)), declared)
        for name, (paths, counts) in listing.items()
    ]
    return Dataset(splits, declared)


class UnknownSplit(DatasetError, KeyError):
    """A KeyError as well: that is what a Mapping raises."""

    @property
    def family(self) -> str:
        return DatasetError.__name__


class Dataset(SplitMethods, Mapping[str, Split]):
    """The splits of a dataset by name. With a single split, it has the methods and records of that split too."""

    def __init__(
        self, splits: Sequence[Split], schema: LazySchema, *, recorded: tuple[str, Any] | None = None
    ) -> None:
        self._schema = schema
        self._recorded = recorded  # the folder of a manifest, and the layout it records
        self.splits: Mapping[str, Split] = MappingProxyType({split.name: split for split in splits})

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records."""
        return self._schema.get()

    @property
    def records(self) -> int:
        """Number of records in all splits."""
        return sum(len(split) for split in self.splits.values())

    @property
    def name(self) -> str:
        """The name of the only split."""
        return self.only_split("name", ".name").name

    @property
    def paths(self) -> tuple[str, ...]:
        """The record files of the only split."""
        return self.only_split("paths", ".paths").paths

    def digest(self) -> str:
        """What identifies the files of the only split."""
        return self.only_split("digest").digest()

    @property
    def transforms(self) -> Chain:
        """The transforms that the dataset was written with, as recorded in the manifest.

        `dataset.transforms.bind(schema).apply(row)` transforms a raw row as writing did.
        """
        from rekord.transforms.chain import deserialize_transforms

        folder, layout = self._recorded or ("", None)
        recorded = layout.get("transforms", ()) if isinstance(layout, dict) else ()
        with add_location(path=manifest_path(folder) if recorded else None):
            return deserialize_transforms(recorded, folder)

    @overload
    def __getitem__(self, which: str) -> Split: ...
    @overload
    def __getitem__(self, which: slice) -> Split: ...
    @overload
    def __getitem__(self, which: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, which: Sequence[int] | np.ndarray[Any, Any]) -> Batch: ...
    def __getitem__(self, which: Any) -> Any:
        """A split by its name; records by number come from the only split."""
        if not isinstance(which, str):
            return self.only_split("[…]", f"[{which!r}]")[which]
        if which in self.splits:
            return self.splits[which]
        first = closest_match(which, self.splits) or next(iter(self.splits), "train")
        raise UnknownSplit(
            "X506",
            f"dataset has no split {which!r}",
            expected="one of " + ", ".join(map(repr, self.splits)),
            found=repr(which)[:60],
            do=f"dataset[{_quote(first)}]",
        )

    def __contains__(self, name: object) -> bool:
        return name in self.splits

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    # A dataset is a handle on files: equal only to itself, and hashable.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def only_split(self, method: str, call: str | None = None) -> Split:
        """The only split; a DatasetError if there are several, which suggests `call`, by default the method."""
        if len(self.splits) == 1:
            return next(iter(self.splits.values()))
        if call is None:  # `write`, `concat` and others are functions, which take a split
            call = f".{method}(…)" if hasattr(Split, method) else ""
        raise error(
            "X507",
            f"`{method}` needs a single split, and the dataset has {len(self.splits)}",
            expected="one of " + ", ".join(map(repr, self.splits)),
            found="no split name",
            do=f"dataset[{_quote(next(iter(self.splits)))}]{call[:60]}" if self.splits else None,
        )

    def close(self) -> None:
        """Close the files that reading by number keeps open; they are opened again when they are needed."""
        for split in self.splits.values():
            split.view.shards.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle.
        return partial(Dataset, recorded=self._recorded), (list(self.splits.values()), self._schema)

    @safe_repr
    def __repr__(self) -> str:
        from rekord.dataset.preview import list_split_facts

        shown = list(self.splits.items())[:_MAX_SHOWN]
        rows = [[shorten_name(name), *list_split_facts(split)[:2]] for name, split in shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}".rstrip() for row in rows]
        if len(self.splits) > _MAX_SHOWN:
            lines.append(f"  … {len(self.splits) - _MAX_SHOWN:,} more splits")
        columns = summarize_columns(self.schema.features) if self._schema.known else []
        return "\n".join([f"Dataset: {', '.join(self._facts())}", *lines, *columns])

    @never_raises
    def _repr_html_(self) -> str:
        from rekord.dataset.preview import list_split_facts, render_split_parts

        rows = [[shorten_name(name), *list_split_facts(split)[:2]] for name, split in self.splits.items()]
        first = next(iter(self.splits.values()), None)
        parts = [] if first is None else render_split_parts(first)
        table = render_table(("split", "records", "files"), rows, right=(1, 2))
        return render_fragment("Dataset", self._facts(), table, *parts)

    def _facts(self) -> list[str]:
        from rekord.dataset.preview import count_split_records

        counts = [count_split_records(split) for split in self.splits.values()]
        known = [count for count in counts if count is not None]
        facts = [format_count(sum(known), "record")] if len(known) == len(counts) else []
        facts.append(format_count(len(self.splits), "split"))
        return [*facts, format_count(len(self.schema), "column")] if self._schema.known else facts


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _check_kind(kind: Kind | None, schema: Schema | None) -> None:
    check_kind(kind)
    if kind is not None and schema is not None and schema.kind != kind:
        raise error(
            "U605",
            f"`kind` cannot be {kind!r} with this schema",
            expected="the kind of the schema",
            found=f"a schema of {KIND_NAMES[schema.kind]}",
            do=f'kind="{schema.kind}"',
        )
