"""`rk.adopt`: a manifest, class names and indexes for shards that another tool wrote, which stay as they are."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.arguments import (
    as_path,
    check_keywords,
    column_name,
    conflicting_options,
    invalid,
    name_list,
    optional_names,
)
from rekord.codec.columns import Column, Optional, Ragged, column_to_arrow
from rekord.codec.plan import compile_plan
from rekord.conversion.driver import (
    ConversionListener,
    build_manifest,
    build_manifest_split,
    combine_row_digests,
)
from rekord.conversion.plan import ConversionPlan
from rekord.conversion.shards import CompletedShard
from rekord.conversion.tasks import ThreadTally
from rekord.conversion.workers import WorkerPool
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.index import METADATA_FOLDER, Count, encode_index_file, index_path
from rekord.dataset.infer import PAYLOAD_COLUMN, infer_files
from rekord.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestSource,
    ManifestSplit,
    has_manifest,
    is_shard_path,
    manifest_path,
    shard_name,
)
from rekord.dataset.read import check_complete, group_by_split, list_record_files, next_frames, read_tfds_listing
from rekord.dataset.readers.pipeline import BatchDecoder
from rekord.dataset.readers.sequential import FileSegment
from rekord.dataset.shard_index import file_changed_error, find_seekable_points, read_stamp
from rekord.errors import DecodeError, FormatError, RekordError, error, preview
from rekord.framing.frames import SlabReader
from rekord.location import Location
from rekord.log import get_logger
from rekord.report.formatting import format_count
from rekord.schema import Feature, Label, Payload, RecordKind, Schema, of_type
from rekord.schema.interop.label_map import read_label_map
from rekord.schema.interop.tfds import read_tfds_folder
from rekord.schema.schema import check_kind
from rekord.storage.digest import FileDigest
from rekord.storage.local import LOCAL, PathLike, Readable, Storage, read_file
from rekord.storage.router import reject_remote_write
from rekord.storage.transaction import Staging, Transaction
from rekord.transforms.base import rebuild_schema
from rekord.verbs.options import VerbOptions, resolve_worker_count
from rekord.version import VERSION

if TYPE_CHECKING:
    from rekord.framing.inflate import ByteSource

_MAX_ROWS = 8192  # decoded at once
_DRAIN_BYTES = 1 << 16


class AdoptedShard(CompletedShard, frozen=True, kw_only=True):
    """The facts about a shard that another tool wrote."""

    compression: str
    is_sequential_only: bool  # compressed, without places where reading can start
    id_ranges: dict[str, tuple[int, Count]]  # least and greatest class id of each label column


@dataclass(frozen=True, kw_only=True)
class ShardScan:
    """How to read the shards: all columns are decoded, those of `index` are kept.

    `ids` are the class ids that a label column may have. With `strict`, a key that the schema lacks is an error.
    """

    schema: Schema
    index: tuple[str, ...] = ()
    strict: bool = False
    ids: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    storage: Storage = LOCAL

    def run(self, path: str, on_bytes: Callable[[int], object]) -> tuple[AdoptedShard, bytes]:
        """The facts about a shard and the bytes of its index. `on_bytes` is called with the bytes read."""
        stamp = read_stamp(path)
        pool = _core.Pool(0)
        decoder = BatchDecoder(compile_plan(self.schema, None, strict=self.strict), pool)
        offsets: list[Any] = [np.zeros(0, np.uint64)]
        tables: list[pa.Table] = []
        ranges: dict[str, tuple[int, int]] = {}
        file = _HashingFile(self.storage.open_read(path), on_bytes)
        with SlabReader(file, path=path, sized=True, pool=pool, reuse=True) as reader:
            while (segment := next_frames(reader, _MAX_ROWS)) is not None:
                offsets.append(_core.frame_offsets(segment.slab, segment.begin, segment.end, segment.offset))
                piece = FileSegment(path, segment)
                batch = decoder.decode(piece)
                for name, allowed in self.ids.items():
                    self._check_ids(name, batch[name], allowed, piece, ranges)
                if self.index:
                    tables.append(pa.table({f"index:{name}": column_to_arrow(batch[name]) for name in self.index}))
            compression, framed_bytes = reader.compression, reader.offset
            file.drain()
        now = read_stamp(path)
        if now != stamp:
            raise file_changed_error(path, stamp, now)
        whole = np.concatenate(offsets).astype(np.int64)
        points = () if compression == "none" else find_seekable_points(path, compression, whole, stamp[0])
        digest = str(file.digest)
        made = encode_index_file(self.schema, self.index, whole, tables, points, digest)
        facts = AdoptedShard(
            records=len(whole),
            framed_bytes=framed_bytes,
            file_bytes=stamp[0],
            digest=digest,
            index=made.checksums,
            classes=made.classes,
            blocks=made.blocks,
            compression=compression,
            is_sequential_only=points is None,
            id_ranges=ranges,
        )
        return facts, made.data

    def _check_ids(
        self,
        name: str,
        column: Column,
        allowed: npt.NDArray[np.int64],
        piece: FileSegment,
        ranges: dict[str, tuple[int, int]],
    ) -> None:
        ids, rows = _present_values(column)
        if not len(ids):
            return
        wrong = np.flatnonzero(~np.isin(ids, allowed))
        if len(wrong):
            raise unknown_class_error(name, int(ids[wrong[0]]), allowed, piece.where(int(rows[wrong[0]])))
        least, most = ranges.get(name, (int(ids[0]), int(ids[0])))
        ranges[name] = min(least, int(ids.min())), max(most, int(ids.max()))


def _present_values(column: Column) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The values of an integer column, flat, and the row of each."""
    if isinstance(column, Ragged):
        values, rows = np.asarray(column.values), np.repeat(np.arange(len(column)), column.lengths)
    else:
        values = column.values if isinstance(column, Optional) else np.asarray(column)
        rows = np.repeat(np.arange(len(column)), int(np.prod(values.shape[1:])))
    if getattr(column, "valid", None) is not None:
        present = np.asarray(column.valid)[rows]  # type: ignore[union-attr]
        return values.reshape(-1)[present], rows[present]
    return values.reshape(-1), rows


