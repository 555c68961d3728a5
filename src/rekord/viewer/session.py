"""What a viewer has open: one dataset or two, their splits and schemas, indexed by threads in the background."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

import numpy as np

from rekord.arguments import invalid
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.infer import infer
from rekord.dataset.manifest import has_manifest
from rekord.dataset.read import group_by_split, list_record_files
from rekord.dataset.samplers import Ids, expand_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, UsageError, error
from rekord.location import Location
from rekord.log import get_logger
from rekord.report.style import get_base_name
from rekord.schema import Payload, Schema
from rekord.storage.local import PathLike
from rekord.storage.router import get_path_kind, is_remote
from rekord.viewer.columns import ColumnInfo, decode_row, derive_columns, list_columns
from rekord.viewer.records import MAX_RECORD_BYTES, Pending, RawRecord, RecordFile

Opened: TypeAlias = "PathLike | Sequence[PathLike] | Dataset | Split"

_log = get_logger(__name__)

MAX_COLUMNS = 2000
"""Columns of an inferred schema."""

_SAMPLED_RECORDS = 8
_QUICK_RECORDS, _QUICK_BYTES = 100, 4 << 20
_MAX_INFER_RECORDS, _MAX_INFER_BYTES = 10_000, 64 << 20  # as `rk.open` infers
_READ_AHEAD = 64
_BYTES_AT_ONCE = 16 << 20
_FIRST_RECORD_SECONDS = 2.0
_POLL_SECONDS = 0.05


class QueryTimeout(Exception):
    """A query that was over its limit in time, or cancelled."""

    def __init__(self, *, cancelled: bool) -> None:
        super().__init__("cancelled" if cancelled else "too slow")
        self.cancelled = cancelled


class TooManyQueries(Exception):
    """More queries at once than are run."""


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A record of a split: its number there, its file, and its number in the file."""

    number: int
    file: RecordFile
    record: int


