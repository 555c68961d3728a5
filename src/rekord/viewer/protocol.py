"""HTTP connections of the viewer, which are closed if no request comes."""

from __future__ import annotations

from asyncio import BaseTransport

from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_SECONDS = 20.0


class SilenceLimitedProtocol(H11Protocol):
    """A connection. Those that send nothing, or half a request, do not keep others out for ever."""

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.loop.call_later(FIRST_REQUEST_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
