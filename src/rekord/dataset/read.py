"""`rk.records` and the record files of a path: payloads, splits from file names and from TFDS folders."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from rekord import _core
from rekord.arguments import check_keywords
from rekord.codec.decode import row_error
from rekord.codec.plan import CodecPlan
from rekord.dataset.index import Count
from rekord.errors import RekordError, error, preview
from rekord.faults import frame_error
from rekord.framing.frames import EVIDENCE_BYTES, FrameReader, FrameSegment, SlabReader, read_payload
from rekord.framing.inflate import starts_with_record
from rekord.location import Location
from rekord.schema.interop.tfds import FILE_TEMPLATE, INFO_NAME
from rekord.storage.find import FoundFiles, filter_record_files, resolve_record_files
from rekord.storage.local import LOCAL, PathLike, Storage, read_file
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
    """The files of each split, in the order of the paths. `root` is the folder that was opened, if one was."""
    splits: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        splits[infer_split_name(path, root)].append(path)
    return dict(splits)


def infer_split_name(path: str, root: str | None) -> str:
    """The split that a name belongs to.

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
    # A file that was recognised by its content may end in anything.
    stems = _EXTENSIONS.sub("", name), os.path.splitext(name)[0]
    return next((stem for stem in stems if stem.lower() in SPLIT_STEMS), "all")


