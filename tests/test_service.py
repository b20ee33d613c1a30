"""The service: real processes, real databases, real HTTP."""

import json
import shutil
from pathlib import Path

import pytest

import pclf
from pclf.errors import ArgumentError, ServiceError

pytest.importorskip("fastapi", reason="the service needs pip install 'pclf[serve]'")

from services import Service, ids

NASTY = "'; DROP TABLE ratings; -- <script>alert(1)</script> ../../etc/passwd %00 \u202e"


@pytest.fixture(scope="module")
def model(served_model, tmp_path_factory):
    """Without the lists of everybody, which the service makes here."""
    return Path(shutil.copy(served_model, tmp_path_factory.mktemp("alone")))


@pytest.fixture(scope="module")
def service(model, tmp_path_factory):
    with Service(tmp_path_factory.mktemp("service"), model) as running:
        yield running


def titles(answer):
    return [entry["title"] for entry in answer["items"]]


def test_a_guest_gets_a_list_with_intervals_and_reasons_and_nothing_is_stored(service):
    before = service.get("/v1/status")["counts"]
    status, answer = service.ask("POST", "/v1/recommend", {
        "domain": "books", "ratings": {"films": {"A Kiss in Nara": 5, "Boston 2099": 2}}, "n": 5, "explain": True})
    assert status == 200
    assert answer["basis"] == "guest"
    assert answer["model"] == 1
    assert len(answer["items"]) == 5
    for entry in answer["items"]:
        assert entry["interval"][0] <= entry["rating"] <= entry["interval"][1]
        assert sum(entry["distribution"]) == pytest.approx(1, abs=0.01)
        assert entry["why"]
    excluded = titles(answer)[0]
    _, other = service.ask("POST", "/v1/recommend", {
        "domain": "books", "ratings": {"films": {"A Kiss in Nara": 5, "Boston 2099": 2}}, "n": 5,
        "exclude": [excluded]})
    assert titles(other)[:4] == titles(answer)[1:]
    assert service.get("/v1/status")["counts"] == before


def test_lists_are_those_of_the_library(service, model):
    fitted = pclf.load(model)
    for user, domain, basis in (("ana-000", "films", "known"), ("ana-000", "books", "visitor")):
        answer = service.list(user, domain, n=7)
        assert answer["basis"] == basis
        own = fitted.recommend(domain, user, n=7)
        assert titles(answer) == [r.title for r in own]
        assert [e["rating"] for e in answer["items"]] == pytest.approx([r.rating for r in own], abs=2e-3)
    by_rating = service.list("ana-000", "films", n=7, rank_by="rating")
    assert titles(by_rating) == [r.title for r in fitted.recommend("films", "ana-000", n=7, rank_by="rating")]


def test_an_unknown_id_gets_what_a_newcomer_gets(service, model):
    answer = service.list("nobody has this id", "books")
    assert answer["basis"] == "popular"
    fitted = pclf.load(model)
    assert titles(answer) == [r.title for r in fitted.recommend("books", fitted.fold_in({}), n=10)]


def test_a_rating_counts_at_the_next_request(service):
    first = service.list("fresh-1", "music")
    loved = titles(first)[4]
    service.rate(("fresh-1", "music", loved, 5))
    second = service.list("fresh-1", "music")
    assert first["basis"] == "popular"
    assert second["basis"] == "known"
    assert loved not in titles(second)
    assert service.list("fresh-1", "books")["basis"] == "visitor"
    service.rate(("fresh-1", "music", loved, 1))                                 # the last word counts
    third = service.list("fresh-1", "music")
    assert [e["rating"] for e in third["items"]] != [e["rating"] for e in second["items"]]
    assert service.get("/v1/users/fresh-1/ratings")["ratings"] == {"music": {loved: 1.0}}


def test_a_known_person_with_a_fresh_rating_is_placed_by_all_their_ratings(service, model):
    fitted = pclf.load(model)
    d = fitted.data_["films"]
    mine = d.user == d.users.code("bo-001")
    told = dict(zip(d.items.decode(d.item[mine]), d.ratings[mine].tolist(), strict=True))
    new = next(title for title in ids("films", 40) if title not in told)
    service.rate(("bo-001", "films", new, 2))
    guest = fitted.fold_in({"films": {**told, new: 2.0}})
    assert titles(service.list("bo-001", "films", n=6)) == [r.title for r in fitted.recommend("films", guest, n=6)]


