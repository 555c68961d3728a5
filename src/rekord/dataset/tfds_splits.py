"""The splits that a folder of TensorFlow Datasets lists in its `dataset_info.json`: files, and numbers of records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rekord.dataset.manifest import Count
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.schema.tfds import FILE_TEMPLATE, INFO_NAME
from rekord.storage.files import LOCAL, read_file
from rekord.storage.remote import is_remote

_MOST_BYTES = 64 << 20
_FORMAT = "tfrecord"
_FRAMING_BYTES = 16
_MOST_INFLATION = 1032  # bytes that deflate can make of one


class _Split(msgspec.Struct, frozen=True):
    name: str
    shard_lengths: list[Count] = msgspec.field(name="shardLengths", default_factory=list)
    template: str = msgspec.field(name="filepathTemplate", default=FILE_TEMPLATE)


class _Info(msgspec.Struct, frozen=True):
    name: str
    splits: list[_Split] = []
    file_format: str = msgspec.field(name="fileFormat", default=_FORMAT)


@dataclass(frozen=True, slots=True)
class TfdsListing:
    """What is here of each split, in order: paths, and the records that each is said to have."""

    splits: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]


def tfds_listing(folder: str, *, allow_missing: bool) -> TfdsListing | None:
    """The splits of a TFDS folder; None where it is none, or lists no shards."""
    place = os.path.join(folder, INFO_NAME)
    info = _read(place)
    if info is None or not any(split.shard_lengths for split in info.splits):
        return None
    if info.file_format != _FORMAT:
        raise error(
            "X549",
            location=Location(path=place),
            expected=f"fileFormat {_FORMAT!r}",
            found=shown(info.file_format),
            do="tfds.builder(…).download_and_prepare(file_format='tfrecord'), into another folder",
        )
    splits = {}
    for split in info.splits:
        if split.name in splits:
            raise _damaged(place, "each split once", shown(split.name))
        splits[split.name] = _present(folder, place, info, split, allow_missing=allow_missing)
    return TfdsListing(splits)


def _present(
    folder: str, place: str, info: _Info, split: _Split, *, allow_missing: bool
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = [_file_name(info, split, shard) for shard in range(len(split.shard_lengths))]
    # A template is hostile like everything else in a file: no shard lies outside of the folder.
    if not all(_is_file_name(name) for name in names) or len(set(names)) < len(names):
        raise _damaged(place, "a name in the folder for each shard", shown(split.template))
    here = {shard: os.path.join(folder, name) for shard, name in enumerate(names)}
    here = {shard: path for shard, path in here.items() if os.path.isfile(path)}
    if len(here) < len(names) and not allow_missing:
        first = next(shard for shard in range(len(names)) if shard not in here)
        missing = len(names) - len(here)
        raise error(
            "X505",
            f"{len(here):,} of {len(names):,} shards are here",
            location=Location(path=os.path.join(folder, names[first])),
            expected=f"{len(names):,} shards of {shown(split.name)}, as {INFO_NAME} says",
            found=f"no {names[first][:60]}" + (f", and {missing - 1:,} more missing" if missing > 1 else ""),
            do="fetch the missing files, or open with allow_missing=True",
        )
    for shard, path in here.items():
        records, size_bytes = split.shard_lengths[shard], os.path.getsize(path)
        if records * _FRAMING_BYTES > size_bytes * _MOST_INFLATION:
            raise error(
                "X545",
                location=Location(path=path),
                expected=f"{records:,} records, as {INFO_NAME} says",
                found=f"{size_bytes:,} bytes, which are fewer records",
                do="fetch the file again, or remove dataset_info.json to read the shards by their names",
            )
    return tuple(here.values()), tuple(split.shard_lengths[shard] for shard in here)


def _file_name(info: _Info, split: _Split, shard: int) -> str:
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


def _read(place: str) -> _Info | None:
    if is_remote(place) or not os.path.isfile(place):
        return None
    if os.path.getsize(place) > _MOST_BYTES:
        raise _damaged(place, f"at most {_MOST_BYTES:,} bytes", "more")
    try:
        document = msgspec.json.decode(read_file(place, LOCAL, most_bytes=_MOST_BYTES))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise _damaged(place, "JSON", str(failure)[:60]) from None
    # Other libraries have a file of this name too, with other things in it.
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None
    if not isinstance(document.get("splits"), list):
        return None
    try:
        return msgspec.convert(document, _Info, strict=False)  # TFDS writes numbers as texts
    except msgspec.ValidationError as failure:
        raise _damaged(place, "splits with a name and shardLengths", str(failure)[:60]) from None


def _damaged(place: str, expected: str, found: str) -> RekordError:
    return error(
        "X536",
        location=Location(path=place),
        expected=expected,
        found=found,
        do="fetch the file again, or remove it to read the shards by their names",
    )
