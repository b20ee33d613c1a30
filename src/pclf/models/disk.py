"""Fits larger than memory, and models whose users stay on disk.

Such a model has all items, tables and weights, and nobody's rows. Whoever is asked about is found in a part of the
users, and a model of that part, which is one like any other, answers.
"""

import copy
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pclf import storage
from pclf.blocks.block import Block, block_of
from pclf.blocks.catalogue import Catalogue
from pclf.blocks.choices import Spread
from pclf.blocks.engine import BlockEngine
from pclf.blocks.groups import Finish
from pclf.blocks.intake import Advance, Sized, take_in
from pclf.blocks.people import PartFile, People, path_of
from pclf.blocks.work import Room, Work, as_bytes, kept_arrays, load_run, remove, save_run
from pclf.clusters.fitted import Clusters, Member
from pclf.clusters.loop import BY_ID, Callback, Run, run
from pclf.clusters.mstep import memberships
from pclf.clusters.state import SpreadUsers
from pclf.data.domain import count
from pclf.data.parts import RatingFiles
from pclf.data.ratings import Ratings
from pclf.data.vocabulary import Vocabulary
from pclf.door import opening
from pclf.engines.cpu import CpuEngine
from pclf.errors import ArgumentError, DataError, ModelFileError, OutputError
from pclf.factors.fitted import Factors
from pclf.models.people import Guest, hashable, known
from pclf.problem import Layout
from pclf.progress import progress
from pclf.serving.lists import Recommendations

if TYPE_CHECKING:
    from pclf.models.mixture import Mixture
    from pclf.models.people import Users

Floats = NDArray[np.floating[Any]]
KEPT = 4             # models of parts that stay in memory
SHARED = "model.safetensors"
SAMPLE = 500_000     # ratings from which the users of a trial are drawn


def fit(model: "Mixture", data: Any, *, work: str | Path | None, memory: str | float | None, dtype: str,
        n_threads: int | None, random_state: Any, verbose: bool, callbacks: Iterable[Callback],
        n_parts: int | None = None, n_blocks: int | None = None, workers: "Workers | None" = None) -> None:
    """Learn the clusters and lists of a model from files, in blocks of users. `work` is left with what a run can go on
    from.

    n_parts, n_blocks: as many, whatever the sizes. workers: who works on blocks, this process if nobody else.
    """
    from pclf import __version__
    from pclf.models.mixture import Annealing

    workers = workers or Here()
    files = workers.described(data)
    if work is None:
        raise ArgumentError(f"engine {workers.name!r} needs a folder for its blocks, and to go on from when it was "
                            f"stopped: pass work='path'.")
    if not isinstance(random_state, (int, np.integer)):
        raise ArgumentError(f"random_state must be a whole number with engine {workers.name!r}, so that a run can go "
                            f"on; got {random_state!r}.")
    named = _named(files)
    model._check_on_disk(named)
    layout, annealing, cpu = model._layout(named), Annealing.of(model), CpuEngine(dtype, n_threads)
    streams = np.random.default_rng(int(random_state))
    split_rng, trial_rng, factor_rng = streams.spawn(3)
    trial_seed, factor_seed = (int(seed) for seed in factor_rng.integers(2**63, size=2))       # of lists, too
    with Work.open(work) as here:
        estimate = max(1, files.n_ratings())
        with progress("read ratings", 2 * estimate, unit="ratings", shown=verbose) as advance:
            lists = bool(getattr(model, "lists", False))
            room = Room(layout, dtype, lists, partial(model._row_on_disk, named))
            sized = workers.sized(memory, room) if n_blocks is None else lambda *_: n_blocks
            catalogue = here.blocks(files, sized, advance, n_parts, workers.take_in)
        if model.n_user_clusters > catalogue.n_users:
            warnings.warn(f"n_user_clusters={model.n_user_clusters} is more than the {catalogue.n_users} users; some "
                          f"clusters will stay empty.", UserWarning, stacklevel=4)
        n_restarts = model._n_restarts(catalogue.n_learned)
        steps = n_restarts * model.max_iter
        with progress(f"fit {type(model).__name__}", steps, shown=verbose) as advance:
            watchers = [lambda step: advance(1, f"objective {step.objective:,.0f}"), *callbacks]
            sample = partial(_sample, catalogue, here.folder / "blocks")
            trial, max_iter = model._trial_on(sample, catalogue.ratings, layout, cpu, split_rng, trial_rng, trial_seed)
            runs, engines = [], []
            for m, rng in enumerate(streams.spawn(n_restarts)):
                folder = here.run(__version__, layout, asdict(annealing), max_iter, int(random_state), m, str(dtype),
                                  catalogue.block_ends.tolist())
                engines.append(workers.engine(catalogue, here.folder / "blocks", layout, folder, cpu))
                saved = load_run(folder / "saved")
                start = saved.stats if saved else engines[-1].start(annealing.start.removesuffix(BY_ID), rng)
                runs.append(run(engines[-1], engines[-1].problem, start, schedule=annealing.schedule(max_iter),
                                priors=annealing.priors, callbacks=watchers, keep=False, saved=saved,
                                save=partial(save_run, folder / "saved")))
        factors, finishes = model._factors_on_disk(
            engines[0], trial, factor_seed, verbose,
            lambda *what: here.run(__version__, "factors", int(random_state), catalogue.block_ends.tolist(), *what))
        kept = here.run(__version__, "choices", factor_seed, catalogue.block_ends.tolist()) / "choices"
        learned = model._lists_on_disk(Spread(engines[0]), sample, catalogue.ratings, factor_seed,
                                     partial(kept_arrays, kept))
        chosen = model._chosen_runs(runs)
        used = [engines[next(m for m, own in enumerate(runs) if own is r)] for r in chosen]
        members = tuple(_member(r, engine) for r, engine in zip(chosen, used, strict=True))
        clusters = Clusters.of(catalogue.ratings, layout, members, annealing.user_prior, annealing.item_prior)
        with progress("write users", catalogue.n_blocks, unit="blocks", shown=verbose) as advance, \
                _replaced(here.folder / "model") as folder:
            people = _write_people(folder, catalogue, [r.params.users for r in chosen], used, finishes, workers,
                                   advance)
            made = copy.copy(model)
            made._adopt(catalogue.ratings, clusters, chosen[0].trace, False, factors)
            made._set_after_trial(trial)
            if learned is not None:
                made.lists_ = learned
            _write_shared(made, people, None)
        made.users_ = Crowd(replace(people, folder=here.folder / "model"))
        model.__dict__.update(made.__dict__)                 # all at once: a failed fit leaves nothing
        remove(here.folder / "runs")