def test_rows_of_a_batch_are_accepted_and_rejected_one_by_one_and_twice_is_once(service):
    rows = [{"user": "row", "domain": "books", "item": "Soups of Lyon", "rating": 4},
            {"user": "row", "domain": "books", "item": "Soups of Lyon", "rating": 9},
            {"user": "row", "domain": "bookz", "item": "Soups of Lyon", "rating": 4},
            {"user": "row", "domain": "books", "item": "Soups of Lyon"},
            {"user": "", "domain": "books", "item": "x", "rating": 4}, 17,
            {"user": 17, "domain": "books", "item": "A book of tomorrow", "rating": 5, "title": "Tomorrow",
             "attributes": {"region": "French"}},
            {"user": "row", "domain": "books", "item": "x", "rating": 4, "attributes": {"colour": "red"}}]
    status, answer = service.ask("PUT", "/v1/ratings", {"ratings": rows})
    assert status == 200
    assert answer["accepted"] == 2
    assert [row["row"] for row in answer["rejected"]] == [1, 2, 3, 4, 5, 7]
    reasons = {row["row"]: row["reason"] for row in answer["rejected"]}
    assert "scale of 'books', 1 to 5" in reasons[1]
    assert "did you mean 'books'" in reasons[2]
    assert "rating" in reasons[3]
    assert "unknown attribute 'colour'" in reasons[7]
    assert (answer["new_users"], answer["new_items"]) == (2, 1)
    before = service.get("/v1/status")["counts"]["ratings"]
    _, again = service.ask("PUT", "/v1/ratings", {"ratings": rows})
    assert again["accepted"] == 2
    assert service.get("/v1/status")["counts"]["ratings"] == before
    assert service.get("/v1/users/17/ratings")["titles"]["books"] == {"A book of tomorrow": "Tomorrow"}


def test_a_list_goes_on_to_its_next_page_and_clicks_refer_to_it(service):
    first = service.list("emil-004", "films", n=5)
    seen = titles(first)
    for _ in range(3):
        first = service.get(f"/v1/lists/{first['id']}/next?n=5")
        assert not set(seen) & set(titles(first))
        seen += titles(first)
    assert seen == titles(service.list("emil-004", "films", n=20))
    event = {"user": "emil-004", "domain": "films", "item": seen[-1], "event": "click", "list": first["id"]}
    before = service.get("/v1/status")["counts"]
    for _ in range(2):
        status, kept = service.ask("POST", "/v1/events", {"events": [event, {**event, "domain": "nowhere"}]})
        assert status == 200
        assert kept["accepted"] == 1
        assert "nowhere" in kept["rejected"][0]["reason"]
    after = service.get("/v1/status")["counts"]
    assert after["clicked"] == before["clicked"] + 1                              # told twice, it is one
    assert service.ask("GET", "/v1/lists/0123456789/next")[0] == 404


def test_similar_items_predictions_search_and_domains(service):
    similar = service.get("/v1/items/films/A%20Kiss%20in%20Nara/similar?to=books&n=4")
    assert similar["domain"] == "books"
    assert len(similar["items"]) == 4
    status, found = service.ask("POST", "/v1/predict", {"domain": "films", "user": "ana-000",
                                                        "items": ["A Kiss in Nara", "Boston 2099"]})
    assert status == 200
    assert titles(found) == ["A Kiss in Nara", "Boston 2099"]
    assert titles(service.get("/v1/search?domain=films&q=NARA%20kiss")) == ["A Kiss in Nara"]
    assert len(service.get("/v1/search?domain=films&q=&n=3")["items"]) == 3
    assert [d["name"] for d in service.get("/v1/domains")["domains"]] == ["films", "music", "books"]


@pytest.mark.parametrize(("method", "path", "body", "status", "says"), [
    ("GET", "/v1/users/a/recommend?domain=bookz", None, 404, "did you mean 'books'"),
    ("GET", "/v1/users/a/recommend?domain=books&n=101", None, 422, "n must be at most 100"),
    ("GET", "/v1/users/a/recommend?domain=books&n=0", None, 422, "n must be at least 1; got 0"),
    ("GET", "/v1/users/a/recommend?domain=books&n=ten", None, 422, "n must be a whole number; got 'ten'"),
    ("GET", "/v1/users/a/recommend", None, 422, "domain must be given"),
    ("GET", "/v1/users/a/recommend?domain=books&N=3", None, 422, "N is no name that is known here"),
    ("GET", "/v1/users/a/recommend?domain=books&user_domain=bookz", None, 404, "did you mean 'books'"),
    ("GET", "/v1/users/a/recommend?domain=books&rank_by=size", None, 404, "way to rank"),
    ("POST", "/v1/recommend", {"domain": "books", "ratings": {"films": {"Alienn": 5}}}, 404, "unknown item"),
    ("POST", "/v1/recommend", {"domain": "books", "ratings": {"films": {"A Kiss in Nara": 7}}}, 422, "on the scale"),
    ("POST", "/v1/recommend", {"domain": "books", "colour": "red"}, 422, "colour is no name that is known here"),
    ("POST", "/v1/predict", {"domain": "books", "items": ["Soups of Lyon"]}, 422, "one of user and ratings"),
    ("GET", "/v1/items/books/none/similar", None, 404, "unknown item"),
    ("POST", "/v1/recommend", b"{", 422, "the body must be JSON"),
    ("POST", "/v1/recommend", b"[]", 422, "the body must be an object"),
    ("POST", "/v1/recommend", b"", 422, "Content-Type: application/json"),
    ("GET", "/v1/recommend", None, 405, "does not answer GET; it answers POST"),
    ("POST", "/v1/rollback", None, 409, "no version before"),
    ("GET", "/page/..%2f..%2fapp.py", None, 404, "nothing is at this address"),
    ("GET", "/page/app.py", None, 404, "no such file"),
])
def test_what_is_wrong_is_said_with_the_way_out(service, method, path, body, status, says):
    found, answer = service.ask(method, path, body)
    assert found == status, answer
    assert says in answer["error"]
    assert answer["request_id"] == service.headers["x-request-id"]


