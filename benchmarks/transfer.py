"""What carries over from one catalogue to another: by people, by things, by attributes, and where nothing does.

    python benchmarks/transfer.py levels        # a 0-10, a half-star and a 1-10 catalogue beside a 1-5 one
    python benchmarks/transfer.py things        # the same films in two shops; MovieTweetings beside MovieLens by IMDb number
    python benchmarks/transfer.py people        # Douban and Amazon, both directions, 0, 1, 3 and 5 ratings given
    python benchmarks/transfer.py attributes    # visitors between two catalogues of films that share nothing but attributes
    python benchmarks/transfer.py cold          # films without a rating; 10 and 30 target users beside a whole other catalogue
    python benchmarks/transfer.py books         # from loved films to lists of books
    python benchmarks/transfer.py harm          # permuted links and permuted attributes
    python benchmarks/transfer.py whole         # whole sets, random 90/10, beside the peers
    python benchmarks/transfer.py page          # docs/transfer.md, from benchmarks/results
    python benchmarks/transfer.py all           # all of them in turn

    --repeats N         how many repeats (5)
    --label NAME        what the rows call this library's model (PCLF), to keep those of an older commit beside it
    --models A B ...    these models alone, by the names in MODELS and peers_transfer.PEERS
    --again             measure anew what is there already

Data are found through PCLF_DATA. A case is cut into training and test ratings by the number of its repeat alone, so all
models see the same. The peers run in an environment of their own: PCLF_PEERS is the path of its python, and without one
they are left out (benchmarks/peers_transfer.py says what to install). Results are JSON lines in
benchmarks/results/transfer-NAME.jsonl; a row that is there is not measured again.

A row: {"case", "setting", "repeat", "model", "rule", "metric", "value", "n" (test ratings), "n_train" (of all
domains), "seconds", "commit", "machine"}, with "transfer" (the model's own words) and "settings" (of a peer) where there are any. Models without a
distribution have no median: by the median rule they are rounded to the scale.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pclf import PCLF, Bias
from pclf.bench import commit, machine
from pclf.data.ratings import Options, Ratings
from pclf.data.splits import random_places
from pclf.evaluate import metrics
from pclf.models.bias import damped_mean

RESULTS = Path(__file__).parent / "results"
ATTRIBUTES = "attributes" in Options.__annotations__
DAMPING = Bias()                                    # of the offsets too
GIVEN = 5
PLAIN = ("Bias merged", "Bias alone", "offsets", "offsets alone")
Columns = tuple[np.ndarray, np.ndarray, np.ndarray]     # users, items, ratings
Facts = Mapping[str, list[Any]]                         # columns of attributes; "item_id" is one of them


@dataclass(frozen=True)
class Task:
    """Ratings of some domains to learn from, ratings of one of them to predict, and the models to try."""

    case: str
    setting: str
    repeat: int
    train: dict[str, Columns]
    target: str
    test: Columns
    scale: dict[str, tuple[float, float, float]]        # low, high, step
    models: tuple[str, ...]
    home: str = ""                                      # the domain of the test users, where they are visitors
    shared: str = ""                                    # "users" or "items": the same id is the same
    facts: dict[str, Facts] = field(default_factory=dict)

    def ratings(self) -> Ratings:
        """What to learn from. Users and items that are only tested are known by name."""
        frames = {name: dict(zip(("user_id", "item_id", "rating"), columns, strict=True))
                  for name, columns in self.train.items()}
        n_train = len(self.train[self.target][0])
        if not self.home:
            frames[self.target] = {key: np.concatenate([of_train, of_test]) for (key, of_train), of_test in
                                   zip(frames[self.target].items(), self.test, strict=True)}
        options = {"attributes": {name: rows(facts, np.isin(facts["item_id"], frames[name]["item_id"]))
                                  for name, facts in self.facts.items()}} if self.facts else {}
        data = Ratings.from_frames(frames, scale=self.scale, shared_users=self.shared == "users",
                                   shared_items=self.shared == "items", **options)
        assert (data[self.target].ratings == frames[self.target]["rating"]).all(), "the rows are in another order"
        return data.select({self.target: np.arange(len(data[self.target])) < n_train})


class Found(NamedTuple):
    guesses: dict[str, np.ndarray]                      # by rule
    seconds: float
    about: dict[str, Any]                               # what else the row keeps


def alone(task: Task) -> Task:
    """The target and nothing beside it."""
    return replace(task, train={task.target: task.train[task.target]}, scale={task.target: task.scale[task.target]}, shared="",
                   facts={name: facts for name, facts in task.facts.items() if name == task.target})


def merged(task: Task) -> Task:
    """One domain with all ratings, mapped linearly on the target's scale and rounded to it; domain after domain."""
    users, items = ((lambda name, ids, keep=task.shared == kind: ids.astype(str) if keep else np.char.add(f"{name}:", ids.astype(str)))
                    for kind in ("users", "items"))
    tables = []
    for name, (user, item, rating) in task.train.items():
        low, high, _ = task.scale[name]
        to, up, step = task.scale[task.target]
        mapped = rating if name == task.target else to + step * np.rint((rating - low) / (high - low) * (up - to) / step)
        tables.append((users(name, user), items(name, item), mapped))
    test = users(task.home or task.target, task.test[0]), items(task.target, task.test[1]), task.test[2]
    facts = {}
    if task.facts:
        keys = next(iter(task.facts.values())).keys()
        facts["merged"] = {key: [x for name, f in task.facts.items() for x in
                                 (items(name, np.array(f[key])).tolist() if key == "item_id" else f[key])] for key in keys}
    return replace(task, train={"merged": tuple(map(np.concatenate, zip(*tables, strict=True)))}, target="merged", test=test,
                   scale={"merged": task.scale[task.target]}, home="", shared="", facts=facts)


