"""Keys: who may read and who may write. Only their hashes are kept; how many clients ask how often."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict

from pclf.errors import ArgumentError
from pclf.service.store import Store

RIGHTS = ("read", "write")
CLIENTS = 10_000           # that are counted at a time


def new_key(store: Store, may: str) -> str:
    """A key, which is shown once and known by its hash from then on. Who may write may read."""
    if may not in RIGHTS:
        raise ArgumentError(f"a key must be for one of: {', '.join(RIGHTS)}; got {may!r}.")
    key = f"pclf_{secrets.token_urlsafe(32)}"
    store.add_key(hashed(key), may)
    return key


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def allows(known: dict[str, str], key: str | None, wanted: str) -> bool:
    """Whether a key is one of those known and may do what is wanted, in the same time whichever it is."""
    mine, found = hashed(key or ""), ""
    for other, may in known.items():
        if hmac.compare_digest(mine, other):
            found = may
    return found == "write" or (found == "read" and wanted == "read")


class Rate:
    """So many requests a second of each client, and twice as many at once: a bucket that fills up again."""

    def __init__(self, a_second: float) -> None:
        self.a_second, self.most = a_second, max(1.0, 2 * a_second)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Seconds that a client must wait; 0 if it may go on."""
        if not self.a_second:
            return 0.0
        now = time.monotonic()
        level, since = self._buckets.pop(client, (self.most, now))
        level = min(self.most, level + (now - since) * self.a_second)
        self._buckets[client] = (max(0.0, level - 1), now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if level >= 1 else (1 - level) / self.a_second
