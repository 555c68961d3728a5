"""Indexes of other people's files, kept in the user's cache: their own folders are left as they are.

An entry is known by the path of its file, and holds for one size and one time of change. Nothing here is an error:
a cache that cannot be read or written costs time, and no more.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from time import time

from rekord.dataset.index import Expected, IndexFile, Offsets, offsets_file, open_index_file
from rekord.records.compress import FlushPoint
from rekord.storage.remote import is_remote

CACHED_BYTES = 1 << 20
"""Shorter files are looked through faster than a cache is asked."""

MOST_BYTES = 1 << 30
MOST_ENTRIES = 20_000
_WRITES_BETWEEN_CLEANINGS = 64
_UNFINISHED = ".unfinished"
_UNFINISHED_SECONDS = 86_400
_writes = count()


def cache_folder() -> str | None:
    """Where indexes are kept: below REKORD_CACHE, or below XDG_CACHE_HOME, or below ~/.cache."""
    named = os.environ.get("REKORD_CACHE")
    if named:
        return os.path.join(named, "index")
    usual = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(usual):  # as its specification says
        usual = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(usual, "rekord", "index") if os.path.isabs(usual) else None


def cached(path: str, size_bytes: int, mtime_ns: int, expected: Expected) -> IndexFile | None:
    """The index of a file that is still as it was then."""
    found = kept(path, expected)
    if found is None or (found.facts.file_bytes, found.facts.mtime_ns) != (size_bytes, mtime_ns):
        return None
    return found


def kept(path: str, expected: Expected) -> IndexFile | None:
    """What is kept in the place of a path."""
    place = _entry(path)
    found = None if place is None else open_index_file(place, expected)
    if place is not None and found is not None:
        with suppress(OSError):
            os.utime(place)  # what is used stays longest
    return found


def keep(
    path: str,
    size_bytes: int,
    mtime_ns: int,
    offsets: Offsets,
    compression: str,
    flush_points: Sequence[FlushPoint] | None = None,
) -> None:
    """Keep an index for the next time, in place of an older one of the same file."""
    content = offsets_file(
        offsets,
        file_bytes=size_bytes,
        mtime_ns=mtime_ns,
        compression=compression,
        flush_points=flush_points,
    )
    keep_content(path, content)


def keep_content(path: str, content: bytes) -> None:
    """Keep the bytes of an index file, as they are, in the place of a path."""
    place = _entry(path)
    if place is None:
        return
    staged = f"{place}.{secrets.token_hex(4)}{_UNFINISHED}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with open(staged, "xb") as file:
            file.write(content)
        # In one step: others may be reading or writing the same entry. Half an entry after a power cut is no
        # harm, since its checksum tells.
        os.replace(staged, place)
    except OSError:
        with suppress(OSError):
            os.unlink(staged)
        return
    if next(_writes) % _WRITES_BETWEEN_CLEANINGS == 0:
        clean(os.path.dirname(place), spare=place)


def clean(folder: str, *, spare: str = "") -> None:
    """Remove what was used longest ago, where there is too much, and what nobody finished."""
    found: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_UNFINISHED):
                    if facts.st_mtime < time() - _UNFINISHED_SECONDS:
                        os.unlink(entry.path)
                elif entry.name.endswith(".arrow") and entry.path != spare:
                    found.append((facts.st_mtime, facts.st_size, entry.path))
    found.sort()
    entries_left, bytes_left = len(found), sum(size_bytes for _, size_bytes, _ in found)
    for _, size_bytes, path in found:
        if entries_left < MOST_ENTRIES and bytes_left <= MOST_BYTES:
            return
        with suppress(OSError):
            os.unlink(path)
        entries_left -= 1
        bytes_left -= size_bytes


def _entry(path: str) -> str | None:
    folder = cache_folder()
    if folder is None:
        return None
    whole = path if is_remote(path) else os.path.abspath(path)
    return os.path.join(folder, f"{hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]}.arrow")