def without_facts(task: Task) -> Task:
    return replace(task, facts={})


def pclf(task: Task) -> Found | None:
    if task.facts and not ATTRIBUTES:
        return None
    data, began = task.ratings(), time.perf_counter()
    model = PCLF(lists=False).fit(data, random_state=task.repeat)         # lists change no prediction
    said = model.transfer_.get(task.target)
    about = {"transfer": str(said)} if said and (len(task.train) > 1 or task.facts) else {}
    return asked(task, model, ("mean", "median"), began, about)


def bias(task: Task) -> Found:
    data, began = task.ratings(), time.perf_counter()
    return asked(task, Bias().fit(data), ("mean",), began, {})


def asked(task: Task, model: Any, rules: tuple[str, ...], began: float, about: dict[str, Any]) -> Found:
    guesses = {rule: model.predict(task.target, *task.test[:2], rule=rule, user_domain=task.home or None) for rule in rules}
    return Found(guesses, time.perf_counter() - began, about)


def offsets(task: Task) -> Found:
    """The mean of the target, and what the item and the user are above the mean of their domains, wherever they are known."""
    began, one = time.perf_counter(), merged(task)
    user, item, rating = one.train["merged"]
    parts = np.split(rating, np.cumsum([len(columns[0]) for columns in task.train.values()])[:-1])
    means = dict(zip(task.train, (part.mean() for part in parts), strict=True))
    gap = rating - np.repeat(list(means.values()), [len(part) for part in parts])
    (u, n_users), (v, n_items) = (coded(of_train, of_test) for of_train, of_test in
                                  ((user, one.test[0]), (item, one.test[1])))
    of_item = damped_mean(v[:len(gap)], gap, n_items, DAMPING.item_damping)
    of_user = damped_mean(u[:len(gap)], gap - of_item[v[:len(gap)]], n_users, DAMPING.user_damping)
    guess = means[task.target] + of_item[v[len(gap):]] + of_user[u[len(gap):]]
    return Found({"mean": np.clip(guess, *task.scale[task.target][:2])}, time.perf_counter() - began, {})


