"""Selected records and their tags, kept in the user's cache between sessions.

    ~/.cache/rekord/selections/<digest of the dataset>.json
    {"format": 1, "dataset": "…", "records": {"train": {"3": ["blurry"], "17": []}}}

A selection belongs to the exact files of a dataset: record numbers mean nothing in another version of it. Every
change reads the file, applies one operation and replaces the file, under a lock: several viewers share a selection.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from rekord.arguments import invalid
from rekord.dataset.dataset import Dataset
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.storage.cache import cache_folder
from rekord.storage.local import LOCAL, read_file, write_error
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import StagedFile

Record: TypeAlias = "tuple[str, int]"
"""The split of a record, and its number there."""

MAX_SELECTED = 100_000
MAX_TAGS_PER_RECORD = 16
MAX_SELECTIONS = 256
"""Files kept in the folder of selections; those that were changed longest ago are removed."""

_FORMAT = 1
_MAX_FILE_BYTES = 64 << 20
_MAX_SPLIT_CHARACTERS = 1000
_MAX_RECORD = 10**15
_TAG = re.compile(r"\w[\w .:/+-]{0,39}")  # neither a comma nor what spreadsheets take for a formula
_LOCK_ATTEMPTS = 200
_LOCK_WAIT_SECONDS = 0.05
_UNFINISHED = ".unfinished"
_UNFINISHED_SECONDS = 86_400


class _SelectionFile(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    dataset: str
    records: dict[str, dict[int, list[str]]]


@dataclass(frozen=True)
class Selection:
    """Selected records, each with its tags in alphabetical order."""

    tags: Mapping[Record, tuple[str, ...]]

    @cached_property
    def records(self) -> list[Record]:
        """The records, by split and number."""
        return sorted(self.tags)

    def with_tag(self, tag: str | None) -> list[Record]:
        """The records with a tag; all without one."""
        return self.records if tag is None else [one for one in self.records if tag in self.tags[one]]

    def count_tags(self) -> dict[str, int]:
        """The number of records of each tag."""
        return dict(sorted(Counter(tag for tags in self.tags.values() for tag in tags).items()))

    def to_dict(self) -> dict[str, Any]:
        """The selection as a JSON document."""
        records = [[split, record, list(self.tags[split, record])] for split, record in self.records]
        return {"count": len(records), "records": records, "tags": self.count_tags()}


def identify_dataset(dataset: Dataset) -> str:
    """A digest of the files of a dataset: of its manifest, or of the names, sizes and times of its files."""
    digest = hashlib.sha256()
    for name, split in dataset.splits.items():
        digest.update(f"{name}\0{split.digest()}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def identify_files(paths: Sequence[str]) -> str:
    """A digest of files that are not a dataset: of their paths, sizes and times."""
    digest = hashlib.sha256()
    for path in paths:
        found = ROUTED_STORAGE.stat(path)
        digest.update(f"{path}\0{found.size_bytes}\0{found.mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class SelectionStore:
    """The selection of one dataset. Without a cache folder, it lives as long as this object.

    `counts` are the numbers of records by split, None for one that is not known yet: other records are refused.
    """

    def __init__(self, dataset: str, counts: Mapping[str, int | None] | None = None) -> None:
        self.dataset = dataset
        self.counts = counts
        folder = cache_folder("selections")
        name = hashlib.sha256(dataset.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self.path = None if folder is None else os.path.join(folder, f"{name}.json")
        self._unsaved = Selection({})

    def read(self) -> Selection:
        """The current selection."""
        if self.path is None:
            return self._unsaved
        if not os.path.exists(self.path):
            return Selection({})
        return _decode(self.path, read_file(self.path, LOCAL, most_bytes=_MAX_FILE_BYTES), self.dataset)

    def select(self, records: Iterable[object], *, tags: Sequence[object] = ()) -> Selection:
        """Add records, and add tags to them."""
        chosen, added = self._check_records(records), set(map(_check_tag, tags))

        def change(known: dict[Record, tuple[str, ...]]) -> None:
            for one in chosen:
                known[one] = tuple(sorted({*known.get(one, ()), *added}))

        return self._change(change)

    def deselect(self, records: Iterable[object]) -> Selection:
        """Remove records, and with them their tags."""
        chosen = self._check_records(records)

        def change(known: dict[Record, tuple[str, ...]]) -> None:
            for one in chosen:
                known.pop(one, None)

        return self._change(change)

    def untag(self, records: Iterable[object], tags: Sequence[object]) -> Selection:
        """Remove tags from records, which stay selected."""
        chosen, removed = self._check_records(records), set(map(_check_tag, tags))

        def change(known: dict[Record, tuple[str, ...]]) -> None:
            for one in chosen:
                if one in known:
                    known[one] = tuple(sorted({*known[one]} - removed))

        return self._change(change)

    def clear(self) -> Selection:
        """Remove all records; a corrupt file too."""
        if self.path is None:
            self._unsaved = Selection({})
        else:
            with _lock(self.path), suppress(FileNotFoundError):
                os.unlink(self.path)
        return Selection({})

    def _change(self, change: Any) -> Selection:
        if self.path is None:
            self._unsaved = self._apply(change, self._unsaved)
            return self._unsaved
        with _lock(self.path):
            changed = self._apply(change, self.read())
            _write(self.path, _encode(changed, self.dataset))
        _clean(os.path.dirname(self.path), ".json", spare=self.path)
        return changed

    def _apply(self, change: Any, before: Selection) -> Selection:
        known = dict(before.tags)
        change(known)
        if len(known) > MAX_SELECTED:
            raise _limit_error(f"at most {MAX_SELECTED:,} selected records", f"{len(known):,}")
        most = max(map(len, known.values()), default=0)
        if most > MAX_TAGS_PER_RECORD:
            raise _limit_error(f"at most {MAX_TAGS_PER_RECORD} tags per record", f"{most}")
        return Selection(known)

    def _check_records(self, records: Iterable[object]) -> list[Record]:
        chosen = [_check_record(one) for one in records]
        if len(chosen) > MAX_SELECTED:
            raise _limit_error(f"at most {MAX_SELECTED:,} selected records", f"{len(chosen):,}")
        for split, record in chosen if self.counts is not None else ():
            count = self.counts.get(split, 0) if self.counts is not None else None
            if count is not None and record >= count:
                raise error(
                    "U606",
                    f"record {record:,} of `{split[:60]}` does not exist",
                    expected=f"a record from 0 to {count - 1:,}" if count else "another split: it has no records",
                    found=f"{record:,}",
                )
        return chosen


def save_record_list(text: str, extension: str) -> str | None:
    """Keep a list of records for a command that names its file; None if it cannot be kept.

    The name is a digest of the content: a command that was copied earlier still means the records that it showed.
    """
    folder = cache_folder("selections")
    if folder is None:
        return None
    data = text.encode()
    path = os.path.join(folder, f"{hashlib.sha256(data).hexdigest()[:16]}.records{extension}")
    try:
        if os.path.exists(path):
            os.utime(path)  # used: it is removed later than others
        else:
            _write(path, data)
    except (OSError, RekordError):
        return None
    _clean(folder, f".records{extension}", spare=path)
    return path


def _check_record(given: object) -> Record:
    if isinstance(given, (list, tuple)) and len(given) == 2:
        split, record = given
        is_number = isinstance(record, int) and not isinstance(record, bool) and 0 <= record < _MAX_RECORD
        if is_number and isinstance(split, str) and 0 < len(split) <= _MAX_SPLIT_CHARACTERS:
            return split, record
    raise invalid("records", given, "pairs of split and record number", 'records=[("train", 3)]')


def _check_tag(given: object) -> str:
    if isinstance(given, str) and _TAG.fullmatch(given) and given == given.strip():
        return given
    expected = "1 to 40 letters, digits, spaces or .:/+-, the first a letter or digit"
    raise invalid("tags", given, expected, 'tags=["blurry"]')


def _limit_error(expected: str, found: str) -> RekordError:
    do = "rekord delete IN OUT --where SQL, for a condition instead of single records"
    return error("U605", "selection is too large", expected=expected, found=found, do=do)


def _encode(selection: Selection, dataset: str) -> bytes:
    records: dict[str, dict[int, list[str]]] = {}
    for split, record in selection.records:
        records.setdefault(split, {})[record] = list(selection.tags[split, record])
    # Names of splits come from file names, which may not be UTF-8; JSON from msgspec must be.
    escaped = {split.encode("utf-8", "surrogatepass").decode("latin-1"): ids for split, ids in records.items()}
    return msgspec.json.encode(_SelectionFile(format=_FORMAT, dataset=dataset, records=escaped))


def _decode(path: str, data: bytes, dataset: str) -> Selection:
    try:
        found = msgspec.json.decode(data, type=_SelectionFile)
        if found.format != _FORMAT or found.dataset != dataset:
            raise ValueError(f"format {found.format} of dataset {found.dataset[:16]}")
        tags: dict[Record, tuple[str, ...]] = {}
        for name, records in found.records.items():
            split = name.encode("latin-1").decode("utf-8", "surrogatepass")
            for record, given in records.items():
                tags[_check_record((split, record))] = tuple(sorted(set(map(_check_tag, given))))
        if len(tags) > MAX_SELECTED or any(len(one) > MAX_TAGS_PER_RECORD for one in tags.values()):
            raise ValueError(f"{len(tags):,} records")
    except (msgspec.MsgspecError, ValueError, RecursionError) as failure:  # a UsageError is a ValueError
        found_text = failure.found if isinstance(failure, RekordError) else preview(str(failure))
        raise error(
            "X573",
            location=Location(path=path),
            expected="a selection that the viewer saved",
            found=found_text,
            do=f"rm {shlex.quote(path)}",
        ) from None
    return Selection(tags)


@contextmanager
def _lock(path: str) -> Iterator[None]:
    """Wait for other viewers: each holds the lock for milliseconds."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as failure:
        raise write_error(path, failure) from failure
    for attempt in range(_LOCK_ATTEMPTS):
        held = LOCAL.lock(f"{path}.lock")
        try:
            held.__enter__()
        except RekordError as failure:
            if failure.code != "X512" or attempt == _LOCK_ATTEMPTS - 1:
                raise
            time.sleep(_LOCK_WAIT_SECONDS)
            continue
        try:
            yield
        finally:
            held.__exit__(None, None, None)
        return


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with StagedFile(path, f"{path}.{secrets.token_hex(4)}{_UNFINISHED}", LOCAL, sync=True) as file:
        file.write(data)


def _clean(folder: str, extension: str, *, spare: str) -> None:
    """Remove the oldest files if there are too many, and those of writers that died."""
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                changed = entry.stat(follow_symlinks=False).st_mtime
                if entry.name.endswith(_UNFINISHED) and changed < time.time() - _UNFINISHED_SECONDS:
                    os.unlink(entry.path)
                elif entry.name.endswith(extension) and entry.path != spare:
                    found.append((changed, entry.path))
    for _, path in sorted(found)[: max(0, len(found) + 1 - MAX_SELECTIONS)]:
        with suppress(OSError):
            os.unlink(path)
