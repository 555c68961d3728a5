"""The index file of a shard elsewhere: fetched once, and kept in the user's cache as long as it is the same there."""

from __future__ import annotations

from rekord.dataset.index import Expected, IndexFile, open_index_file
from rekord.dataset.index_cache import keep_content, kept
from rekord.errors import RekordError
from rekord.storage.anywhere import REMOTE

_MOST_BYTES = 1 << 30


def remote_index_file(url: str, expected: Expected) -> IndexFile | None:
    """An index file by its URL; None where there is none, or not the expected one.

    It is read from the user's cache, chunk by chunk; where nothing can be kept there it stays in memory.
    """
    try:
        there = REMOTE.stat(url)
    except RekordError as failure:
        # Where nobody may list files, one that is missing looks like one that is secret.
        if failure.code in ("X501", "X556"):
            return None
        raise
    if there.kind != "file" or not 0 < there.size_bytes <= _MOST_BYTES:
        return None
    name = f"{url}#{there.size_bytes}-{there.mtime_ns:x}"
    # Without a time nothing tells it from a later one of the same size.
    found = kept(name, expected) if there.mtime_ns else None
    if found is None:
        content = REMOTE.ranges([(url, 0, there.size_bytes)])[0]
        keep_content(name, content)
        found = kept(name, expected) or open_index_file(url, expected, content)
    return found
