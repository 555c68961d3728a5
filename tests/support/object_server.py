"""A small S3 server on loopback that holds load, counts what it is asked, and fails by rule.

It keeps objects in memory and knows what a client of one bucket needs: ranges, conditional reads and writes,
multipart uploads, listings with continuation, deletion of one and of many, and copies by the server. The XML API of
Google Cloud Storage differs in the names of headers and in its conditions, which name a generation. Signatures are
not verified: other servers judge the protocol. Faults are what no real server does on request:

    with ObjectServer() as server, server.environment():
        server.inject(Fault("503", share=0.1))
        rk.open(f"{server.bucket}/data")

Run as a program, it serves until its standard input closes, and prints its address:

    python tests/support/object_server.py
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import email.utils
import fnmatch
import hashlib
import os
import random
import sys
import threading
import urllib.parse
import uuid
import xml.etree.ElementTree as ElementTree
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self
from xml.sax.saxutils import escape

from aiohttp import web

BUCKET = "rekord-test"

_PIECE_BYTES = 1 << 18
_BRANDS = ("x-amz", "x-goog")

Operation = Literal[
    "get",
    "head",
    "put",
    "delete",
    "list",
    "delete_many",
    "copy",
    "create_upload",
    "put_part",
    "copy_part",
    "complete_upload",
    "abort_upload",
    "list_uploads",
    "list_parts",
    "head_bucket",
    "unknown",
]

_ERRORS: Final[dict[str, tuple[int, str, str]]] = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "ServiceUnavailable", "Service is unable to handle request."),
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "429": (429, "TooManyRequests", "Please reduce your request rate."),
    "denied": (403, "AccessDenied", "Access Denied"),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "bad_key": (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    "bad_signature": (403, "SignatureDoesNotMatch", "The request signature we calculated does not match."),
    "skew": (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
    "conflict": (409, "ConditionalRequestConflict", "The conditional request cannot succeed due to a conflict."),
}

FaultKind = Literal[
    "500", "503", "slow_down", "429", "denied", "expired", "bad_key", "bad_signature", "skew", "conflict",
    "redirect", "temporary_redirect", "cut", "slow", "lost", "lost_500", "drop", "die",
]  # fmt: skip
"""What happens to a request.

