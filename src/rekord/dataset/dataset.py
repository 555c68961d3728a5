"""`rk.open`: datasets and their splits."""

from __future__ import annotations

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
from rekord.schema import Payload, Schema
from rekord.schema.interop.tfds import INFO_NAME, read_tfds_folder
from rekord.schema.schema import KIND_NAMES, check_kind
from rekord.storage.local import PathLike
from rekord.storage.router import get_path_kind, is_remote, map_concurrently

if TYPE_CHECKING:
    from rekord.transforms.chain import Chain

MAX_CHECKED_AT_OPEN = 1024
"""Up to so many shards of a split are compared with the manifest when a dataset is opened."""


@check_keywords
def open(
    path: PathLike | Sequence[PathLike],
    schema: Schema | PathLike | None = None,
    kind: Kind | None = None,
    allow_missing: bool = False,
) -> Dataset:
    """The dataset in a record file, a folder or a glob, without reading it.

    A folder with a manifest (`rekord.json`) is what the manifest says, one of TensorFlow Datasets what its
    `dataset_info.json` and `features.json` say. Elsewhere file names tell the splits.
    Without a schema one is inferred from the first records when it is needed (10,000 of them, or 64 MiB); `kind`
    then says whether they are Examples ("example") or SequenceExamples ("sequence"), where that is not to be guessed.
    Payloads that are neither have one column, `payload`: the bytes as they are. `kind="bytes"` takes any payloads
    so. An incomplete set of `-of-N` shards is refused unless `allow_missing`.
    """
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema.load(schema)
    _check_kind(kind, schema)
    if kind == "bytes" and schema is None:
        schema = Schema({PAYLOAD_COLUMN: Payload()})
    listed = _open_from_manifest(path, schema, allow_missing=allow_missing)
    if listed is None:
        listed = _open_from_tfds(path, schema, kind, allow_missing=allow_missing)
    if listed is not None:
        return listed
    paths = list_record_files(path)
    named = isinstance(path, (str, os.PathLike))
    root = os.fspath(path) if named and get_path_kind(os.fspath(path)) == "folder" else None  # type: ignore[arg-type]
    # A file that was named itself is what was wanted, whatever its name says of others.
    if not allow_missing and not (named and get_path_kind(os.fspath(path)) == "file"):  # type: ignore[arg-type]
        check_complete(paths)
    declared = LazySchema(paths, schema, kind)
    splits = group_by_split(paths, root)
    return Dataset([Split(name, RecordView(Shards(files)), declared) for name, files in splits.items()], declared)


def _open_from_manifest(path: object, schema: Schema | None, *, allow_missing: bool) -> Dataset | None:
    """The dataset that a manifest tells of, where there is one."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    folder = os.fspath(path)
    if not isinstance(folder, str) or not has_manifest(folder):
        return None
    manifest = load_manifest(folder)
    declared = LazySchema((), manifest.schema if schema is None else schema, None)
    splits = [
        Split(
            name,
            RecordView(
                _open_shards(manifest, name, allow_missing=allow_missing),
                block_records=split.block_records,
                digest=manifest.digest,
            ),
            declared,
        )
        for name, split in manifest.splits.items()
    ]
    return Dataset(splits, declared, recorded=(folder, manifest.layout))


def _open_shards(manifest: CompactManifest, name: str, *, allow_missing: bool) -> Shards:
    """The shards of a split that a manifest lists, as they are now: ones that replace them later are not read.

    Up to CHECKED_AT_ONCE files are compared with the manifest now: it is better to know at once what is missing. More
    of them are compared when they are first used, so that opening them takes no time either.
    """
    folder, split = manifest.folder, manifest.splits[name]
    listed = SplitListing.of(manifest, name)
    if len(split.records) > MAX_CHECKED_AT_OPEN and not allow_missing:
        return Shards(listed=listed)
    check = partial(_stat_shard, split, folder, allow_missing=allow_missing)
    found = map_concurrently(check, range(len(split.records)), remote=is_remote(folder))
    listed.check_current()
    present = [shard for shard, stamp in enumerate(found) if stamp is not None]
    if len(present) < len(found):
        listed = replace(listed, present=np.array(present, np.int64))
    return Shards(listed=listed, stamps=[stamp for stamp in found if stamp is not None])


def _stat_shard(split: CompactSplit, folder: str, shard: int, *, allow_missing: bool) -> Stamp | None:
    """The stamp of a shard; None where it is missing and may be."""
    there = check_shard(folder, split.file_name(shard), int(split.bytes[shard]), allow_missing=allow_missing)
    return None if there is None else (there[1].size_bytes, there[1].mtime_ns, there[1].identity)


def _open_from_tfds(path: object, schema: Schema | None, kind: Kind | None, *, allow_missing: bool) -> Dataset | None:
    """The dataset that the files of TensorFlow Datasets tell of, where there are such."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    folder = os.fspath(path)
    listing = read_tfds_listing(folder, allow_missing=allow_missing) if isinstance(folder, str) else None
    if listing is None:
        return None
    if schema is None and kind != "sequence" and (told := read_tfds_folder(folder)) is not None:
        schema = told.schema
    declared = LazySchema([shard for paths, _ in listing.splits.values() for shard in paths], schema, kind)
    splits = [
        Split(name, RecordView(Shards(paths, counts, told_by=INFO_NAME)), declared)
        for name, (paths, counts) in listing.splits.items()
    ]
    return Dataset(splits, declared)