def test_ids_with_anything_in_them_are_ids_and_nothing_else(service):
    odd = "a/b ?#&<b>é%2F'\"; DROP TABLE ratings"
    service.rate((odd, "books", "Soups of Lyon", 5))
    assert service.list(odd, "books")["basis"] == "known"
    assert service.get("/v1/status")["counts"]["ratings"] > 0
    status, answer = service.ask("PUT", "/v1/ratings", {"ratings": [
        {"user": NASTY, "domain": "books", "item": "Soups of Lyon", "rating": 5}]})
    assert status == 200
    assert "control characters" in answer["rejected"][0]["reason"]
    assert service.ask("DELETE", "/v1/users/a%00b")[0] == 422


def test_metrics_say_how_old_the_model_is_and_what_was_asked(service):
    text = service.get("/metrics")
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert 0 < float(lines["pclf_model_age_seconds"]) < 600
    assert float(lines["pclf_model_version"]) == 1
    assert float(lines["pclf_database_up"]) == 1
    assert float(lines["pclf_ratings_since_fit"]) > 0
    assert float(lines['pclf_requests_total{route="/v1/users/{id}/recommend",status="200"}']) > 5
    assert float(lines["pclf_fold_in_seconds_count"]) > 0
    listed = float(lines['pclf_listed_items_total{domain="books"}'])
    assert 0 < float(lines['pclf_listed_popular_items_total{domain="books"}']) < listed


def test_the_openapi_document_has_every_route_of_the_api(service):
    paths = set(service.get("/openapi.json")["paths"])
    assert {"/v1/recommend", "/v1/users/{id}/recommend", "/v1/ratings", "/v1/events", "/v1/users/{id}", "/v1/predict",
            "/v1/items/{domain}/{id}/similar", "/v1/domains", "/v1/search", "/v1/refit", "/v1/rollback",
            "/health/live", "/health/ready", "/metrics", "/v1/lists/{id}/next"} <= paths


def test_logs_are_json_and_name_nobody_unless_asked(service, model, tmp_path):
    service.list("very-secret-id", "films")
    service.get("/health/live")
    lines = [json.loads(line) for line in service.log.splitlines() if line.startswith("{")]
    assert any(line["event"] == "request" and line["route"] == "/v1/users/{id}/recommend" for line in lines)
    assert "very-secret-id" not in service.log
    with Service(tmp_path, model, "--log-ids") as asked:
        asked.list("very-secret-id", "films")
        asked.get("/health/live")                                                 # a line is written after its answer
        assert '"user":"very-secret-id"' in asked.log


def test_the_client_does_what_the_service_does(service):
    shop = pclf.Client(service.address)
    found = shop.recommend("books", ratings={"films": {"A Kiss in Nara": 5}}, n=3, explain=True)
    assert found.basis == "guest"
    assert len(found.items) == 3
    kept = shop.rate([("client-1", "films", "A Kiss in Nara", 5), ("client-1", "films", "A Kiss in Nara", 8)])
    assert (kept.accepted, kept.rejected[0][0]) == (1, 1)
    mine = shop.recommend("books", user="client-1", n=3)
    assert mine.basis == "visitor"
    more = shop.next_page(mine, 3)
    assert not {e.item for e in mine.items} & {e.item for e in more.items}
    assert shop.clicked("client-1", mine, mine.items[0].item).accepted == 1
    assert shop.predict("films", ["Boston 2099"], user="client-1")[0].title == "Boston 2099"
    assert shop.similar("films", "A Kiss in Nara", to="books", n=2)[0][2] <= 1
    assert shop.search("films", "nara kiss") == [("A Kiss in Nara", "A Kiss in Nara")]
    assert shop.describe("books", "new", title="A New Book", attributes={"region": "French"}).accepted == 1
    assert [d["name"] for d in shop.domains()] == ["films", "music", "books"]
    assert shop.forget("client-1")["forgotten"]
    assert shop.recommend("books", user="client-1").basis == "popular"
    with pytest.raises(ServiceError, match="did you mean 'books'") as raised:
        shop.recommend("bookz", user="client-1")
    assert raised.value.status == 404
    with pytest.raises(ServiceError, match="pclf serve"):
        pclf.Client("http://127.0.0.1:9").domains()
    with pytest.raises(ArgumentError, match="http://"):
        pclf.Client("localhost:8000")