Codes and names of S3 errors are answered before anything is done. redirect: 301 to the region of the bucket.
temporary_redirect: 307 to `location`. cut: the body ends in the middle. slow: the answer begins `seconds` later.
lost: the request is done, and the connection closed before the answer; lost_500: done, then 500. drop: the connection
is closed before anything is done. die: like drop, and so is every later request.
"""


@dataclass(kw_only=True)
class Fault:
    """A rule: which requests fail, and how. The first rule that applies to a request decides."""

    kind: FaultKind = field(kw_only=False)
    operation: Operation | tuple[Operation, ...] | None = None  # None: any
    key: str = "*"  # a pattern
    skip: int = 0  # the first ones that match succeed
    times: int | None = None  # then so many fail; None: all
    share: float = 1.0  # of those that match
    seconds: float = 0.2  # of slow answers
    location: str = ""  # the address of another server, of temporary redirects
    hook: Callable[[], object] | None = None  # called as the fault strikes, on the server's thread
    struck: int = 0
    _seen: int = 0

    def applies(self, operation: Operation, key: str, chance: random.Random) -> bool:
        """Whether a request fails; counts it."""
        wanted = (self.operation,) if isinstance(self.operation, str) else self.operation
        if (wanted is not None and operation not in wanted) or not fnmatch.fnmatchcase(key, self.key):
            return False
        self._seen += 1
        if self._seen <= self.skip or (self.times is not None and self.struck >= self.times):
            return False
        if self.share < 1 and chance.random() >= self.share:
            return False
        self.struck += 1
        return True


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its bytes and what is reported with them."""

    data: bytes
    etag: str
    modified: datetime.datetime
    metadata: dict[str, str]
    generation: int


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request, as it arrived."""

    number: int
    operation: Operation
    key: str
    range: str | None
    fault: FaultKind | None
    headers: Mapping[str, str] = field(repr=False)


@dataclass
class _Upload:
    key: str
    metadata: dict[str, str]
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict)


class _Refusal(Exception):
    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] = {}, more: str = ""
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.headers, self.more = status, code, message, headers, more


class ObjectServer:
    """The server; use it in a `with` block. Attributes may be read and set from the test's thread."""

    def __init__(
        self, *buckets: str, region: str = "us-east-1", page_keys: int = 1000, keep_log: bool = True
    ) -> None:
        self.buckets: dict[str, dict[str, StoredObject]] = {name: {} for name in buckets or (BUCKET,)}
        self.uploads: dict[str, _Upload] = {}
        self.region = region
        self.checks_region = False
        self.requires_signature = False
        self.page_keys = page_keys
        self.keep_log = keep_log
        self.faults: list[Fault] = []
        self.log: list[LoggedRequest] = []
        self.n_requests = 0
        self.n_requests_at_once = 0
        self.most_at_once = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.is_dead = False
        self.url = ""
        self._names: dict[str, list[str]] = {}
        self._generation = 0
        self._chance = random.Random(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    # Starting and stopping.

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="object-server", daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = web.Server(self._handle, access_log=None, read_bufsize=1 << 20, auto_decompress=False)  # type: ignore[arg-type]
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{port}"
        started.set()
        await self._stop.wait()
        await site.stop()
        # Closing would wait for clients that do not read on; what was accepted just now is known only later.
        for _ in range(5):
            for transport in list(self._loop._transports.values()):  # type: ignore[attr-defined]
                transport.abort()
            await asyncio.sleep(0)
        await runner.cleanup()

    # What tests use.

    @property
    def bucket(self) -> str:
        """The URL of the first bucket."""
        return f"s3://{next(iter(self.buckets))}"

    def variables(self) -> dict[str, str]:
        """The environment variables that lead clients here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "STORAGE_EMULATOR_HOST": self.url,
        }

    @contextlib.contextmanager
    def environment(self, **more: str) -> Iterator[None]:
        """Set these variables, and `more`, in a `with` block."""
        wanted = {**self.variables(), **more}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def put(self, key: str, data: bytes, *, bucket: str | None = None) -> str:
        """Store an object without a request; returns its ETag."""
        return self._store(bucket or next(iter(self.buckets)), key, data, {}).etag

    def get(self, key: str) -> bytes:
        """The bytes of an object of the first bucket."""
        return self.objects[key].data

    @property
    def objects(self) -> dict[str, StoredObject]:
        """The objects of the first bucket; change them with `put` and `drop`."""
        return next(iter(self.buckets.values()))

    def drop(self, *keys: str) -> None:
        """Remove objects without a request; without keys, all of them."""
        for key in keys or list(self.objects):
            del self.objects[key]
        self._names.clear()

    def inject(self, *faults: Fault) -> None:
        """Add rules."""
        self.faults.extend(faults)

    def die_at(self, number: int, *, after: bool = False) -> None:
        """Fail at the request of this number, counted from 1 and from now, and at every later one.

        With `after`, that one is still done, and only its answer is lost.
        """
        self.is_dead = False
        skip = number - 1
        self.faults = (
            [Fault("lost", skip=skip, times=1), Fault("die", skip=skip)] if after else [Fault("die", skip=skip)]
        )

    def reset(self) -> None:
        """Forget faults and counts; objects stay."""
        self.faults.clear()
        self.log.clear()
        self.is_dead = False
        self.n_requests = self.most_at_once = self.bytes_sent = self.bytes_received = 0
        self._chance = random.Random(0)

    def counts(self) -> Counter[str]:
        """The number of requests per operation."""
        return Counter(request.operation for request in self.log)

    # Requests.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = urllib.parse.unquote(request.raw_path.partition("?")[0])
        bucket, _, key = path[1:].partition("/")
        query = dict(urllib.parse.parse_qsl(request.raw_path.partition("?")[2], keep_blank_values=True))
        operation = _operation(request, key, query)
        self.n_requests += 1
        self.n_requests_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_requests_at_once)
        fault = next((one for one in self.faults if one.applies(operation, key, self._chance)), None)
        if self.is_dead:
            fault = Fault("die")
        if self.keep_log:
            self.log.append(
                LoggedRequest(
                    self.n_requests,
                    operation,
                    key or query.get("prefix", ""),
                    request.headers.get("Range"),
                    fault.kind if fault else None,
                    request.headers,
                )
            )
        try:
            return await self._answer(request, bucket, key, query, operation, fault)
        except _Refusal as refusal:
            return self._error(refusal, request, path)
        except ConnectionError:  # the client went away
            return web.Response()
        finally:
            self.n_requests_at_once -= 1

    async def _answer(
        self,
        request: web.BaseRequest,
        bucket: str,
        key: str,
        query: dict[str, str],
        operation: Operation,
        fault: Fault | None,
    ) -> web.StreamResponse:
        if fault is not None:
            if fault.hook is not None:
                fault.hook()
            if fault.kind in ("drop", "die"):
                self.is_dead = self.is_dead or fault.kind == "die"
                _hang_up(request)
                return web.Response()
            if fault.kind == "slow":
                await asyncio.sleep(fault.seconds)
            if fault.kind == "redirect":
                region = {"x-amz-bucket-region": self.region}
                raise _Refusal(301, "PermanentRedirect", "Use another endpoint.", headers=region)
            if fault.kind == "temporary_redirect":
                target = {"Location": fault.location + request.raw_path}
                raise _Refusal(307, "TemporaryRedirect", "Use another endpoint for now.", headers=target)
            if fault.kind in _ERRORS:
                body = await _read_body(request)  # a client may not expect an answer before it has sent all
                self.bytes_received += len(body)
                raise _Refusal(*_ERRORS[fault.kind])
        self._check_access(request)
        if bucket not in self.buckets:
            raise _Refusal(
                404,
                "NoSuchBucket",
                "The specified bucket does not exist",
                more=f"<BucketName>{escape(bucket)}</BucketName>",
            )
        body = await _read_body(request)
        self.bytes_received += len(body)
        response = self._execute(request, bucket, key, query, operation, body)
        if fault is not None and fault.kind == "lost":
            _hang_up(request)
            return web.Response()
        if fault is not None and fault.kind == "lost_500":
            raise _Refusal(*_ERRORS["500"])
        if fault is not None and fault.kind == "cut" and isinstance(response, _Body):
            return await self._cut(request, response)
        if isinstance(response, _Body):
            if operation == "head":
                return web.Response(status=response.status, headers=response.headers)
            self.bytes_sent += len(response.data)
            return await _send(request, response)
        self.bytes_sent += response.content_length or 0
        return response

    async def _cut(self, request: web.BaseRequest, body: _Body) -> web.StreamResponse:
        """Announce all of a body and send half of it."""
        response = web.StreamResponse(status=body.status, headers=body.headers)
        response.content_length = len(body.data)
        await response.prepare(request)
        half = bytes(body.data[: len(body.data) // 2])
        self.bytes_sent += len(half)
        await response.write(half)
        # What the transport buffers is still sent.
        if request.transport is not None:
            request.transport.close()
        return response

    def _check_access(self, request: web.BaseRequest) -> None:
        authorization = request.headers.get("Authorization", "")
        if not authorization:
            if self.requires_signature:
                raise _Refusal(*_ERRORS["denied"])
            return
        scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
        if self.checks_region and len(scope) > 2 and scope[2] != self.region:
            raise _Refusal(
                400,
                "AuthorizationHeaderMalformed",
                f"The authorization header is malformed; the region '{scope[2]}' is wrong; expecting '{self.region}'",
                headers={"x-amz-bucket-region": self.region},
                more=f"<Region>{self.region}</Region>",
            )

    def _execute(
        self,
        request: web.BaseRequest,
        bucket: str,
        key: str,
        query: dict[str, str],
        operation: Operation,
        body: bytes,
    ) -> web.Response | _Body:
        objects = self.buckets[bucket]
        match operation:
            case "get" | "head":
                return self._read(request, _existing(objects, key))
            case "put":
                _check_write(request, objects.get(key))
                return _with_etag(self._store(bucket, key, body, _metadata(request)))
            case "copy":
                source = self._source(request)
                _check_write(request, objects.get(key))
                replaces = request.headers.get("x-amz-metadata-directive", "COPY").upper() == "REPLACE"
                made = self._store(bucket, key, source.data, _metadata(request) if replaces else source.metadata)
                return _xml(f"<CopyObjectResult><ETag>{escape(made.etag)}</ETag></CopyObjectResult>")
            case "delete":
                objects.pop(key, None)
                self._names.pop(bucket, None)
                return web.Response(status=204)
            case "delete_many":
                return self._delete_many(bucket, body)
            case "list":
                return self._list(bucket, query)
            case "create_upload":
                upload = uuid.uuid4().hex
                self.uploads[upload] = _Upload(key, _metadata(request))
                return _xml(
                    f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
                    f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                )
            case "put_part" | "copy_part":
                return self._put_part(request, query, operation, body)
            case "complete_upload":
                return self._complete(request, bucket, key, query, body)
            case "abort_upload":
                self._upload(query)
                del self.uploads[query["uploadId"]]
                return web.Response(status=204)
            case "list_uploads":
                found = "".join(
                    f"<Upload><Key>{escape(upload.key)}</Key><UploadId>{name}</UploadId></Upload>"
                    for name, upload in self.uploads.items()
                )
                return _xml(
                    f"<ListMultipartUploadsResult>{found}<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"
                )
            case "head_bucket":
                return web.Response(headers={"x-amz-bucket-region": self.region})
        raise _Refusal(501, "NotImplemented", "This server does not implement the request.")

    def _read(self, request: web.BaseRequest, found: StoredObject) -> _Body:
        wanted, unwanted = request.headers.get("If-Match"), request.headers.get("If-None-Match")
        if wanted is not None and wanted not in (found.etag, "*"):
            raise _Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        if unwanted is not None and unwanted in (found.etag, "*"):
            raise _Refusal(304, "NotModified", "Not Modified")
        headers = {
            "ETag": found.etag,
            "Last-Modified": email.utils.format_datetime(found.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
            "x-goog-generation": str(found.generation),
            **{f"{brand}-meta-{name}": value for name, value in found.metadata.items() for brand in _BRANDS},
        }
        size = len(found.data)
        asked = request.headers.get("Range", "")
        data = memoryview(found.data)
        if not asked.startswith("bytes="):
            return _Body(200, data, {**headers, "Content-Length": str(size)})
        first, _, last = asked[6:].partition("-")
        begin = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        if begin >= size or begin >= end:
            raise _Refusal(416, "InvalidRange", "The requested range is not satisfiable")
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        return _Body(206, data[begin:end], {**headers, "Content-Length": str(end - begin)})

    def _source(self, request: web.BaseRequest) -> StoredObject:
        bucket, _, key = (
            urllib.parse.unquote(
                next(
                    request.headers[f"{brand}-copy-source"]
                    for brand in _BRANDS
                    if f"{brand}-copy-source" in request.headers
                )
            )
            .lstrip("/")
            .partition("/")
        )
        found = _existing(self.buckets.get(bucket, {}), key)
        wanted = request.headers.get("x-amz-copy-source-if-match")
        if wanted is not None and wanted != found.etag:
            raise _Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        return found

    def _put_part(
        self, request: web.BaseRequest, query: dict[str, str], operation: Operation, body: bytes
    ) -> web.Response:
        upload = self._upload(query)
        if operation == "copy_part":
            body = self._source(request).data
            first, _, last = request.headers.get("x-amz-copy-source-range", "")[6:].partition("-")
            if first:
                body = body[int(first) : int(last) + 1]
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        upload.parts[int(query["partNumber"])] = etag, body
        if operation == "copy_part":
            return _xml(f"<CopyPartResult><ETag>{escape(etag)}</ETag></CopyPartResult>")
        return web.Response(headers={"ETag": etag})

    def _complete(
        self, request: web.BaseRequest, bucket: str, key: str, query: dict[str, str], body: bytes
    ) -> web.Response:
        upload = self._upload(query)
        numbers = [
            (int(_child(part, "PartNumber")), _child(part, "ETag").strip('"'))
            for part in ElementTree.fromstring(body)
            if part.tag.rpartition("}")[2] == "Part"
        ]
        if any(number not in upload.parts or upload.parts[number][0].strip('"') != etag for number, etag in numbers):
            raise _Refusal(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if [number for number, _ in numbers] != sorted({number for number, _ in numbers}):
            raise _Refusal(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
        if any(len(upload.parts[number][1]) < 5 << 20 for number, _ in numbers[:-1]):
            raise _Refusal(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
        _check_write(request, self.buckets[bucket].get(key))
        data = b"".join(upload.parts[number][1] for number, _ in numbers)
        del self.uploads[query["uploadId"]]
        digests = b"".join(bytes.fromhex(etag) for _, etag in numbers)
        etag = f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(numbers)}"'
        made = self._store(bucket, key, data, upload.metadata, etag=etag)
        return _xml(
            f"<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            f"<ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>"
        )

    def _upload(self, query: dict[str, str]) -> _Upload:
        if query.get("uploadId") not in self.uploads:
            raise _Refusal(404, "NoSuchUpload", "The specified upload does not exist.")
        return self.uploads[query["uploadId"]]

    def _delete_many(self, bucket: str, body: bytes) -> web.Response:
        deleted = []
        for item in ElementTree.fromstring(body):
            if item.tag.rpartition("}")[2] == "Object":
                key = _child(item, "Key")
                self.buckets[bucket].pop(key, None)
                deleted.append(f"<Deleted><Key>{escape(key)}</Key></Deleted>")
        self._names.pop(bucket, None)
        return _xml(f"<DeleteResult>{''.join(deleted)}</DeleteResult>")

    def _list(self, bucket: str, query: dict[str, str]) -> web.Response:
        names = self._names.get(bucket)
        if names is None:
            names = self._names[bucket] = sorted(self.buckets[bucket], key=str.encode)
        encoded = [name.encode() for name in names]
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or ""
        limit = min(int(query.get("max-keys", "1000")), self.page_keys)
        at = bisect_left(encoded, max(prefix, after, key=str.encode).encode())
        contents: list[str] = []
        folders: list[str] = []
        last = after
        is_truncated = False
        for name in names[at:]:
            if not name.startswith(prefix):
                break
            folder = ""
            if delimiter and delimiter in name[len(prefix) :]:
                folder = name[: name.index(delimiter, len(prefix)) + len(delimiter)]
            if name.encode() <= after.encode() or (folder and (folder == after or folder in folders[-1:])):
                continue
            if len(contents) + len(folders) >= limit:
                is_truncated = True
                break
            if folder:
                folders.append(folder)
                last = folder
            else:
                found = self.buckets[bucket][name]
                contents.append(
                    f"<Contents><Key>{_key(name, query)}</Key><Size>{len(found.data)}</Size>"
                    f"<ETag>{escape(found.etag)}</ETag><LastModified>{found.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                    f"<StorageClass>STANDARD</StorageClass></Contents>"
                )
                last = name
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_truncated else ""
        common = "".join(f"<CommonPrefixes><Prefix>{_key(name, query)}</Prefix></CommonPrefixes>" for name in folders)
        return _xml(
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{_key(prefix, query)}</Prefix>"
            f"<KeyCount>{len(contents) + len(folders)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
            f"<IsTruncated>{'true' if is_truncated else 'false'}</IsTruncated>{token}{''.join(contents)}{common}"
            "</ListBucketResult>"
        )

    def _store(
        self, bucket: str, key: str, data: bytes, metadata: dict[str, str], *, etag: str | None = None
    ) -> StoredObject:
        # As S3: equal content has an equal ETag, and that of a multipart upload names its parts.
        etag = etag or f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        self._generation += 1
        made = StoredObject(data, etag, datetime.datetime.now(datetime.UTC), metadata, self._generation)
        if key not in self.buckets[bucket]:
            self._names.pop(bucket, None)
        self.buckets[bucket][key] = made
        return made

    def _error(self, refusal: _Refusal, request: web.BaseRequest, path: str) -> web.Response:
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message>{refusal.more}"
            f"<Resource>{escape(path)}</Resource><RequestId>{self.n_requests}</RequestId></Error>"
        )
        quiet = request.method == "HEAD" or refusal.status == 304
        return web.Response(
            status=refusal.status,
            body=None if quiet else body.encode(),
            headers={"Content-Type": "application/xml", **refusal.headers},
        )


@dataclass
class _Body:
    status: int
    data: memoryview
    headers: dict[str, str]


def _operation(request: web.BaseRequest, key: str, query: Mapping[str, str]) -> Operation:
    is_copy = any(f"{brand}-copy-source" in request.headers for brand in _BRANDS)
    match request.method:
        case "GET" if not key:
            return "list_uploads" if "uploads" in query else "list"
        case "GET":
            return "list_parts" if "uploadId" in query else "get"
        case "HEAD":
            return "head" if key else "head_bucket"
        case "PUT" if "uploadId" in query:
            return "copy_part" if is_copy else "put_part"
        case "PUT" if key:
            return "copy" if is_copy else "put"
        case "DELETE" if key:
            return "abort_upload" if "uploadId" in query else "delete"
        case "POST" if "delete" in query:
            return "delete_many"
        case "POST" if "uploads" in query:
            return "create_upload"
        case "POST" if "uploadId" in query:
            return "complete_upload"
    return "unknown"


async def _read_body(request: web.BaseRequest) -> bytes:
    if not request.body_exists:
        return b""
    pieces = [piece async for piece in request.content.iter_any()]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _send(request: web.BaseRequest, body: _Body) -> web.StreamResponse:
    """A body in pieces: a transport copies what it cannot send at once."""
    response = web.StreamResponse(status=body.status, headers=body.headers)
    await response.prepare(request)
    for begin in range(0, len(body.data), _PIECE_BYTES):
        await response.write(body.data[begin : begin + _PIECE_BYTES])
    return response


def _hang_up(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _metadata(request: web.BaseRequest) -> dict[str, str]:
    found = [(*name.lower().partition("-meta-"), value) for name, value in request.headers.items()]
    return {name: value for brand, _, name, value in found if brand in _BRANDS}


def _existing(objects: Mapping[str, StoredObject], key: str) -> StoredObject:
    if key not in objects:
        raise _Refusal(404, "NoSuchKey", "The specified key does not exist.", more=f"<Key>{escape(key)}</Key>")
    return objects[key]


def _check_write(request: web.BaseRequest, found: StoredObject | None) -> None:
    """Refuse a conditional write as S3 does."""
    wanted, generation = request.headers.get("If-Match"), request.headers.get("x-goog-if-generation-match")
    if generation is not None and int(generation) != (found.generation if found else 0):
        raise _Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
    if request.headers.get("If-None-Match") == "*" and found is not None:
        raise _Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
    if wanted is not None and found is None:
        raise _Refusal(404, "NoSuchKey", "The specified key does not exist.")
    if wanted is not None and found is not None and wanted.strip('"') != found.etag.strip('"'):
        raise _Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")


def _child(element: ElementTree.Element, name: str) -> str:
    return next(child.text or "" for child in element if child.tag.rpartition("}")[2] == name)


def _key(name: str, query: Mapping[str, str]) -> str:
    return urllib.parse.quote(name) if query.get("encoding-type") == "url" else escape(name)


def _with_etag(made: StoredObject) -> web.Response:
    return web.Response(headers={"ETag": made.etag, "x-goog-generation": str(made.generation)})


def _xml(document: str) -> web.Response:
    return web.Response(
        body=f'<?xml version="1.0" encoding="UTF-8"?>\n{document}'.encode(), content_type="application/xml"
    )


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input closes."""
    with ObjectServer(*arguments, keep_log=False) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
