"""Long bodies, sent in pieces: a server that hands over a whole body keeps it until its client has taken it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from rekord.viewer.memory import Buffer

SEND_SECONDS = 30.0
"""How long a client may take for one piece of a body."""

_PIECE_BYTES = 256 << 10


class PieceResponse(Response):
    """A response of several buffers, sent piece by piece: the next one when the client has taken the one before it.

    `release` is called when it was sent, or its client was too slow.
    """

    def __init__(
        self, pieces: Sequence[Buffer], status: int, headers: Mapping[str, str], release: Callable[[], None]
    ) -> None:
        super().__init__(b"", status, {**headers, "content-length": str(sum(len(one) for one in pieces))})
        self._pieces = pieces
        self._release = release

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send it."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                for piece in self._pieces:
                    for first in range(0, len(piece), _PIECE_BYTES):
                        body = bytes(piece[first : first + _PIECE_BYTES])
                        message = {"type": "http.response.body", "body": body, "more_body": True}
                        await asyncio.wait_for(send(message), SEND_SECONDS)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._pieces = ()
            self._release()
