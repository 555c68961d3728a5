"""Who may ask the viewer, and what its pages may do: token, Host, Origin, and the headers of every response.

The server listens on the loopback interface only. That alone does not keep other users of the machine, or pages of
other sites in the user's own browser, from asking it: the token in the path does, and Host and Origin are compared so
that a name which resolves to 127.0.0.1 (DNS rebinding) or a page that learnt the address cannot use it either.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from rekord.storage import portability

Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"
App: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_BODY_BYTES = 4 << 20
_TOKEN_BYTES = 16

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
_OPENING = "/open/"
_OPENING_SECONDS = 120.0
_ENCODED_SEPARATORS = (b"%2f", b"%5c", b"%00", b"%2e")


def new_token() -> str:
    """128 random bits, as 32 hexadecimal digits."""
    return secrets.token_hex(_TOKEN_BYTES)


class Opening:
    """A link that leads to the page once, soon, and for this user.

    It is handed to a browser as an argument, which every user of the machine can read; the token must not be.
    """

    def __init__(self) -> None:
        self.path = f"{_OPENING}{new_token()}"
        self._end = time.monotonic() + _OPENING_SECONDS

    def redeem(self, path: str, client: tuple[str, int] | None, server: tuple[str, int] | None) -> bool:
        """Whether a request may be led to the page."""
        if not hmac.compare_digest(path.encode(), self.path.encode()) or time.monotonic() > self._end:
            return False
        owner = None if client is None or server is None else find_owner(client, server)
        if owner is not None and owner != portability.get_user_id():
            return False
        self._end = -1.0
        return True


def find_owner(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose socket asks, where the system tells: Linux."""
    try:
        wanted = [
            f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
            for host, port in (client, server)
        ]
        with open("/proc/net/tcp", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[1:3] == wanted:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        pass
    return None


@dataclass(frozen=True)
class Access:
    """What a request must have. `hosts` are accepted besides the names of the loopback interface.

    `framed`: notebooks on this machine, and on `hosts`, may show the page in a frame.
    """

    token: str = field(default_factory=new_token, repr=False)
    hosts: frozenset[str] = frozenset()
    framed: bool = False
    edit: bool = False
    opening: Opening = field(default_factory=Opening, repr=False)

    def accepts_host(self, host: str) -> bool:
        """Whether a Host header names this server; its port may be that of a tunnel."""
        name = split_host(host)
        return name is not None and (name in LOOPBACK_HOSTS or name in self.hosts)

    @property
    def policy(self) -> str:
        """The Content-Security-Policy of every response."""
        ancestors = ["'self'"]
        if self.framed:
            ancestors += ["http://localhost:*", "http://127.0.0.1:*"]
            ancestors += [f"{scheme}://{host}:*" for host in sorted(self.hosts) for scheme in ("http", "https")]
        return _POLICY.format(ancestors=" ".join(ancestors))


def split_host(host: str) -> str | None:
    """The name in a Host header, without its port, in lower case; None if it is not one."""
    if not host or any(letter in host for letter in "/\\@?# \t\r\n"):
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class AccessMiddleware:
    """Lets only requests of the viewer's own page through to `app`, with the path behind the token."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access
        self._headers = [
            (name.encode(), value.encode())
            for name, value in (
                ("content-security-policy", access.policy),
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cross-origin-resource-policy", "same-origin"),
                ("x-dns-prefetch-control", "off"),
            )
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither websockets nor lifespan events exist here

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = list(message.get("headers", []))
                names = {name.lower() for name, _ in kept}
                kept += [pair for pair in self._headers if pair[0] not in names]
                if b"cache-control" not in names:
                    kept.append((b"cache-control", b"no-store"))
                message = {**message, "headers": kept}
            await send(message)

        if self._redeem(scope):
            await _redirect(send_guarded, f"../{self._access.token}/", 303)
            return
        refusal = self._refuse(scope)
        if refusal is None:
            token, rest = split_path(scope["path"])
            if rest is None:
                await _redirect(send_guarded, f"{token}/")
                return
            raw = scope["raw_path"].split(b"/", 2)[2] if scope.get("raw_path") else rest.encode()
            scope = {**scope, "path": f"/{rest}", "raw_path": b"/" + raw, "root_path": ""}
            await self._app(scope, _limit_body(receive), send_guarded)
            return
        await send_json(send_guarded, *refusal)

    def _redeem(self, scope: Scope) -> bool:
        opening = self._access.opening
        if not scope["path"].startswith(_OPENING) or scope["method"] != "GET":
            return False
        host = _first_headers(scope["headers"]).get(b"host", b"").decode("latin-1")
        return self._access.accepts_host(host) and opening.redeem(scope["path"], scope["client"], scope["server"])

    def _refuse(self, scope: Scope) -> tuple[int, str] | None:
        """The status and reason of a refusal; None for a request that may pass."""
        headers = _first_headers(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._access.accepts_host(host):
            return 421, "this server does not answer under this name"
        token, rest = split_path(scope["path"])
        if not hmac.compare_digest(token.encode(), self._access.token.encode()):
            return 403, "the address has no valid token: open the address that rekord printed"
        if not self._is_own(headers, host, is_page=not rest):
            return 403, "the request comes from another site"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "the viewer reads, and posts"
        if scope["method"] == "POST":
            if b"origin" not in headers:
                return 403, "a change needs the Origin of the page"
            if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
                return 415, "a change needs a body of type application/json"
            if b"transfer-encoding" in headers:
                return 411, "a change needs a body of known length"
            length = headers.get(b"content-length", b"0")
            if not length.isdigit() or int(length) > MAX_BODY_BYTES:
                return 413, f"the body has more than {MAX_BODY_BYTES:,} bytes"
        raw = bytes(scope.get("raw_path") or b"").lower()
        segments = scope["path"].replace("\\", "/").split("/")
        if any(mark in raw for mark in _ENCODED_SEPARATORS) or ".." in segments or "\0" in scope["path"]:
            return 404, "no such address"
        return None

    def _is_own(self, headers: dict[bytes, bytes], host: str, *, is_page: bool) -> bool:
        """Whether a request comes from the viewer's own page, or is the user opening its address.

        A page opened through a tunnel has the Host of that tunnel as its origin; so has one behind a proxy, unless
        the proxy sets Host to its own target: then the origin is one of `hosts`. A frame, or a link, may lead from
        elsewhere to the page itself, but what the page asks for is asked by itself.
        """
        origin = headers.get(b"origin")
        if origin is not None:
            try:
                found = urlsplit(origin.decode("latin-1"))
                name = found.hostname
            except ValueError:
                return False
            is_known = found.netloc.lower() == host.lower() or (
                name in self._access.hosts and "@" not in found.netloc
            )
            if found.scheme not in ("http", "https") or not is_known:
                return False
        if headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none"):
            return True
        return is_page and headers.get(b"sec-fetch-mode") == b"navigate"


def split_path(path: str) -> tuple[str, str | None]:
    """The token of a path, and the rest behind it; None as rest if nothing, not even a slash, follows."""
    token, slash, rest = path.removeprefix("/").partition("/")
    return token, rest if slash else None


def _first_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        # Two Host or Origin headers are a way around such checks: both values would have to match.
        known = found.get(name.lower())
        found[name.lower()] = value if known in (None, value) else b"\0"
    return found


def _limit_body(receive: Receive) -> Receive:
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            return {"type": "http.disconnect"}
        return message

    return limited


async def send_json(send: Send, status: int, what: str) -> None:
    """A refusal, in the form of all errors."""
    empty: dict[str, None] = dict.fromkeys(("expected", "found", "likely", "do"))
    document: dict[str, Any] = {
        "error": {"error": "AccessError", "code": None, "what": what, "location": {}, **empty}
    }
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status in (403, 421):
        headers.append((b"connection", b"close"))  # a stranger holds no connection open
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, where: str, status: int = 307) -> None:
    headers = [(b"location", where.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
