"""Files in object storage: `s3://`, `gs://` and `az://`, through obstore.

An object appears when its upload is complete, and never changes: writing again replaces it as a whole. There are no
folders, only keys with slashes, and no rename. What takes the place of a lock is a conditional write: `put` of an
object that does not exist yet, and `replace_if` of one that nobody else changed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.local import DirectoryEntry, Readable, Stat
from rekord.storage.object_clients import ObjectAddress, ObjectClient, get_client, parse_address
from rekord.storage.object_errors import (
    ConflictError,
    conflict_error,
    is_bad_range,
    is_conflict,
    is_missing,
    is_refusal_without_reason,
    is_undecided,
    replaced_object_error,
    translate_object_errors,
    translate_object_failure,
)
from rekord.storage.portability import return_large_buffers
from rekord.storage.read_ahead import FIRST_BYTES, ReadAhead
from rekord.storage.traffic import count_traffic

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

MAX_CONCURRENT_REQUESTS = 32
"""Most concurrent requests of one call."""

MAX_GAP_BYTES = 64 << 10
"""Ranges at most this far apart are fetched in one request: another request would cost as much."""

MAX_MERGED_BYTES = 4 << 20
"""The longest request that ranges are merged into; longer ones are faster side by side."""

PART_BYTES = 8 << 20
"""Bytes per part of an upload; a smaller object is written in one request."""

CONCURRENT_PARTS = 4
"""Parts of one upload that are sent at once: with `PART_BYTES`, the memory that an open file takes."""

MAX_COPY_BYTES = 5 << 30
"""The largest object that a server copies in one request."""

_NONCE = "rekordnonce"
"""The metadata by which a writer recognises its own object. Azure allows letters only."""

_CONFLICT_RETRIES = 5
_LIST_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One object of a recursive listing."""

    path: str
    size_bytes: int
    etag: str | None
    mtime_ns: int


