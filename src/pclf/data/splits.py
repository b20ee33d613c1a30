"""Splits: which ratings to learn from and which to predict. Both parts keep the users, items and scales.

    >>> split = given_n(data, 5, n_train_users=300, n_test_users=200, seed=1)     # doctest: +SKIP
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.atomic import replacing
from pclf.data.ratings import Domain, Ratings
from pclf.errors import DataError, MissingFileError, UnknownNameError, did_you_mean

LEFT_OUT, TRAIN, TEST = 0, 1, 2
TRAIN_SHARE = 0.6   # of the users, where the caller does not say: the paper's 300 of 500

Part = NDArray[np.uint8]   # LEFT_OUT, TRAIN or TEST for each rating of a domain
Seed = int | np.random.Generator


@dataclass(frozen=True, eq=False)
class Split:
    """Ratings to learn from and ratings to predict, with the recipe that parted them.

    Parts that were read apart get the users and items of both.
    """

    train: Ratings
    test: Ratings
    recipe: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict, repr=False)   # needed to save it

    def __post_init__(self) -> None:
        if set(self.train.domains) != set(self.test.domains):
            names = " and ".join(", ".join(part.domains) for part in (self.train, self.test))
            raise DataError(f"both parts of a split must have the same domains; got {names}")
        for name in self.train.domains:
            mine, theirs = self.train[name], self.test[name]
            if mine.scale != theirs.scale:
                raise DataError(f"both parts of {name!r} must have the same scale; got {mine.scale} and "
                                f"{theirs.scale}. Pass scale=... to both.")
            if mine.users != theirs.users or mine.items != theirs.items:
                train, test = self.train.joined(self.test, name)
                object.__setattr__(self, "train", train)
                object.__setattr__(self, "test", replace(test, n_levels=train.n_levels))

    @classmethod
    def of(cls, data: Ratings, parts: Mapping[str, ArrayLike], recipe: Mapping[str, Any] = {}) -> "Split":
        """From 0 (left out), 1 (train) or 2 (test) for each rating of each domain; recipe: what is kept about it."""
        if set(parts) != set(data.domains):
            raise DataError(f"a split must part every domain ({', '.join(data.domains)}); got "
                            f"{', '.join(parts) or 'none'}")
        known = {name: _as_parts(np.asarray(part), name, len(data[name])) for name, part in parts.items()}
        return cls(data.select({name: part == TRAIN for name, part in known.items()}),
                   data.select({name: part == TEST for name, part in known.items()}),
                   {**recipe, "fingerprint": data.fingerprint}, known)

    def __repr__(self) -> str:
        kept = ", ".join(f"{name}={value!r}" for name, value in self.recipe.items() if name != "fingerprint")
        return f"Split({kept}): {self.train.n_ratings:,} ratings to learn from, {self.test.n_ratings:,} to test"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write which ratings are which, a byte a rating. An older file stays whole until the new one is."""
        from safetensors.numpy import save

        if not self.parts:
            raise DataError("a split must be made by Split.of() to be saved; got one without parts")
        target = Path(path)
        written = save({f"part.{name}": part for name, part in self.parts.items()},
                       {"pclf.split": json.dumps(self.recipe)})
        with replacing(target) as part:
            part.write_bytes(written)

    @classmethod
    def load(cls, path: str | os.PathLike[str], data: Ratings) -> "Split":
        """The split of `data` that was saved; an error if it was made of other data."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                recipe = {"fingerprint": "", **json.loads((file.metadata() or {})["pclf.split"])}
                parts = {name.removeprefix("part."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise MissingFileError(f"there is no split at {path}") from None
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise DataError(f"{path} must be a saved split; it is something else or was cut off ({error}). "
                            f"Make the split again.") from None
        if recipe["fingerprint"] != data.fingerprint or set(parts) != set(data.domains):
            raise DataError(f"{path} must be loaded with the ratings it was made of, fingerprint "
                            f"{str(recipe['fingerprint'])[:12]}; got {data.fingerprint[:12]}. Load the data "
                            f"as they were then, or make the split again.")
        return cls.of(data, parts, recipe)


def _as_parts(part: NDArray[Any], name: str, n: int) -> Part:
    """Whole numbers of any type as bytes, one for each of n ratings."""
    if part.shape != (n,):
        raise DataError(f"the part of {name!r} must have a number for each of its {n:,} ratings; got an array of shape "
                        f"{part.shape}")
    if part.dtype.kind not in "iu" or (len(part) and not 0 <= part.min() <= part.max() <= TEST):
        got = f"{part.dtype} up to {part.max()}" if part.dtype.kind in "iuf" and len(part) else part.dtype
        raise DataError(f"the part of {name!r} must be 0 (left out), 1 (train) or 2 (test) for each rating; got {got}")
    return part.astype(np.uint8)


def given_n(data: Ratings, n: int, *, n_train_users: int | float | None = None,
            n_test_users: int | float | None = None, seed: Seed = 0,
            domains: Iterable[str] | None = None) -> Split:
    """The paper's protocol: training users whole, test users known by n ratings each.

    In each domain the first `n_train_users` are trained on whole; the last `n_test_users` keep `n` ratings
    drawn at random, and the others are the test. The order of users is drawn by the seed, for somebody of several
    domains once. They are counted as whole numbers or as a share of the domain's users; without both, 60 % train and
    the rest test. Users between the two are left out. A test user with no more than `n` ratings keeps them all and
    is not tested. Domains that are not among `domains` are trained on whole. With one seed, the ratings kept at
    n = 5 are among those kept at n = 10.
    """
    rng, parts = as_generator(seed), {}
    chosen = _chosen(data, domains)
    order = rng.permutation(data.n_users)
    for (name, domain), rows in zip(data.domains.items(), data.user_rows, strict=True):
        if name not in chosen:
            parts[name] = np.full(len(domain), TRAIN, np.uint8)
            continue
        first, last = _user_counts(domain, n_train_users, n_test_users)
        place = np.empty(domain.n_users, np.intp)
        place[np.argsort(order[rows])] = np.arange(domain.n_users)
        tested = place >= domain.n_users - last
        left_out = ((place >= first) & ~tested)[domain.user]
        part = _keep_n(domain, tested[domain.user], n, rng)
        parts[name] = np.where(left_out, np.uint8(LEFT_OUT), part)
    if not any((part == TEST).any() for part in parts.values()):
        raise DataError(f"test users must have more than n = {n} ratings for something to be left to test; "
                        f"none has. Use a smaller n, or more test users.")
    return Split.of(data, parts, {"kind": "given_n", "n": n, "n_train_users": n_train_users,
                                  "n_test_users": n_test_users, "domains": chosen, "seed": as_recorded(seed)})


def hold_out(data: Ratings, fraction: float = 0.1, *, seed: Seed = 0) -> Split:
    """A random share of the ratings of every domain as the test, the rest to train on."""
    if not 0 < fraction < 1:
        raise DataError(f"the fraction to hold out must be between 0 and 1; got {fraction}")
    rng, parts = as_generator(seed), {}
    for name, domain in data.domains.items():
        part = np.full(len(domain), TRAIN, np.uint8)
        part[rng.permutation(len(domain))[:round(fraction * len(domain))]] = TEST
        parts[name] = part
    if not any((part == TEST).any() for part in parts.values()):
        raise DataError(f"the fraction must leave something to test; {fraction:g} of "
                        f"{data.n_ratings:,} ratings is none")
    return Split.of(data, parts, {"kind": "hold_out", "fraction": fraction, "seed": as_recorded(seed)})


def by_time(data: Ratings, fraction: float = 0.1) -> Split:
    """The latest share of all ratings as the test, in all domains from one moment on; what came before to train on."""
    if not 0 < fraction < 1:
        raise DataError(f"the fraction to hold out must be between 0 and 1; got {fraction}")
    times = {name: _times(domain, "by_time") for name, domain in data.domains.items()}
    together = np.sort(np.concatenate(list(times.values())))
    moment = together[len(together) - max(1, round(fraction * len(together)))] if len(together) else 0
    parts = {name: np.where(when >= moment, np.uint8(TEST), np.uint8(TRAIN)) for name, when in times.items()}
    if not any((part == TRAIN).any() for part in parts.values()):
        raise DataError(f"ratings must be of different times for some to be before others; all are of {moment:,} s")
    return Split.of(data, parts, {"kind": "by_time", "fraction": fraction, "moment": int(moment)})


def last_n(data: Ratings, n: int = 1) -> Split:
    """The last n ratings of everybody with more than that as the test, in each domain, and the others to train on."""
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise DataError(f"n, the last ratings to test, must be a whole number, 1 or more; got {n}")
    parts = {}
    for name, domain in data.domains.items():
        order = np.lexsort((np.arange(len(domain)), _times(domain, "last_n"), domain.user))     # by user, then by time
        counts = np.bincount(domain.user, minlength=domain.n_users)
        left = np.cumsum(counts)[domain.user[order]] - np.arange(len(order))                    # n, ..., 2, 1 of a user
        part = np.full(len(domain), TRAIN, np.uint8)
        part[order[(left <= n) & (counts[domain.user[order]] > n)]] = TEST
        parts[name] = part
    if not any((part == TEST).any() for part in parts.values()):
        raise DataError(f"users must have more than n = {n} ratings for something to be left to learn from; none has. "
                        f"Use a smaller n.")
    return Split.of(data, parts, {"kind": "last_n", "n": n})


def _times(domain: Domain, what: str) -> NDArray[np.int64]:
    if domain.time is None:
        raise DataError(f"{what} must know the time of each rating in {domain.name!r}; it has none. Read it with "
                        f"time_col=True, or time_col=... for a column of another name.")
    return domain.time


def user_folds(data: Ratings, n_folds: int = 5, n: int = 10, *, seed: Seed = 0) -> Iterator[Split]:
    """Cross-validation over users: `n_folds` given-n splits; everybody is a test user in one of them.

    Somebody of several domains is tested in all of them at once.
    """
    _check_n(n)
    if all(np.bincount(domain.user, minlength=1).max() <= n for domain in data.domains.values() if len(domain)):
        raise DataError(f"users must have more than n = {n} ratings for something to be left to test; none has. "
                        f"Use a smaller n.")
    fewest = min(domain.n_users for domain in data.domains.values())
    if not 2 <= n_folds <= fewest:
        raise DataError(f"n_folds must be 2 to {fewest:,}, the users of the smallest domain; got {n_folds}")
    return _folds(data, n_folds, n, seed)


def _folds(data: Ratings, n_folds: int, n: int, seed: Seed) -> Iterator[Split]:
    rng = as_generator(seed)
    fold_of = rng.permutation(data.n_users) % n_folds if data.shared_users else np.concatenate(
        [rng.permutation(domain.n_users) % n_folds for domain in data.domains.values()])
    for fold in range(n_folds):
        parts = {name: _keep_n(domain, fold_of[rows[domain.user]] == fold, n, rng)
                 for (name, domain), rows in zip(data.domains.items(), data.user_rows, strict=True)}
        yield Split.of(data, parts, {"kind": "user_folds", "fold": fold, "n_folds": n_folds, "n": n,
                                     "seed": as_recorded(seed)})


def random_places(user: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
    """The place of each rating, 0, 1, ..., in a random order of its user's.   (n,)"""
    order = np.lexsort((rng.random(len(user)), user))
    places = np.empty(len(user), np.intp)
    places[order] = np.arange(len(user)) - np.searchsorted(user[order], user[order])
    return places


