"""The store: what people said and did, which model versions there are, and how refits went. SQLite or PostgreSQL.

Every write takes the next tick of one clock in its own transaction. That row is locked until the transaction ends, so
ticks are handed out in the order in which writes become visible: who has read everything up to a tick never finds a
smaller one later. A rating is one row a user and item, the last word counts, and its tick says when it was said.

Erasure: `forget` deletes at once, and leaves a keyed hash of the id behind, by which the next refit finds the person in
model files. SQLite overwrites deleted rows (secure_delete); `scrub` then empties its journal, or rewrites the tables of
PostgreSQL.
"""

import hashlib
import hmac
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from pclf.errors import StoreError

BUSY = 5_000               # milliseconds to wait for another writer
PATIENCE = 3               # seconds to connect, and for a statement
FEW = 200                  # rows that are read at once
REMEMBERED = 200_000       # lists that were shown, at most

tables = sa.MetaData()
versions = sa.Table("schema_version", tables, sa.Column("version", sa.Integer, primary_key=True))
clock = sa.Table("clock", tables, sa.Column("name", sa.String(16), primary_key=True),
                 sa.Column("tick", sa.BigInteger, nullable=False), sa.Column("salt", sa.String(64), nullable=False))
ratings = sa.Table(
    "ratings", tables, sa.Column("user_id", sa.Text, primary_key=True), sa.Column("domain", sa.Text, primary_key=True),
    sa.Column("item", sa.Text, primary_key=True), sa.Column("rating", sa.Float, nullable=False),
    sa.Column("at", sa.Float, nullable=False), sa.Column("tick", sa.BigInteger, nullable=False, index=True))
items = sa.Table(
    "items", tables, sa.Column("domain", sa.Text, primary_key=True), sa.Column("item", sa.Text, primary_key=True),
    sa.Column("title", sa.Text), sa.Column("attributes", sa.Text), sa.Column("tick", sa.BigInteger, nullable=False))
events = sa.Table(
    "events", tables, sa.Column("id", sa.Text, primary_key=True), sa.Column("user_id", sa.Text, nullable=False,
                                                                          index=True),
    sa.Column("domain", sa.Text, nullable=False), sa.Column("item", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False), sa.Column("list", sa.Text), sa.Column("at", sa.Float, nullable=False),
    sa.Column("tick", sa.BigInteger, nullable=False, index=True))
shown = sa.Table(
    "shown", tables, sa.Column("id", sa.Text, primary_key=True), sa.Column("user_id", sa.Text, nullable=False,
                                                                          index=True),
    sa.Column("domain", sa.Text, nullable=False), sa.Column("contents", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False, index=True))
erasures = sa.Table("erasures", tables, sa.Column("token", sa.String(64), primary_key=True),
                    sa.Column("at", sa.Float, nullable=False), sa.Column("tick", sa.BigInteger, nullable=False))
models = sa.Table(
    "models", tables, sa.Column("version", sa.Integer, primary_key=True), sa.Column("file", sa.Text, nullable=False),
    sa.Column("source", sa.Text), sa.Column("known", sa.BigInteger, nullable=False),   # up to which tick
    sa.Column("at", sa.Float, nullable=False), sa.Column("current", sa.Boolean, nullable=False),
    sa.Column("figures", sa.Text, nullable=False), sa.Column("tick", sa.BigInteger, nullable=False))
given = sa.Table("given", tables, sa.Column("seal", sa.Text, primary_key=True))     # models that somebody put here
refits = sa.Table(
    "refits", tables, sa.Column("id", sa.Text, primary_key=True), sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float), sa.Column("outcome", sa.Text, nullable=False), sa.Column("reason", sa.Text),
    sa.Column("version", sa.Integer), sa.Column("figures", sa.Text))
leases = sa.Table("leases", tables, sa.Column("name", sa.String(16), primary_key=True),
                  sa.Column("holder", sa.Text, nullable=False), sa.Column("until", sa.Float, nullable=False))
