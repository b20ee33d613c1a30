"""Lines: connections, shared out among the processes of a service, that do not wait for ever for somebody who never
finishes a sentence."""

import asyncio
import inspect
import socket
import sys
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

PATIENCE = 10.0            # seconds for a request line and its headers
WAITING = 1024             # connections that wait to be accepted


def listen(host: str, port: int, workers: int) -> None:
    """Answer at an address, in so many processes, until somebody ends it."""
    config = uvicorn.Config("pclf.service.app:create", factory=True, host=host, port=port, workers=workers, http=Lines,
                            log_config=None, access_log=False, proxy_headers=False, server_header=False,
                            timeout_keep_alive=30, timeout_graceful_shutdown=10, backlog=WAITING, ws="none")
    server = uvicorn.Server(config)
    if workers == 1:
        config.load_app()                                    # what is wrong with it is said before anything else
        with suppress(KeyboardInterrupt):
            server.run()
        if not server.started:
            sys.exit(3)
        return
    bound = config.bind_socket()                             # or say that the address is taken
    if sys.platform == "linux":
        bound.close()
        bound = Shared.bound(host, port)
    older = {"target": server.run} if "target" in inspect.signature(Multiprocess).parameters else {}
    Multiprocess(config, sockets=[bound], **older).run()


class Shared(socket.socket):
    """An address at which each process listens by a socket of its own, so that the kernel shares connections out.

    Of one socket that all accept from, the first to wake up takes whatever has come: all of a burst of connections,
    which then stay with it, while the other processes have nothing to do.
    """

    @classmethod
    def bound(cls, host: str, port: int) -> "Shared":
        made = cls(socket.AF_INET6 if ":" in host else socket.AF_INET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
        made.set_inheritable(True)
        return made

    def __reduce__(self) -> Any:
        """On its way to another process: there it is another socket at the same address."""
        return Shared.bound, self.getsockname()[:2]


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