def coded(of_train: np.ndarray, of_test: np.ndarray) -> tuple[np.ndarray, int]:
    ids, codes = np.unique(np.concatenate([of_train, of_test]), return_inverse=True)
    return codes, len(ids)


MODELS: dict[str, Callable[[Task], Found | None]] = {
    "PCLF": pclf,
    "PCLF alone": lambda task: pclf(alone(task)),
    "PCLF merged": lambda task: pclf(merged(task)),
    "PCLF no attributes": lambda task: pclf(without_facts(task)),
    "PCLF alone, no attributes": lambda task: pclf(without_facts(alone(task))),
    "Bias merged": lambda task: bias(without_facts(merged(task))),
    "Bias alone": lambda task: bias(without_facts(alone(task))),
    "offsets": offsets,
    "offsets alone": lambda task: offsets(alone(task)),
}


def peer(name: str, task: Task, settings: Any) -> Found | None:
    """A peer on the merged table, in its own environment; what it needs and what it finds go through files."""
    if not (python := os.environ.get("PCLF_PEERS")):
        return None
    one = merged(task)
    (user, _), (item, _) = (coded(one.train["merged"][i], one.test[i]) for i in (0, 1))
    n = len(one.train["merged"][0])
    given = {"user": user[:n], "item": item[:n], "rating": one.train["merged"][2], "test_user": user[n:],
             "test_item": item[n:], "features": features(one)}
    with tempfile.TemporaryDirectory() as folder:
        ask, answer = Path(folder) / "ask.npz", Path(folder) / "answer.npz"
        np.savez(ask, **given)
        ran = subprocess.run([python, Path(__file__).with_name("peers_transfer.py"), name, ask, answer, str(task.repeat),
                              json.dumps(settings)], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"{name} failed on {task.case}, {task.setting}:\n{ran.stderr[-3000:]}")
        with np.load(answer) as found:
            guesses = {rule: found[rule] for rule in ("mean", "median") if rule in found}
            return Found({**guesses, "mean": np.clip(guesses["mean"], *task.scale[task.target][:2])}, float(found["seconds"]),
                         {"settings": json.loads(str(found["settings"]))})


def features(one: Task) -> np.ndarray:
    """The attributes of each item as 0 and 1: a column for each category.   (items, columns)"""
    ids = np.unique(np.concatenate([one.train["merged"][1], one.test[1]]))
    facts = one.facts.get("merged", {"item_id": []})
    said = {item: {f"{key}={x}" for key in facts if key != "item_id" for x in facts[key][i].split("|")}
            for i, item in enumerate(facts["item_id"])}
    columns = {name: i for i, name in enumerate(sorted(set().union(*said.values())))}
    out = np.zeros((len(ids), len(columns)), np.uint8)
    for row, item in enumerate(ids.tolist()):
        out[row, [columns[name] for name in said.get(item, ())]] = 1
    return out


# The data --------------------------------------------------------------------------------------------------------

STARS, TEN, HALVES = (1.0, 5.0, 1.0), (1.0, 10.0, 1.0), (0.5, 5.0, 0.5)
SCALES = {"MovieTweetings": (0.0, 10.0, 1.0), "ml-latest-small": HALVES, "Book-Crossing": TEN}      # others have stars
FILES = {"MovieTweetings": "movietweetings/ratings.dat", "ml-latest-small": "ml-latest-small/ratings.csv",
         "Book-Crossing": "book-crossing/BX-Book-Ratings-popular.csv", "ML-100K": "ml-100k/u.data",
         "ML-1M": "ml-1m/ratings.dat", "goodbooks": "goodbooks/ratings.csv", "Amazon films": "amazon/movies.inter",
         "Amazon books": "amazon/books.inter", "Douban books": "douban/book_ratings.dat",
         "Douban music": "douban/music_ratings.dat"}


def folder() -> Path:
    return Path(os.environ["PCLF_DATA"])


