"""`rk.records`, and the record files of a path: payloads, and splits from file names or TFDS folders."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from rekord import _core
from rekord.arguments import check_keywords
from rekord.codec.decode import row_error
from rekord.codec.plan import CodecPlan
from rekord.dataset.index import Count
from rekord.dataset.manifest import MAX_INFLATION_RATIO, is_file_name
from rekord.errors import RekordError, error, preview
from rekord.faults import frame_error
from rekord.framing.frames import EVIDENCE_BYTES, FrameReader, FrameSegment, SlabReader, read_payload
from rekord.framing.inflate import starts_with_record
from rekord.location import Location
from rekord.schema.interop.tfds import FILE_TEMPLATE, INFO_NAME
from rekord.storage.find import FoundFiles, filter_record_files, resolve_record_files
from rekord.storage.local import LOCAL, PathLike, Readable, Stat, Storage, read_file
from rekord.storage.router import ROUTED_STORAGE, is_remote

_SHARD_NAME = re.compile(r"^(?P<before>.*?)(?P<mark>[-_.])(?P<shard>\d{3,})-of-(?P<shards>\d{3,})(?P<after>.*)$")
_EXTENSIONS = re.compile(r"(\.(tfrecords?|records?|tfrec|tfr|gz|zz|zlib))+$", re.IGNORECASE)
_COMPRESSED_NAME = re.compile(
    r"[._-](?:(?P<gzip>gz|gzip)|(?P<zlib>zz|zlib))(?:[-_.]\d{3,}-of-\d{3,})?(?:\.(?:tfrecords?|records?|tfrecs?|tfr))?$",
    re.IGNORECASE,
)
SPLIT_STEMS = frozenset({"train", "val", "valid", "validation", "dev", "eval", "test"})
_MAX_SHARDS = 1_000_000  # a larger number in a name counts something else


def group_by_split(paths: Sequence[str], root: str | None) -> dict[str, list[str]]:
    """The files of each split, in the order of the paths. `root` is the opened folder, if any."""
    splits: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        splits[infer_split_name(path, root)].append(path)
    return dict(splits)


def infer_split_name(path: str, root: str | None) -> str:
    """The split that a file belongs to by its name.

    A parent `Split-x`, as TFX writes; else the part before `-SSSSS-of-NNNNN`; else the folder below the root; else
    a stem that is the name of a split; else `all`.
    """
    folder, name = os.path.split(path)
    numbered = _SHARD_NAME.match(name)
    parent = os.path.basename(folder)
    if parent.lower().startswith("split-") and len(parent) > len("split-"):
        return parent[len("split-") :]
    if numbered is not None:
        stem = _EXTENSIONS.sub("", numbered["before"])
        if stem:
            return stem
    if root is not None and parent and os.path.normpath(folder) != os.path.normpath(root):
        return parent
    # A file that was recognised by its content may have any extension.
    stems = _EXTENSIONS.sub("", name), os.path.splitext(name)[0]
    return next((stem for stem in stems if stem.lower() in SPLIT_STEMS), "all")


def infer_compression(path: str) -> str | None:
    """The compression in a name: `x.tfrecord.gz`, `x.tfrecord.gz-00000-of-00003`, `x.gz.tfrecord`; or None."""
    found = _COMPRESSED_NAME.search(os.path.basename(path))
    return None if found is None else found.lastgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSet:
    """The existing files of one `-SSSSS-of-NNNNN` set, by their numbers."""

    before: str  # folder and name, up to the number
    shards: str  # NNNNN, as in the names
    after: str
    paths: dict[int, str]

    @property
    def pattern(self) -> str:
        """A glob that matches all of them."""
        return f"{self.before}*-of-{self.shards}{self.after}"

    @property
    def count(self) -> int:
        """Number of shards according to the names."""
        return int(self.shards)

    @property
    def present(self) -> list[int]:
        """The numbers of the existing shards."""
        return sorted(number for number in self.paths if number < self.count)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The missing shards, as (first, last) of each run; empty for a set that is too large to be one."""
        if self.count > _MAX_SHARDS:
            return []
        runs, expected = [], 0
        for number in [*self.present, self.count]:
            if number > expected:
                runs.append((expected, number - 1))
            expected = number + 1
        return runs

    def name(self, number: int) -> str:
        """The path of one shard, existing or not."""
        return f"{self.before}{number:0{len(self.shards)}d}-of-{self.shards}{self.after}"


def group_shard_sets(paths: Iterable[str]) -> list[ShardSet]:
    """The sets of numbered shards among some files."""
    sets: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for path in paths:
        folder, name = os.path.split(path)
        numbered = _SHARD_NAME.match(name)
        if numbered is not None:
            before = os.path.join(folder, numbered["before"]) + numbered["mark"]
            sets[before, numbered["shards"], numbered["after"]][int(numbered["shard"])] = path
    return [
        ShardSet(before=before, shards=shards, after=after, paths=have)
        for (before, shards, after), have in sets.items()
    ]