def unknown_class_error(name: str, found: int, allowed: npt.NDArray[np.int64], where: Location) -> RekordError:
    """The error for a class id that has no name."""
    first, last = int(allowed[0]), int(allowed[-1])
    one_based = first == 0 and found == last + 1
    return error(
        "X588",
        f"class id {found} of `{name[:60]}` has no name",
        location=where.within(feature=name),
        expected=f"one of the {len(allowed):,} class ids from {first} to {last}",
        found=str(found),
        likely="the class ids of these records start at 1" if one_based else None,
        do="add a first name for class 0, such as background, to label_map="
        if one_based
        else f"add class {found} to label_map=, or correct the records",
    )


class _HashingFile:
    """A file whose digest is computed while it is read from start to end."""

    def __init__(self, file: Readable, on_bytes: Callable[[int], object]) -> None:
        self.digest = FileDigest()
        self._file = file
        self._on_bytes = on_bytes

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def readinto(self, buffer: bytearray | memoryview, /) -> int:
        count = self._file.readinto(buffer)
        self.digest.update(memoryview(buffer)[:count])
        self._on_bytes(count)
        return count

    def seek(self, offset: int, /) -> int:
        raise AssertionError("the file is read from start to end")

    def drain(self) -> None:
        """Read the rest, such as the padding after the last gzip member."""
        buffer = bytearray(_DRAIN_BYTES)
        while self.readinto(buffer):
            pass

    def close(self) -> None:
        self._file.close()


if TYPE_CHECKING:
    _: type[ByteSource] = _HashingFile


ClassNames: TypeAlias = "PathLike | Sequence[str] | Mapping[int, str]"
"""Class names: a file, names in the order of their ids from 0, or names by id."""

_log = get_logger(__name__)

_LABEL_NAMES = ("label", "labels", "class", "target", "y")
_MAX_CLASSES = 10_000  # that are learned from records
_MAX_CLASS_ID = 1_000_000
_MAX_NAMES_BYTES = 16 << 20
_BACKGROUND = "background"


@dataclass(frozen=True, kw_only=True)
class AdoptOptions(VerbOptions):
    """The options of `rk.adopt`."""

    schema: Schema | PathLike | None = None
    label: str | None = None
    label_map: ClassNames | None = None
    index: Sequence[str] = ()
    kind: RecordKind | None = None
    allow_missing: bool = False
    workers: int | None = None
    rebuild: bool = False

    def __post_init__(self) -> None:
        check_kind(self.kind)
        optional_names("index", list(self.index) if isinstance(self.index, tuple) else self.index)
        resolve_worker_count(self.workers)
        for name in ("label", "label_map", "kind"):
            if self.schema is not None and getattr(self, name) is not None:
                raise conflicting_options("schema", name)