def infer_compression(path: str) -> str | None:
    """The compression that a name says: `x.tfrecord.gz`, `x.tfrecord.gz-00000-of-00003`, `x.gz.tfrecord`; or None."""
    found = _COMPRESSED_NAME.search(os.path.basename(path))
    return None if found is None else found.lastgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSet:
    """The files of one `-SSSSS-of-NNNNN` set that are there, by their numbers."""

    before: str  # folder and name, up to the number
    shards: str  # how many there are, as the names say it
    after: str
    paths: dict[int, str]

    @property
    def pattern(self) -> str:
        """The name that stands for all of them."""
        return f"{self.before}*-of-{self.shards}{self.after}"

    @property
    def count(self) -> int:
        """How many shards the names say there are."""
        return int(self.shards)

    @property
    def present(self) -> list[int]:
        """The numbers of the shards that are there."""
        return sorted(number for number in self.paths if number < self.count)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The shards that are not there, as (first, last) of each run; none of a set that is too large to be one."""
        if self.count > _MAX_SHARDS:
            return []
        runs, expected = [], 0
        for number in [*self.present, self.count]:
            if number > expected:
                runs.append((expected, number - 1))
            expected = number + 1
        return runs

    def name(self, number: int) -> str:
        """The path of one shard, there or not."""
        return f"{self.before}{number:0{len(self.shards)}d}-of-{self.shards}{self.after}"


def group_shard_sets(paths: Iterable[str]) -> list[ShardSet]:
    """The sets of numbered shards that some files belong to; other files belong to none."""
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
    """Raise where a set of `-SSSSS-of-NNNNN` files lacks some of its shards."""
    for one in group_shard_sets(paths):
        runs = one.missing
        if runs:
            missing = sum(last - first + 1 for first, last in runs)
            raise error(
                "X505",
                f"{one.count - missing:,} of {one.count:,} shards are here",
                location=Location(path=one.pattern),
                expected=f"shards 0 to {one.count - 1:,}",
                found=f"no {one.name(runs[0][0])}" + (f", and {missing - 1:,} more missing" if missing > 1 else ""),
                do="fetch the missing files, or open with allow_missing=True",
            )


_MAX_INFO_BYTES = 64 << 20
_FORMAT = "tfrecord"
_FRAMING_BYTES = 16
_MAX_INFLATION_RATIO = 1032  # bytes that deflate can make of one


class _TfdsSplit(msgspec.Struct, frozen=True):
    name: str
    shard_lengths: list[Count] = msgspec.field(name="shardLengths", default_factory=list)
    template: str = msgspec.field(name="filepathTemplate", default=FILE_TEMPLATE)


class _TfdsInfo(msgspec.Struct, frozen=True):
    name: str
    splits: list[_TfdsSplit] = []
    file_format: str = msgspec.field(name="fileFormat", default=_FORMAT)


@dataclass(frozen=True, slots=True)
class TfdsListing:
    """What is here of each split, in order: paths, and the records that each is said to have."""

    splits: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]


def read_tfds_listing(folder: str, *, allow_missing: bool) -> TfdsListing | None:
    """The splits of a TFDS folder; None where it is none, or lists no shards."""
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
            do="tfds.builder(…).download_and_prepare(file_format='tfrecord'), into another folder",
        )
    splits = {}
    for split in info.splits:
        if split.name in splits:
            raise _tfds_info_error(place, "each split once", preview(split.name))
        splits[split.name] = _list_present_shards(folder, place, info, split, allow_missing=allow_missing)
    return TfdsListing(splits)


def _list_present_shards(
    folder: str, place: str, info: _TfdsInfo, split: _TfdsSplit, *, allow_missing: bool
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = [_file_name(info, split, shard) for shard in range(len(split.shard_lengths))]
    # A template is hostile like everything else in a file: no shard lies outside of the folder.
    if not all(_is_file_name(name) for name in names) or len(set(names)) < len(names):
        raise _tfds_info_error(place, "a name in the folder for each shard", preview(split.template))
    here = {shard: os.path.join(folder, name) for shard, name in enumerate(names)}
    here = {shard: path for shard, path in here.items() if os.path.isfile(path)}
    if len(here) < len(names) and not allow_missing:
        first = next(shard for shard in range(len(names)) if shard not in here)
        missing = len(names) - len(here)
        raise error(
            "X505",
            f"{len(here):,} of {len(names):,} shards are here",
            location=Location(path=os.path.join(folder, names[first])),
            expected=f"{len(names):,} shards of {preview(split.name)}, as {INFO_NAME} says",
            found=f"no {names[first][:60]}" + (f", and {missing - 1:,} more missing" if missing > 1 else ""),
            do="fetch the missing files, or open with allow_missing=True",
        )
    for shard, path in here.items():
        records, size_bytes = split.shard_lengths[shard], os.path.getsize(path)
        if records * _FRAMING_BYTES > size_bytes * _MAX_INFLATION_RATIO:
            raise error(
                "X545",
                location=Location(path=path),
                expected=f"{records:,} records, as {INFO_NAME} says",
                found=f"{size_bytes:,} bytes, which are fewer records",
                do="fetch the file again, or remove dataset_info.json to read the shards by their names",
            )
    return tuple(here.values()), tuple(split.shard_lengths[shard] for shard in here)


def _file_name(info: _TfdsInfo, split: _TfdsSplit, shard: int) -> str:
    shards = len(split.shard_lengths)
    words = {
        "{SHARD_X_OF_Y}": f"{shard:05d}-of-{shards:05d}",
        "{SHARD_INDEX}": f"{shard:05d}",
        "{NUM_SHARDS}": f"{shards:05d}",
        "{FILEFORMAT}": info.file_format,
        "{SPLIT}": split.name,
        "{DATASET}": info.name,
    }
    name = split.template or FILE_TEMPLATE
    for word, value in words.items():
        name = name.replace(word, value)
    return name


def _is_file_name(name: str) -> bool:
    return os.path.basename(name) == name and name not in ("", ".", "..") and name.isprintable()


def _read_tfds_info(place: str) -> _TfdsInfo | None:
    if is_remote(place) or not os.path.isfile(place):
        return None
    if os.path.getsize(place) > _MAX_INFO_BYTES:
        raise _tfds_info_error(place, f"at most {_MAX_INFO_BYTES:,} bytes", "more")
    try:
        document = msgspec.json.decode(read_file(place, LOCAL, most_bytes=_MAX_INFO_BYTES))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise _tfds_info_error(place, "JSON", str(failure)[:60]) from None
    # Other libraries have a file of this name too, with other things in it.
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None
    if not isinstance(document.get("splits"), list):
        return None
    try:
        return msgspec.convert(document, _TfdsInfo, strict=False)  # TFDS writes numbers as texts
    except msgspec.ValidationError as failure:
        raise _tfds_info_error(place, "splits with a name and shardLengths", str(failure)[:60]) from None


def _tfds_info_error(place: str, expected: str, found: str) -> RekordError:
    return error(
        "X536",
        location=Location(path=place),
        expected=expected,
        found=found,
        do="fetch the file again, or remove it to read the shards by their names",
    )


@check_keywords
def records(path: PathLike | Iterable[PathLike]) -> Iterator[bytes]:
    """The payloads of a record file, or of all record files that a folder or glob holds, in name order.

    Both checksums of every record are verified; compression is recognised by content. Raises a FormatError
    with file, record and offset at the first record that is not intact, after everything before it.
    """
    return _iter_payloads(list_record_files(path))


def list_record_files(path: PathLike | Iterable[PathLike]) -> list[str]:
    """The record files that a file, folder or glob stands for, or several of them."""
    return find_record_files(path).paths


def find_record_files(path: PathLike | Iterable[PathLike]) -> FoundFiles:
    """The same, with the files that were skipped because their names say nothing."""
    return resolve_record_files(path, starts_with_record, storage=ROUTED_STORAGE)


def find_skipped_records(found: FoundFiles) -> list[str]:
    """The files that were skipped because of their names, and begin with a record."""
    return filter_record_files(found.skipped, starts_with_record, storage=ROUTED_STORAGE)


def open_frames(path: str, storage: Storage = ROUTED_STORAGE) -> FrameReader:
    """A reader over the frames of one file."""
    sized = storage.stat(path).kind == "file"
    return FrameReader(storage.open_read(path), path=path, sized=sized)


def open_slabs(path: str, pool: _core.Pool, *, reuse: bool, storage: Storage = ROUTED_STORAGE) -> SlabReader:
    """A reader over the frames of one file, for decoding."""
    sized = storage.stat(path).kind == "file"
    return SlabReader(storage.open_read(path), path=path, sized=sized, pool=pool, reuse=reuse)


def next_frames(reader: SlabReader, most_frames: int) -> FrameSegment | None:
    """The next frames of a reader, None at the end; a failure says where it is, with what a look around adds."""
    try:
        return reader.next(most_frames)
    except RekordError as failure:
        failure.location = failure.location.within(path=reader.path, record=reader.record, offset=reader.offset)
        raise explain_frame_error(failure) from None


def explain_frame_error(failure: RekordError) -> RekordError:
    """A failure of a frame, met while decoding, with what a look around in its file adds, if that can be read."""
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
    """What a batch met in the frame that begins at byte `at` of a slab and stands at `where` in its file."""
    if row is not None:
        failure = row_error(plan, *row, read_payload(slab, at))
        failure.location = failure.location.within(**where.to_dict())
        return failure
    assert frame is not None
    failure = frame_error(frame, record=where.record or 0, offset=where.offset or 0)
    failure.location = where
    return explain_frame_error(failure)


def _iter_payloads(paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        with open_frames(path) as reader:
            try:
                for stretch in reader.iter_verified_frames():
                    yield from stretch.payloads()
            except RekordError as failure:
                raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None
