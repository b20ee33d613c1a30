"""The gate: what every request passes. Hosts, keys, rates, sizes and slowness; request ids, headers, logs, metrics."""

import asyncio
import ipaddress
import re
import secrets
import time
import traceback
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from pclf.service.desk import Desk
from pclf.service.keys import Rate, allows
from pclf.service.logs import Log, as_json
from pclf.service.settings import LOOPBACK, Settings

SLOW = 10.0                # seconds between two pieces of a body
OPEN = ("/", "/health/live", "/health/ready")      # and the files of the page: without a key nothing is in them
WRITES = ("PUT", "DELETE")
WRITE_POSTS = ("/v1/events", "/v1/refit", "/v1/rollback")
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
HEADERS = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff"),
           (b"referrer-policy", b"no-referrer"), (b"cross-origin-opener-policy", b"same-origin"),
           (b"cross-origin-resource-policy", b"same-origin")]


class Refused(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, why: str, said: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(said)
        self.status, self.why, self.headers = status, why, headers or []


class Gate:
    """An ASGI app around the app."""

    def __init__(self, app: Any, desk: Desk, settings: Settings, log: Log) -> None:
        self.app, self.desk, self.settings, self.log = app, desk, settings, log
        self.rate = Rate(settings.rate)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began, headers = time.perf_counter(), dict(scope["headers"])
        number = _number(headers.get(b"x-request-id"))
        scope["request_id"] = number
        told = {"status": 500}
        common = [(b"x-request-id", number.encode()), *HEADERS]

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                fresh = [] if scope["path"].startswith("/page/") else [(b"cache-control", b"no-store")]
                message = {**message, "headers": [*message.get("headers", ()), *common, *fresh]}
            await send(message)

        try:
            self._check(scope, headers)
            await self.app(scope, self._measured(receive), sending)
        except Refused as refused:
            self.desk.metrics.refused.labels(refused.why).inc()
            told["status"] = refused.status
            body = as_json({"error": str(refused), "request_id": number})
            await send({"type": "http.response.start", "status": refused.status, "headers": [
                (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"), *common, *refused.headers]})
            await send({"type": "http.response.body", "body": body})
        except Exception as error:                    # answered by the app with 500; here it is written down
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.log("error", "error", request=number, kind=type(error).__name__, file=where.filename,
                     line=where.lineno)
        finally:
            self._tell(scope, number, told["status"], time.perf_counter() - began)

    def _tell(self, scope: Any, number: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none").replace(":path", "")
        self.desk.metrics.requests.labels(route, str(status)).inc()
        self.desk.metrics.seconds.labels(route).observe(seconds)
        person = scope.get("path_params", {}).get("id") if "/users/" in route else None
        self.log("request", "warning" if status >= 500 else "info", request=number, method=scope["method"],
                 route=route, status=status, ms=round(1000 * seconds, 2), person=person)

    def _check(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        """Who may come in, and with how much."""
        client = scope["client"][0] if scope.get("client") else ""
        key = headers.get(b"x-api-key", b"").decode("latin-1") or None
        host = headers.get(b"host", b"").decode("latin-1")
        here = self.settings.on_loopback and _is_loopback(client) and b"x-forwarded-for" not in headers
        if here and not key and urlsplit(f"//{host}").hostname not in LOOPBACK:
            raise Refused(421, "host", "the host must be this machine by its own name: localhost or 127.0.0.1.")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and scope["method"] not in ("GET", "HEAD", "OPTIONS") and not key \
                and urlsplit(origin).netloc != host and origin not in self.settings.cors:
            raise Refused(403, "origin", "pages of other places may not write here.")
        path, method = scope["path"], scope["method"]
        free = path in OPEN or path.startswith("/page/") or method == "OPTIONS"
        if (key or not here) and not free:
            wanted = "write" if method in WRITES or path in WRITE_POSTS else "read"
            if not allows(self.desk.keys, key, wanted):
                raise Refused(401 if not key else 403, "key",
                              f"a key that may {wanted} must be sent as X-API-Key; got "
                              f"{'none' if not key else 'another'}.")
        wait = self.rate.wait(key or client)
        if wait:
            raise Refused(429, "rate", f"at most {self.settings.rate:g} requests a second are answered.",
                          [(b"retry-after", str(max(1, round(wait))).encode())])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.settings.max_body:
            raise Refused(413, "body", f"a body must have at most {self.settings.max_body:,} bytes.")

    def _measured(self, receive: Any) -> Any:
        """What comes in, no more than allowed and no slower."""
        size = 0

        async def receiving() -> Any:
            nonlocal size
            try:
                message = await asyncio.wait_for(receive(), SLOW) if size >= 0 else await receive()
            except TimeoutError:
                self.desk.metrics.refused.labels("slow").inc()
                raise HTTPException(408, f"a body must not pause for more than {SLOW:g} seconds.") from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > self.settings.max_body:
                    self.desk.metrics.refused.labels("body").inc()
                    raise HTTPException(413, f"a body must have at most {self.settings.max_body:,} bytes.")
                if not message.get("more_body"):
                    size = -1                         # from here on it is waited for the end of the connection
            return message

        return receiving


def _number(given: bytes | None) -> str:
    """The caller's request id, if it is one, or a new one."""
    text = (given or b"").decode("latin-1")
    return text if re.fullmatch(r"[\w.-]{1,64}", text, re.ASCII) else secrets.token_hex(8)


def _is_loopback(client: str) -> bool:
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False
