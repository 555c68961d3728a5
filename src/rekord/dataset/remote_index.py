"""The index file of a shard elsewhere: fetched once, and kept in the user's cache as long as it is the same there."""

from __future__ import annotations

from rekord.dataset.index import IndexFile, read_index_file
from rekord.dataset.index_cache import keep_content, kept
from rekord.errors import RekordError
from rekord.storage.anywhere import REMOTE

_MOST_BYTES = 1 << 30


def remote_index_file(url: str) -> IndexFile | None:
    """An index file by its URL; None where there is none, or one that is damaged."""
    try:
        there = REMOTE.stat(url)
    except RekordError as failure:
        # Where nobody may list files, one that is missing looks like one that is secret.
        if failure.code in ("X501", "X556"):
            return None
        raise
    if there.kind != "file" or not 0 < there.size_bytes <= _MOST_BYTES:
        return None
    if not there.mtime_ns:  # nothing would tell it from a later one of the same size
        return read_index_file(url)
    name = f"{url}#{there.size_bytes}-{there.mtime_ns:x}"
    found = kept(name)
    if found is None:
        keep_content(name, REMOTE.ranges([(url, 0, there.size_bytes)])[0])
        found = kept(name)
    return read_index_file(url) if found is None else found  # where nothing can be kept
