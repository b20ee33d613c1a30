"""The service under load, killed, and asked nonsense. Loopback only, bounded in count and time.

    python benchmarks/serve.py load                  # ML-1M and goodbooks (PCLF_DATA), 64 connections, a refit meanwhile
    python benchmarks/serve.py load --demo --seconds 6      # the same with the demo's catalogues, to try it
    python benchmarks/serve.py kills --times 100     # kill -9 at random moments under write load
    python benchmarks/serve.py fuzz --requests 10000 # requests made from the OpenAPI document, and damaged

`load` needs wrk (apt install wrk), since a load generator in Python would take the core that it measures. 64 connections
ask as fast as they are answered, and then, while the refit goes on to its swap, at a pace (--pace). Beside the service it
measures, with the same connections and people, two things that do less: FastAPI that answers a constant (`plain`), and
FastAPI with implicit's ALS (`implicit`), by a Python that has these (--peers). Each word appends a row to
benchmarks/results/serve.jsonl with --out.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from services import Service, free_port, ids, small_model  # noqa: E402

import pclf  # noqa: E402
from pclf.bench import commit, machine  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "serve.jsonl"
CONNECTIONS, RATINGS_A_SECOND, WINDOW = 64, 50, 3
PLAIN = '''
from fastapi import FastAPI
app = FastAPI()
ANSWER = {"id": "x", "model": 1, "items": [{"item": i, "title": f"title {i}", "score": 0.5, "rating": 4.0,
          "interval": [3, 5], "distribution": [0.1, 0.1, 0.2, 0.3, 0.3], "why": None} for i in range(10)]}

@app.get("/v1/users/{id}/recommend")
async def recommend(id: str, domain: str, n: int = 10):
    return ANSWER
'''
IMPLICIT = '''
import json
from pathlib import Path
from fastapi import FastAPI
from implicit.als import AlternatingLeastSquares
from scipy.sparse import load_npz

app, made = FastAPI(), {}
for file in Path(".").glob("*.npz"):
    rows, (users, items) = load_npz(file).tocsr(), json.loads(file.with_suffix(".json").read_text())
    model = AlternatingLeastSquares(factors=64, iterations=5, num_threads=1, random_state=0)
    model.fit(rows, show_progress=False)
    made[file.stem] = model, rows, {user: code for code, user in enumerate(users)}, items

@app.get("/v1/users/{id}/recommend")
def recommend(id: str, domain: str, n: int = 10):
    model, rows, users, titles = made[domain]
    user = users[id]
    items, scores = model.recommend(user, rows[user], N=n)
    return {"id": "x", "model": 1, "items": [{"item": titles[i], "score": float(s)} for i, s in zip(items, scores)]}
'''
PEERS = {"plain": PLAIN, "implicit": IMPLICIT}
LUA = """
local paths = {{}}
for line in io.lines("{paths}") do paths[#paths + 1] = line end
math.randomseed({seed})
request = function() return wrk.format("GET", paths[math.random(#paths)]) end
-- paced
delay = function() return math.random(0, {longest:.0f}) end
"""


def load(told):
    """Recommendations a second and their latencies: alone, while ratings come, while a refit runs, and at the swap."""
    if shutil.which("wrk") is None:
        raise SystemExit("load needs wrk: apt install wrk")
    folder = Path(tempfile.mkdtemp(prefix="pclf-load-"))
    model, people, items = prepared(folder, told.demo, told.model)
    paths = folder / "paths"
    paths.write_text("\n".join(f"/v1/users/{quote(str(user), safe='')}/recommend?domain={domain}&n=10"
                               for domain, users in people.items() for user in users))
    windows, service = {}, Service(folder / "service", model, "--workers", str(told.workers), "--tolerance", "1")

    def ask(phase, address=service.address, seconds=told.seconds, pace=0):
        windows.setdefault(phase, []).append(wrk(address, paths, seconds, pace))

    for name, python in (("plain", sys.executable), ("implicit", told.peers)):
        if python:
            with App(folder, name, python, told.workers) as address:
                ask(name, address)
    began = service.start()
    try:
        lists_are_made(service)
        ask("pclf")
        stop, kept, since = threading.Event(), [], time.monotonic()
        writer = threading.Thread(target=rating, args=(service.port, people, items, stop, kept), daemon=True)
        writer.start()
        ask("pclf, ratings")
        number = refit_started(service)
        ask("pclf, ratings and a refit")
        until, refit = time.monotonic() + told.patience, {}
        while time.monotonic() < until and not is_served(service, refit):
            found = wrk(service.address, paths, WINDOW, told.pace)
            refit = next((r for r in service.get("/v1/status")["refits"] if r["id"] == number), {})
            ended = refit.get("ended") is not None               # within this window: from here on each process swaps
            windows.setdefault("pclf, paced, the swap" if ended else "pclf, paced, ratings and a refit", []).append(found)
        ask("pclf, paced, the swap", seconds=WINDOW, pace=told.pace)
        ask("pclf, paced, ratings", pace=told.pace)
        version = service.get("/v1/domains")["model"]
        stop.set()
        writer.join()
        seconds = time.monotonic() - since
    finally:
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)
    rows = [{"what": name, **together(found)} for name, found in windows.items()]
    for row in rows:
        say(row)
    write(told, "load", data="demo" if told.demo else "ml-1m and goodbooks", workers=told.workers, connections=CONNECTIONS,
          paced_a_second=told.pace, start_seconds=round(began, 2), ratings_kept=sum(kept),
          ratings_refused=len(kept) - sum(kept), ratings_a_second=round(len(kept) / seconds, 1),
          refit=refit.get("outcome"), refit_reason=refit.get("reason"),
          refit_seconds=round(refit["ended"] - refit["started"], 1) if ended else None,
          version=version, rows=rows, failed=sum(row["failed"] for row in rows if row["what"].startswith("pclf")))


def together(windows):
    """Figures of some windows: latencies are those of the worst window, which is no better than of all, and the 99th
    percentile also that of the window in the middle."""
    return {"asked": sum(w["asked"] for w in windows), "failed": sum(w["failed"] for w in windows),
            "a_second": round(sum(w["a_second"] for w in windows) / len(windows)),
            **{name: max(w[name] for w in windows) for name in ("p50_ms", "p90_ms", "p99_ms", "longest_ms")},
            "p99_middle_ms": sorted(w["p99_ms"] for w in windows)[len(windows) // 2], "windows": len(windows)}


def prepared(folder, demo, given):
    """A model, its people by domain, and their ratings for implicit."""
    import numpy as np
    from scipy.sparse import csr_matrix, save_npz

    from pclf import datasets

    path = Path(given) if given else folder / "model"
    if not given:
        data = datasets.load("demo") if demo else pclf.Ratings(
            datasets.load("ml-1m").domains | datasets.load("goodbooks").domains)
        pclf.PCLF(n_restarts=1).fit(data, verbose=True).save(path)
    data, rng = pclf.load(path).data_, np.random.default_rng(0)
    for name, d in data.domains.items():
        save_npz(folder / f"{name}.npz", csr_matrix((d.ratings, (d.user, d.item)), shape=(d.n_users, d.n_items)))
        (folder / f"{name}.json").write_text(json.dumps([list(map(str, ids.ids)) for ids in (d.users, d.items)]))
    people = {name: [d.users.ids[i] for i in rng.permutation(d.n_users)] for name, d in data.domains.items()}
    return path, people, {name: list(d.items.ids) for name, d in data.domains.items()}


class App:
    """Another service for the same questions, by uvicorn with as many workers."""

    def __init__(self, folder, name, python, workers):
        (folder / f"{name}_app.py").write_text(PEERS[name])
        self.folder, self.name, self.python, self.workers = folder, name, python, workers

    def __enter__(self):
        port = free_port()
        self.process = subprocess.Popen(
            [self.python, "-m", "uvicorn", f"{self.name}_app:app", "--port", str(port), "--workers", str(self.workers),
             "--no-access-log", "--log-level", "warning"], cwd=self.folder, start_new_session=True,
            stdin=subprocess.DEVNULL, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        until = time.monotonic() + 120
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                time.sleep(1)
                return f"http://127.0.0.1:{port}"
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} does not start")

    def __exit__(self, *error):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def wrk(address, paths, seconds, pace=0):
    """64 connections that ask for lists of random people: as fast as they are answered, or so many a second in all."""
    longest = 2000 * CONNECTIONS / pace if pace else 0            # milliseconds between two questions of a connection
    script = LUA.format(paths=paths, seed=random.randrange(10**6), longest=longest)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script if pace else script.split("-- paced")[0])
        file.flush()
        done = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "--timeout", "10s", "-s",
                               file.name, address], capture_output=True, text=True, check=True).stdout
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", done)
    return {"a_second": round(float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])),
            "asked": int(re.search(r"(\d+) requests in", done)[1]),
            **{f"p{share}_ms": milliseconds(re.search(rf"\n\s+{share}%\s+(\S+)", done)[1]) for share in (50, 90, 99)},
            "longest_ms": milliseconds(re.search(r"Latency\s+\S+\s+\S+\s+(\S+)", done)[1]),
            "failed": (int(refused[1]) if refused else 0) + (sum(map(int, broken.groups())) if broken else 0)}


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return round(float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit], 2)


def rating(port, people, items, stop, kept):
    """50 ratings a second until told to stop; kept: whether each was acknowledged."""
    rng, domains = random.Random(0), list(people)
    connection, began = HTTPConnection("127.0.0.1", port, timeout=10), time.monotonic()
    while not stop.is_set():
        domain = rng.choice(domains)
        row = {"user": str(rng.choice(people[domain][:500])), "domain": domain, "item": str(rng.choice(items[domain])),
               "rating": rng.randint(1, 5)}
        try:
            connection.request("PUT", "/v1/ratings", json.dumps({"ratings": [row]}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            kept.append(answer.status == 200 and json.load(answer)["accepted"] == 1)
        except (OSError, HTTPException):
            connection.close()
            kept.append(False)
        time.sleep(max(0.0, began + len(kept) / RATINGS_A_SECOND - time.monotonic()))


def lists_are_made(service):
    until = time.monotonic() + 300
    while any(d["coverage"] is None for d in service.get("/v1/status")["domains"]):
        assert time.monotonic() < until
        time.sleep(0.5)


def refit_started(service):
    """The number of a refit; while the lists of everybody are made, none can start."""
    while (answer := service.ask("POST", "/v1/refit")[1])["state"] != "started":
        time.sleep(0.2)
    return answer["refit"]


def is_served(service, refit):
    """Whether every process serves what a refit made, or it made nothing. Each question may go to another process."""
    return refit.get("ended") is not None and all(
        refit["version"] in (None, service.get("/v1/domains")["model"]) for _ in range(20))


def kills(told):
    """kill -9 of all processes of a service at random moments while ratings come: none that was acknowledged is lost."""
    folder, rng = Path(tempfile.mkdtemp(prefix="pclf-kills-")), random.Random(told.seed)
    service, kept, starts = Service(folder / "s", small_model(folder / "model"), "--refit-after", "400"), {}, []
    titles = ids("films", 100)
    for life in range(told.times):
        starts.append(service.start())
        stop = threading.Event()

        def rate_on(life=life, stop=stop):
            n = 0
            while not stop.is_set():
                row = f"u{life}-{n}", "films", titles[n % len(titles)], float(1 + n % 5)
                try:
                    service.rate(row)
                except (OSError, AssertionError, ValueError, HTTPException):
                    return
                kept[row[:3]] = row[3]
                n += 1

        writer = threading.Thread(target=rate_on)
        writer.start()
        time.sleep(rng.uniform(0.0, 1.2))
        service.kill()
        stop.set()
        writer.join()
        print(f"\r{life + 1} of {told.times}, {len(kept):,} ratings acknowledged", end="", file=sys.stderr)
    starts.append(service.start())
    status = service.get("/v1/status")
    with sqlite3.connect(folder / "s" / "shop.db") as db:
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]
        found = {row[:3]: row[3] for row in db.execute("SELECT user_id, domain, item, rating FROM ratings")}
    lost = sum(found.get(key) != value for key, value in kept.items())
    for version in status["versions"]:                       # each is read and checked against its own checksum
        pclf.load(service.models / f"v{version['version']:04d}.model")
    refits = Counter(refit["outcome"] for refit in status["refits"])
    service.stop()
    shutil.rmtree(folder, ignore_errors=True)
    print(file=sys.stderr)
    write(told, "kills", times=told.times, acknowledged=len(kept), lost=lost, database=whole,
          model=status["model"]["version"], models_whole=len(status["versions"]), refits=dict(refits),
          start_median=round(sorted(starts)[len(starts) // 2], 2), start_longest=round(max(starts), 2))
    if lost or whole != "ok":
        raise SystemExit(f"{lost} acknowledged ratings were lost, and the database is {whole}")


NASTY = ["", " ", "'; DROP TABLE ratings; --", "<script>alert(1)</script>", "../../../etc/passwd", "%00", "\x00", "\ud800",
         "é" * 300, "𝔘", "null", "NaN", "-1", "1e999", "9" * 400, "{}", "[]", "\r\nX-Evil: 1", "A Kiss in Nara", "ana-000",
         "books", "films", "liked", "rating", "true", "\u202e", "$(id)", "{{7*7}}", "A" * 5000]


def fuzz(told):
    """Requests made from the OpenAPI document, and damaged: nothing is answered with 5xx, and the service lives."""
    folder, rng = Path(tempfile.mkdtemp(prefix="pclf-fuzz-")), random.Random(told.seed)
    counts, bad = {}, []
    model = told.model or small_model(folder / "model")
    with Service(folder / "s", model, "--log-level", "error", "--max-body", "50000") as service:
        document = service.get("/openapi.json")
        routes = [(method.upper(), path, about) for path, methods in document["paths"].items()
                  for method, about in methods.items() if path != "/v1/refit"]
        connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
        for _ in range(told.requests):
            method, path, about = rng.choice(routes)
            target, body, headers = made(rng, path, about, document)
            try:
                connection.request(method if rng.random() > 0.03 else rng.choice(["PATCH", "TRACE", "HEAD", "OPTIONS"]), target, body, headers)
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            except (OSError, HTTPException, ValueError, UnicodeError) as error:      # refused by a closed connection, or never sent
                connection.close()
                connection, status = HTTPConnection("127.0.0.1", service.port, timeout=30), type(error).__name__
                if isinstance(error, (OSError, HTTPException)):
                    print(status, method, target[:200], str(body)[:200], headers, file=sys.stderr)
            counts[status] = counts.get(status, 0) + 1
            if isinstance(status, int) and status >= 500:
                bad.append((method, target, str(body)[:300], status))
        alive = service.get("/health/ready")["status"]
    shutil.rmtree(folder, ignore_errors=True)
    for one in bad[:5]:
        print(*one, file=sys.stderr)
    write(told, "fuzz", requests=told.requests, answers={str(k): v for k, v in sorted(counts.items(), key=str)},
          server_errors=len(bad), alive=alive)
    if bad:
        raise SystemExit(f"{len(bad)} requests were answered with 5xx")


def made(rng, path, about, document):
    """A path with its parameters, a body and headers: some right, some wrong, some hostile."""
    target = re.sub(r"{\w+}", lambda _: quote(rng.choice(NASTY).encode(errors="replace"), safe="" if rng.random() < 0.8 else "/%"),
                    path)
    query = [(p["name"], of_schema(rng, p["schema"], document)) for p in about.get("parameters", ())
             if p["in"] == "query" and (p.get("required") or rng.random() < 0.6)]
    if query:
        target += "?" + "&".join(f"{k}={quote(str(v).encode(errors='replace'))}" for k, v in query)
    headers, body = {}, None
    if "requestBody" in about:
        schema = about["requestBody"]["content"]["application/json"]["schema"]
        text = json.dumps(of_schema(rng, schema, document))
        if rng.random() < 0.15:
            at = rng.randrange(max(1, len(text)))
            text = text[:at] + rng.choice(["", "{", "\\u0000", "[" * 200, '"', rng.choice(string.printable)]) + text[at + 1:]
        body = text.encode(errors="replace")
        headers["Content-Type"] = "application/json" if rng.random() < 0.95 else "text/plain"
    if rng.random() < 0.05:
        headers[rng.choice(["X-API-Key", "X-Request-ID", "Origin", "Host", "X-Forwarded-For", "Content-Length"])] = rng.choice(
            ["x", "0", "http://evil.test", "127.0.0.1", "999999999"])
    return target, body, headers


def of_schema(rng, schema, document, depth=0):
    """A value that fits a JSON schema, most of the time."""
    if rng.random() < 0.08 or depth > 8:
        return rng.choice([None, True, -1, 0, 3, 1e308, 0.5, rng.choice(NASTY), [], {}, [[]], {"a": {}}])
    if "$ref" in schema:
        return of_schema(rng, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document, depth)
    if "anyOf" in schema:
        return of_schema(rng, rng.choice(schema["anyOf"]), document, depth + 1)
    kind = schema.get("type")
    if kind == "object":
        named = {name: of_schema(rng, part, document, depth + 1) for name, part in schema.get("properties", {}).items()
                 if name in schema.get("required", ()) or rng.random() < 0.5}
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            named |= {rng.choice(NASTY): of_schema(rng, more, document, depth + 1) for _ in range(rng.randrange(4))}
        return named
    if kind == "array":
        return [of_schema(rng, schema.get("items", {}), document, depth + 1) for _ in range(rng.randrange(5))]
    return {"string": lambda: rng.choice(NASTY), "integer": lambda: rng.choice([1, 2, 3, 5, 10, 0, -1, 10**6, 10**30]),
            "number": lambda: rng.choice([1, 2.5, 5, -1e9, 1e300]), "boolean": lambda: rng.random() < 0.5,
            "null": lambda: None}.get(kind, lambda: rng.choice(NASTY))()


def say(row):
    print("  ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr)


def write(told, word, **found):
    row = {"word": word, "commit": commit(), "machine": machine(), "cores": os.cpu_count(),
           "load": round(os.getloadavg()[0], 1), **found}
    print(json.dumps(row))
    if told.out:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", choices=("load", "kills", "fuzz"))
    parser.add_argument("--demo", action="store_true", help="load: the demo's catalogues")
    parser.add_argument("--model", help="load and fuzz: a model that was fitted before")
    parser.add_argument("--seconds", type=int, default=10, help="load: of each part")
    parser.add_argument("--pace", type=int, default=2000, help="load: requests a second of the paced phases")
    parser.add_argument("--peers", help="load: a Python with fastapi, uvicorn and implicit, to measure these beside pclf")
    parser.add_argument("--patience", type=int, default=1800, help="load: seconds to wait for the refit")
    parser.add_argument("--workers", type=int, default=2, help="load: processes that answer")
    parser.add_argument("--times", type=int, default=100, help="kills")
    parser.add_argument("--requests", type=int, default=10_000, help="fuzz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", action="store_true", help="append a row to benchmarks/results/serve.jsonl")
    told = parser.parse_args()
    {"load": load, "kills": kills, "fuzz": fuzz}[told.word](told)


if __name__ == "__main__":
    main()