def scales(*names: str) -> dict[str, tuple[float, float, float]]:
    return {name: SCALES.get(name, STARS) for name in names}


@cache
def load(name: str) -> Columns:
    path, options = folder() / FILES[name], {"scale": scales(name), "duplicates": "last"}
    if path.suffix == ".inter":                         # a suffix that the library does not read
        with path.open() as file:
            users, items, ratings = zip(*list(csv.reader(file, delimiter="\t"))[1:], strict=True)
        data = Ratings.from_arrays({name: (users, items, np.array(ratings, float))}, **options)
    else:
        data = Ratings.from_files({name: path}, **options)
    user, item, rating = data.to_frame(name).values()
    return user, item, rating


@cache
def films() -> Facts:
    """Genre and decade of the films of MovieLens 1M."""
    lines = [line.split("::") for line in (folder() / "ml-1m/movies.dat").read_text("latin-1").splitlines()]
    return {"item_id": [int(row[0]) for row in lines], "genre": [row[2] for row in lines],
            "decade": [f"{row[1][-5:-2]}0s" for row in lines]}


def rows(facts: Facts, chosen: np.ndarray) -> Facts:
    return {key: [x for x, keep in zip(column, chosen, strict=True) if keep] for key, column in facts.items()}


def take(columns: Columns, chosen: np.ndarray) -> Columns:
    return tuple(column[chosen] for column in columns)


def among(ids: np.ndarray, sets: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.isin(ids, list(chosen)) for name, chosen in sets.items()}


# The cases -------------------------------------------------------------------------------------------------------

def levels(repeats: int) -> Iterator[Task]:
    """Nothing is shared, and the scales differ."""
    pairs = [(name, "ML-100K") for name in ("MovieTweetings", "ml-latest-small", "Book-Crossing")]
    for repeat, (target, other) in product(range(repeats), [*pairs, ("ML-100K", "MovieTweetings")]):
        train, test = ninety(load(target), repeat)
        yield Task("levels", f"{target} beside {other}", repeat, {target: train, other: load(other)}, target, test,
                   scales(target, other), ("PCLF", "PCLF alone", "Bias alone"))


def ninety(columns: Columns, repeat: int) -> tuple[Columns, Columns]:
    held = np.random.default_rng(repeat).random(len(columns[0])) < 0.1
    return take(columns, ~held), take(columns, held)


def learners_and_tested(columns: Columns, learn: Any, test: Any, rng: np.random.Generator) -> tuple[Columns, Columns]:
    """All ratings of those to learn from and the given ones of those who are tested; the others of these."""
    user = columns[0]
    who = among(user, {"learn": learn, "test": test})
    rank = random_places(np.unique(user, return_inverse=True)[1], rng)
    return (take(columns, who["learn"] | (who["test"] & (rank < GIVEN))), take(columns, who["test"] & (rank >= GIVEN)))


def things(repeats: int) -> Iterator[Task]:
    yield from shops(repeats)
    yield from tweets(repeats)


def shops(repeats: int, sizes: tuple[int, ...] = (30, 100, 300)) -> Iterator[Task]:
    ratings = load("ML-1M")
    for repeat in range(repeats):
        people = np.random.default_rng(repeat).permutation(np.unique(ratings[0]))
        there = take(ratings, np.isin(ratings[0], people[500:2500]))
        for n in sizes:
            here, test = learners_and_tested(ratings, people[200:200 + n], people[:200], np.random.default_rng(repeat))
            yield Task("shops", f"{n} users here", repeat, {"here": here, "there": there}, "here", test,
                       scales("here", "there"), ("PCLF", "PCLF alone", "PCLF merged", *PLAIN), shared="items")


