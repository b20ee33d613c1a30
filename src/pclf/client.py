"""Client: a running service from Python, without any package but this one.

    shop = pclf.Client("http://127.0.0.1:8000")
    shop.rate([("ana", "films", "Alien", 5)])
    shop.recommend("books", user="ana", n=5).items[0].title

An answer that is an error is a `ServiceError` with the service's own sentence; a database that is gone is asked again,
after as long as it says, a few times.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from pclf.errors import ArgumentError, ServiceError

Row = tuple[Any, str, Any, float]        # user, domain, item, rating


@dataclass(frozen=True)
class ListItem:
    """An item of a list: what it is sorted by, the expected rating and where it lies with 80 %, and why."""

    item: Any
    title: str
    score: float
    rating: float
    interval: tuple[float, float]
    distribution: tuple[float, ...] = field(repr=False)
    why: str | None = None


@dataclass(frozen=True)
class ItemList:
    """A list. `basis`: known, visitor, guest or popular. `id` is what events refer to and `next_page` goes on from."""

    id: str
    model: int
    domain: str
    basis: str
    items: tuple[ListItem, ...]


@dataclass(frozen=True)
class Kept:
    """What became of a batch; rejected: (row, reason)."""

    accepted: int
    rejected: tuple[tuple[int, str], ...]


class Client:
    """address: of the service. key: X-API-Key, where it wants one. timeout: seconds. retries: when the database is
    gone."""

    def __init__(self, address: str = "http://127.0.0.1:8000", *, key: str | None = None, timeout: float = 10.0,
                 retries: int = 3) -> None:
        if not address.startswith(("http://", "https://")):
            raise ArgumentError(f"the address must begin with http:// or https://; got {address!r}.")
        self.address, self.key, self.timeout, self.retries = address.rstrip("/"), key, timeout, retries

    def recommend(self, domain: str, *, user: Any = None, ratings: Mapping[str, Mapping[Any, float]] | None = None,
                  n: int = 10, explain: bool = False, rank_by: str | None = None,
                  exclude: Iterable[Any] = ()) -> ItemList:
        """A list for a user by id, or for a guest by ratings, {"films": {"Alien": 5}}, of which nothing is stored."""
        if user is not None and (ratings or tuple(exclude)):
            raise ArgumentError("give a user, or a guest's ratings and what to exclude.")
        if user is None:
            told = {name: {str(item): rating for item, rating in given.items()}
                    for name, given in (ratings or {}).items()}
            return _list(self._ask("POST", "/v1/recommend", {
                "domain": domain, "ratings": told, "n": n, "explain": explain, "rank_by": rank_by,
                "exclude": [str(item) for item in exclude]}))
        asked = {"domain": domain, "n": n, "explain": str(explain).lower(), **({"rank_by": rank_by} if rank_by else {})}
        return _list(self._ask("GET", f"/v1/users/{quote(str(user), safe='')}/recommend?{urlencode(asked)}"))

    def next_page(self, shown: ItemList, n: int = 10) -> ItemList:
        """What comes after a list that was shown to a user."""
        return _list(self._ask("GET", f"/v1/lists/{quote(shown.id, safe='')}/next?{urlencode({'n': n})}"))

    def predict(self, domain: str, items: Iterable[Any], *, user: Any = None,
                ratings: Mapping[str, Mapping[Any, float]] | None = None) -> tuple[ListItem, ...]:
        """What a user, or a guest, will think of some items."""
        asked: dict[str, Any] = {"domain": domain, "items": [str(item) for item in items]}
        asked |= {"user": str(user)} if user is not None else {"ratings": ratings or {}}
        return _items(self._ask("POST", "/v1/predict", asked))

    def similar(self, domain: str, item: Any, *, to: str | None = None, n: int = 10) -> list[tuple[Any, str, float]]:
        """Items like another, of its own catalogue or of another: (item, title, score)."""
        asked = urlencode({"n": n, **({"to": to} if to else {})})
        found = self._ask("GET", f"/v1/items/{quote(domain, safe='')}/{quote(str(item), safe='')}/similar?{asked}")
        return [(entry["item"], entry["title"], entry["score"]) for entry in found["items"]]

    def search(self, domain: str, text: str, n: int = 8) -> list[tuple[Any, str]]:
        """Titles with all these words: (item, title)."""
        found = self._ask("GET", f"/v1/search?{urlencode({'domain': domain, 'q': text, 'n': n})}")
        return [(entry["item"], entry["title"]) for entry in found["items"]]

    def domains(self) -> list[dict[str, Any]]:
        """The catalogues, with their sizes and scales."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/domains")["domains"]
        return found

    def rate(self, rows: Iterable[Row]) -> Kept:
        """Keep ratings, (user, domain, item, rating) each."""
        return _kept(self._ask("PUT", "/v1/ratings", {"ratings": [
            {"user": str(user), "domain": domain, "item": str(item), "rating": rating}
            for user, domain, item, rating in rows]}))

    def describe(self, domain: str, item: Any, *, title: str | None = None,
                 attributes: Mapping[str, Any] | None = None) -> Kept:
        """Tell about an item that the model does not know yet."""
        return _kept(self._ask("PUT", "/v1/items", {"items": [
            {"domain": domain, "item": str(item), "title": title, "attributes": attributes}]}))

    def clicked(self, user: Any, shown: ItemList, item: Any, event: str = "click") -> Kept:
        """Tell that somebody did something with an item of a list."""
        return _kept(self._ask("POST", "/v1/events", {"events": [
            {"user": str(user), "domain": shown.domain, "item": str(item), "event": event, "list": shown.id}]}))

    def forget(self, user: Any) -> dict[str, Any]:
        """Forget a person. Says when it takes effect."""
        found: dict[str, Any] = self._ask("DELETE", f"/v1/users/{quote(str(user), safe='')}")
        return found

    def refit(self) -> str:
        """Start a refit. Returns whether it started, or another is running."""
        return str(self._ask("POST", "/v1/refit")["state"])

    def roll_back(self) -> int:
        """Go back to the version before. Returns it."""
        return int(self._ask("POST", "/v1/rollback")["model"])

    def status(self) -> dict[str, Any]:
        """Versions, refits, traffic, coverage, bridges."""
        found: dict[str, Any] = self._ask("GET", "/v1/status")
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Accept": "application/json", **({"X-API-Key": self.key} if self.key else {})}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        left = self.retries
        while True:
            try:
                asked = Request(self.address + path, data, headers, method=method)
                with urlopen(asked, timeout=self.timeout) as answer:
                    return json.load(answer)
            except HTTPError as error:
                with error:
                    said, wait = _said(error), error.headers.get("Retry-After", "")
                if error.code not in (429, 503) or left <= 0:
                    raise ServiceError(said, error.code) from None
                left -= 1
                time.sleep(min(5.0, float(wait) if wait.isdigit() else 1.0))
            except (URLError, OSError) as error:
                raise ServiceError(f"no service answers at {self.address}: {getattr(error, 'reason', error)}. Start "
                                   f"one with pclf serve.") from None


def _said(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {error.code}"


def _items(found: Mapping[str, Any]) -> tuple[ListItem, ...]:
    return tuple(ListItem(entry["item"], entry["title"], entry["score"], entry["rating"],
                          (entry["interval"][0], entry["interval"][1]), tuple(entry["distribution"]), entry["why"])
                 for entry in found["items"])


def _list(found: Mapping[str, Any]) -> ItemList:
    return ItemList(found["id"], found["model"], found["domain"], found["basis"], _items(found))


def _kept(found: Mapping[str, Any]) -> Kept:
    return Kept(found["accepted"], tuple((row["row"], row["reason"]) for row in found["rejected"]))
