"""A lease: the lock of a target in object storage, where nothing is released when its holder dies.

The lease is an object that only one writer can create. Its holder renews it by conditional writes. Another writer
that sees it unchanged for `LEASE_SECONDS` may replace it; the old holder notices at its next renewal, at the latest
right before it publishes. Each machine measures durations by its own monotonic clock: clocks need not agree.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.log import get_logger
from rekord.storage.local import Storage
from rekord.storage.object_errors import ConflictError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rekord.storage.objects import ListedObject

_log = get_logger(__name__)

LEASE_SECONDS = 90.0
"""A lease that does not change for this long is stale. Longer than the client retries a request."""

RENEW_SECONDS = 15.0
"""How often a holder renews its lease."""

_POLL_SECONDS = 1.0
_MOST_BYTES = 1 << 16


class ConditionalStorage(Storage, Protocol):
    """A storage with conditional writes; a refused one is a `ConflictError`."""

    def read(self, path: str, *, most_bytes: int) -> tuple[bytes, str]:
        """A small object and its ETag."""

    def put(self, path: str, data: Buffer, *, create_only: bool = True) -> str:
        """Write an object, unless it exists; returns its ETag."""

    def replace_if(self, path: str, data: Buffer, etag: str) -> str:
        """Replace the object that has this ETag; returns the new one."""

    def list_recursive(self, folder: str) -> Iterator[ListedObject]:
        """All objects below a prefix."""

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects, many in a request."""


class _Holder(msgspec.Struct, frozen=True):
    """The content of a lease."""

    token: str
    process: int
    host: str
    renewals: int  # so that every renewal changes the content


class Lease:
    """A lease that this process holds."""

    def __init__(self, storage: ConditionalStorage, path: str, target: str) -> None:
        self.path = path
        self._target = target  # what errors name
        self.token = secrets.token_hex(16)
        self._storage = storage
        self._etag = ""
        self._renewals = 0
        self._is_lost = False
        self._mutex = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease; X512 if somebody else holds it."""
        while True:
            with suppress(ConflictError):
                self._etag = self._storage.put(self.path, self._content(), create_only=True)
                break
            found = _read_lease(self._storage, self.path)
            if found is not None and self._take_over(*found):
                break
        self._thread = threading.Thread(target=self._keep, name="rekord-lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Renew the lease now; X512 if somebody else took it over."""
        with self._mutex:
            self._renewals += 1
            try:
                if self._is_lost:
                    raise _taken_over_error(self._target)
                self._etag = self._storage.replace_if(self.path, self._content(), self._etag)
            except ConflictError:
                self._is_lost = True
                raise _taken_over_error(self._target) from None

    def release(self) -> None:
        """Remove the lease, if it is still this one: the next writer need not wait."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(RekordError):
            self.renew()
            self._storage.remove(self.path)

    def _keep(self) -> None:
        while not self._closed.wait(RENEW_SECONDS) and not self._is_lost:
            # Failed requests are repeated next time; a lost lease is reported by the next call of `renew`.
            with suppress(RekordError):
                self.renew()

    def _take_over(self, held: _Holder | None, etag: str) -> bool:
        """Replace the lease of another writer once it is stale; False if it was released. X512 if it is renewed."""
        _log.info("waiting up to %.0f s for the lease of %s to expire", LEASE_SECONDS, _describe(held))
        end = time.monotonic() + LEASE_SECONDS
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            now = _read_lease(self._storage, self.path)
            if now is None:
                return False
            if now[1] != etag:
                raise _held_error(self._target, now[0])
        try:
            self._etag = self._storage.replace_if(self.path, self._content(), etag)
        except ConflictError:
            raise _held_error(self._target, held) from None
        return True

    def _content(self) -> bytes:
        return msgspec.json.encode(_Holder(self.token, os.getpid(), socket.gethostname()[:100], self._renewals))


@contextmanager
def hold_lease(storage: ConditionalStorage, path: str, target: str) -> Iterator[Lease]:
    """Hold the lease of a target in a `with` block."""
    lease = Lease(storage, path, target)
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()


def check_lease(storage: ConditionalStorage, path: str, token: str, target: str) -> None:
    """X512 unless the writer with this token still holds the lease: for tasks in other processes."""
    found = _read_lease(storage, path)
    if found is None or found[0] is None or found[0].token != token:
        raise _taken_over_error(target)


def _read_lease(storage: ConditionalStorage, path: str) -> tuple[_Holder | None, str] | None:
    """The holder of a lease and its ETag; None if there is no lease."""
    try:
        data, etag = storage.read(path, most_bytes=_MOST_BYTES)
    except DatasetError as failure:
        if failure.code != "X501":
            raise
        return None
    try:
        return msgspec.json.decode(data, type=_Holder), etag
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None, etag


def _held_error(path: str, holder: _Holder | None) -> RekordError:
    return error(
        "X512",
        location=Location(path=path),
        expected="one writer at a time",
        found=f"{_describe(holder)} is writing to it",
        do="wait until it ends, or write to another path",
    )


def _taken_over_error(path: str) -> RekordError:
    return error(
        "X512",
        "another process took over",
        location=Location(path=path),
        expected=f"a lease that was renewed within {LEASE_SECONDS:g} seconds",
        found="another process that writes here since then; this one published nothing",
        do="wait until the other process ends",
    )


def _describe(holder: _Holder | None) -> str:
    if holder is None:
        return "another process"
    host = "".join(one for one in holder.host if one.isalnum() or one in "-._")[:60]
    return f"process {holder.process} on {host}"
