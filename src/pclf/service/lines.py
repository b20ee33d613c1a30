"""Lines: connections that do not wait for ever for somebody who never finishes a sentence."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PATIENCE = 10.0            # seconds for a request line and its headers


class Lines(HttpToolsProtocol):
    """Uvicorn's connections, closed when a request does not arrive whole up to its headers in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._patience = self.loop.call_later(PATIENCE, self._too_slow)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._patience.cancel()
        self._patience = self.loop.call_later(PATIENCE, self._too_slow)

    def on_headers_complete(self) -> None:
        self._patience.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def _too_slow(self) -> None:
        if isinstance(self.transport, asyncio.Transport) or self.transport is not None:
            self.transport.close()