def tweets(repeats: int, sizes: tuple[int, ...] = (10, 30, 100, 300, 1000), least: int = 8) -> Iterator[Task]:
    """Users of MovieTweetings with 8 ratings or more; the films of ml-latest-small by their IMDb numbers."""
    with (folder() / "ml-latest-small/links.csv").open() as file:
        number = {int(row["movieId"]): row["imdbId"] for row in csv.DictReader(file)}
    user, item, rating = load("ml-latest-small")
    other = user, np.array([number[i] for i in item.tolist()]), rating
    ratings = load("MovieTweetings")
    ids, counts = np.unique(ratings[0], return_counts=True)
    for repeat in range(repeats):
        people = np.random.default_rng(repeat).permutation(ids[counts >= least])
        for n in sizes:
            here, test = learners_and_tested(ratings, people[200:200 + n], people[:200], np.random.default_rng(repeat))
            yield Task("tweets", f"{n} users here", repeat, {"MovieTweetings": here, "ml-latest-small": other},
                       "MovieTweetings", test, scales("MovieTweetings", "ml-latest-small"),
                       ("PCLF", "PCLF alone", "PCLF merged", *PLAIN), shared="items")


def people(repeats: int, givens: tuple[int, ...] = (0, 1, 3, 5), n_tested: int = 300) -> Iterator[Task]:
    """The tested have more than five ratings in the target, and are scored on the same ratings however many are given."""
    pairs = [("Douban books", "Douban music"), ("Amazon films", "Amazon books")]
    for repeat, pair, turn in product(range(repeats), pairs, (1, -1)):
        target, source = pair[::turn]
        ratings, rng = load(target), np.random.default_rng(repeat)
        ids, user, counts = np.unique(ratings[0], return_inverse=True, return_counts=True)
        able = np.flatnonzero((counts > max(givens)) & np.isin(ids, load(source)[0]))
        tested = np.isin(user, rng.choice(able, min(n_tested, len(able)), replace=False))
        rank = random_places(user, rng)
        for given in givens:
            yield Task("people", f"{target} ← {source.split()[1]}, {given} given", repeat,
                       {target: take(ratings, ~tested | (rank < given)), source: load(source)}, target,
                       take(ratings, tested & (rank >= max(givens))), scales(target, source),
                       ("PCLF", "PCLF alone", "PCLF merged", *PLAIN), shared="users")