def check_complete(paths: Sequence[str]) -> None:
    """Raise if a set of `-SSSSS-of-NNNNN` files lacks some of its shards."""
    for one in group_shard_sets(paths):
        runs = one.missing
        if runs:
            missing = sum(last - first + 1 for first, last in runs)
            expected = f"shards 0 to {one.count - 1:,}"
            raise _missing_shards_error(one.pattern, expected, one.name(runs[0][0]), missing, one.count)


def _missing_shards_error(path: str, expected: str, first: str, missing: int, shards: int) -> RekordError:
    return error(
        "X505",
        f"{missing:,} of {shards:,} shards are missing",
        location=Location(path=path),
        expected=expected,
        found=f"no {first}" + (f", and {missing - 1:,} more missing" if missing > 1 else ""),
        do="allow_missing=True      (or fetch the missing files)",
    )


_MAX_INFO_BYTES = 64 << 20
_FORMAT = "tfrecord"


class _TfdsSplit(msgspec.Struct, frozen=True):
    name: str
    shard_lengths: list[Count] = msgspec.field(name="shardLengths", default_factory=list)
    template: str = msgspec.field(name="filepathTemplate", default=FILE_TEMPLATE)


class _TfdsInfo(msgspec.Struct, frozen=True):
    name: str
    splits: list[_TfdsSplit] = []
    file_format: str = msgspec.field(name="fileFormat", default=_FORMAT)


ListedShards: TypeAlias = "tuple[tuple[str, ...], tuple[int, ...]]"
"""The paths of the existing shards of a split, and the listed number of records of each."""


def read_tfds_listing(folder: str, *, allow_missing: bool) -> dict[str, ListedShards] | None:
    """The splits of a TFDS folder; None if it is not one, or lists no shards."""
    place = os.path.join(folder, INFO_NAME)
    info = _read_tfds_info(place)
    if info is None or not any(split.shard_lengths for split in info.splits):
        return None
    if info.file_format != _FORMAT:
        raise error(
            "X549",
            location=Location(path=place),
            expected=f"fileFormat {_FORMAT!r}",
            found=preview(info.file_format),
            do="builder.download_and_prepare(file_format='tfrecord')      (of TFDS, into another folder)",
        )
    splits: dict[str, ListedShards] = {}
    for split in info.splits:
        if split.name in splits:
            raise _tfds_info_error(place, "unique split names", preview(split.name))
        splits[split.name] = _list_present_shards(folder, place, info, split, allow_missing=allow_missing)
    return splits


def _list_present_shards(
    folder: str, place: str, info: _TfdsInfo, split: _TfdsSplit, *, allow_missing: bool
) -> ListedShards:
    names = [_file_name(info, split, shard) for shard in range(len(split.shard_lengths))]
    # A template is untrusted like everything else in a file: no shard may lie outside the folder.
    if not all(map(is_file_name, names)) or len(set(names)) < len(names):
        raise _tfds_info_error(place, "a unique name in the folder for each shard", preview(split.template))
    here = {shard: os.path.join(folder, name) for shard, name in enumerate(names)}
    here = {shard: path for shard, path in here.items() if os.path.isfile(path)}
    if len(here) < len(names) and not allow_missing:
        first = next(name for shard, name in enumerate(names) if shard not in here)
        expected = f"{len(names):,} shards of {preview(split.name)}, as listed in {INFO_NAME}"
        path = os.path.join(folder, first)
        raise _missing_shards_error(path, expected, first[:60], len(names) - len(here), len(names))
    for shard, path in here.items():
        records, size_bytes = split.shard_lengths[shard], os.path.getsize(path)
        if records * _core.FRAMING_BYTES > size_bytes * MAX_INFLATION_RATIO:
            raise error(
                "X545",
                location=Location(path=path),
                expected=f"{records:,} records, as listed in {INFO_NAME}",
                found=f"{size_bytes:,} bytes, too few for that",
                do="fetch the file again, or remove dataset_info.json to read the shards by name",
            )
    return tuple(here.values()), tuple(split.shard_lengths[shard] for shard in here)


def _file_name(info: _TfdsInfo, split: _TfdsSplit, shard: int) -> str:
    shards = len(split.shard_lengths)
    placeholders = {
        "{SHARD_X_OF_Y}": f"{shard:05d}-of-{shards:05d}",
        "{SHARD_INDEX}": f"{shard:05d}",
        "{NUM_SHARDS}": f"{shards:05d}",
        "{FILEFORMAT}": info.file_format,
        "{SPLIT}": split.name,
        "{DATASET}": info.name,
    }
    name = split.template or FILE_TEMPLATE
    for placeholder, value in placeholders.items():
        name = name.replace(placeholder, value)
    return name