class Workers(Protocol):
    """Who works on blocks: `Here`, or `spark.Executors`."""

    name: str

    def described(self, data: Any) -> RatingFiles: ...
    def sized(self, memory: str | float | None, room: Room) -> Sized: ...
    def take_in(self, files: Any, folder: Path, n_parts: int, sized: Sized, advance: Advance) -> Catalogue: ...
    def engine(self, catalogue: Catalogue, blocks: Path, layout: Layout, rows: Path,
               cpu: CpuEngine) -> BlockEngine: ...
    def seals(self, folder: Path, rules: Sequence[SpreadUsers], engines: Sequence[Any], finishes: Sequence[Finish],
              advance: Advance) -> NDArray[np.uint8]: ...


class Here:
    """One block after another, in this process."""

    name = "disk"

    def described(self, data: Any) -> RatingFiles:
        if isinstance(data, RatingFiles):
            return data
        if isinstance(data, Mapping) and data and all(isinstance(path, (str, Path)) for path in data.values()):
            return RatingFiles(data)
        raise DataError(f"engine 'disk' reads files: data must be {{domain: file, folder or pattern}}, or RatingFiles; "
                        f"got {type(data).__name__}. Use engine='cpu' or 'gpu' for what is in memory.")

    def sized(self, memory: str | float | None, room: Room) -> Sized:
        return room.blocks(as_bytes(memory))

    def take_in(self, files: RatingFiles, folder: Path, n_parts: int, sized: Sized, advance: Advance) -> Catalogue:
        return take_in(files, folder, n_parts, sized, advance)

    def engine(self, catalogue: Catalogue, blocks: Path, layout: Layout, rows: Path, cpu: CpuEngine) -> BlockEngine:
        return BlockEngine(catalogue, blocks, layout, rows, cpu)

    def seals(self, folder: Path, rules: Sequence[SpreadUsers], engines: Sequence[BlockEngine],
              finishes: Sequence[Finish], advance: Advance) -> NDArray[np.uint8]:
        """Checksums of all parts, which are written."""
        total = no_seals(engines[0].catalogue)
        for b in range(engines[0].catalogue.n_blocks):
            total += write_block(folder, b, rules, engines, finishes)
            advance(1)
        return total


def _named(files: RatingFiles) -> Ratings:
    """Domains with these names and nothing else, to check settings with before hours are spent."""
    made = Ratings.from_arrays({name: ([0], [0], [1]) for name in files.paths}, scale=(0, 1))
    return replace(made, domains={name: replace(d, events=name in files.events) for name, d in made.domains.items()})