class SplitRecords:
    """The records of one split, by number, as far as its files are indexed."""

    def __init__(self, name: str, split: Split | None, paths: Sequence[str], subset: Ids | None = None) -> None:
        self.name = name
        self.split = split
        self.files = [RecordFile(path) for path in paths]
        self.subset = subset
        """The records that are shown, if not all: those of a view such as `split[10:20]`."""
        self.bytes = 0

    def __len__(self) -> int:
        """The number of records known so far, up to the first file that is not complete."""
        total = 0
        for file in self.files:
            total += len(file)
            if not file.is_complete:
                break
        return total

    @property
    def is_complete(self) -> bool:
        """Whether no further records will be found."""
        return all(file.is_complete for file in self.files)

    @property
    def is_healthy(self) -> bool:
        """Whether its records can be read by the dataset too: all indexed, and no damage known."""
        return self.split is not None and all(file.state == "ready" and not file.damage for file in self.files)

    @property
    def has_oversized(self) -> bool:
        """Whether a record is so large that only its head is shown."""
        return any(file.longest_bytes > MAX_RECORD_BYTES for file in self.files)

    @property
    def records_at_once(self) -> int:
        """How many records may be in memory together."""
        longest_bytes = max([file.longest_bytes for file in self.files], default=0)
        return max(1, _BYTES_AT_ONCE // max(longest_bytes, 1))

    @property
    def state(self) -> str:
        """The state of all its files in one word."""
        states = [file.state for file in self.files]
        if any(file.damage for file in self.files):
            return "damaged" if self.is_complete else "indexing"
        if states and all(state == "error" for state in states):
            return "error"
        for state in ("partial", "error"):
            if self.is_complete and state in states:
                return "partial"
        if self.is_complete:
            return "ready"
        return "indexing" if len(self) or "indexing" in states else "front"

    def locate(self, number: int) -> RecordPlace:
        """Where a record is; Pending if that is not known yet."""
        before = 0
        for file in self.files:
            count = len(file)
            if number < before + count:
                return RecordPlace(number, file, number - before)
            if not file.is_complete:
                raise Pending
            before += count
        raise error(
            "U606",
            f"record {number:,} does not exist",
            expected=f"a record from 0 to {before - 1:,}" if before else "a split with records",
            found=f"{before:,} records in split `{self.name[:60]}`",
        )

    def number_of(self, path: str, record: int) -> int | None:
        """The number in the split of a record of one of its files; None if that is not known."""
        before = 0
        for file in self.files:
            if os.path.normpath(file.path) == os.path.normpath(path):
                return before + record if record < len(file) else None
            if not file.is_complete:
                return None
            before += len(file)
        return None

    def iter_records(self, numbers: Sequence[int]) -> Iterator[tuple[int, RawRecord]]:
        """Some records, with the number of each; only a few of them are in memory together."""
        for first in range(0, len(numbers), self.records_at_once):
            yield from self.read(numbers[first : first + self.records_at_once])

    def wait_for(self, number: int, seconds: float = _FIRST_RECORD_SECONDS) -> None:
        """Wait until a record is indexed, or for some seconds."""
        end = time.monotonic() + seconds
        while number >= len(self) and not self.is_complete and (left := end - time.monotonic()) > 0:
            file = next((one for one in self.files if not one.is_complete), None)
            if file is not None:
                with file.changed:
                    file.changed.wait(min(left, _POLL_SECONDS))

    def read(self, numbers: Sequence[int]) -> list[tuple[int, RawRecord]]:
        """Some records, with the number of each."""
        if numbers:
            self.wait_for(max(numbers))
        places = [self.locate(number) for number in numbers]
        by_file: dict[int, list[RecordPlace]] = {}
        for place in places:
            by_file.setdefault(id(place.file), []).append(place)
        found: dict[int, RawRecord] = {}
        for some in by_file.values():
            raws = some[0].file.read([place.record for place in some])
            found |= {place.number: raw for place, raw in zip(some, raws, strict=True)}
        return [(number, found[number]) for number in numbers]

    def iter_payloads(self, most_records: int, most_bytes: int, is_stopped: Callable[[], bool]) -> Iterator[bytes]:
        """Intact payloads from the first record on, as they become known; waits for them."""
        done = taken_bytes = 0
        while done < most_records and taken_bytes < most_bytes and not is_stopped():
            known = min(len(self), most_records, done + _READ_AHEAD)
            if known <= done:
                if self.is_complete:
                    return
                time.sleep(0.005)
                continue
            for _, raw in self.iter_records(range(done, known)):
                if raw.state == "ok":
                    taken_bytes += raw.payload_bytes
                    yield raw.payload
                if taken_bytes >= most_bytes:
                    return
            done = known

    def status(self) -> dict[str, Any]:
        """Its progress, for the page."""
        failure = next((file.error for file in self.files if file.error is not None), None)
        known = len(self)
        return {
            "name": self.name,
            "records": known if self.subset is None else len(self.subset),
            "complete": self.is_complete,
            "state": self.state if known or self.is_complete else "front",
            "read_bytes": sum(file.read_bytes for file in self.files),
            "bytes": sum(file.size_bytes for file in self.files),
            "damaged": sum(len(file.damage) for file in self.files),
            "files": len(self.files),
            "files_ready": sum(file.is_complete for file in self.files),
            "note": next((file.note for file in self.files if file.note is not None), None),
            "error": None if failure is None else failure.to_dict(),
        }


class Side:
    """One of the two datasets of a session."""

    def __init__(self, number: int, given: Opened) -> None:
        self.number = number
        self.problem: RekordError | None = None
        self.dataset: Dataset | None
        self.path, self.dataset, subsets = self._open(given)
        is_path = isinstance(given, (str, os.PathLike))
        self.is_whole = is_path or (isinstance(given, (Dataset, Split)) and has_manifest(self.path))
        """Whether `path` names what is shown, and not a folder that has other files too."""
        self.remote = is_remote(self.path)
        self.name = get_base_name(self.path)
        if self.dataset is not None:
            found = {name: (split, split.paths) for name, split in self.dataset.splits.items()}
            splits: dict[str, tuple[Split | None, Sequence[str]]] = {**found}
        else:
            root = self.path if get_path_kind(self.path) == "folder" else None
            splits = {
                name: (None, paths) for name, paths in group_by_split(list_record_files(self.path), root).items()
            }
        self.splits = {
            name: SplitRecords(name, split, paths, subsets.get(name)) for name, (split, paths) in splits.items()
        }
        self._schema = self.dataset.schema if self.dataset is not None and self._is_declared else None
        self.schema_pending = self._schema is None
        self._schema_known = Event()
        self._columns: tuple[Schema, list[ColumnInfo]] | None = None
        self._columns_lock = Lock()
        self._stop = Event()
        self._digests: dict[str, str] | None = None
        self._digest_lock = Lock()
        if self._schema is not None:
            self._schema_known.set()
        self._threads = [Thread(target=self._index, name="rekord-view-index", daemon=True)]
        if self.schema_pending:
            self._threads.append(Thread(target=self._infer, name="rekord-view-schema", daemon=True))

    def _open(self, given: Opened) -> tuple[str, Dataset | None, dict[str, Ids]]:
        subsets: dict[str, Ids] = {}
        if isinstance(given, Split):
            given = Dataset([given], given.stored_schema)
        if isinstance(given, Dataset):
            splits = []
            for split in given.splits.values():
                whole = Split(split.name, split.view.whole(), split.stored_schema)
                if split.view.ids is not None and split.sampling is None:
                    subsets[split.name] = np.unique(expand_selection(split.view.ids))
                splits.append(whole)
            if not splits:
                raise invalid("path", given, "a dataset with splits", 'rk.view("data/flowers")')
            paths = [path for split in splits for path in split.paths]
            path = _find_common_path(paths)
            return path, Dataset(splits, splits[0].stored_schema), subsets
        if not isinstance(given, (str, os.PathLike)):
            if not isinstance(given, Sequence) or not given:
                raise invalid("path", given, "a path, several paths, a Dataset or a Split", 'rk.view("data/flowers")')
            paths = list_record_files(given)
            return os.path.dirname(paths[0]) or ".", open_dataset(paths, allow_missing=True), subsets
        path = os.fspath(given)
        try:
            return path, open_dataset(path), subsets
        except RekordError as failure:
            if isinstance(failure, UsageError):
                raise
            self.problem = failure
        # What is there is shown all the same: a missing shard, or a manifest that does not match.
        with suppress(RekordError):
            return path, open_dataset(path, allow_missing=True), subsets
        try:
            list_record_files(path)
        except RekordError:
            raise self.problem from None
        return path, None, subsets

    @property
    def _is_declared(self) -> bool:
        splits = () if self.dataset is None else self.dataset.splits.values()
        return any(split.stored_schema.declared for split in splits)

    @property
    def is_declared(self) -> bool:
        """Whether the schema was declared, not inferred."""
        return self.dataset is not None and self._is_declared

    @property
    def schema(self) -> Schema:
        """The schema; at first, that of the first records."""
        self._schema_known.wait(_FIRST_RECORD_SECONDS)
        return self._schema if self._schema is not None else Schema({})

    @property
    def columns(self) -> list[ColumnInfo]:
        """The columns; what bytes hold is inferred from the first record."""
        schema = self.schema
        with self._columns_lock:  # records may be long: one thread reads them for all
            known = self._columns
            if known is not None and known[0] is schema:
                return known[1]
            is_complete = all(file.is_complete for file in self.files)
            sample = self._read_sample(schema)
            found = list_columns(schema, sample)
            if sample is not None or is_complete:
                self._columns = schema, found
            return found

    def _read_sample(self, schema: Schema) -> Mapping[str, Any] | None:
        for split in self.splits.values():
            with suppress(RekordError, Pending):
                for payload in split.iter_payloads(_SAMPLED_RECORDS, _QUICK_BYTES, self._stop.is_set):
                    with suppress(RekordError):
                        return decode_row(payload, schema)
        return None

    @property
    def digests(self) -> dict[str, str]:
        """What identifies the files of each split, as they were when the viewer was started."""
        with self._digest_lock:
            if self._digests is None:
                splits = {} if self.dataset is None else self.dataset.splits
                self._digests = {name: split.digest() for name, split in splits.items()}
            return self._digests

    @property
    def files(self) -> list[RecordFile]:
        """The files of all splits."""
        return [file for split in self.splits.values() for file in split.files]

    @property
    def is_busy(self) -> bool:
        """Whether more will be known."""
        return self.schema_pending or not all(file.is_complete for file in self.files)

    def start(self) -> None:
        """Index in the background."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads."""
        self._stop.set()
        if self.dataset is not None:
            self.dataset.close()

    def get_split(self, name: str | None) -> SplitRecords:
        """A split by its name, or the only one."""
        if name is None and len(self.splits) == 1:
            return next(iter(self.splits.values()))
        found = self.splits.get(name or "")
        if found is None:
            raise error(
                "X506",
                f"dataset has no split `{(name or '')[:60]}`",
                expected="one of " + ", ".join(f"`{one[:60]}`" for one in list(self.splits)[:8]),
                found=f"`{(name or '')[:60]}`",
            )
        return found

    def find(self, path: str, record: int) -> tuple[str, int] | None:
        """The split of a record of a file, and its number there."""
        for split in self.splits.values():
            number = split.number_of(path, record)
            if number is not None:
                return split.name, number
        return None

    def status(self) -> dict[str, Any]:
        """Its progress, for the page."""
        return {
            "schema_pending": self.schema_pending,
            "splits": [split.status() for split in self.splits.values()],
        }

    def _index(self) -> None:
        with suppress(RekordError):
            _ = self.digests  # before the files can change
        for file in self.files:
            if self._stop.is_set():
                return
            file.scan(self._stop.is_set)

    def _infer(self) -> None:
        for most_records, most_bytes in (
            (_QUICK_RECORDS, _QUICK_BYTES),
            (_MAX_INFER_RECORDS, _MAX_INFER_BYTES),
        ):
            payloads = self._iter_front(most_records, most_bytes)
            try:
                schema = infer(payloads, limit=most_records)
            except Exception as failure:  # hostile bytes: whatever they are, they can be shown as bytes
                _log.info("no schema: %s", failure)
                schema = Schema({"payload": Payload()})
            if self._stop.is_set():
                return
            if not len(schema) and self._schema is not None:
                break
            self._schema = self._derive(_limit_columns(schema))
            self._schema_known.set()
        self.schema_pending = False

    def _derive(self, schema: Schema) -> Schema:
        try:
            return derive_columns(schema, self._read_sample(schema))
        except RekordError:
            return schema

    def _iter_front(self, most_records: int, most_bytes: int) -> Iterator[bytes]:
        for split in self.splits.values():
            with suppress(RekordError):
                for payload in split.iter_payloads(most_records, most_bytes, self._stop.is_set):
                    most_records, most_bytes = most_records - 1, most_bytes - len(payload)
                    yield payload
            if most_records <= 0 or most_bytes <= 0:
                return


def _limit_columns(schema: Schema) -> Schema:
    """The first columns of a schema; the others are listed as undeclared."""
    if len(schema) <= MAX_COLUMNS:
        return schema
    context = dict(list(schema.context.items())[:MAX_COLUMNS])
    if not schema.is_sequence:
        return Schema(context)
    return Schema(context=context, steps=dict(list(schema.steps.items())[: MAX_COLUMNS - len(context)]))


def _find_common_path(paths: Sequence[str]) -> str:
    """The path that stands for the files of a dataset: the folder of its manifest, its only file, or a folder."""
    if not paths or any(map(is_remote, paths)):
        return paths[0] if paths else ""
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    return paths[0] if len(paths) == 1 and not has_manifest(folder) else folder


class Session:
    """Everything that one viewer shows."""

    def __init__(self, given: Sequence[Opened], *, edit: bool = False, predictions: PathLike | None = None) -> None:
        self.sides = [Side(number, one) for number, one in enumerate(given)]
        self.edit = edit
        self.predictions_path = None if predictions is None else os.fspath(predictions)
        self.stamp = secrets.token_hex(4)
        """Changes with every session: addresses with it may be cached for ever."""
        self._lock = Lock()
        self._parts: dict[Any, Any] = {}

    def start(self) -> None:
        """Index in the background."""
        for side in self.sides:
            side.start()

    def close(self) -> None:
        """Stop all background threads."""
        for side in self.sides:
            side.close()
        for part in list(self._parts.values()):
            if hasattr(part, "close"):
                part.close()

    def get_side(self, number: int) -> Side:
        """One of the sides."""
        if not 0 <= number < len(self.sides):
            raise error(
                "U606",
                f"viewer has no side {number}",
                location=Location(),
                expected=f"a number from 0 to {len(self.sides) - 1}",
                found=str(number),
            )
        return self.sides[number]

    def part(self, key: Any, make: Callable[[], Any]) -> Any:
        """A component of the session, made when it is first needed."""
        with self._lock:
            if key not in self._parts:
                self._parts[key] = make()
            return self._parts[key]

    def find_part(self, key: Any) -> Any | None:
        """A component, if it was needed before."""
        return self._parts.get(key)