def _read_tfds_info(place: str) -> _TfdsInfo | None:
    if is_remote(place) or not os.path.isfile(place):
        return None
    if os.path.getsize(place) > _MAX_INFO_BYTES:
        raise _tfds_info_error(place, f"at most {_MAX_INFO_BYTES:,} bytes", "more")
    try:
        document = msgspec.json.decode(read_file(place, LOCAL, most_bytes=_MAX_INFO_BYTES))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise _tfds_info_error(place, "JSON", str(failure)[:60]) from None
    # Other libraries use this file name too, with other content.
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None
    if not isinstance(document.get("splits"), list):
        return None
    try:
        return msgspec.convert(document, _TfdsInfo, strict=False)  # TFDS writes numbers as strings
    except msgspec.ValidationError as failure:
        raise _tfds_info_error(place, "splits with a name and shardLengths", str(failure)[:60]) from None


def _tfds_info_error(place: str, expected: str, found: str) -> RekordError:
    return error(
        "X536",
        location=Location(path=place),
        expected=expected,
        found=found,
        do="fetch the file again, or remove it to read the shards by name",
    )


class PayloadIterator(Iterator[bytes]):
    """The payloads of record files. `close()`, or the end of a `with` block, closes the open file."""

    def __init__(self, paths: list[str]) -> None:
        self._payloads = _iter_payloads(paths)

    def __next__(self) -> bytes:
        return next(self._payloads)

    def close(self) -> None:
        """Close the open file, if any; no further payloads follow."""
        self._payloads.close()

    def __enter__(self) -> PayloadIterator:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


@check_keywords
def records(path: PathLike | Iterable[PathLike]) -> PayloadIterator:
    """The payloads of a record file, or of all record files in a folder or glob, in name order.

    Both checksums of every record are verified; compression is detected by content. At the first corrupt record it
    raises a FormatError with file, record and offset, after all payloads before it.
    """
    return PayloadIterator(list_record_files(path))


def list_record_files(path: PathLike | Iterable[PathLike]) -> list[str]:
    """The record files of a file, folder or glob, or of several of them."""
    return find_record_files(path).paths


def find_record_files(path: PathLike | Iterable[PathLike]) -> FoundFiles:
    """The same, with the files that were skipped because of their names."""
    return resolve_record_files(path, starts_with_record, storage=ROUTED_STORAGE)


def find_skipped_records(found: FoundFiles) -> list[str]:
    """The files that were skipped because of their names but begin with a record."""
    return filter_record_files(found.skipped, starts_with_record, storage=ROUTED_STORAGE)


class FrameStorage(Protocol):
    """What reading frames needs of a storage."""

    def open_read(self, path: str) -> Readable: ...
    def stat(self, path: str) -> Stat: ...


def open_frames(path: str, storage: FrameStorage = ROUTED_STORAGE, *, reuse: bool = True) -> FrameReader:
    """A reader of the frames of one file. Without `reuse`, frames stay valid while more are read."""
    sized = storage.stat(path).kind == "file"
    return FrameReader(storage.open_read(path), path=path, sized=sized, reuse=reuse)


def open_slabs(
    path: str,
    pool: _core.Pool,
    *,
    reuse: bool,
    most_frame_bytes: int | None = None,
    storage: Storage = ROUTED_STORAGE,
) -> SlabReader:
    """A reader of the frames of one file, for decoding; it stops at a frame longer than `most_frame_bytes`."""
    sized = storage.stat(path).kind == "file"
    return SlabReader(
        storage.open_read(path),
        path=path,
        sized=sized,
        pool=pool,
        reuse=reuse,
        most_frame_bytes=most_frame_bytes,
    )


def next_frames(reader: SlabReader, most_frames: int) -> FrameSegment | None:
    """The next frames of a reader, None at the end. An error has its location and the evidence around it."""
    try:
        return reader.next(most_frames)
    except RekordError as failure:
        failure.location = failure.location.within(path=reader.path, record=reader.record, offset=reader.offset)
        raise explain_frame_error(failure) from None


def explain_frame_error(failure: RekordError) -> RekordError:
    """The error of a corrupt frame, with the evidence around it in the file, if that can be read."""
    where = failure.location
    if where.path is None or failure.code[0] != "F":
        return failure
    with suppress(RekordError), open_frames(where.path) as reader:
        if not reader.start_at(offset=where.offset or 0, record=where.record or 0):
            return failure
        try:
            next(reader.iter_verified_frames(), None)
        except RekordError as again:
            if again.code == failure.code:
                return reader.recover(again, within=EVIDENCE_BYTES)[0]
    return failure


def decode_error(
    plan: CodecPlan,
    where: Location,
    frame: _core.Problem | None,
    row: tuple[_core.Problem, int] | None,
    slab: _core.Slab,
    at: int,
) -> RekordError:
    """The error of a batch for the frame at byte `at` of a slab, which is at `where` in its file."""
    if row is not None:
        failure = row_error(plan, *row, read_payload(slab, at))
        failure.location = failure.location.within(**where.to_dict())
        return failure
    assert frame is not None
    failure = frame_error(frame, record=where.record or 0, offset=where.offset or 0)
    failure.location = where
    return explain_frame_error(failure)


def _iter_payloads(paths: list[str]) -> Generator[bytes, None, None]:
    for path in paths:
        with open_frames(path) as reader:
            try:
                for stretch in reader.iter_verified_frames():
                    yield from stretch.payloads()
            except RekordError as failure:
                raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None