def _sample(catalogue: Catalogue, folder: Path, enough: int = SAMPLE) -> Ratings:
    """As many users as have about enough ratings: a hash chose them, so by chance, however blocks are cut."""
    share = min(1.0, enough / max(1, catalogue.n_ratings))
    parts = [_beginning(block_of(catalogue, folder, b), catalogue, share) for b in range(catalogue.n_blocks)
             if catalogue.parts(b).start < share * catalogue.n_parts]
    domains = {}
    for z, (name, d) in enumerate(catalogue.ratings.domains.items()):
        users, user, item, value, weight = ([part[z][column] for part in parts] for column in range(5))
        starts = np.cumsum([0, *map(len, users)]).tolist()
        domains[name] = replace(d, users=Vocabulary([id for own in users for id in own.ids]),
                                user=np.concatenate([own + np.int32(start) for own, start in
                                                     zip(user, starts[:-1], strict=True)]),
                                item=np.concatenate(item), value=np.concatenate(value),
                                weight=np.concatenate(weight) if d.events else None)
    return replace(catalogue.ratings, domains=domains)


def _beginning(block: Block, catalogue: Catalogue, share: float) -> list[tuple[Any, ...]]:
    """The users of a block whose hashes are in the first share of all: ids, user, item, value and weight, for each
    domain."""
    out = []
    for z, kind in enumerate(catalogue.id_kinds):
        keys = block.column(z, "key")
        n = len(keys) if share >= 1 else int(np.searchsorted(keys, np.uint64(share * 2**64)))
        stop = int(np.searchsorted(block.column(z, "user"), n))
        columns = (np.array(block.column(z, column)[:stop]) for column in ("user", "item", "value", "weight"))
        out.append((block.ids(z, slice(0, n), kind), *columns))
    return out


def _member(fitted: Run, engine: BlockEngine) -> Member:
    """Items, tables and a population for each domain, and nobody's rows."""
    params, means, groups = fitted.params, fitted.means, engine.problem.item_groups
    n_domains = len(engine.catalogue.ratings.domains)
    shares = np.repeat(means.users, n_domains, axis=0) if len(means.users) == 1 else means.users
    items = tuple(memberships(x, own, mean) for x, own, mean in zip(params.items, groups, means.items, strict=True))
    return Member(np.empty((0, shares.shape[1]), np.float32), items, params.tables, shares, means.items)


def _write_people(folder: Path, catalogue: Catalogue, rules: Sequence[SpreadUsers], engines: Sequence[BlockEngine],
                  finishes: Sequence[Finish], workers: Workers, advance: Advance) -> People:
    """The users of all blocks, part by part."""
    names = list(catalogue.ratings.domains)
    widths = np.zeros((1 + max((own.fit for own in finishes), default=-1), len(names)), int)
    for own in finishes:
        for z, name in enumerate(own.plan.names):
            widths[own.fit, names.index(name)] = own.width(z)
    for z in range(len(catalogue.ratings.domains)):
        path_of(folder, z, 0).parent.mkdir(parents=True)
    seals = [[own.tobytes().hex() for own in part] for part in workers.seals(folder, rules, engines, finishes,
                                                                                   advance)]
    return People(folder, catalogue, seals, len(rules), engines[0].layout.n_user_clusters, widths.tolist())


def no_seals(catalogue: Catalogue) -> NDArray[np.uint8]:
    """Room for the checksum of each part and domain."""
    return np.zeros((catalogue.n_parts, len(catalogue.ratings.domains), 32), np.uint8)


def write_block(folder: Path, b: int, rules: Sequence[SpreadUsers], engines: Sequence[BlockEngine],
                finishes: Sequence[Finish]) -> NDArray[np.uint8]:
    """The users of a block, who are written part by part, and the checksums of these parts among none of the others."""
    catalogue, out = engines[0].catalogue, no_seals(engines[0].catalogue)
    block, parts = block_of(catalogue, engines[0].blocks, b), catalogue.parts(b)
    rows = [engine.memberships(b, users) for users, engine in zip(rules, engines, strict=True)]
    user_rows, names = engines[0].user_rows(b), list(catalogue.ratings.domains)
    factors: list[dict[int, Floats]] = [{} for _ in names]
    for finish in finishes:
        for name, kept in zip(finish.plan.names, engines[0].finished(b, finish), strict=True):
            factors[names.index(name)][finish.fit] = kept
    ends = np.cumsum(np.vstack([0 * catalogue.part_users[:1], catalogue.part_users[parts.start:parts.stop]]), axis=0)
    for part, (start, stop) in zip(parts, pairwise(ends), strict=True):
        for z, kind in enumerate(catalogue.id_kinds):
            users = slice(int(start[z]), int(stop[z]))
            own = _part(block, z, users, kind, catalogue.domains[z].events,
                        [member[user_rows[z][users]] for member in rows],
                        {m: kept[users] for m, kept in factors[z].items()})
            out[part, z] = np.frombuffer(bytes.fromhex(own.write(path_of(folder, z, part))), np.uint8)
    return out


