"""Real services for tests: `pclf serve` in a process of its own on loopback, and a real PostgreSQL beside it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pytest

import pclf
from pclf.datasets import demo

PATIENCE = 60.0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def small_model(path, **settings):
    """The demo's catalogues, learned in a second or two, and the lists of everybody, which a service would make."""
    from pclf.service.shelf import Shelf
    from pclf.service.store import Version

    model = pclf.PCLF(4, 3, 3, n_factors=4, max_iter=4, n_restarts=1, **settings).fit(pclf.datasets.load("demo"))
    model.save(path)
    Shelf(path.parent, None).make_lists(Version(1, path.name, None, 0, 0.0, True, {}), model)
    return path


class Service:
    """`pclf serve` as somebody types it. `log` is what it wrote. first: a line of Python that is run before it."""

    def __init__(self, folder, model, *options, db=None, port=None, environment=None, limit=None, first=None):
        self.folder, self.model, self.options = Path(folder), model, options
        self.folder.mkdir(parents=True, exist_ok=True)
        made = self.model and Path(model).with_suffix(".lists")
        if made and made.exists() and not self.models.exists():
            self.models.mkdir()
            shutil.copyfile(made, self.models / "v0001.lists")
        self.db, self.port = db or f"sqlite:///{self.folder / 'shop.db'}", port or free_port()
        self.environment, self.limit, self.process = environment or {}, limit, None
        self.command = ["-m", "pclf"] if first is None else ["-c", f"{first}; from pclf.cli import main; main()"]
        self.address = f"http://127.0.0.1:{self.port}"

    @property
    def log(self):
        return (self.folder / "log").read_text(encoding="utf-8")

    @property
    def models(self):
        return self.folder / "models"

    def start(self, wait=True):
        """Returns after how many seconds it answered."""
        began = time.monotonic()
        words = [sys.executable, *self.command, "serve", *([str(self.model)] if self.model else []), "--db", self.db,
                 "--models", str(self.models), "--port", str(self.port), "--refit-every", "0", *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                            start_new_session=True, preexec_fn=self.limit,
                                            env={**os.environ, "NUMBA_NUM_THREADS": "1", **self.environment})
        while wait:
            assert self.process.poll() is None, self.log[-3000:]
            assert time.monotonic() - began < PATIENCE, self.log[-3000:]
            try:
                with urlopen(f"{self.address}/health/ready", timeout=2):
                    break
            except (URLError, OSError):
                time.sleep(0.02)
        return time.monotonic() - began

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        """kill -9 of the service and of every process that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, method, path, body=None, headers=None, timeout=30):
        """Status and answer, whatever it is."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        more = {"Content-Type": "application/json"} if data is not None else {}
        request = Request(self.address + path, data, {**more, **(headers or {})}, method=method)
        try:
            with urlopen(request, timeout=timeout) as answer:
                text = answer.read()
                kind = answer.headers.get("content-type", "")
                self.headers = answer.headers
                return answer.status, json.loads(text) if "json" in kind else text.decode()
        except HTTPError as error:
            with error:
                self.headers = error.headers
                return error.code, json.loads(error.read() or b"null")

    def get(self, path):
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def list(self, user, domain, **more):
        told = "&".join(f"{name}={quote(str(value))}" for name, value in {"domain": domain, **more}.items())
        return self.get(f"/v1/users/{quote(str(user), safe='')}/recommend?{told}")

    def rate(self, *rows):
        names = ("user", "domain", "item", "rating")
        status, answer = self.ask("PUT", "/v1/ratings", {"ratings": [dict(zip(names, row, strict=True))
                                                                     for row in rows]})
        assert status == 200, answer
        return answer

    def refit(self, patience=120):
        """Refit, and return how it ended."""
        status, answer = self.ask("POST", "/v1/refit")
        assert status == 202, answer
        if answer["state"] != "started":
            time.sleep(0.3)
            return self.refit(patience)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            mine = next((r for r in self.get("/v1/status")["refits"] if r["id"] == answer["refit"]), None)
            if mine is not None and mine["ended"] is not None:
                if mine["outcome"] == "accepted":
                    self.wait_for(mine["version"])
                return mine
            time.sleep(0.1)
        raise AssertionError(self.log[-3000:])

    def wait_for(self, version):
        until = time.monotonic() + PATIENCE
        while self.get("/v1/domains")["model"] != version:
            assert time.monotonic() < until
            time.sleep(0.05)


def bytes_of(folder):
    """Everything in the files of a folder."""
    return b"".join(file.read_bytes() for file in sorted(Path(folder).rglob("*")) if file.is_file())


def ids(domain, n=10, seed=0):
    """Some titles of the demo."""
    titles = sorted(demo.truth().region_of[domain])
    return [titles[i] for i in np.random.default_rng(seed).permutation(len(titles))[:n]]


class Postgres:
    """A PostgreSQL server on loopback, of its own files, that can be stopped and started again."""

    def __init__(self):
        homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) if Path("/usr/lib/postgresql").is_dir() else []
        found = str(homes[-1]) if homes else shutil.which("initdb")
        if found is None:
            pytest.skip("no PostgreSQL here: apt install postgresql")
        self.bin, self.port = Path(found).parent, free_port()
        self.as_root = os.geteuid() == 0                       # which PostgreSQL refuses to be
        if self.as_root and shutil.which("runuser") is None:
            pytest.skip("PostgreSQL does not run as root, and runuser is not here")
        self.folder = Path(tempfile.mkdtemp(prefix="pclf-postgres-"))      # pytest closes its own folders to others
        if self.as_root:
            shutil.chown(self.folder, "postgres", "postgres")
        self._do("initdb", "-D", self.folder / "data", "-U", "shop", "-A", "trust", "--no-sync", "-E", "UTF8")

    def new_database(self):
        """The address of one without tables."""
        name = f"shop{time.time_ns()}"
        self._do("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "shop", name)
        return f"postgresql://shop@127.0.0.1:{self.port}/{name}"

    def start(self):
        self._do("pg_ctl", "-D", self.folder / "data", "-w", "-l", self.folder / "log", "-o",
                 f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off", "start")

    def stop(self):
        self._do("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, word, *more):
        command = [str(self.bin / word), *map(str, more)]
        if self.as_root:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                       stdin=subprocess.DEVNULL)