class ObjectStorage:
    """Object storage as a `Storage`, and what only object storage can do. Has no state; clients are shared."""

    # Reading.

    def open_read(self, path: str) -> Readable:
        _, client = _resolve(path)
        try:
            head = _get(client, 0, FIRST_BYTES)
        except RekordError as failure:
            if failure.code == "X501" and _has_children(client):
                raise _folder_error(path) from None
            raise
        fetch = partial(_fetch_version, client, head.etag)
        return _ObjectReadable(path, head, fetch)

    def head(self, path: str, most_bytes: int) -> bytes:
        """The first bytes of an object, or all of a shorter one, in one request."""
        _, client = _resolve(path)
        return _get(client, 0, most_bytes).read()

    def read(self, path: str, *, most_bytes: int) -> tuple[bytes, str]:
        """All of a small object, and its ETag; for what is replaced by `replace_if`."""
        _, client = _resolve(path)
        head = _get(client, 0, most_bytes + 1)
        if head.size_bytes > most_bytes:
            raise error(
                "X503",
                location=Location(path=path),
                expected=f"an object of at most {most_bytes:,} bytes",
                found=f"{head.size_bytes:,} bytes",
                do="check the URL",
            )
        return head.read(), head.etag

    def ranges(
        self, wanted: Sequence[tuple[str, int, int]], *, versions: Mapping[str, int] | None = None
    ) -> list[bytes]:
        """The bytes from begin to end of each object, fetched concurrently.

        All ranges of an object are of one version of it, X548 otherwise: of that whose `Stat.mtime_ns` is in
        `versions`, or of any.
        """
        guards: dict[str, _VersionGuard] = {}
        for path, _, _ in wanted:
            if path not in guards:
                guards[path] = _VersionGuard(_resolve(path)[1], (versions or {}).get(path))
        spans = _merge_ranges(wanted)
        if len(spans) == 1:
            fetched = [guards[spans[0].path].fetch(spans[0].begin, spans[0].end)]
        else:
            fetched = _fetch_spans(spans, guards)
        out = [b""] * len(wanted)
        for span, data in zip(spans, fetched, strict=True):
            for number in span.members:
                _, begin, end = wanted[number]
                out[number] = data[begin - span.begin : end - span.begin]  # of all of it, this is no copy
        return out

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        address, client = _resolve(folder)
        with translate_object_errors(address):
            found = client.obstore.list_with_delimiter(client.store, address.key or None)
        count_traffic(lists=1 + (len(found["objects"]) + len(found["common_prefixes"])) // _LIST_CHUNK)
        entries = [
            DirectoryEntry(name=_name(prefix), kind="folder", link=False) for prefix in found["common_prefixes"]
        ]
        for meta in found["objects"]:
            if (
                meta["path"] != address.key
            ):  # an empty object `folder/`, as consoles make one, arrives without the slash
                entries.append(
                    DirectoryEntry(name=_name(meta["path"]), kind="file", link=False, size_bytes=meta["size"])
                )
        if not found["objects"] and not entries and address.key:
            raise error("X501", location=Location(path=folder), found="no such object or prefix", do=_CHECK_URL)
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def list_recursive(self, folder: str) -> Iterator[ListedObject]:
        """All objects below a prefix, in the order of the service (for S3, of their UTF-8), in one paged listing.

        Nothing below it is an empty listing. Markers of folders (empty objects `name/`) are left out, if there is
        an object below them.
        """
        address, client = _resolve(folder)
        # A marker is reported as an empty object `name`; the objects below it follow at once, or later where
        # a character below the slash sorts between them.
        held: dict[str, ListedObject] = {}
        for meta in _list_pages(client):
            key = str(meta["path"])
            for marker in [one for one in held if key.startswith(f"{one}/") or not key.startswith(one)]:
                listed = held.pop(marker)
                if not key.startswith(f"{marker}/"):
                    yield listed
            if key == address.key:
                continue
            listed = ListedObject(
                path=client.url(key),
                size_bytes=int(meta["size"]),
                etag=_etag(meta),
                mtime_ns=version_number(_etag(meta)),
            )
            if listed.size_bytes:
                yield listed
            else:
                held[key] = listed
        yield from held.values()

    def stat(self, path: str) -> Stat:
        address, client = _resolve(path)
        meta = _head(client) if address.key and not path.endswith("/") else None
        if meta is None:
            if not _has_children(client) and address.key:
                raise error("X501", location=Location(path=path), found="no such object", do=_CHECK_URL)
            return Stat(kind="folder", size_bytes=0, mtime_ns=0, identity=_path_identity(path))
        return Stat(
            kind="file",
            size_bytes=int(meta["size"]),
            mtime_ns=version_number(_etag(meta)),
            identity=_path_identity(path),
            etag=_etag(meta),
        )

    def real(self, path: str) -> str:
        return path

    # Writing.

    def create(self, path: str) -> ObjectWriter:
        """An object that appears when it is closed, and not at all after `abort`. An existing one is replaced."""
        return ObjectWriter(_resolve(path)[1])

    def put(self, path: str, data: Buffer, *, create_only: bool = True) -> str:
        """Write an object in one request; returns its ETag.

        With `create_only`, a `ConflictError` if it exists. One that this call itself has written, and of which the
        answer was lost, is no conflict.
        """
        return _put(_resolve(path)[1], data, "create" if create_only else "overwrite")

    def replace_if(self, path: str, data: Buffer, etag: str) -> str:
        """Replace the object that has this ETag; returns the new one.

        `ConflictError` if it has another, or is gone.
        """
        _, client = _resolve(path)
        update = {"e_tag": etag}
        if client.address.provider == "gs":
            # There, a write names the generation instead.
            meta = _head(client)
            if meta is None or _etag(meta) != etag:
                raise conflict_error(path, "no object" if meta is None else f"ETag {_etag(meta)}")
            update["version"] = meta["version"]
        return _put(client, data, update)

    def copy(self, source: str, target: str) -> bool:
        """Let the server copy an object, without a transfer; False if it cannot.

        It cannot copy between buckets with different clients, nor objects above 5 GiB in S3: obstore copies in one
        request, and S3 limits that.
        """
        (source_address, client), (target_address, other) = _resolve(source), _resolve(target)
        if other.store is not client.store:
            return False
        if source_address.provider == "s3":
            meta = _head(client)
            if meta is not None and meta["size"] > MAX_COPY_BYTES:
                return False
        count_traffic(writes=1)
        with translate_object_errors(source_address, is_write=True):
            client.obstore.copy(client.store, source_address.key, target_address.key)
        return True

    def remove(self, path: str) -> None:
        """Remove an object; one that does not exist is no error."""
        self.remove_many([path])

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects, up to 1,000 in a request where the service has one for that."""
        groups: dict[int, list[ObjectClient]] = defaultdict(list)
        for path in paths:
            client = _resolve(path)[1]
            groups[id(client.store)].append(client)
        for clients in groups.values():
            first = clients[0]
            count_traffic(deletes=len(clients) if first.address.provider == "gs" else -(-len(clients) // 1000))
            with translate_object_errors(first.address, is_write=True):
                try:
                    first.obstore.delete(first.store, [client.address.key for client in clients])
                except FileNotFoundError as failure:
                    if not is_missing(failure):
                        raise
                    # S3 ignores missing objects, the others stop at the first one.
                    for client in clients:
                        _remove_one(client)

    # What object storage does not have.

    def make_folder(self, path: str) -> None:
        """Nothing: a folder exists as soon as an object does."""

    def remove_folder(self, path: str) -> None:
        """Nothing: a folder is gone with its last object."""

    def sync_folder(self, path: str) -> None:
        """Nothing: what was answered is durable."""

    def link(self, source: str, target: str) -> bool:
        """A copy by the server: as quick, and as good, since objects never change."""
        return self.copy(source, target)

    def exchange(self, one: str, other: str) -> bool:
        return False

    def rename(self, source: str, target: str) -> None:
        _refuse(target, "a rename")

    def lock(self, path: str) -> AbstractContextManager[None]:
        _refuse(path, "a lock")


_CHECK_URL = "check the URL: upper and lower case differ"


def _refuse(path: str, what: str) -> NoReturn:
    raise error(
        "X504",
        location=Location(path=path),
        expected="a file system",
        found=f"object storage, which does not have {what}",
        do="write to a local folder, then copy it",
    )


def _folder_error(path: str) -> RekordError:
    return error("X503", location=Location(path=path), found="a folder", do="use a file in this folder")


def _etag(meta: Any) -> str | None:
    """The ETag of an object in one form: Azure quotes it in all answers but listings."""
    etag = meta["e_tag"]
    return f'"{etag}"' if etag and not etag.endswith('"') else etag


def version_number(etag: str | None) -> int:
    """A number that changes with an object: `Stat.mtime_ns` of objects."""
    return int.from_bytes(hashlib.blake2b(etag.encode(), digest_size=7).digest(), "big") if etag else 0


def _path_identity(path: str) -> tuple[int, int]:
    digest = hashlib.blake2b(path.encode(errors="replace"), digest_size=14).digest()
    return int.from_bytes(digest[:7], "big"), int.from_bytes(digest[7:], "big")


def _name(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


def _resolve(path: str) -> tuple[ObjectAddress, ObjectClient]:
    address = parse_address(path)
    with translate_object_errors(address):
        shared = get_client(address)
    return address, ObjectClient(shared.obstore, shared.store, address)


# Requests.


class _Head:
    """The answer to a range request: size and version of the object, and the range itself, if it is read."""

    def __init__(self, client: ObjectClient, result: Any) -> None:
        self._client = client
        self._result = result
        self.size_bytes = 0 if result is None else int(result.meta["size"])
        self.etag: str = "" if result is None else _etag(result.meta) or ""

    def read(self) -> bytes:
        """The bytes of the range; once."""
        if self._result is None:
            return b""
        with translate_object_errors(self._client.address):
            data = bytes(self._result.bytes())
        self._result = None
        count_traffic(read_bytes=len(data))
        return data


def _get(client: ObjectClient, begin: int, end: int, *, etag: str | None = None) -> _Head:
    """Request a range of an object. Of an empty object there is none, which is reported like other bad ranges."""
    if not client.address.key:
        raise _folder_error(client.address.path)
    options: dict[str, Any] = {"range": (begin, end)}
    if etag:
        options["if_match"] = etag
    count_traffic(reads=1)
    try:
        return _Head(client, client.obstore.get(client.store, client.address.key, options=options))
    except Exception as failure:
        if begin == 0 and is_bad_range(failure):
            meta = _head(client)
            if meta is not None and meta["size"] == 0:
                return _Head(client, None)
        raise translate_object_failure(client.address, failure) from None


def _head(client: ObjectClient) -> Any:
    """The metadata of an object; None if it does not exist."""
    count_traffic(reads=1)
    try:
        return client.obstore.head(client.store, client.address.key)
    except Exception as failure:
        if is_missing(failure):
            return None
        raise translate_object_failure(client.address, _find_reason(client, failure)) from None


def _find_reason(client: ObjectClient, failure: Exception) -> Exception:
    """The failure of a request whose answer has a body, for one without."""
    if is_refusal_without_reason(failure):
        count_traffic(reads=1)
        try:
            client.obstore.get(client.store, client.address.key, options={"range": (0, 1)})
        except Exception as explained:
            return explained
    return failure


def _fetch_version(client: ObjectClient, etag: str, begin: int, end: int) -> bytes:
    """A range of the object with this ETag."""
    head = _get(client, begin, end, etag=etag)
    if head.etag != etag:  # not every server refuses the request then
        raise replaced_object_error(client.address.path)
    return _require_complete(client, head, begin, end)


def _require_complete(client: ObjectClient, head: _Head, begin: int, end: int) -> bytes:
    data = head.read()
    if len(data) != end - begin:
        raise error(
            "X557",
            location=Location(path=client.address.path),
            expected=f"{end - begin:,} bytes from byte {begin:,} on",
            found=f"{len(data):,} bytes",
            do="open the dataset again: the file changed",
        )
    return data


@dataclass(slots=True)
class _Span:
    """Near ranges of one object, which are fetched in one request."""

    path: str
    begin: int
    end: int
    members: list[int]


def _merge_ranges(wanted: Sequence[tuple[str, int, int]]) -> list[_Span]:
    """The requests for some ranges. Empty ranges need none."""
    spans: list[_Span] = []
    for number in sorted(range(len(wanted)), key=wanted.__getitem__):
        path, begin, end = wanted[number]
        last = spans[-1] if spans else None
        if begin >= end:
            continue
        if (
            last is not None
            and last.path == path
            and begin - last.end <= MAX_GAP_BYTES
            and max(end, last.end) - last.begin <= MAX_MERGED_BYTES
        ):
            last.end = max(end, last.end)
            last.members.append(number)
        else:
            spans.append(_Span(path, begin, end, [number]))
    return spans


def _fetch_spans(spans: Sequence[_Span], guards: Mapping[str, _VersionGuard]) -> list[bytes]:
    with ThreadPoolExecutor(min(len(spans), MAX_CONCURRENT_REQUESTS), thread_name_prefix="rekord-fetch") as pool:
        tasks = [pool.submit(guards[span.path].fetch, span.begin, span.end) for span in spans]
        try:
            return [task.result() for task in tasks]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _VersionGuard:
    """Ranges of one object, all of one version."""

    def __init__(self, client: ObjectClient, version: int | None) -> None:
        self._client = client
        self._version = version or None  # 0: a service that reports none

    def fetch(self, begin: int, end: int) -> bytes:
        head = _get(self._client, begin, end)
        version = version_number(head.etag)
        # Two threads may be first; the second of them compares with what the other has set.
        if self._version is None:
            self._version = version
        if version != self._version and version:
            raise replaced_object_error(self._client.address.path)
        return _require_complete(self._client, head, begin, end)


class _ObjectReadable(ReadAhead):
    """An object open for reading, whose first bytes are already on their way."""

    def __init__(self, path: str, head: _Head, fetch: Any) -> None:
        super().__init__(path, head.size_bytes, fetch)
        self.version = version_number(head.etag)
        self._head: _Head | None = head

    def _fetch_first(self, begin: int, end: int) -> bytes:
        head, self._head = self._head, None
        if head is not None and begin == 0:
            return head.read()
        return super()._fetch_first(begin, end)


def _has_children(client: ObjectClient) -> bool:
    """Whether there are objects below a prefix."""
    count_traffic(lists=1)
    with translate_object_errors(client.address):
        pages = client.obstore.list(client.store, client.address.key or None, chunk_size=1)
        return next(iter(pages), None) is not None


def _list_pages(client: ObjectClient) -> Iterator[Any]:
    pages = iter(client.obstore.list(client.store, client.address.key or None, chunk_size=_LIST_CHUNK))
    count_traffic(lists=1)
    for number in itertools.count():
        with translate_object_errors(client.address):
            page = next(pages, None)
        if page is None:
            return
        count_traffic(lists=1 if number else 0)
        yield from page


# Writing.


def _put(client: ObjectClient, data: Buffer, mode: Any) -> str:
    """Write an object in one request. Writing it twice is harmless, since a nonce tells whose object is there."""
    nonce = secrets.token_hex(16)
    path = client.address.path
    for attempt in range(_CONFLICT_RETRIES):
        count_traffic(writes=1, written_bytes=memoryview(data).nbytes)
        try:
            result = client.obstore.put(
                client.store,
                client.address.key,
                data,
                mode=mode,
                attributes={_NONCE: nonce},
                use_multipart=False,
            )
            return _etag(result) or ""
        except Exception as failure:
            # The answer may have been lost: then a retry, of the client or of a proxy, meets its own object.
            written = _find_own(client, nonce)
            if written is not None:
                return written
            if mode == "overwrite" or not (is_conflict(failure) or isinstance(failure, FileNotFoundError)):
                raise translate_object_failure(client.address, failure, is_write=True) from None
            if not is_undecided(failure) or attempt == _CONFLICT_RETRIES - 1:
                translated = translate_object_failure(client.address, failure, is_write=True)
                if translated.code == "X568":
                    raise translated from None
                raise conflict_error(path, "an object that another writer wrote") from None
        time.sleep(0.1 * 2**attempt)
    raise AssertionError("unreachable")


def _find_own(client: ObjectClient, nonce: str) -> str | None:
    """The ETag of an object, if it was written with this nonce."""
    count_traffic(reads=1)
    try:
        result = client.obstore.get(client.store, client.address.key, options={"head": True})
    except Exception:
        return None
    return _etag(result.meta) or "" if result.attributes.get(_NONCE) == nonce else None


def _remove_one(client: ObjectClient) -> None:
    try:
        client.obstore.delete(client.store, client.address.key)
    except FileNotFoundError as failure:
        if not is_missing(failure):
            raise


class ObjectWriter:
    """An object being written: in parts, several at once, of which a bounded number is in memory.

    `close` completes the upload, which makes the object appear, and `abort` discards it. A `with` block does the one
    or the other. After an error in `write`, `close` discards too.
    """

    def __init__(self, client: ObjectClient) -> None:
        self.path = client.address.path
        self._client = client
        self._nonce = secrets.token_hex(16)
        self._bytes = 0
        self._failed = False
        return_large_buffers(PART_BYTES)
        with translate_object_errors(client.address, is_write=True):
            self._file: Any = client.obstore.open_writer(
                client.store,
                client.address.key,
                attributes={_NONCE: self._nonce},
                buffer_size=PART_BYTES,
                max_concurrency=CONCURRENT_PARTS,
            )

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        try:
            with translate_object_errors(self._client.address, is_write=True):
                for begin in range(0, len(view), PART_BYTES):
                    self._file.write(view[begin : begin + PART_BYTES])
        except BaseException:
            self._failed = True
            raise
        self._bytes += len(view)
        return len(view)

    def fsync(self) -> None:
        """Nothing: an object is durable once `close` returns, and does not exist before."""

    def close(self) -> None:
        if self._failed:
            self.abort()
        file, self._file = self._file, None
        if file is None:
            return
        parts = -(-self._bytes // PART_BYTES)
        count_traffic(writes=1 if parts <= 1 else parts + 2, written_bytes=self._bytes)
        try:
            file.close()
        except Exception as failure:
            # The answer to the last request may have been lost.
            if _find_own(self._client, self._nonce) is None:
                raise translate_object_failure(self._client.address, failure, is_write=True) from None

    def abort(self) -> None:
        """Discard what was written; the object does not appear."""
        file, self._file = self._file, None
        if file is not None:
            failure = RuntimeError("aborted")
            try:
                file.__exit__(RuntimeError, failure, None)
            except Exception:
                # The upload stays unfinished; a rule of the bucket removes such after some days.
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


OBJECTS: Final = ObjectStorage()

__all__ = ["OBJECTS", "ConflictError", "ListedObject", "ObjectStorage", "ObjectWriter", "version_number"]