class UnknownSplit(DatasetError, KeyError):
    """A KeyError as well: that is what a Mapping raises."""

    @property
    def family(self) -> str:
        """That of a DatasetError."""
        return DatasetError.__name__


class Dataset(SplitMethods, Mapping[str, Split]):
    """The splits of a dataset by name. With one split, it has the methods and the records of that split too."""

    def __init__(
        self, splits: Sequence[Split], schema: LazySchema, *, recorded: tuple[str, Any] | None = None
    ) -> None:
        self._schema = schema
        self._recorded = recorded  # the folder of a manifest, and what that says of the layout
        self.splits: Mapping[str, Split] = MappingProxyType({split.name: split for split in splits})

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records."""
        return self._schema.get()

    @property
    def records(self) -> int:
        """How many records all splits have."""
        return sum(len(split) for split in self.splits.values())

    @property
    def name(self) -> str:
        """The name of the only split."""
        return self.only_split("name").name

    @property
    def paths(self) -> tuple[str, ...]:
        """The record files of the only split."""
        return self.only_split("paths").paths

    def digest(self) -> str:
        """What tells the files of the only split from others."""
        return self.only_split("digest").digest()

    @property
    def transforms(self) -> Chain:
        """The transforms that the dataset was written with, made again: none where none are recorded.

        `dataset.transforms.bind(schema).apply(row)` does to a raw row what writing did to all others.
        """
        from rekord.transforms.chain import deserialize_transforms

        folder, layout = self._recorded or ("", None)
        told = layout.get("transforms", ()) if isinstance(layout, dict) else ()
        with add_location(path=manifest_path(folder) if told else None):
            return deserialize_transforms(told, folder)

    @overload
    def __getitem__(self, which: str) -> Split: ...
    @overload
    def __getitem__(self, which: slice) -> Split: ...
    @overload
    def __getitem__(self, which: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, which: Sequence[int] | np.ndarray[Any, Any]) -> Batch: ...
    def __getitem__(self, which: Any) -> Any:
        """A split by its name; what else is asked for, records by number, is asked of the only split."""
        if not isinstance(which, str):
            return self.only_split("[…]")[which]
        if which in self.splits:
            return self.splits[which]
        first = closest_match(which, self.splits) or next(iter(self.splits), "train")
        raise UnknownSplit(
            "X506",
            f"there is no split {which!r}",
            expected="one of " + ", ".join(map(repr, self.splits)),
            found=repr(which)[:60],
            do=f"dataset[{first!r}]",
        )

    def __contains__(self, name: object) -> bool:
        return name in self.splits

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    # A dataset is a handle on files: it equals itself alone, and may be a key.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def only_split(self, method: str) -> Split:
        """The only split; a DatasetError where there are several."""
        if len(self.splits) == 1:
            return next(iter(self.splits.values()))
        names = ", ".join(map(repr, self.splits))
        raise error(
            "X507",
            f"`{method}` needs one split, and the dataset has {len(self.splits)}",
            expected="one of " + names,
            found="none named",
            do=f"dataset[{next(iter(self.splits))!r}].{method}(…)",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle.
        return partial(Dataset, recorded=self._recorded), (list(self.splits.values()), self._schema)

    def __repr__(self) -> str:
        return f"Dataset({', '.join(map(repr, self.splits.values()))})"


def _check_kind(kind: Kind | None, schema: Schema | None) -> None:
    check_kind(kind)
    if kind is not None and schema is not None and schema.kind != kind:
        raise error(
            "U605",
            f"`kind` cannot be {kind!r} beside this schema",
            expected="the kind that the schema declares",
            found=f"a schema of {KIND_NAMES[schema.kind]}",
            do="leave `kind` out",
        )