def _part(block: Block, z: int, users: slice, kind: str, events: bool, rows: Sequence[Floats],
          factors: Mapping[int, Floats]) -> PartFile:
    start, stop = np.searchsorted(block.column(z, "user"), [users.start, users.stop])
    user, item, value, weight = (block.column(z, name)[start:stop] for name in ("user", "item", "value", "weight"))
    return PartFile(block.ids(z, users, kind), user - np.int32(users.start), item, value, rows, factors,
                    weight if events else None)


def _write_shared(model: "Mixture", people: People, key: str | bytes | None) -> None:
    arrays, extra = model._state()
    more, described = people.described()
    storage.save(people.folder / SHARED, type(model).__name__, model._settings(), people.catalogue.ratings,
                 {**arrays, **{f"people.{name}": array for name, array in more.items()}},
                 {"model": extra, "people": described}, key=key)


def save(model: "Mixture", path: str | Path, key: str | bytes | None, force: bool) -> None:
    """The folder of a model, copied part by part."""
    people, target = model.users_.people, Path(path)
    check_folder(target, force)
    with _replaced(target) as folder:
        shutil.copytree(people.folder / "users", folder / "users")
        _write_shared(model, replace(people, folder=folder), key)


def check_folder(path: Path, force: bool = False) -> None:
    """Whether a model can be written there."""
    if path.exists() and not is_folder_of_model(path) and not (force and path.is_dir()):
        raise OutputError(f"{path} is there already and is not a model in a folder: it is not replaced. Give another "
                          f"name.")


def is_folder_of_model(path: Path) -> bool:
    return (path / SHARED).is_file() and (path / "users").is_dir()


def load(model_of: Any, path: Path, key: str | bytes | None) -> Any:
    """A model in a folder. model_of: makes one from its class and settings."""
    file = storage.load(path / SHARED, key)
    with opening(path):
        if set(file.extra) != {"model", "people"}:
            raise ModelFileError("it must say where its users are")
        told = {name.removeprefix("people."): a for name, a in file.arrays.items() if name.startswith("people.")}
        people = People.from_described(path, file.data, told, file.extra["people"])
        model = model_of(file.kind, file.settings)
        arrays = {name: a for name, a in file.arrays.items() if not name.startswith("people.")}
        model._restore(people.catalogue.ratings, arrays, file.extra["model"])
        model.users_ = Crowd(people)
    return model


