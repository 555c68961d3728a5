"""`rk.records`: the payloads of record files, one after another."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rekord.errors import RekordError
from rekord.records.compression import begins_with_a_record, read_head
from rekord.records.frame import EVIDENCE_BYTES, FrameReader
from rekord.storage.files import LOCAL, Storage
from rekord.storage.find import find


def records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The payloads of a record file, or of all record files that a folder or glob holds, in name order.

    Both checksums of every record are verified; compression is recognised by content. Raises a FormatError
    with file, record and offset at the first record that is not intact, after everything before it.
    """
    return _payloads(record_files(path))


def record_files(path: str | os.PathLike[str]) -> list[str]:
    """The record files that a file, folder or glob stands for."""
    return find(path, looks_like_records=_looks_like_records)


def open_frames(path: str, storage: Storage = LOCAL) -> FrameReader:
    """A reader over the frames of one file."""
    sized = storage.stat(path).kind == "file"
    return FrameReader(storage.open_read(path), path=path, sized=sized)


def _payloads(paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        with open_frames(path) as reader:
            try:
                for stretch in reader.stretches():
                    yield from stretch.payloads()
            except RekordError as failure:
                raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None


def _looks_like_records(path: str) -> bool:
    try:
        with LOCAL.open_read(path) as file:
            return begins_with_a_record(read_head(file))
    except RekordError:
        return False
