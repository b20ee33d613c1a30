"""The life of a service: refits, erasure, databases that go and come back, processes that are killed, who gets in."""

import json
import os
import resource
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pytest

import pclf

pytest.importorskip("fastapi", reason="the service needs pip install 'pclf[serve]'")

import sqlalchemy as sa
from services import Postgres, Service, bytes_of, ids, small_model

from pclf.errors import StoreError
from pclf.service import growth, keys, refit, store
from pclf.service.fresh import Fresh
from pclf.service.lists import Live
from pclf.service.settings import Settings
from pclf.service.shelf import Shelf
from pclf.service.store import Rating, Store


@pytest.fixture(scope="module")
def model(served_model):
    return served_model


@pytest.fixture(scope="module")
def bare_model(tmp_path_factory):
    """One that is refitted in no time, for tests of when and where that happens."""
    return small_model(tmp_path_factory.mktemp("bare") / "bare.model", lists=False, neighbours=False, bridges=())


@pytest.fixture(scope="module")
def server():
    with Postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """A database without tables, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return request.getfixturevalue("server").new_database()


def metric(service, name):
    return next(float(line.rsplit(" ", 1)[1]) for line in service.get("/metrics").splitlines()
                if line.startswith(name) and line[len(name)] in " {")


def title_list(answer):
    return [entry["title"] for entry in answer["items"]]


def test_a_person_is_rated_refitted_erased_and_gone_in_either_database(database, model, tmp_path, request):
    """From the first rating to the last byte: the whole way, through a refit, a rollback and an erasure."""
    secret, words = "mrs-erasable-7391", ("films", "books")
    with Service(tmp_path / "s", model, db=database) as service:
        loved = {name: ids(name, 5, seed=3) for name in words}
        service.rate(*((secret, name, item, 5) for name in words for item in loved[name]))
        service.rate(*((f"other-{i}", "books", item, 4) for i in range(10) for item in ids("books", 4, seed=i)))
        before = service.list(secret, "music")
        assert before["basis"] == "visitor"
        done = service.refit()
        assert done["outcome"] == "accepted", done
        assert done["figures"]["error"] > 0
        assert service.list(secret, "books")["model"] == 2
        assert service.list(secret, "books")["basis"] == "known"
        assert not set(title_list(service.list(secret, "books"))) & set(loved["books"])
        assert metric(service, "pclf_last_refit_ok") == 1
        assert metric(service, "pclf_held_out_error") == pytest.approx(done["figures"]["error"])
        assert metric(service, "pclf_ratings_since_fit") == 0
        status, back = service.ask("POST", "/v1/rollback")
        assert (status, back["model"]) == (200, 1)
        assert service.list(secret, "books")["basis"] == "known"           # from the store, which has not forgotten
        assert metric(service, "pclf_ratings_since_fit") == 50
        status, gone = service.ask("DELETE", f"/v1/users/{secret}")
        assert (status, gone["rows"] > 10, gone["store"]) == (200, True, "now")
        assert "next refit" in gone["model"]
        assert service.list(secret, "books")["basis"] == "popular"
        assert service.get(f"/v1/users/{secret}/ratings")["known"] is False
        service.ask("GET", f"/v1/users/{secret}/ratings")
        assert secret.encode() in bytes_of(service.models)                   # version 2 still has them
        assert service.refit()["outcome"] in ("accepted", "worse")
        # Asking about somebody remembers what they were shown, so the service is not asked again.
        assert secret.encode() not in bytes_of(service.models)
        assert secret not in service.log
        versions = [v["version"] for v in service.get("/v1/status")["versions"]]
        for version in versions:
            data = pclf.load(service.models / f"v{version:04d}.model").data_
            assert all(secret not in map(str, d.users.ids) for d in data.domains.values())
    rows = Store(database)
    rows.open()
    with rows.engine.connect() as db:
        dump = json.dumps([[str(value) for value in row] for table in store.tables.sorted_tables
                           for row in db.execute(sa.select(table))])
    rows.close()
    assert secret not in dump
    files = tmp_path if database.startswith("sqlite") else pages_of(request.getfixturevalue("server"), database)
    assert secret.encode() not in bytes_of(files)


def pages_of(server, database):
    """The folder of the tables of a PostgreSQL server, with everything written to it."""
    rows = Store(database, patience=60)
    with rows.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.execute(sa.text("CHECKPOINT"))
    rows.close()
    return server.folder / "data" / "base"


def test_erasure_from_the_pages_and_the_statistics_of_postgresql(server):
    """Deleted rows stay in the files of a table until it is rewritten, and frequent values in those of statistics."""
    rows = Store(server.new_database())
    rows.open()
    rows.rate([Rating("mr-on-disk-5521", "films", f"x-{i}", 5.0) for i in range(300)])
    with rows.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.execute(sa.text("ANALYZE"))
    assert b"mr-on-disk-5521" in bytes_of(pages_of(server, rows.url))
    rows.forget("mr-on-disk-5521")
    rows.scrub(rows.erased())
    assert b"schema_version" in bytes_of(pages_of(server, rows.url))
    assert b"mr-on-disk-5521" not in bytes_of(pages_of(server, rows.url))
    rows.close()


def test_a_refit_that_is_worse_or_fails_leaves_the_old_model(model, tmp_path):
    rng = np.random.default_rng(0)
    fitted = pclf.load(model)
    with Service(tmp_path, model) as service:
        for name, d in fitted.data_.domains.items():              # everybody says the opposite of their taste
            users, items = list(d.users.ids), list(d.items.ids)
            for user in users[::2]:
                some = [items[i] for i in rng.permutation(len(items))[:40]]
                expected = fitted.predict(name, [user] * len(some), some)
                service.rate(*((user, name, item, float(np.clip(np.rint(6 - 1.6 * (r - 3) - 3), 1, 5)))
                               for item, r in zip(some, expected, strict=True)))
        before = title_list(service.list("ana-000", "music"))
        done = service.refit()
        assert done["outcome"] == "worse", done
        assert "error would rise" in done["reason"] or "lists would hold" in done["reason"]
        assert service.get("/v1/domains")["model"] == 1
        assert title_list(service.list("ana-000", "music")) == before
        assert metric(service, "pclf_last_refit_ok") == 0
        assert 'pclf_refits{outcome="worse"} 1.0' in service.get("/metrics")
        (service.models / "v0001.model").rename(service.models / "hidden")
        assert service.refit()["outcome"] == "failed"
        assert 'pclf_refits{outcome="failed"} 1.0' in service.get("/metrics")
        assert title_list(service.list("ana-000", "music")) == before


def test_refits_come_by_count_and_keep_the_last_three(bare_model, tmp_path):
    with Service(tmp_path, bare_model, "--refit-after", "5", "--tolerance", "1") as service:
        for version in (2, 3, 4):
            service.rate(*((f"v{version}-{i}", "films", item, 4) for i in range(2) for item in ids("films", 3, seed=i)))
            service.wait_for(version)
        assert [v["version"] for v in service.get("/v1/status")["versions"]] == [4, 3, 2]
        assert sorted(file.name for file in service.models.glob("*.model")) == [f"v000{v}.model" for v in (2, 3, 4)]
        _, found = service.ask("POST", "/v1/recommend", {"domain": "books", "model": 2})
        assert found["model"] == 2
        assert service.ask("POST", "/v1/recommend", {"domain": "books", "model": 1})[0] == 404


def test_killed_at_random_moments_nothing_acknowledged_is_lost(model, tmp_path):
    """Six of the hundred times of `python benchmarks/serve.py kills`."""
    service, kept, rng = Service(tmp_path, model), {}, np.random.default_rng(0)
    items = ids("films", 100)
    for life in range(6):
        assert service.start() < 20
        stop = threading.Event()

        def write(life=life, stop=stop):
            for n in range(10_000):
                row = f"u{life}-{n}", "films", items[n % len(items)], float(1 + n % 5)
                try:
                    service.rate(row)
                except (OSError, HTTPException, AssertionError, json.JSONDecodeError):      # killed meanwhile
                    return
                kept[row[:3]] = row[3]
                if stop.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(float(rng.uniform(0.02, 0.5)))
        service.kill()
        stop.set()
        writer.join()
    seconds = service.start()
    with sqlite3.connect(tmp_path / "shop.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = {row[:3]: row[3] for row in db.execute("SELECT user_id, domain, item, rating FROM ratings")}
    assert len(kept) > 50
    assert {key: found.get(key) for key in kept} == kept
    assert service.list("ana-000", "films")["basis"] == "known"
    assert seconds < 20
    service.stop()


def test_while_the_database_is_gone_reads_go_on_and_writes_say_when_to_come_again(server, model, tmp_path):
    with Service(tmp_path, model, db=server.new_database()) as service:
        service.rate(("here", "films", "A Kiss in Nara", 5))
        before = service.list("here", "books")
        server.stop()
        try:
            for _ in range(5):
                began = time.monotonic()
                assert title_list(service.list("here", "books")) == title_list(before)
                assert service.list("ana-000", "films")["basis"] == "known"
                assert time.monotonic() - began < 3
            row = {"user": "here", "domain": "films", "item": "Boston 2099", "rating": 1}
            status, answer = service.ask("PUT", "/v1/ratings", {"ratings": [row]})
            assert status == 503
            assert int(service.headers["retry-after"]) > 0
            assert "nothing was kept" in answer["error"]
            assert metric(service, "pclf_database_up") == 0
            assert service.get("/health/ready")["database"] is False
        finally:
            server.start()
        assert pclf.Client(service.address, retries=10).rate([("here", "films", "Boston 2099", 1)]).accepted == 1
        until = time.monotonic() + 10
        while title_list(service.list("here", "books")) == title_list(before):
            assert time.monotonic() < until
        assert "Boston 2099" in service.get("/v1/users/here/ratings")["ratings"]["films"]


def test_a_full_disk_refuses_writes_and_answers_on(model, tmp_path):
    size = 600_000

    def no_file_grows_beyond():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    first = Service(tmp_path / "first", model)
    first.start()
    first.stop()
    with Service(tmp_path / "first", None, db=first.db, limit=no_file_grows_beyond) as service:
        refused = 0
        for n in range(60):
            rows = [{"user": f"{n}-{i}-{'x' * 150}", "domain": "films", "item": "A Kiss in Nara", "rating": 5}
                    for i in range(200)]
            status, _ = service.ask("PUT", "/v1/ratings", {"ratings": rows})
            assert status in (200, 503)
            refused += status == 503
            if refused > 2:
                break
        assert refused
        assert service.list("ana-000", "films")["basis"] == "known"


def test_two_processes_on_one_database_hear_of_each_other_at_once(database, bare_model, tmp_path):
    one = Service(tmp_path / "one", bare_model, db=database)
    with one:
        two = Service(tmp_path / "one", None, db=database)
        two.start()
        try:
            for n, (here, there) in enumerate([(one, two), (two, one)] * 5):
                here.rate((f"both-{n}", "films", "A Kiss in Nara", 5))
                assert there.list(f"both-{n}", "films")["basis"] == "known"
            here.ask("DELETE", "/v1/users/both-0")
            assert there.list("both-0", "films")["basis"] == "popular"
            shown = one.list("goro-006", "films", n=3)
            assert two.get(f"/v1/lists/{shown['id']}/next?n=3")["items"]
            assert one.refit()["outcome"] == "accepted"
            two.wait_for(2)
        finally:
            two.stop()


def test_several_workers_of_one_service_count_together(model, tmp_path):
    with Service(tmp_path, model, "--workers", "2") as service:
        for n in range(40):
            service.rate((f"w-{n}", "films", "A Kiss in Nara", 5))
            assert service.list(f"w-{n}", "films")["basis"] == "known"
        assert metric(service, "pclf_ratings_kept_total") == 40


def test_tables_of_an_older_version_are_brought_up_to_date_and_newer_ones_refused(database, monkeypatch):
    rows = Store(database)
    rows.open()
    rows.rate([Rating("a", "films", "x", 5.0)])
    rows.close()

    def with_a_column(db):
        db.execute(sa.text("ALTER TABLE ratings ADD COLUMN colour TEXT"))

    with monkeypatch.context() as later:
        later.setattr(store, "MIGRATIONS", [*store.MIGRATIONS, with_a_column])
        newer = Store(database)
        newer.open()
        newer.open()                                                            # twice is once
        with newer.engine.connect() as db:
            assert db.execute(sa.text("SELECT user_id, colour FROM ratings")).all() == [("a", None)]
        newer.close()
    older = Store(database)
    with pytest.raises(StoreError, match="newer pclf"):
        older.open()
    older.close()


def test_ticks_come_in_the_order_in_which_writes_become_visible(database):
    """Readers that know everything up to a tick never miss a write."""
    writers, seen, stop = [Store(database) for _ in range(4)], set(), threading.Event()
    writers[0].open()
    reader, tick = Store(database), -1

    def write(mine):
        for n in range(25):
            writers[mine].rate([Rating(f"{mine}", "films", f"{n}", 1.0)])

    threads = [threading.Thread(target=write, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    while len(seen) < 100 and not stop.is_set():
        changes = reader.changes(tick, tick)
        seen |= {(r.user, r.item) for r in changes.ratings}
        tick = changes.tick
        if not any(thread.is_alive() for thread in threads):
            final = reader.changes(tick, tick)
            seen |= {(r.user, r.item) for r in final.ratings}
            stop.set()
    for thread in threads:
        thread.join()
    assert len(seen) == 100
    for one in (*writers, reader):
        one.close()


def test_what_is_read_at_once_is_what_a_thread_reads(database):
    """A few rows of SQLite, which is most of what happens; anything else is left to a thread."""
    rows = Store(database)
    rows.open()
    rows.rate([Rating("a", "films", f"{n}", 4.0) for n in range(3)], [("films", "0")])
    rows.describe([("films", "1", "One", None)])
    if not rows.lite:
        assert (rows.tick_at_once(), rows.changes_at_once(-1, -1)) == (None, None)
        rows.close()
        return
    for after in (-1, 0, 1, 2):
        assert rows.tick_at_once() == rows.tick()
        assert rows.changes_at_once(after, after) == rows.changes(after, after)
    other = Store(database)                                         # of another process
    other.open()
    other.rate([Rating("b", "films", f"{n}", 4.0) for n in range(store.FEW)])
    assert len(rows.changes_at_once(2, 2).ratings) == store.FEW
    other.rate([Rating("c", "films", "1", 4.0)])
    assert rows.changes_at_once(2, 2) is None                       # one row too many
    now = rows.tick()
    with other.engine.begin() as db:                                # a writer that takes its time
        db.execute(sa.text("UPDATE ratings SET rating = 1 WHERE user_id = 'a'"))
        assert rows.tick_at_once() == now
        assert rows.changes_at_once(now - 1, now - 1).ratings == [Rating("c", "films", "1", 4.0)]
    other.forget("b")
    assert rows.changes_at_once(now, now) is None                   # whom that concerns takes long to find out
    for one in (rows, other):
        one.close()


def test_a_lease_is_renewed_by_its_holder_alone(database):
    rows = Store(database)
    rows.open()
    assert rows.lease("refit", "one", 0.2)
    rows.renew("refit", "one", 60)
    time.sleep(0.3)
    rows.renew("refit", "two", 60)
    assert not rows.lease("refit", "two", 60)
    assert rows.lease("refit", "one", 60)
    rows.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel shares connections out on Linux")
def test_connections_are_shared_among_the_processes_of_a_service(model, tmp_path):
    """All of a burst would go to the process that wakes up first if they accepted from one socket."""
    with Service(tmp_path, model, "--workers", "2") as service:
        workers = [task for task in Path("/proc").glob("[0-9]*") if parent_of(task) == service.process.pid
                   and b"spawn_main" in (task / "cmdline").read_bytes()]
        assert len(workers) == 2
        until = time.monotonic() + 20
        while service.log.count('"event":"ready"') < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(0.5)
        before = [n_sockets(worker) for worker in workers]
        burst = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(60)]
        until = time.monotonic() + 10
        while sum(taken := [n_sockets(worker) - b for worker, b in zip(workers, before, strict=True)]) < 60:
            assert time.monotonic() < until, taken
            time.sleep(0.05)
        assert min(taken) >= 10, taken                              # of 60 by chance: once in ten million times
        for one in burst:
            one.close()
        done = subprocess.run([sys.executable, "-m", "pclf", "serve", "--db", service.db, "--models", service.models,
                               "--port", str(service.port), "--workers", "2"], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode != 0                                 # and no second service slips in beside it


def parent_of(task):
    try:
        return int((task / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:                                                 # it has ended
        return None


def n_sockets(task):
    found = 0
    for file in (task / "fd").iterdir():
        try:
            found += str(file.readlink()).startswith("socket:")
        except OSError:
            continue
    return found


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="there is no such policy here")
def test_what_a_refit_computes_takes_what_nobody_else_wants_and_what_it_writes_does_not():
    """A writer that waits for its turn on the cores would hold the lock that ratings wait for."""
    script = ("import os, threading; from pclf.service.refit import behind\n"
              "policies = []\n"
              "def inside(): policies.append(os.sched_getscheduler(0))\n"
              "def work():\n"
              "    inside(); t = threading.Thread(target=inside); t.start(); t.join()\n"
              "behind(work); inside(); print(*policies)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(os.SCHED_IDLE), str(os.SCHED_IDLE), str(os.SCHED_OTHER)]


def test_keys_are_needed_by_whoever_comes_from_elsewhere_and_kept_as_hashes(model, tmp_path):
    service = Service(tmp_path, model, "--host", "0.0.0.0")
    service.start(wait=False)
    assert service.process.wait(60) == 1
    assert "needs a key" in service.log
    rows = Store(service.db)
    rows.open()
    read, write = keys.new_key(rows, "read"), keys.new_key(rows, "write")
    rows.close()
    row = {"ratings": [{"user": "k", "domain": "films", "item": "A Kiss in Nara", "rating": 5}]}
    with service:
        for key, reads, writes in ((None, 401, 401), ("pclf_wrong", 403, 403), (read, 200, 403), (write, 200, 200)):
            headers = {"X-API-Key": key} if key else {}
            assert service.ask("GET", "/v1/domains", headers=headers)[0] == reads
            assert service.ask("PUT", "/v1/ratings", row, headers)[0] == writes
            assert service.ask("POST", "/v1/rollback", headers=headers)[0] in ((409,) if writes == 200 else (writes,))
        assert service.ask("GET", "/health/live")[0] == 200
        assert service.ask("GET", "/")[0] == 200
        assert service.ask("GET", "/metrics")[0] == 401
    assert read.encode() not in bytes_of(tmp_path)
    assert not keys.allows({keys.hashed("a"): "read"}, "", "read")


@pytest.fixture(scope="module")
def guarded(model, tmp_path_factory):
    impatient = "from pclf.service import gate, lines; gate.SLOW = lines.PATIENCE = 1.5"      # instead of 10 seconds
    with Service(tmp_path_factory.mktemp("guarded"), model, "--max-body", "20000", "--max-batch", "50", "--rate",
                 "400", first=impatient) as running:
        yield running


def test_what_is_too_much_is_refused(guarded):
    row = {"user": "m", "domain": "films", "item": "A Kiss in Nara", "rating": 5}
    assert guarded.ask("PUT", "/v1/ratings", b"x" * 30_000)[0] == 413
    assert guarded.ask("PUT", "/v1/ratings", {"ratings": [row] * 51})[0] == 422
    assert guarded.ask("GET", "/v1/domains", headers={"Host": "evil.test"})[0] == 421
    assert guarded.ask("GET", "/v1/domains", headers={"X-Forwarded-For": "10.0.0.1"})[0] == 401
    assert guarded.ask("POST", "/v1/refit", headers={"Origin": "http://evil.test"})[0] == 403
    assert guarded.ask("POST", "/v1/recommend", b'{"domain":"books"}', {"Content-Type": "text/plain"})[0] == 422
    chunked = b"PUT /v1/ratings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" \
              b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port)) as raw:
        raw.sendall(chunked + (b"1000\r\n" + b"x" * 0x1000 + b"\r\n") * 8)
        assert b"413" in raw.recv(100)
    assert "access-control-allow-origin" not in guarded.headers
    assert 'pclf_refused_total{why="body"}' in guarded.get("/metrics")


def test_a_client_that_asks_too_often_is_told_to_wait():
    rate = keys.Rate(10)
    assert [rate.wait("a") for _ in range(20)] == [0.0] * 20
    assert rate.wait("a") > 0
    assert rate.wait("b") == 0.0
    assert keys.Rate(0).wait("a") == 0.0


def test_slow_clients_are_let_go_and_others_answered(guarded):
    raws = [socket.create_connection(("127.0.0.1", guarded.port)) for _ in range(20)]
    try:
        for raw in raws[:10]:
            raw.sendall(b"GET /v1/domains HT")                                    # and never another letter
        for raw in raws[10:]:
            raw.sendall(b"PUT /v1/ratings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        b"Content-Length: 100\r\n\r\n{")
        assert guarded.ask("GET", "/v1/domains")[0] == 200
        for raw in raws:
            raw.settimeout(15)
        assert all(raw.recv(100) == b"" for raw in raws[:10])
        assert all(b"408" in raw.recv(100) for raw in raws[10:])
    finally:
        for raw in raws:
            raw.close()


def test_growth_takes_ids_back_to_what_a_model_calls_them():
    data = pclf.Ratings.from_arrays({"a": ([1, 2, 2], [10, 10, 11], [1, 5, 3]), "b": ([7, 8], ["x", "y"], [2, 4])},
                                    scale=(1, 5), titles={"a": {10: "Ten"}})
    said = [Rating("2", "a", "10", 4.0), Rating("3", "a", "12", 2.0), Rating("zoe", "b", "x", 5.0),
            Rating("1", "nowhere", "10", 1.0)]
    grown, kept = growth.grown(data, said, [("a", "13", "Thirteen", None), ("b", "x", "Ex", None)], [])
    a, b = grown["a"], grown["b"]
    assert a.users.ids == (1, 2, 3)
    assert a.items.ids == (10, 11, 12, 13)
    assert a.titles == ("Ten", "11", "12", "Thirteen")
    found = {(a.users.ids[u], a.items.ids[i]): r for u, i, r in zip(a.user, a.item, a.ratings, strict=True)}
    assert found == {(1, 10): 1, (2, 11): 3, (2, 10): 4, (3, 12): 2}
    assert kept["a"].tolist() == [True, True, False, False]
    assert b.users.ids == ("7", "8", "zoe")                                       # one of them is no number
    assert b.titles == ("Ex", "y")
    assert not grown.shared_users


def test_somebody_who_rates_in_two_catalogues_ties_them():
    data = pclf.Ratings.from_arrays({"a": (["u", "v"], ["x", "y"], [1, 5]), "b": (["w", "z"], ["p", "q"], [2, 4])},
                                    scale=(1, 5))
    tied, _ = growth.grown(data, [Rating("u", "b", "p", 5.0)], [], [])
    assert tied.shared_users
    assert tied.n_users == 4
    same = pclf.Ratings.from_arrays({"a": (["u", "v"], ["x", "y"], [1, 5]), "b": (["u", "z"], ["p", "q"], [2, 4])},
                                    scale=(1, 5))
    apart, _ = growth.grown(same, [Rating("v", "b", "p", 5.0)], [], [])       # u was two people, and v may be as well
    assert not apart.shared_users


def test_growth_keeps_attributes_beside_their_items():
    data = pclf.datasets.load("demo")
    told = [("books", "A new book", "A New Book", {"region": "Japanese", "genre": "crime"})]
    grown, _ = growth.grown(data, [Rating("n", "books", "A new book", 5.0), Rating("n", "films", "Untold", 3.0)], told,
                            [])
    code = grown["books"].items.code("A new book")
    assert grown.attributes.facts("books", code) == {"region": "Japanese", "genre": "crime"}
    assert grown.attributes.facts("films", grown["films"].items.code("Untold")) == {}
    old = data["books"].items.ids[5]
    assert grown.attributes.facts("books", grown["books"].items.code(old)) == data.attributes.facts("books", 5)


def test_held_out_ratings_stay_the_same_when_others_come():
    data = pclf.datasets.load("demo")
    said = [Rating("n", "books", "A new book", 5.0), Rating("zoe-024", "films", "Untold", 3.0)]
    grown, kept = growth.grown(data, said, [], [])
    before, after = refit.held_out(data), refit.held_out(grown)
    for name in data.domains:
        assert 0.05 < before[name].mean() < 0.15
        assert np.array_equal(after[name][kept[name]], before[name])


def test_a_model_of_many_thousand_people_is_erased_by_code(model, tmp_path):
    """Codes stay, so everything that was learned stays beside whom it was learned of."""
    rows = Store(f"sqlite:///{tmp_path / 'shop.db'}")
    rows.open()
    shelf = Shelf(tmp_path / "models", rows)
    shelf.put_first(model)
    before = pclf.load(model)
    rows.forget("ana-000")
    assert shelf.forget([token for token, _ in rows.erased()])
    after = shelf.load(shelf.current())[0]
    assert "ana-000" not in after.data_["films"].users
    assert len(after.data_["films"]) < len(before.data_["films"])
    assert after.data_["films"].users.ids[1:] == before.data_["films"].users.ids[1:]
    assert np.allclose(after.predict("films", "bo-001", ids("films", 5)),
                       before.predict("films", "bo-001", ids("films", 5)))
    rows.close()


def test_one_id_that_is_two_people_is_placed_as_each_of_them(tmp_path):
    rng = np.random.default_rng(0)
    users, things = np.divmod(np.arange(400), 20)
    data = pclf.Ratings.from_arrays({name: (users, [f"{name}-{i}" for i in things], rng.integers(1, 6, 400))
                                     for name in ("a", "b")}, scale=(1, 5), shared_users=False)
    pclf.PCLF(2, 2, 2, n_factors=2, max_iter=2, n_restarts=1).fit(data).save(tmp_path / "two")
    rows = Store(f"sqlite:///{tmp_path / 'shop.db'}")
    rows.open()
    shelf = Shelf(tmp_path / "models", rows)
    shelf.put_first(tmp_path / "two")
    rows.rate([Rating("7", "a", "a-1", 1.0), Rating("7", "b", "b-1", 5.0)])
    fresh = Fresh(rows, shelf.current().known)
    fresh.apply(*fresh.read())
    live = Live(shelf.current(), shelf.load(shelf.current())[0], {}, fresh)
    in_a, in_b = (live.person("7", name).who for name in ("a", "b"))
    assert in_a.ratings.keys() == {"a"}
    assert in_b.ratings.keys() == {"b"}
    after = Live(live.version, live.model, {}, fresh)
    for user, homes in live.guests:
        after.place_again(user, homes)
    assert after.guests.keys() == live.guests.keys()
    rows.close()


def test_a_refit_that_was_killed_is_not_said_to_run(database):
    rows = Store(database)
    rows.open()
    rows.note({"id": "r", "started": time.time(), "outcome": "running"})
    assert rows.refits()[0]["outcome"] == "failed"
    assert rows.lease("refit", "r", 30)
    assert rows.refits()[0]["outcome"] == "running"
    rows.close()


def test_a_model_that_was_given_before_is_not_given_again(model, tmp_path):
    rows = Store(f"sqlite:///{tmp_path / 'shop.db'}")
    rows.open()
    shelf = Shelf(tmp_path / "models", rows)
    shelf.put_first(model)
    first = shelf.current()
    for version in range(2, 6):
        shutil.copyfile(shelf.path(first) if version == 2 else shelf.path(shelf.current()),
                        shelf.folder / f"v{version:04d}.model")
        shelf.adopt(replace(first, version=version, file=f"v{version:04d}.model", source=None))
    shelf.put_first(model)
    assert shelf.current().version == 5
    rows.close()


def test_settings_say_what_they_must_be():
    for wrong, says in (({"db": "mysql://x"}, "sqlite:///FILE"), ({"max_n": 0}, "max_n must be at least 1"),
                        ({"rate": -1}, "rate must be 0 or more")):
        with pytest.raises(ValueError, match=says):
            Settings(**wrong)


def test_a_thousand_requests_made_from_the_openapi_document_find_no_server_error(model):
    """A tenth of `python benchmarks/serve.py fuzz`."""
    script = Path(__file__).parents[1] / "benchmarks" / "serve.py"
    if not script.exists():
        pytest.skip("the benchmarks are not here")
    done = subprocess.run([sys.executable, script, "fuzz", "--requests", "1000", "--model", model],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["server_errors"] == 0
    assert found["answers"]["200"] > 100
    assert found["answers"]["422"] > 100