class Halves(NamedTuple):
    """MovieLens 1M cut into two catalogues and two halves of users: the first rates in A alone, the second in B alone."""

    a: Columns
    b: Columns
    first: np.ndarray
    second: np.ndarray
    in_b: np.ndarray            # ratings of anybody of a film of B

    @classmethod
    def of(cls, repeat: int) -> "Halves":
        ratings, rng = load("ML-1M"), np.random.default_rng(repeat)
        users, items = (rng.permutation(np.unique(ids)) for ids in ratings[:2])
        first, second = users[:len(users) // 2], users[len(users) // 2:]
        in_b = np.isin(ratings[1], items[len(items) // 2:])
        is_first = np.isin(ratings[0], first)
        return cls(take(ratings, is_first & ~in_b), take(ratings, ~is_first & in_b), first, second, in_b)


FACTS = ("PCLF", "PCLF no attributes")


def attributes(repeats: int, n_visitors: int = 300) -> Iterator[Task]:
    """Visitors of B are known in A alone."""
    for repeat in range(repeats):
        halves = Halves.of(repeat)
        ratings = load("ML-1M")
        asked = np.isin(ratings[0], halves.first[:n_visitors]) & halves.in_b & np.isin(ratings[1], halves.b[1])
        yield Task("visitors", "A → B", repeat, {"A": halves.a, "B": halves.b}, "B", take(ratings, asked), scales("A", "B"),
                   (*FACTS, "Bias merged", "offsets", "myFM"), home="A",
                   facts={"A": films(), "B": films()})


def cold(repeats: int) -> Iterator[Task]:
    yield from new_films(repeats)
    yield from few(repeats)


def new_films(repeats: int, n_films: int = 200) -> Iterator[Task]:
    ratings = load("ML-1M")
    for repeat in range(repeats):
        hidden = np.random.default_rng(repeat).choice(np.unique(ratings[1]), n_films, replace=False)
        new = np.isin(ratings[1], hidden)
        yield Task("new films", f"{n_films} films without a rating", repeat, {"films": take(ratings, ~new)}, "films",
                   take(ratings, new), scales("films"), (*FACTS, "Bias alone", "offsets alone", "myFM"), facts={"films": films()})


def few(repeats: int, sizes: tuple[int, ...] = (10, 30)) -> Iterator[Task]:
    """Few users of B, and A whole beside it."""
    for repeat, n in product(range(repeats), sizes):
        halves = Halves.of(repeat)
        here, test = learners_and_tested(halves.b, halves.second[200:200 + n], halves.second[:200], np.random.default_rng(repeat))
        yield Task("few users", f"{n} users of B", repeat, {"A": halves.a, "B": here}, "B", test, scales("A", "B"),
                   (*FACTS, "PCLF alone", "PCLF alone, no attributes", *PLAIN), facts={"A": films(), "B": films()})


def harm(repeats: int) -> Iterator[Task]:
    """Links and attributes that say nothing: the model without them is what it must not be worse than."""
    bridged = [*shops(repeats, (100,)), *tweets(repeats, (100,)), *people(repeats, (1, 5))]
    for task in (task for task in bridged if not task.setting.endswith("5 given")):
        yield replace(task, case="harm", setting=f"{task.case}, {task.setting}: {task.shared} permuted",
                      train={name: columns if name == task.target else permuted(columns, task)
                             for name, columns in task.train.items()}, models=("PCLF", "PCLF alone"))
    known = [*attributes(repeats), *new_films(repeats), *few(repeats, (30,))]
    for task in known:
        rng = np.random.default_rng(task.repeat)
        facts = {name: {**said, "item_id": rng.permutation(said["item_id"]).tolist()} for name, said in task.facts.items()}
        yield replace(task, case="harm", setting=f"{task.case}, {task.setting}: attributes permuted", facts=facts,
                      models=tuple(name for name in task.models if name.startswith("PCLF")))


def permuted(columns: Columns, task: Task) -> Columns:
    """Every shared id of a domain becomes another of its ids."""
    which = ("users", "items").index(task.shared)
    ids, codes = np.unique(columns[which], return_inverse=True)
    changed = np.random.default_rng(task.repeat).permutation(ids)[codes]
    return tuple(changed if i == which else column for i, column in enumerate(columns))


WHOLE = ("Amazon books", "Amazon films", "ml-latest-small", "MovieTweetings", "Book-Crossing", "goodbooks", "ML-1M")
PEERS = ("BaselineOnly", "SVD", "cmfrec", "LensKit", "myFM", "myFM who rated what", "SVDpp")


def whole(repeats: int) -> Iterator[Task]:
    for repeat, name in product(range(repeats), WHOLE):
        train, test = ninety(load(name), repeat)
        yield Task("whole", name, repeat, {name: train}, name, test, scales(name), ("PCLF", "Bias alone", *PEERS))


# From films to books -----------------------------------------------------------------------------------------------

SHELVES = {             # a word of a shelf's name -> what MovieLens calls it
    "horror": "Horror", "creepy": "Horror", "ghost": "Horror", "ghosts": "Horror", "vampires": "Horror",
    "romance": "Romance", "romantic": "Romance", "love": "Romance", "chick": "Romance",
    "fantasy": "Fantasy", "magic": "Fantasy", "dragons": "Fantasy", "witches": "Fantasy",
    "sci": "Sci-Fi", "scifi": "Sci-Fi", "sf": "Sci-Fi", "science fiction": "Sci-Fi", "sciencefiction": "Sci-Fi",
    "aliens": "Sci-Fi", "space": "Sci-Fi", "dystopian": "Sci-Fi",
    "mystery": "Mystery", "mysteries": "Mystery", "detective": "Mystery", "detectives": "Mystery",
    "thriller": "Thriller", "thrillers": "Thriller", "suspense": "Thriller", "spy": "Thriller",
    "crime": "Crime", "murder": "Crime", "noir": "Film-Noir",
    "children": "Children's", "childrens": "Children's", "childrensbooks": "Children's", "juvenile": "Children's",
    "humor": "Comedy", "humour": "Comedy", "comedy": "Comedy", "funny": "Comedy",
    "war": "War", "military": "War", "adventure": "Adventure", "action": "Action", "western": "Western", "westerns": "Western",
    "biography": "Documentary", "memoir": "Documentary", "nonfiction": "Documentary", "drama": "Drama", "plays": "Drama",
    "literary": "Drama", "comics": "Animation", "manga": "Animation", "music": "Musical",
}
TASTES = ("Horror", "Romance")


def shelved(shelves: str) -> str:
    """The genres of a book, from the names of its shelves."""
    found = {genre for shelf in shelves.split(",") for word, genre in SHELVES.items()
             if word in shelf.split("-") or (" " in word and word in shelf.replace("-", " "))}
    return "|".join(sorted(found))


def books(label: str, repeats: int, done: Any, n_loved: int = 15, n: int = 10) -> Iterator[dict[str, Any]]:
    """A guest with 15 loved horror films and one with 15 loved romances: the first ten books of each."""
    with (folder() / "goodbooks/book_genres.csv").open() as file:
        genres = {int(row["book_id"]): shelved(row["genres"]) for row in csv.DictReader(file)}
    with (folder() / "goodbooks/books.csv").open() as file:
        titles = {int(row["book_id"]): row["title"] for row in csv.DictReader(file)}
    of_films = {key: column for key, column in films().items() if key != "decade"}
    of_books = {"item_id": list(genres), "genre": list(genres.values())}
    tables = {"films": load("ML-1M"), "books": load("goodbooks")}
    nothing = tuple(column[:0] for column in tables["books"])
    task = Task("books", "films → books", 0, tables, "books", nothing, scales(*tables), ("PCLF", "PCLF no attributes"),
                facts={"films": of_films, "books": of_books})
    ids, counts = np.unique(tables["films"][1], return_counts=True)
    count = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    for name in task.models:
        asked = task if name == "PCLF" else without_facts(task)
        wanted = [r for r in range(repeats) if (task.case, task.setting, r, name.replace("PCLF", label)) not in done]
        if (asked.facts and not ATTRIBUTES) or not wanted:
            continue
        model = PCLF().fit(asked.ratings(), random_state=0)
        for repeat in wanted:
            rng, lists = np.random.default_rng(repeat), {}
            for taste, other in (TASTES, TASTES[::-1]):
                of_taste = [i for i, g in zip(of_films["item_id"], of_films["genre"], strict=True)
                            if taste in g.split("|") and other not in g.split("|") and i in count]
                known = sorted(of_taste, key=lambda i: -count[i])[:3 * n_loved]
                guest = model.fold_in({"films": dict.fromkeys(rng.choice(known, n_loved, replace=False).tolist(), 5)})
                lists[taste] = [r.item for r in model.recommend("books", guest, n)]
            found = {"in both lists": len(set(lists[TASTES[0]]) & set(lists[TASTES[1]]))}
            found |= {f"{genre} in the list for {taste}": np.mean([genre in genres[i].split("|") for i in lists[taste]])
                      for genre in TASTES for taste in TASTES}
            for metric, value in found.items():
                yield {"case": "books", "setting": task.setting, "repeat": repeat, "model": name.replace("PCLF", label),
                       "rule": "list", "metric": metric, "value": float(value), "n": n, "n_train": sum(len(t[0]) for t in tables.values()),
                       "lists": {taste: [titles[i] for i in of_taste] for taste, of_taste in lists.items()}}


# Rows --------------------------------------------------------------------------------------------------------------

def scored(task: Task, found: Found) -> Iterator[dict[str, Any]]:
    truth, (low, _, step) = task.test[2], task.scale[task.target]
    guesses = dict(found.guesses)
    guesses.setdefault("median", low + step * np.rint((guesses["mean"] - low) / step))
    for rule, guess in guesses.items():
        measures = {"mae": metrics.mae(truth, guess)}
        if rule == "mean":
            measures["rmse"] = metrics.rmse(truth, guess)
            if task.home:
                measures["pairs"] = in_order(task.test[0], truth, guess)
        for metric, value in measures.items():
            yield {"rule": rule, "metric": metric, "value": value, "n": len(truth)}


def in_order(user: np.ndarray, truth: np.ndarray, guess: np.ndarray) -> float:
    """The share of a user's pairs of different ratings that are guessed in the right order, averaged over users."""
    shares = []
    for one in np.unique(user):
        t, g = truth[user == one], guess[user == one]
        above = t[:, None] > t
        if above.any():
            apart = (g[:, None] - g)[above]
            shares.append(np.mean((apart > 0) + 0.5 * (apart == 0)))
    return float(np.mean(shares))


def measured(word: str, label: str, repeats: int, only: list[str] | None, done: dict[tuple[Any, ...], Any]) -> Iterator[dict[str, Any]]:
    """Rows of the models that have none yet. A peer's settings are chosen once a setting, in the first repeat."""
    chosen = {(row["case"], row["setting"], row["model"]): row["settings"] for row in done.values() if "settings" in row}
    for task in CASES[word](repeats):
        for name in task.models:
            shown = name.replace("PCLF", label)
            if (only and name not in only) or (task.case, task.setting, task.repeat, shown) in done:
                continue
            found = MODELS[name](task) if name in MODELS else peer(name, task, chosen.get((task.case, task.setting, name)))
            if found is None:
                print(f"{task.case}, {task.setting}, {shown}: cannot be measured here", file=sys.stderr)
                continue
            if "settings" in found.about:
                chosen.setdefault((task.case, task.setting, name), found.about["settings"])
            for row in scored(task, found):
                yield {"case": task.case, "setting": task.setting, "repeat": task.repeat, "model": shown, **row,
                       "n_train": sum(len(columns[0]) for columns in task.train.values()), "seconds": round(found.seconds, 2), **found.about}


CASES: dict[str, Callable[[int], Iterator[Task]]] = {
    "levels": levels, "things": things, "people": people, "attributes": attributes, "cold": cold, "harm": harm, "whole": whole}
WORDS = (*CASES, "books")
KEY = ("case", "setting", "repeat", "model")


def run(word: str, label: str, repeats: int, only: list[str] | None, again: bool, about: dict[str, Any]) -> None:
    """Rows are written one by one, so that a long run may be stopped and taken up again."""
    path = RESULTS / f"transfer-{word}.jsonl"
    old = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if again:
        mine = [name.replace("PCLF", label) for name in only or (*MODELS, *PEERS)]
        old = [row for row in old if row["model"] not in mine]
    done = {tuple(row[key] for key in KEY): row for row in old}
    found = books(label, repeats, done) if word == "books" else measured(word, label, repeats, only, done)
    with path.open("w") as out:
        out.writelines(json.dumps(row) + "\n" for row in old)
        for row in found:
            out.write(json.dumps({**row, **about}) + "\n")
            out.flush()
            print(*(row[key] for key in ("setting", "repeat", "model", "rule", "metric")), round(row["value"], 4), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("word", choices=(*WORDS, "page", "all"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--label", default="PCLF")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    about = {"commit": commit(), "machine": machine()}      # before the first row makes the checkout differ from it
    for word in WORDS if args.word == "all" else [args.word] if args.word != "page" else []:
        run(word, args.label, args.repeats, args.models, args.again, about)
    if args.word in ("page", "all"):
        import transfer_page

        transfer_page.write()


if __name__ == "__main__":
    main()