@check_keywords
def adopt(
    path: PathLike,
    *,
    schema: Schema | PathLike | None = None,
    label: str | None = None,
    label_map: ClassNames | None = None,
    index: Sequence[str] = (),
    kind: RecordKind | None = None,
    allow_missing: bool = False,
    workers: int | None = None,
    rebuild: bool = False,
    progress: bool = True,
) -> Dataset:
    """Turn the shards in a folder into a dataset, without copying or changing them.

    Every record is read once: checksums are verified, and all columns are decoded. Then `rekord.json` and the indexes
    (`.rekord`) are written next to the shards. Splits are found as `rk.open` finds them. Without a `schema`, one is
    inferred that all records match. `label` is the integer column that holds class ids, and `label_map` has their
    names: a .pbtxt label map, a file with one name per line, or the names themselves. `index` adds columns to the
    index, which has every label. An existing manifest is an error unless `rebuild=True`.
    """
    requested = AdoptOptions.of(locals())
    adopt_shards(path, requested, progress=progress)
    return open_dataset(path, allow_missing=allow_missing)


@dataclass(frozen=True, kw_only=True)
class AdoptResult:
    """The result of `rk.adopt`."""

    dataset: str
    manifest: Manifest
    schema: Schema
    schema_origin: str  # "declared", "inferred", or the file that it comes from
    resumed_shards: int = 0
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON document."""
        return {
            "dataset": self.dataset,
            "splits": {
                name: {
                    "records": part.records,
                    "shards": len(part.shards.records),
                    "bytes": sum(part.shards.bytes),
                }
                for name, part in self.manifest.splits.items()
            },
            "schema": self.schema_origin,
            "columns": {name: repr(feature) for name, feature in self.schema.items()},
            "classes": {
                name: {"count": one.count, "names": None if one.names is None else list(one.names)}
                for name, one in of_type(self.schema.features, Label).items()
            },
            "index": list(self.manifest.options["index"]),
            "resumed_shards": self.resumed_shards,
            "notes": list(self.notes),
        }


def adopt_shards(
    path: PathLike, options: AdoptOptions, *, progress: bool = False, storage: Storage = LOCAL
) -> AdoptResult:
    """Adopt the shards in a folder, or resume adopting them; with progress on stderr if wanted."""
    folder = _check_folder(path)
    # Everything is staged inside the folder: the one above it may be read-only, or on another disk.
    transaction = Transaction(os.path.join(folder, METADATA_FOLDER), storage, shown=folder)
    with _explain_failures(folder), transaction.lock():
        if has_manifest(folder) and not options.rebuild:
            for staging in transaction.stagings():
                staging.remove()  # of a run that died after it had published the manifest
            raise error(
                "U618",
                "folder already has a manifest",
                location=Location(path=manifest_path(folder)),
                expected=f"shards without a {MANIFEST_NAME}",
                found=f"a {MANIFEST_NAME}",
                do="rebuild=True to replace it and the indexes; the shards are not changed",
            )
        run = _Adoption(folder, options, transaction, _find_splits(folder, allow_missing=options.allow_missing))
        if not progress:
            return run.run(None)
        from rekord.verbs.progress import ConversionProgress

        with ConversionProgress() as watch:
            return run.run(watch)


def _check_folder(path: PathLike) -> str:
    folder = as_path("path", path, expected="the path of a folder with record files", do='"data/flowers"')
    reject_remote_write(folder)
    if not os.path.isdir(folder) and LOCAL.stat(folder).kind != "folder":  # raises if nothing exists there
        raise error(
            "U605",
            f"`path` cannot be {preview(folder)}",
            location=Location(path=folder),
            expected="a folder: the manifest is written next to the shards",
            found="a file",
            do=f"rekord adopt {shlex.quote(os.path.dirname(folder) or '.')}",
        )
    return folder


def _find_splits(folder: str, *, allow_missing: bool) -> dict[str, list[str]]:
    """The shards of each split, as `rk.open` finds them without a manifest, by their paths below the folder."""
    listing = read_tfds_listing(folder, allow_missing=allow_missing)
    if listing is not None:
        splits: Mapping[str, Sequence[str]] = {name: paths for name, (paths, _) in listing.items()}
    else:
        paths = list_record_files(folder)
        if not allow_missing:
            check_complete(paths)
        splits = group_by_split(paths, folder)
    found: dict[str, list[str]] = {}
    for split, shards in splits.items():
        names = [os.path.relpath(path, folder).replace(os.sep, "/") for path in shards]
        for name in names:
            if not is_shard_path(name) or not split.isprintable():
                raise _not_adoptable_error(
                    os.path.join(folder, name),
                    "name of the shard cannot be listed in a manifest",
                    "a printable name, at most eight folders below",
                    preview(name),
                    "rename the file, or the folder",
                )
        found[split] = names
    for below in sorted({os.path.dirname(name) for names in found.values() for name in names} - {""}):
        nested = os.path.join(folder, below)
        if has_manifest(nested):
            raise _not_adoptable_error(
                manifest_path(nested),
                "folder contains another dataset",
                f"no {MANIFEST_NAME} below the folder",
                f"one in {below[:60]}",
                f"rekord adopt {shlex.quote(nested)} --rebuild, or move it elsewhere",
            )
    return found


def _not_adoptable_error(path: str, what: str, expected: str, found: str, do: str) -> RekordError:
    return error("X589", what, location=Location(path=path), expected=expected, found=found, do=do)


@contextmanager
def _explain_failures(folder: str) -> Iterator[None]:
    """The intact records of corrupt shards can be salvaged; a folder that cannot be written can be rewritten."""
    place = folder.rstrip("/") or folder
    try:
        yield
    except FormatError as failure:
        failure.do = f"rekord salvage {shlex.quote(place)} {shlex.quote(f'{place}-repaired')}"
        raise
    except RekordError as failure:
        # The names of temporary files mean nothing to a user.
        if failure.code == "X504" and os.path.basename(failure.location.path or "").startswith("."):
            failure.location = Location(path=folder)
            failure.expected = "a folder that can be written: the manifest and the indexes go next to the shards"
        raise


class _Adoption:
    """One run, under the lock of its folder."""

    def __init__(
        self, folder: str, options: AdoptOptions, transaction: Transaction, splits: dict[str, list[str]]
    ) -> None:
        self.folder = folder
        self.options = options
        self.transaction = transaction
        self.splits = splits
        self.names = [name for names in splits.values() for name in names]
        self.paths = [os.path.join(folder, name) for name in self.names]
        self.stamps = [read_stamp(path) for path in self.paths]
        self.classes = _read_class_names(options.label_map)
        self.resumed_shards = 0

    def run(self, watch: ConversionListener | None) -> AdoptResult:
        schema, origin, complete = self._find_schema()
        strict = origin == "inferred"
        try:
            scan = self._prepare_scan(schema, strict=strict)
            staging, shards = self._scan(scan, watch)
        except DecodeError:
            if not strict or complete:
                raise
            # Later records differ from the first ones, which the schema was inferred from.
            schema, _ = infer_files(self.paths, kind=self.options.kind, limit_records=None, limit_bytes=None)
            scan = self._prepare_scan(schema, strict=True)
            staging, shards = self._scan(scan, watch)
        try:
            self._check_label_map(scan, shards)
            manifest = self._build_manifest(scan, shards)
            self._commit(staging, manifest)
        except RekordError:
            self._discard(staging)
            raise
        return AdoptResult(
            dataset=self.folder,
            manifest=manifest,
            schema=scan.schema,
            schema_origin=origin,
            resumed_shards=self.resumed_shards,
            notes=tuple(self._notes(scan.schema, shards)),
        )

    # Schema.

    def _find_schema(self) -> tuple[Schema, str, bool]:
        """The schema, where it comes from, and whether all records are known to match it."""
        given, kind = self.options.schema, self.options.kind
        if given is not None:
            return given if isinstance(given, Schema) else Schema.load(given), "declared", True
        if kind == "bytes":
            return Schema({PAYLOAD_COLUMN: Payload()}), "declared", True
        tfds = read_tfds_folder(self.folder) if kind is None else None
        if tfds is not None and tfds.schema is not None:
            return tfds.schema, "features.json", True
        # The number of classes follows from all records.
        learns = self.options.label is not None and self.classes is None
        limits: dict[str, Any] = {"limit_records": None, "limit_bytes": None} if learns else {}
        schema, complete = infer_files(self.paths, kind=kind, **limits)
        if not schema.evidence["records"]:
            raise error(
                "S126",
                location=Location(path=self.folder),
                expected="at least one record",
                found=f"{format_count(len(self.paths), 'file')} without records",
                do="use a folder that holds records, or declare their schema: schema=rk.Schema({…})",
            )
        return schema, "inferred", complete

    def _prepare_scan(self, schema: Schema, *, strict: bool) -> ShardScan:
        options, ids = self.options, {}
        if options.label is not None or self.classes is not None:
            name = _choose_label(schema, options.label)
            feature = self._label(name, schema)
            # 0 is the background of a label map that counts from 1.
            ids[name] = np.arange(feature.count) if self.classes is None else np.array(sorted({0, *self.classes}))
            schema = rebuild_schema(schema, {**schema.features, name: feature})
        for name, label in of_type(schema.context, Label).items():
            ids.setdefault(name, np.arange(label.count))
        requested = [column_name("index", name, schema.context, expected="a column", do="") for name in options.index]
        index = tuple(dict.fromkeys([*requested, *of_type(schema.context, Label)]))
        return ShardScan(schema=schema, index=index, strict=strict, ids=ids, storage=self.transaction.storage)

    def _label(self, name: str, schema: Schema) -> Label:
        feature = schema[name]
        fields: dict[str, Any] = {"shape": feature.shape, "key": feature.key, "optional": feature.optional}
        if self.classes is not None:
            return Label(_complete_names(self.classes), **fields)
        evidence = schema.evidence or infer_files(self.paths, limit_records=None, limit_bytes=None)[0].evidence
        keys = {**evidence.get("features", {}), **evidence.get("context", {})}
        seen = keys.get(feature.record_keys(name)[0], {})
        least, most = seen.get("min", 0), seen.get("max", 0)
        if least < 0 or most >= _MAX_CLASSES:
            raise error(
                "X588",
                f"integers of `{name[:60]}` are not class ids",
                location=Location(path=self.folder, feature=name),
                expected=f"class ids from 0 to {_MAX_CLASSES - 1:,}",
                found=f"integers from {least} to {most}",
                do="choose another column: label=, or give the names of its classes: label_map=",
            )
        return Label(most + 1, **fields)

    def _check_label_map(self, scan: ShardScan, shards: Sequence[AdoptedShard]) -> None:
        """Refuse records that count their classes from 0 with a label map that counts from 1."""
        if self.classes is None or 0 in self.classes:
            return
        for name in scan.ids:
            ranges = [shard.id_ranges[name] for shard in shards if name in shard.id_ranges]
            if not ranges:
                continue
            least, most = min(low for low, _ in ranges), max(high for _, high in ranges)
            if least == 0 and most < max(self.classes):
                raise error(
                    "X588",
                    f"class ids of `{name[:60]}` start at 0, and those of the label map at 1",
                    location=Location(path=self.folder, feature=name),
                    expected=f"class ids from 1 to {max(self.classes)}",
                    found=f"class ids from 0 to {most}",
                    do="give the names in a file with one name per line, in the order of the ids from 0: label_map=",
                )

    # Shards.

    def _scan(self, scan: ShardScan, watch: ConversionListener | None) -> tuple[Staging, list[AdoptedShard]]:
        """Read all shards, except those that an earlier run has read; their indexes are staged."""
        staging = self._prepare_staging(scan)
        if watch is not None:
            watch.phase("scan", staging, sum(stamp[0] for stamp in self.stamps))
        tallies = ThreadTally(staging.folder if watch is not None else None)
        done = {i: known for i in range(len(self.paths)) if (known := _load_done(staging, i)) is not None}
        self.resumed_shards = len(done)
        if done:
            _log.info("resuming: %d of %d shards were read by an earlier run", len(done), len(self.paths))

        def read(number: int) -> AdoptedShard:
            tally = tallies.own
            facts, content = scan.run(self.paths[number], tally.shard_bytes)
            tally.next()
            staging.write(staging.map_path(number, "index"), content, sync=True)
            staging.write_done(staging.map_path(number, "done"), facts)
            return facts

        left = [i for i in range(len(self.paths)) if i not in done]
        failures: dict[int, Exception] = {}
        try:
            # Bytes are read, hashed, verified and decoded without Python's lock, so threads suffice.
            with WorkerPool(resolve_worker_count(self.options.workers)) as workers:
                for i, result in workers.run(None, read, [(i, (i,)) for i in left], threads=True):
                    if isinstance(result, Exception):
                        failures[i] = result
                    else:
                        done[i] = result
                    # The error of the first bad shard is reported, whichever was found first.
                    if failures and all(j in done or j in failures for j in left if j < min(failures)):
                        raise failures[min(failures)]
        except RekordError:
            self._discard(staging)
            raise
        return staging, [done[i] for i in range(len(self.paths))]

    def _prepare_staging(self, scan: ShardScan) -> Staging:
        digest = hashlib.sha256()
        for name, stamp in zip(self.names, self.stamps, strict=True):
            digest.update(f"{name}\0{stamp}\n".encode())
        ids = {name: ids.tolist() for name, ids in scan.ids.items()}
        plan = ConversionPlan(
            options={"verb": "adopt", "index": list(scan.index), "ids": ids, "strict": scan.strict},
            schema=scan.schema.to_dict(evidence=False),
            source=digest.hexdigest(),
        )
        staging = self.transaction.staging(plan.id)
        for other in self.transaction.stagings():
            if self.options.rebuild or other.folder != staging.folder:
                other.remove()
        staging.prepare(plan.to_json())
        return staging

    def _discard(self, staging: Staging) -> None:
        with suppress(RekordError):
            staging.remove()

    def _build_manifest(self, scan: ShardScan, shards: Sequence[AdoptedShard]) -> Manifest:
        splits: dict[str, ManifestSplit] = {}
        first = 0
        for split, names in self.splits.items():
            own = shards[first : first + len(names)]
            first += len(names)
            splits[split] = _build_split(self.folder, split, names, own)
        source = ManifestSource(
            kind="records",
            fingerprint=combine_row_digests([shard.digest for shard in shards]),
            rows=sum(shard.records for shard in shards),
            rejected=0,
        )
        plan = ConversionPlan(
            options={"verb": "adopt", "index": list(scan.index)},
            schema=scan.schema.to_dict(evidence=False),
            source=source.fingerprint,
        )
        return build_manifest(plan, splits, source, version=VERSION, parent=None)

    def _commit(self, staging: Staging, manifest: Manifest) -> None:
        """Put the indexes in place, and the manifest last: without it they are only indexes of single files."""
        storage = self.transaction.storage
        for path, stamp in zip(self.paths, self.stamps, strict=True):
            now = read_stamp(path)
            if now != stamp:
                raise file_changed_error(path, stamp, now)
        staged = os.path.join(staging.folder, MANIFEST_NAME)
        staging.write(staged, manifest.to_json(), sync=True)
        folders = dict.fromkeys(os.path.dirname(index_path(path)) for path in self.paths)
        for folder in folders:
            storage.make_folder(folder)
        for number, path in enumerate(self.paths):
            staging.publish(staging.map_path(number, "index"), index_path(path))
        for folder in folders:
            for one in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder)) or "."):
                storage.sync_folder(one)
        staging.publish(staged, manifest_path(self.folder))
        storage.sync_folder(self.folder or ".")
        staging.remove()
        _log.info("adopted %d shards in %s", len(self.paths), self.folder)

    def _notes(self, schema: Schema, shards: Sequence[AdoptedShard]) -> Iterator[str]:
        slow = [shard.compression for shard in shards if shard.is_sequential_only]
        place = shlex.quote(self.folder)
        if slow:
            yield (
                f"{format_count(len(slow), f'{slow[0]} shard')} can only be read in file order: for random access, "
                f"rekord rewrite {place} OUT --compression none"
            )
        if not of_type(schema.context, Label) and (names := _find_labels(schema)):
            yield (
                f"`{names[0]}` holds integers; if they are class ids: "
                f"rekord adopt {place} --rebuild --label {shlex.quote(names[0])} --label-map FILE"
            )


def _load_done(staging: Staging, number: int) -> AdoptedShard | None:
    """The facts about a shard that an earlier run has read, if its index is still staged."""
    done = staging.read_done(staging.map_path(number, "done"), AdoptedShard)
    return done if done is not None and staging.size_of(staging.map_path(number, "index")) > 0 else None


def _build_split(folder: str, split: str, names: Sequence[str], shards: Sequence[AdoptedShard]) -> ManifestSplit:
    # An empty file is one of any compression.
    kinds = {name: one.compression for name, one in zip(names, shards, strict=True) if one.file_bytes}
    first, kind = next(iter(kinds.items()), ("", "none"))
    other = next((name for name in kinds if kinds[name] != kind), None)
    if other is not None:
        raise _not_adoptable_error(
            os.path.join(folder, other),
            f"shards of split {preview(split)} are compressed differently",
            f"{kind}, as in {first[-60:]}",
            kinds[other],
            f"rekord rewrite {shlex.quote(folder)} OUT --compression none",
        )
    template = _find_template(split, names)
    made = build_manifest_split(template, kind, shards)
    if template:
        return made
    return msgspec.structs.replace(made, shards=msgspec.structs.replace(made.shards, names=list(names)))


def _find_template(split: str, names: Sequence[str]) -> str:
    """The template that gives exactly these names; empty if there is none."""
    number = f"{0:05d}-of-{len(names):05d}"
    template = names[0].replace(number, "{shard:05d}-of-{shards:05d}").replace(split, "{split}", 1)
    made = [shard_name(template, split, shard, len(names)) for shard in range(len(names))]
    return template if made == list(names) and "{shard:05d}" in template and "/" not in template else ""


# Labels.


def _find_labels(schema: Schema) -> list[str]:
    """The columns that are named like labels and hold integers."""
    return [
        name
        for name, feature in schema.context.items()
        if _is_integer(feature) and name.rsplit("/", 1)[-1].lower() in _LABEL_NAMES
    ]


def _is_integer(feature: Feature) -> bool:
    return feature.family == "integer" and feature.kind == "int64"


def _choose_label(schema: Schema, given: str | None) -> str:
    """The column of the class ids."""
    integers = [name for name, feature in schema.context.items() if _is_integer(feature)]
    expected = f"a column of integers: {', '.join(integers[:8])}" if integers else "a column of integers"
    if given is not None:
        return column_name("label", given, integers, expected=expected, do="rekord infer PATH")
    for names in (_find_labels(schema), integers):
        if len(names) == 1:
            return names[0]
    raise error(
        "U605",
        "`label` is required: `label_map` does not say which column it is for",
        expected=expected,
        found=f"{format_count(len(integers), 'such column')}",
        do=f"label={integers[0]!r}" if integers else "leave out label_map=",
    )


def _read_class_names(given: ClassNames | None) -> dict[int, str] | None:
    """Class names by id."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        if not given or not all(isinstance(number, int) and 0 <= number < _MAX_CLASS_ID for number in given):
            expected = f"class names by their ids from 0 to {_MAX_CLASS_ID - 1:,}"
            raise invalid("label_map", given, expected, 'label_map={0: "cat", 1: "dog"}')
        return dict(zip(given, _check_names(list(given.values())), strict=True))
    if not isinstance(given, (str, os.PathLike)):
        return dict(enumerate(_check_names(given)))
    place = as_path("label_map", given)
    if place.endswith((".pbtxt", ".prototxt", ".textproto")):
        items = read_label_map(place)
        if max(items) >= _MAX_CLASS_ID:
            raise _names_file_error(place, f"class ids below {_MAX_CLASS_ID:,}", f"class {max(items)}")
        return items
    try:
        text = read_file(place, LOCAL, most_bytes=_MAX_NAMES_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _names_file_error(place, "UTF-8", "other bytes") from None
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if not lines or not all(lines):
        found = f"an empty line {lines.index('') + 1}" if lines else "an empty file"
        raise _names_file_error(place, "one class name per line", found)
    twice = next((name for name, count in Counter(lines).items() if count > 1), None)
    if twice is not None:
        raise _names_file_error(place, "unique class names", f"{preview(twice)} twice")
    return dict(enumerate(lines))


def _check_names(names: object) -> tuple[str, ...]:
    return name_list("label_map", names, expected="a list of unique class names", do='label_map=["cat", "dog"]')


def _names_file_error(place: str, expected: str, found: str) -> RekordError:
    return error(
        "X533",
        location=Location(path=place),
        expected=expected,
        found=found,
        do="correct the file: one class name per line, in the order of the ids from 0",
    )


def _complete_names(classes: Mapping[int, str]) -> list[str]:
    """A name for every id from 0 on: 0 is the background of a label map, and other gaps are never used."""
    taken = set(classes.values())
    names = []
    for number in range(max(classes) + 1):
        name = classes.get(number)
        if name is None:
            name = _BACKGROUND if number == 0 else f"class {number}"
            while name in taken:
                name = f"{name}_"
        names.append(name)
    return names