def _keep_n(domain: Domain, tested: NDArray[np.bool_], n: int, rng: np.random.Generator) -> Part:
    """TRAIN, but for the tested ratings beyond n random ones a user: these are TEST."""
    _check_n(n)
    part = np.full(len(domain), TRAIN, np.uint8)
    shuffled = rng.permutation(len(domain))
    shuffled = shuffled[tested[shuffled]]
    user = domain.user[shuffled]
    by_user = np.argsort(user, kind="stable")
    counts = np.bincount(user, minlength=domain.n_users)
    rank = np.arange(len(user)) - np.repeat(np.cumsum(counts) - counts, counts)   # 0, 1, ... within a user
    part[shuffled[by_user[rank >= n]]] = TEST
    return part


def _check_n(n: int) -> None:
    if not isinstance(n, (int, np.integer)) or n < 0:
        raise DataError(f"n, the ratings a test user keeps, must be a whole number, 0 or more; got {n}")


def _user_counts(domain: Domain, n_train: int | float | None, n_test: int | float | None) -> tuple[int, int]:
    """How many users train, how many test."""
    total = domain.n_users
    train = _count(n_train, total, "n_train_users")
    test = _count(n_test, total, "n_test_users")
    for what, n in (("n_train_users", train), ("n_test_users", test)):
        if n is not None and n > total:
            raise DataError(f"{what} must be at most the {total:,} users of domain {domain.name!r}; got {n:,}")
    if train is None:
        train = round(TRAIN_SHARE * total) if test is None else total - test
    if test is None:
        test = total - train
    if train + test > total:
        raise DataError(f"n_train_users + n_test_users must be at most the {total:,} users of domain "
                        f"{domain.name!r}; got {train:,} + {test:,}")
    return train, test


def _count(given: int | float | None, total: int, what: str) -> int | None:
    if given is None:
        return None
    if isinstance(given, (float, np.floating)):
        if not 0 <= given <= 1:
            raise DataError(f"{what} must be a number of users or a share between 0.0 and 1.0; got {given}")
        return round(given * total)
    if given < 0:
        raise DataError(f"{what} must be 0 or more; got {given}")
    return int(given)


def _chosen(data: Ratings, domains: Iterable[str] | None) -> list[str]:
    chosen = [domains] if isinstance(domains, str) else list(data.domains if domains is None else domains)
    for name in chosen:
        if name not in data.domains:
            raise UnknownNameError(did_you_mean(name, data.domains, "domain"))
    return chosen


def as_generator(seed: Seed) -> np.random.Generator:
    if not isinstance(seed, np.random.Generator) and (not isinstance(seed, (int, np.integer)) or seed < 0):
        raise DataError(f"a seed must be a whole number, 0 or more, or a Generator; got {seed!r}")
    return np.random.default_rng(seed)   # a Generator is passed through


def as_recorded(seed: Seed) -> int | None:
    """What the recipe records; a Generator's numbers cannot be drawn again, the saved split can be loaded."""
    return None if isinstance(seed, np.random.Generator) else int(seed)
