"""Copies of remote shards on the local disk: a folder per dataset, laid out like the dataset itself.

A copy is opened like any local file, with its manifest and its index. Its name has the digest of the
dataset and its bytes have the digest in the manifest, so it never has to be compared with the remote file again.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from rekord.dataset.index import index_path
from rekord.dataset.manifest import MANIFEST_NAME, ShardEntryToCache, read_manifest_bytes
from rekord.errors import RekordError
from rekord.storage.cache import DiskCache
from rekord.storage.local import read_up_to
from rekord.storage.router import REMOTE

_MAX_INDEX_BYTES = 1 << 30


def fetch_shard(cache: DiskCache, entry: ShardEntryToCache) -> str | None:
    """The path of the copy of a shard that a manifest lists; None if it cannot be stored."""
    folder = f"datasets/{entry.dataset_digest[:32]}"
    name = f"{folder}/{entry.name}"
    if not os.path.exists(cache.path(f"{folder}/{MANIFEST_NAME}")):
        content = read_manifest_bytes(entry.folder, entry.dataset_digest)
        if cache.store(f"{folder}/{MANIFEST_NAME}", content) is None:
            return None
    path = cache.fetch(name, entry.url, size_bytes=entry.size_bytes, digest=entry.digest)
    if path is not None and not os.path.exists(index_path(path)):
        _copy_index(cache, os.path.relpath(index_path(path), cache.folder).replace(os.sep, "/"), entry.url)
    return path


def find_copy(cache: DiskCache, entry: ShardEntryToCache) -> str | None:
    """The path of the copy of a shard, if there is one."""
    path = cache.path(f"datasets/{entry.dataset_digest[:32]}/{entry.name}")
    with suppress(OSError):
        if os.stat(path).st_size == entry.size_bytes:
            return path
    return None


def fetch_file(cache: DiskCache, url: str) -> str | None:
    """The path of the copy of a shard without a manifest, as it is now."""
    facts = REMOTE.stat(url)
    key = hashlib.sha256(f"{url}\0{facts.size_bytes}\0{facts.mtime_ns}".encode()).hexdigest()[:32]
    if not facts.mtime_ns:
        return None  # another file of the same size could not be told apart
    name = f"files/{key}/{os.path.basename(url)[-100:]}"
    return cache.fetch(name, url, size_bytes=facts.size_bytes, version=facts.mtime_ns)


def _copy_index(cache: DiskCache, name: str, url: str) -> None:
    """Copy the index of a shard, if it has one: what is wrong with it is found when it is used."""
    try:
        with REMOTE.open_read(index_path(url)) as file:
            if not 0 < file.size_bytes <= _MAX_INDEX_BYTES:
                return
            content = read_up_to(file, file.size_bytes)
    except RekordError as failure:
        # Without permission to list files, a missing one looks like a forbidden one.
        if failure.code in ("X501", "X556"):
            return
        raise
    cache.store(name, content)
