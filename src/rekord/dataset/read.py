"""`rk.records`: the payloads of record files, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rekord import _core
from rekord.errors import RekordError
from rekord.records.compression import begins_with_a_record
from rekord.records.frame import EVIDENCE_BYTES, FrameReader
from rekord.records.slabs import SlabReader
from rekord.storage.anywhere import ANYWHERE
from rekord.storage.files import PathLike, Storage
from rekord.storage.find import Found, begin_with_records, find


def records(path: PathLike | Iterable[PathLike]) -> Iterator[bytes]:
    """The payloads of a record file, or of all record files that a folder or glob holds, in name order.

    Both checksums of every record are verified; compression is recognised by content. Raises a FormatError
    with file, record and offset at the first record that is not intact, after everything before it.
    """
    return _payloads(record_files(path))


def record_files(path: PathLike | Iterable[PathLike]) -> list[str]:
    """The record files that a file, folder or glob stands for, or several of them."""
    return find_record_files(path).paths


def find_record_files(path: PathLike | Iterable[PathLike]) -> Found:
    """The same, with the files that were skipped because their names say nothing."""
    return find(path, begins_with_a_record, storage=ANYWHERE)


def skipped_records(found: Found) -> list[str]:
    """The files that were skipped because of their names, and begin with a record."""
    return begin_with_records(found.skipped, begins_with_a_record, storage=ANYWHERE)


def open_frames(path: str, storage: Storage = ANYWHERE) -> FrameReader:
    """A reader over the frames of one file."""
    sized = storage.stat(path).kind == "file"
    return FrameReader(storage.open_read(path), path=path, sized=sized)


def open_slabs(path: str, pool: _core.Pool, *, reuse: bool, storage: Storage = ANYWHERE) -> SlabReader:
    """A reader over the frames of one file, for decoding."""
    sized = storage.stat(path).kind == "file"
    return SlabReader(storage.open_read(path), path=path, sized=sized, pool=pool, reuse=reuse)


def explain(failure: RekordError) -> RekordError:
    """A failure of a frame, met while decoding, with what a look around in its file adds."""
    where = failure.location
    if where.path is None or failure.code[0] != "F":
        return failure
    with open_frames(where.path) as reader:
        if not reader.start_at(offset=where.offset or 0, record=where.record or 0):
            return failure
        try:
            next(reader.stretches(), None)
        except RekordError as again:
            if again.code == failure.code:
                return reader.recover(again, within=EVIDENCE_BYTES)[0]
    return failure


def _payloads(paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        with open_frames(path) as reader:
            try:
                for stretch in reader.stretches():
                    yield from stretch.payloads()
            except RekordError as failure:
                raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None