keys = sa.Table("keys", tables, sa.Column("hash", sa.String(64), primary_key=True),
                sa.Column("may", sa.String(8), nullable=False), sa.Column("at", sa.Float, nullable=False))

OF_PEOPLE = (ratings, events, shown)
UNAVAILABLE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError, sa.exc.TimeoutError)


@dataclass(frozen=True)
class Rating:
    user: str
    domain: str
    item: str
    rating: float


@dataclass(frozen=True)
class Version:
    """A model version. known: the tick up to which its ratings go. figures: its error and lists on held-out ratings."""

    version: int
    file: str
    source: str | None
    known: int
    at: float
    current: bool
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Changes:
    """What was written after a tick, up to another."""

    tick: int
    ratings: Sequence[Rating]
    items: Sequence[tuple[str, str, str | None]]       # domain, item, title
    erasures: Sequence[str]
    models: bool                                       # whether the versions changed


class Store:
    """One database. Methods may be called from any thread; a failing database is a `StoreError`.

    patience: seconds for a statement, which those who answer must not wait long for.
    """

    def __init__(self, url: str, patience: int = PATIENCE) -> None:
        self.url = url
        self.lite = url.startswith("sqlite")
        if self.lite:
            self.engine = sa.create_engine(url, pool_size=8, max_overflow=8,
                                           connect_args={"timeout": BUSY / 1000, "check_same_thread": False})
            sa.event.listen(self.engine, "connect", _as_we_want_it)
            sa.event.listen(self.engine, "begin", _begin)
        else:
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
            waits = f"-c statement_timeout={1000 * patience} -c lock_timeout={1000 * PATIENCE}"
            self.engine = sa.create_engine(url, pool_size=8, max_overflow=8, pool_pre_ping=True, pool_timeout=PATIENCE,
                                           connect_args={"connect_timeout": PATIENCE, "options": waits})
        self.salt = b""
        self._beside: sqlite3.Connection | None = None       # for `tick_at_once`

    def open(self) -> None:
        """Bring the tables to this version, whichever they have; several processes may try at once."""
        with self._transaction() as db:
            if not self.lite:
                db.execute(sa.text("SELECT pg_advisory_xact_lock(7045320)"))
            versions.create(db, checkfirst=True)
            have = db.scalar(sa.select(sa.func.max(versions.c.version))) or 0
            if have > len(MIGRATIONS):
                raise StoreError(f"the database must have tables of version {len(MIGRATIONS)} at most; got {have}. It "
                                 f"was made by a newer pclf: install that one.")
            for number, step in enumerate(MIGRATIONS[have:], have + 1):
                step(db)
                db.execute(versions.insert().values(version=number))
            self.salt = bytes.fromhex(db.scalars(sa.select(clock.c.salt)).one())

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()
        self._beside = None
        self.engine.dispose()

    def tick(self) -> int:
        """The clock. Whoever knows everything up to here knows everything."""
        with self._reading() as db:
            return int(db.scalars(sa.select(clock.c.tick)).one())

    def tick_at_once(self) -> int | None:
        """The clock where it can be read in microseconds, by one thread alone; None where it takes a thread that waits.

        SQLite's readers wait for no writer, and a handful of bytes that every write has just touched are in memory.
        """
        if not self.lite:
            return None
        try:
            return int(self._quick().execute("SELECT tick FROM clock").fetchone()[0])
        except (sqlite3.Error, TypeError):
            return None

    def changes_at_once(self, after: int, ratings_after: int) -> Changes | None:
        """`changes` of a few rows, in the same way; None where there are more, or somebody was erased."""
        if not self.lite:
            return None
        try:
            db = self._quick()
            db.execute("BEGIN")
            try:
                now = int(db.execute("SELECT tick FROM clock").fetchone()[0])
                gone = db.execute("SELECT 1 FROM erasures WHERE tick > ? LIMIT 1", (after,)).fetchall()
                found = db.execute("SELECT user_id, domain, item, rating FROM ratings WHERE tick > ? AND tick <= ? "
                                   "LIMIT ?", (ratings_after, now, FEW + 1)).fetchall()
                new = db.execute("SELECT domain, item, title FROM items WHERE tick > ? LIMIT ?",
                                 (after, FEW + 1)).fetchall()
                changed = db.execute("SELECT 1 FROM models WHERE tick > ? LIMIT 1", (after,)).fetchall()
            finally:
                db.execute("ROLLBACK")
        except (sqlite3.Error, TypeError):
            return None
        if gone or max(len(found), len(new)) > FEW:
            return None
        return Changes(now, [Rating(*row) for row in found], new, [], bool(changed))

    def _quick(self) -> sqlite3.Connection:
        if self._beside is None:
            path = self.engine.url.database or ":memory:"
            self._beside = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        return self._beside

    def changes(self, after: int, ratings_after: int) -> Changes:
        """What came after a tick; ratings after another, since a model may know more of them than we do."""
        with self._reading() as db:
            now = int(db.scalars(sa.select(clock.c.tick)).one())
            found = db.execute(sa.select(ratings.c.user_id, ratings.c.domain, ratings.c.item, ratings.c.rating).where(
                ratings.c.tick > ratings_after, ratings.c.tick <= now)).all()
            new = db.execute(sa.select(items.c.domain, items.c.item, items.c.title).where(items.c.tick > after)).all()
            gone = db.scalars(sa.select(erasures.c.token).where(erasures.c.tick > after)).all()
            changed = db.scalar(sa.select(sa.func.count()).select_from(models).where(models.c.tick > after))
        return Changes(now, [Rating(*row) for row in found], [(d, i, t) for d, i, t in new], list(gone), bool(changed))

    def rate(self, rows: Sequence[Rating], new_items: Iterable[tuple[str, str]] = ()) -> int:
        """Keep ratings, the last of a user and item, and items that nobody knew. Returns the tick."""
        last = {(r.user, r.domain, r.item): r.rating for r in rows}
        with self._transaction() as db:
            tick, now = self._next(db), time.time()
            self._upsert(db, ratings, [{"user_id": u, "domain": d, "item": i, "rating": r, "at": now, "tick": tick}
                                       for (u, d, i), r in last.items()], ("user_id", "domain", "item"))
            self._insert_new(db, items, [{"domain": d, "item": i, "title": None, "attributes": None, "tick": tick}
                                         for d, i in dict.fromkeys(new_items)])
        return tick

    def describe(self, rows: Sequence[tuple[str, str, str | None, Mapping[str, Any] | None]]) -> int:
        """Keep items: domain, id, title, attributes."""
        with self._transaction() as db:
            tick = self._next(db)
            self._upsert(db, items, [{"domain": d, "item": i, "title": t, "tick": tick,
                                      "attributes": None if a is None else json.dumps(dict(a))}
                                     for d, i, t, a in {(row[0], row[1]): row for row in rows}.values()],
                         ("domain", "item"))
        return tick

    def happened(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Keep events; one that is there already stays as it is. Returns how many are new."""
        with self._transaction() as db:
            tick = self._next(db)
            return self._insert_new(db, events, [{**row, "tick": tick} for row in rows])

    def show(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Remember lists that were shown: id, user_id, domain, contents, at."""
        with self._transaction() as db:
            self._insert_new(db, shown, rows)

    def trim(self) -> None:
        """Forget the oldest lists beyond as many as are remembered."""
        with self._transaction() as db:
            old = db.scalar(sa.select(shown.c.at).order_by(shown.c.at.desc()).offset(REMEMBERED).limit(1))
            if old is not None:
                db.execute(shown.delete().where(shown.c.at <= old))

    def was_shown(self, list_id: str) -> tuple[str, str, list[str]] | None:
        """User, domain and items of a list."""
        with self._reading() as db:
            row = db.execute(sa.select(shown.c.user_id, shown.c.domain, shown.c.contents).where(
                shown.c.id == list_id)).one_or_none()
        return None if row is None else (row[0], row[1], json.loads(row[2]))

    def token(self, user: str) -> str:
        """What an erased id is known by: nobody can read the id from it."""
        return hmac.new(self.salt, user.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()

    def forget(self, user: str) -> int:
        """Delete a person, at once. Returns how many rows there were."""
        with self._transaction() as db:
            tick, gone = self._next(db), 0
            for table in OF_PEOPLE:
                gone += db.execute(table.delete().where(table.c.user_id == user)).rowcount
            self._upsert(db, erasures, [{"token": self.token(user), "at": time.time(), "tick": tick}], ("token",))
        return gone

    def erased(self) -> list[tuple[str, int]]:
        """Tokens and ticks of erasures that model files may not have heard of."""
        with self._reading() as db:
            return [(t, k) for t, k in db.execute(sa.select(erasures.c.token, erasures.c.tick))]

    def scrub(self, done: Iterable[tuple[str, int]]) -> None:
        """Once no model knows these people: drop the last trace, and overwrite what databases leave behind."""
        done = list(done)
        gone = {token for token, _ in done}
        with self._transaction() as db:
            for user in db.scalars(sa.select(shown.c.user_id).distinct()).all():
                if self.token(user) in gone:                     # another process may have shown them a list meanwhile
                    db.execute(shown.delete().where(shown.c.user_id == user))
            for token, tick in done:
                db.execute(erasures.delete().where(erasures.c.token == token, erasures.c.tick == tick))
        if self.lite:
            self._empty_journal()
            return
        with _told(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            for table in (*OF_PEOPLE, erasures):
                db.execute(sa.text(f"VACUUM FULL {table.name}"))

    def _empty_journal(self) -> None:
        """Bring everything from SQLite's journal into its file, and cut it off; outside of any transaction."""
        plain = self.engine.raw_connection()
        try:
            for _ in range(20):                  # while others read, it is in use
                busy = plain.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                if not busy:
                    return
                time.sleep(0.1)
        finally:
            plain.close()
        raise StoreError("the journal of the database is in use all the time: it cannot be emptied")

    def versions(self) -> list[Version]:
        """The model versions that are kept, the newest first."""
        with self._reading() as db:
            return [_version(row) for row in db.execute(sa.select(models).order_by(models.c.version.desc()))]

    def was_given(self, seal: str) -> bool:
        """Whether a model was put here before, however long ago."""
        with self._reading() as db:
            return db.scalar(sa.select(given.c.seal).where(given.c.seal == seal)) is not None

    def new_version(self) -> int:
        with self._reading() as db:
            taken = [db.scalar(sa.select(sa.func.max(t.c.version))) or 0 for t in (models, refits)]
        return max(taken) + 1

    def adopt(self, made: Version, keep: int) -> list[Version]:
        """A new version is the current one, in one step. Returns those that need no longer be kept."""
        with self._transaction() as db:
            tick = self._next(db)
            db.execute(models.update().values(current=False, tick=tick).where(models.c.current))
            db.execute(models.insert().values(version=made.version, file=made.file, source=made.source,
                                              known=made.known, at=made.at, current=True, tick=tick,
                                              figures=json.dumps(dict(made.figures))))
            if made.source is not None:
                self._insert_new(db, given, [{"seal": made.source}])
            kept = [_version(row) for row in db.execute(sa.select(models).order_by(models.c.version.desc()))]
            for old in kept[keep:]:
                db.execute(models.delete().where(models.c.version == old.version))
        return kept[keep:]

    def roll_back(self) -> Version | None:
        """The version before the current one is the current one again; None where there is none."""
        with self._transaction() as db:
            tick = self._next(db)
            kept = [_version(row) for row in db.execute(sa.select(models).order_by(models.c.version.desc()))]
            at = next((i for i, version in enumerate(kept) if version.current), len(kept))
            if at + 1 >= len(kept):
                return None
            before = kept[at + 1]
            db.execute(models.update().values(current=models.c.version == before.version, tick=tick))
            self._note(db, {"id": secrets.token_hex(8), "started": time.time(), "ended": time.time(),
                            "outcome": "rolled back", "reason": f"from version {kept[at].version}",
                            "version": before.version, "figures": json.dumps(dict(before.figures))})
        return before

    def touched(self) -> None:
        """Files of the versions were rewritten: whoever holds one loads it again."""
        with self._transaction() as db:
            db.execute(models.update().values(tick=self._next(db)))

    def figures(self, version: int, found: Mapping[str, Any]) -> None:
        """What was measured of a version."""
        with self._transaction() as db:
            db.execute(models.update().where(models.c.version == version).values(figures=json.dumps(dict(found))))

    def note(self, row: Mapping[str, Any]) -> None:
        """How a refit goes, by its id."""
        with self._transaction() as db:
            self._note(db, row)

    def refits(self, most: int = 100) -> list[dict[str, Any]]:
        """The last refits, the latest first. One whose process was killed could not say so: it holds no lease."""
        with self._reading() as db:
            rows = db.execute(sa.select(refits).order_by(refits.c.started.desc()).limit(most)).mappings().all()
            held = db.scalars(sa.select(leases.c.holder).where(leases.c.until >= time.time())).all()
        killed = {"outcome": "failed", "reason": "its process was killed"}
        return [{**row, "figures": json.loads(row["figures"] or "{}"),
                 **(killed if row["outcome"] == "running" and row["id"] not in held else {})} for row in rows]

    def counts(self, known: int) -> dict[str, int]:
        """How much there is, and how many ratings a model that knows so much has not heard of."""
        with self._reading() as db:
            out = {table.name: int(db.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
                   for table in (ratings, events, shown, items, erasures)}
            out["fresh"] = int(db.scalar(sa.select(sa.func.count()).select_from(ratings).where(
                ratings.c.tick > known)) or 0)
            out["clicked"] = int(db.scalar(sa.select(sa.func.count()).select_from(events).where(
                events.c.list.is_not(None))) or 0)
        return out

    def rated_since(self, moment: float) -> int:
        with self._reading() as db:
            return int(db.scalar(sa.select(sa.func.count()).select_from(ratings).where(ratings.c.at > moment)) or 0)

    def described(self) -> list[tuple[str, str, str | None, dict[str, Any] | None]]:
        """All items that were told: domain, id, title, attributes."""
        with self._reading() as db:
            rows = db.execute(sa.select(items.c.domain, items.c.item, items.c.title, items.c.attributes)).all()
        return [(d, i, t, None if a is None else json.loads(a)) for d, i, t, a in rows]

    def done(self, after: int, up_to: int) -> list[tuple[str, str, str]]:
        """Events between two ticks: user, domain, item."""
        with self._reading() as db:
            rows = db.execute(sa.select(events.c.user_id, events.c.domain, events.c.item).where(
                events.c.tick > after, events.c.tick <= up_to).order_by(events.c.tick)).all()
        return [(u, d, i) for u, d, i in rows]

    def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take something that one process at a time may do, or hold it longer. False if another has it."""
        now = time.time()
        with self._transaction() as db:
            self._insert_new(db, leases, [{"name": name, "holder": "", "until": 0.0}])
            taken = db.execute(leases.update().where(
                leases.c.name == name, sa.or_(leases.c.holder == holder, leases.c.until < now)).values(
                    holder=holder, until=now + seconds)).rowcount
        return bool(taken)

    def renew(self, name: str, holder: str, seconds: float) -> None:
        """Hold it longer. One statement by itself: whoever computes beside it may keep Python for a while, and nobody
        can write in the meantime if a transaction is open."""
        until = time.time() + seconds
        with _told():
            if not self.lite:
                mine = leases.update().where(leases.c.name == name, leases.c.holder == holder)
                with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
                    db.execute(mine.values(until=until))
                return
            plain = self.engine.raw_connection()
            try:
                plain.cursor().execute("UPDATE leases SET until = ? WHERE name = ? AND holder = ?",
                                       (until, name, holder))
            except sqlite3.Error as error:
                raise StoreError(f"the database cannot be used: {type(error).__name__}") from error
            finally:
                plain.close()

    def release(self, name: str, holder: str) -> None:
        with self._transaction() as db:
            db.execute(leases.update().where(leases.c.name == name, leases.c.holder == holder).values(until=0.0))

    def keys(self) -> dict[str, str]:
        """Hash of each key, and what it may do."""
        with self._reading() as db:
            return {row.hash: row.may for row in db.execute(sa.select(keys.c.hash, keys.c.may))}

    def add_key(self, hashed: str, may: str) -> None:
        with self._transaction() as db:
            db.execute(keys.insert().values(hash=hashed, may=may, at=time.time()))

    def _next(self, db: sa.Connection) -> int:
        """The next tick; the row stays locked until the transaction ends."""
        return int(db.scalars(clock.update().values(tick=clock.c.tick + 1).returning(clock.c.tick)).one())

    def _upsert(self, db: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]],
                key: tuple[str, ...]) -> None:
        if rows:
            made = self._insert(table)
            new = {column.name: made.excluded[column.name] for column in table.columns if column.name not in key}
            db.execute(made.on_conflict_do_update(index_elements=list(key), set_=new), list(rows))

    def _insert_new(self, db: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> int:
        return db.execute(self._insert(table).on_conflict_do_nothing(), list(rows)).rowcount if rows else 0

    def _note(self, db: sa.Connection, row: Mapping[str, Any]) -> None:
        self._upsert(db, refits, [{"ended": None, "reason": None, "version": None, "figures": None, **row}], ("id",))

    def _insert(self, table: sa.Table) -> Any:
        return sqlite.insert(table) if self.lite else postgresql.insert(table)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with _told(), self.engine.begin() as db:
            yield db

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """One view of all tables, which waits for no writer."""
        options = {} if self.lite else {"isolation_level": "REPEATABLE READ"}
        with _told(), self.engine.connect().execution_options(reading=True, **options) as db:
            yield db


@contextmanager
def _told() -> Iterator[None]:
    """Whatever a driver says when its database is gone, locked or full is one kind of error."""
    try:
        yield
    except UNAVAILABLE as error:
        raise StoreError(f"the database cannot be used: {type(error.orig or error).__name__}" if isinstance(
            error, sa.exc.DBAPIError) else "the database does not answer") from error


def _as_we_want_it(connection: Any, _: Any) -> None:
    """SQLite: readers beside one writer, nothing acknowledged before it is on the disk, deleted rows overwritten."""
    connection.isolation_level = None          # we say when a transaction begins
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", f"busy_timeout={BUSY}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    """A writer takes its place at once: one that began by reading might find that it may not write."""
    reading = connection.get_execution_options().get("reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _version(row: Any) -> Version:
    return Version(row.version, row.file, row.source, row.known, row.at, bool(row.current), json.loads(row.figures))


def _first(db: sa.Connection) -> None:
    for table in (clock, ratings, items, events, shown, erasures, models, given, refits, leases, keys):
        table.create(db)
    if db.dialect.name == "postgresql":        # its statistics would keep the ids of those who rate most
        for table in OF_PEOPLE:
            db.execute(sa.text(f"ALTER TABLE {table.name} ALTER COLUMN user_id SET STATISTICS 0"))
    db.execute(clock.insert().values(name="clock", tick=0, salt=secrets.token_hex(32)))


# From one version of the tables to the next. A step that was released is never changed: what is new is a new step.
MIGRATIONS: list[Callable[[sa.Connection], None]] = [_first]