class Crowd:
    """The users of a model, who are on disk."""

    def __init__(self, people: People) -> None:
        self.people = people
        self._models: OrderedDict[int, Mixture] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {"people": self.people, "_models": OrderedDict()}

    def __repr__(self) -> str:
        catalogue = self.people.catalogue
        return f"{count(catalogue.n_users, 'user')} in {count(catalogue.n_parts, 'part')} of {self.people.folder}"

    def model(self, whole: "Mixture", part: int) -> "Mixture":
        """The same model, with the users of one part, and no others."""
        if part not in self._models:
            data, rows, factors = self.people.part(part)
            old = whole.mixture_
            clusters = Clusters.of(data, old.layout, (), old.user_prior, old.item_prior)
            members = []
            for member, of_domains in zip(old.members, rows, strict=True):
                users = np.empty((clusters.problem.n_users, member.users.shape[1]), np.float32)
                for at, own in zip(clusters.problem.user_rows, of_domains, strict=True):
                    users[at] = own
                members.append(replace(member, users=users))
            other: Mixture = copy.copy(whole)
            other._forget()
            other.users_, other.data_ = None, data
            other.mixture_ = replace(clusters, members=tuple(members), weights={
                name: dict(own) for name, own in old.weights.items()})
            other.factors_ = _with_users(whole.factors_, data, factors)
            if whole.lists_ is not None:
                other.lists_ = whole.lists_.of(data)
            self._models[part] = other
            while len(self._models) > KEPT:
                self._models.popitem(last=False)
        self._models.move_to_end(part)
        return self._models[part]

    def some(self, domain: str) -> Vocabulary:
        """Ids of a domain, to see what they look like."""
        parts = self.people.catalogue.part_users[:, list(self.people.catalogue.ratings.domains).index(domain)]
        return self.people.part(int(np.argmax(parts > 0)))[0][domain].users

    def by_part(self, whole: "Mixture", ids: Sequence[Any]) -> Iterator[tuple["Mixture", NDArray[np.intp]]]:
        """A model for each part that some of these people are in, and their places among them. Guests, whose rows are
        with them, have the whole model."""
        at = np.array([-1 if isinstance(id, Guest) or not hashable(id) else 0 for id in ids], np.int64)
        known = np.flatnonzero(at == 0).tolist()
        at[known] = self.people.part_of([ids[i] for i in known])
        for part in np.unique(at).tolist():
            yield whole if part < 0 else self.model(whole, part), np.flatnonzero(at == part)

    def known(self, whole: "Mixture", domain: str, ids: Sequence[Any], user_domain: str | None) -> NDArray[np.bool_]:
        """Who is in one of the parts, or a guest."""
        out = np.zeros(len(ids), bool)
        for model, at in self.by_part(whole, ids):
            out[at] = known(model.data_, domain, [ids[i] for i in at.tolist()], user_domain)
        return out

    def users(self, whole: "Mixture", domain: str, ids: Sequence[Any], user_domain: str | None) -> "Users":
        """People as the parts of the model see them in a domain."""
        from pclf.models.people import find

        out = whole._nobody(domain, len(ids))
        for model, at in self.by_part(whole, ids):
            found = model._users(find(model.data_, domain, [ids[i] for i in at.tolist()], user_domain))
            for total, own in zip(out.memberships, found.memberships, strict=True):
                total[at] = own
            if out.rows is not None:
                out.rows[at] = found.rows
        return out

    def recommend(self, whole: "Mixture", domain: str, ids: Sequence[Any] | None, n: int,
                  options: Mapping[str, Any]) -> Recommendations:
        if ids is None:
            return _together(list(self.lists(whole, domain, n, options)))
        parts = list(self.by_part(whole, ids))
        found = _together([model.recommend(domain, [ids[i] for i in at.tolist()], n, **options) for model, at in parts])
        order = np.argsort(np.concatenate([at for _, at in parts]))
        return replace(found, users=ids, codes=found.codes[order], scores=found.scores[order],
                       numbers={name: own[order] for name, own in found.numbers.items()})

    def lists(self, whole: "Mixture", domain: str, n: int, options: Mapping[str, Any]) -> Iterator[Recommendations]:
        """Those of everybody, a part at a time."""
        for part in range(self.people.catalogue.n_parts):
            model = self.model(whole, part)
            if len(model.data_[options.get("user_domain") or domain].users):
                yield model.recommend(domain, None, n, **options)


def _with_users(factors: Mapping[str, Factors], data: Ratings,
                kept: Sequence[Mapping[int, Floats]]) -> dict[str, Factors]:
    """Fits of factors with the users of a part. kept: of each domain and fit, see `blocks.groups.finished`."""
    names, fits = list(data.domains), list({id(fit): fit for fit in factors.values()}.values())
    made = {}
    for m, fit in enumerate(fits):
        domains = {}
        for name, own in fit.domains.items():
            rows = kept[names.index(name)][m]
            size, n_about = own.items.shape[1], own.user_weights.shape[0]
            if rows.shape[1] != size + n_about + 3:
                raise ModelFileError(f"users of {name!r} must have the factors of the model; they have others")
            users, about, gain, picks, n_rated = np.split(rows, np.cumsum([size, n_about, 1, 1]), axis=1)
            choosers = replace(own.choosers, places=np.zeros((len(rows), len(own.choosers.variance))))
            domains[name] = replace(own, users=np.ascontiguousarray(users), user_about=about, choosers=choosers,
                                    n_rated=n_rated[:, 0].astype(np.int64), gain=gain[:, 0], picks=picks[:, 0])
        made[id(fit)] = replace(fit, domains=domains)
    return {name: made[id(fit)] for name, fit in factors.items()}


def _together(parts: Sequence[Recommendations]) -> Recommendations:
    return Recommendations(parts[0].domain, [user for own in parts for user in own.users],
                           np.concatenate([own.codes for own in parts]), np.concatenate([own.scores for own in parts]),
                           {name: np.concatenate([own.numbers[name] for own in parts]) for name in parts[0].numbers})


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """A folder beside this one to write to, which takes its place at the end, and is gone after an error."""
    part, old = folder.with_name(f"{folder.name}.part"), folder.with_name(f"{folder.name}.old")
    remove(part)
    part.mkdir(parents=True)
    try:
        yield part
        remove(old)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        remove(old)
    except BaseException:
        remove(part)
        raise
