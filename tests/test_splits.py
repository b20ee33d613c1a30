"""Splits: every rating in its place, the same place for the same seed."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pclf.data import Ratings, Split, given_n, hold_out, user_folds
from pclf.data.splits import LEFT_OUT, TEST, TRAIN
from pclf.errors import DataError, UnknownNameError

odd_inputs = settings(deadline=None, max_examples=60, derandomize=os.environ.get("TEST_SEED") != "any")


def some_data(n_users=50, n_items=40, density=0.3, domains=("films", "books"), seed=0):
    rng, arrays = np.random.default_rng(seed), {}
    for name in domains:
        user, item = np.nonzero(rng.random((n_users, n_items)) < density)
        order = rng.permutation(len(user))
        arrays[name] = user[order], item[order], rng.integers(1, 6, len(user))
    return Ratings.from_arrays(arrays, scale=(1, 5))


@pytest.fixture(scope="module")
def data():
    return some_data()


def counts(ratings, name):
    return np.bincount(ratings[name].user, minlength=ratings[name].n_users)


def rows(split, name, part):
    return set(np.flatnonzero(split.parts[name] == part).tolist())


def roles(data, split, name, n):
    """Users who train whole, who are left out, and who keep n of more ratings."""
    total, train, test = counts(data, name), counts(split.train, name), counts(split.test, name)
    tested = test > 0
    assert (train[tested] == n).all()
    assert (test[tested] == total[tested] - n).all()
    assert np.isin(train[~tested], [0, *total]).all()
    return ((train == total).sum(), (train + test == 0).sum(), tested.sum())


def test_training_users_are_whole_and_test_users_keep_n(data):
    split = given_n(data, 5, n_train_users=30, n_test_users=15)
    assert [roles(data, split, name, 5) for name in data.domains] == [(30, 5, 15)] * 2


def test_the_seed_draws_the_test_users(data):
    tested = [np.flatnonzero(counts(given_n(data, 5, seed=seed).test, "films")).tolist() for seed in (0, 1)]
    assert tested[0] != tested[1]
    assert max(map(max, tested)) > 40 > 10 > min(map(min, tested))


def test_somebody_of_several_domains_is_tested_in_all_of_them():
    data = replace(some_data(), shared_users=True)
    for split in [given_n(data, 3, seed=2), *user_folds(data, 3, 3)]:
        tested = [set(np.array(d.users.ids)[np.unique(d.user)]) for d in split.test.domains.values()]
        assert tested[0] == tested[1]


def test_parts_hold_the_ratings_they_say(data):
    split = given_n(data, 5)
    for name, part in split.parts.items():
        for ratings, which in ((split.train, TRAIN), (split.test, TEST)):
            assert (ratings[name].user == data[name].user[part == which]).all()
            assert (ratings[name].item == data[name].item[part == which]).all()
            assert (ratings[name].value == data[name].value[part == which]).all()
            assert ratings[name].users is data[name].users


def test_without_numbers_sixty_percent_train(data):
    split = given_n(data, 5)
    test_users = np.flatnonzero(counts(split.test, "films"))
    assert len(test_users) == 20


@pytest.mark.parametrize(("asked", "n_train", "n_test"), [
    ({"n_train_users": 0.5}, 25, 25), ({"n_test_users": 0.2}, 40, 10), ({"n_train_users": 10}, 10, 40),
    ({"n_train_users": 0.5, "n_test_users": 10}, 25, 10), ({"n_train_users": 0, "n_test_users": 1.0}, 0, 50),
])
def test_users_are_counted_or_given_as_a_share(data, asked, n_train, n_test):
    split = given_n(data, 3, **asked)
    assert roles(data, split, "books", 3) == (n_train, 50 - n_train - n_test, n_test)


def test_a_test_user_with_n_ratings_or_fewer_is_not_tested():
    data = Ratings.from_arrays({"d": ([*"abbccc"], [1, 1, 2, 1, 2, 3], [1, 2, 3, 4, 5, 1])})
    split = given_n(data, 2, n_train_users=0, n_test_users=3)
    assert counts(split.train, "d").tolist() == [1, 2, 2]
    assert counts(split.test, "d").tolist() == [0, 0, 1]


def test_given_none_leaves_test_users_cold(data):
    split = given_n(data, 0, n_train_users=30)
    assert (counts(split.train, "films") == 0).sum() == 20


def test_what_is_kept_at_5_is_kept_at_10(data):
    assert rows(given_n(data, 10, seed=3), "films", TEST) < rows(given_n(data, 5, seed=3), "films", TEST)


def test_other_domains_are_trained_on_whole(data):
    split = given_n(data, 5, domains=["books"])
    assert len(split.train["films"]) == len(data["films"])
    assert len(split.test["films"]) == 0 < len(split.test["books"])
    assert split.recipe["domains"] == ["books"]


def test_any_rating_of_a_test_user_may_be_kept():
    """Of six ratings two are kept: each in a third of the draws, and 0.1 is six standard errors."""
    data = Ratings.from_arrays({"d": ([0] * 6, range(6), [1, 2, 3, 4, 5, 1])})
    kept = [given_n(data, 2, n_train_users=0, seed=seed).train["d"].item for seed in range(900)]
    shares = np.bincount(np.concatenate(kept), minlength=6) / 900
    assert shares == pytest.approx(np.full(6, 1 / 3), abs=0.1)


@pytest.mark.parametrize("make", [lambda d, s: given_n(d, 5, seed=s), lambda d, s: hold_out(d, 0.2, seed=s),
                                  lambda d, s: list(user_folds(d, 3, 5, seed=s))[1]],
                         ids=["given_n", "hold_out", "user_folds"])
def test_a_seed_repeats_a_split_and_another_makes_another(data, make):
    first = make(data, 1)
    assert make(data, 1).test.fingerprint == first.test.fingerprint
    assert make(data, np.random.default_rng(1)).test.fingerprint == first.test.fingerprint
    assert make(data, 2).test.fingerprint != first.test.fingerprint
    assert first.recipe["seed"] == 1
    assert first.recipe["fingerprint"] == data.fingerprint


@odd_inputs
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=12, unique=True), st.integers(0, 4),
       st.integers(0, 99))
def test_no_rating_is_both_learned_and_tested(pairs, n, seed):
    users, items = map(list, zip(*pairs, strict=True))
    data = Ratings.from_arrays({"d": (users, items, [1 + i % 5 for i in items])})
    splits = [hold_out(data, 0.3, seed=seed)]
    if np.bincount(data["d"].user).max() > n:
        splits += [*user_folds(data, 2, n, seed=seed), given_n(data, n, n_train_users=0, seed=seed)]
    for split in splits:
        train, test, left_out = (rows(split, "d", part) for part in (TRAIN, TEST, LEFT_OUT))
        assert not train & test
        assert not left_out
        assert train | test == set(range(len(pairs)))


def test_hold_out_takes_the_share_of_every_domain(data):
    split = hold_out(data, 0.25)
    for name, domain in data.domains.items():
        assert len(split.test[name]) == round(0.25 * len(domain))
        assert len(split.train[name]) == len(domain) - len(split.test[name])


def test_every_user_is_tested_in_one_fold(data):
    tested = sum((counts(split.test, "films") > 0).astype(int) for split in user_folds(data, 4, 3))
    assert (tested == 1).all()
    for split in user_folds(data, 4, 3):
        whole, train, test = counts(data, "films"), counts(split.train, "films"), counts(split.test, "films")
        assert (train == np.where(test > 0, 3, whole)).all()
        assert 12 <= (test > 0).sum() <= 13


def test_a_saved_split_is_the_same_when_loaded(data, tmp_path):
    split = given_n(data, 5, n_train_users=0.5, n_test_users=10, seed=7)
    split.save(tmp_path / "split")
    loaded = Split.load(tmp_path / "split", some_data())
    assert loaded.recipe == split.recipe
    assert loaded.train.fingerprint == split.train.fingerprint
    assert loaded.test.fingerprint == split.test.fingerprint


def test_a_split_of_other_data_is_refused(data, tmp_path):
    hold_out(data).save(tmp_path / "split")
    with pytest.raises(DataError, match="must be loaded with the ratings it was made of"):
        Split.load(tmp_path / "split", some_data(seed=1))


@pytest.mark.parametrize("damage", [lambda b: b[:100], lambda b: b[:-10], lambda b: b"x" * 50, lambda b: b""])
def test_a_damaged_file_is_refused(data, tmp_path, damage):
    path = tmp_path / "split"
    hold_out(data).save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="must be a saved split"):
        Split.load(path, data)


def test_other_safetensors_are_no_split(data, tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(DataError, match="must be a saved split"):
        Split.load(tmp_path / "other", data)
    with pytest.raises(FileNotFoundError, match="there is no split at"):
        Split.load(tmp_path / "nothing", data)


def test_a_crash_while_saving_leaves_the_old_file_whole(data, tmp_path, monkeypatch):
    path = tmp_path / "split"
    hold_out(data).save(path)
    before = path.read_bytes()

    def crash(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        hold_out(data, seed=1).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("make", "message"), [
    (lambda d: given_n(d, 5, n_train_users=30, n_test_users=21), r"at most the 50 users of .*; got 30 \+ 21"),
    (lambda d: given_n(d, 5, n_train_users=1.5), "number of users or a share between 0.0 and 1.0; got 1.5"),
    (lambda d: given_n(d, 5, n_train_users=51), "n_train_users must be at most the 50 users of domain 'films'; got 51"),
    (lambda d: given_n(d, 5, n_test_users=10**6), "n_test_users must be at most the 50 users of .*; got 1,000,000"),
    (lambda d: given_n(d, 5, seed=-1), "a seed must be a whole number, 0 or more, or a Generator; got -1"),
    (lambda d: given_n(d, 5, seed=None), "a seed must be a whole number, 0 or more, or a Generator; got None"),
    (lambda d: user_folds(d, 3, 10**6), "users must have more than n = 1000000 ratings .* none has"),
    (lambda d: Split.of(d, {"films": np.ones(len(d["films"]), np.uint8)}, {}), "must part every domain"),
    (lambda d: Split.of(d, {n: np.full(len(d[n]), 3, np.uint8) for n in d.domains}, {}), r"0 \(left out\), .* up to 3"),
    (lambda d: given_n(d, 5, n_test_users=-1), "n_test_users must be 0 or more; got -1"),
    (lambda d: given_n(d, -1), "must be a whole number, 0 or more; got -1"),
    (lambda d: given_n(d, 2.5), "must be a whole number, 0 or more; got 2.5"),
    (lambda d: given_n(d, 40), "must have more than n = 40 ratings .* none has"),
    (lambda d: hold_out(d, 1.0), "fraction to hold out must be between 0 and 1; got 1.0"),
    (lambda d: hold_out(d, 1e-6), "must leave something to test"),
    (lambda d: user_folds(d, 1), "n_folds must be 2 to 50, the users of the smallest domain; got 1"),
    (lambda d: user_folds(d, 51), "n_folds must be 2 to 50"),
])
def test_splits_that_cannot_be_are_refused(data, make, message):
    with pytest.raises(DataError, match=message):
        make(data)


def test_an_unknown_domain_is_guessed(data):
    with pytest.raises(UnknownNameError, match="unknown domain 'book': did you mean 'books'"):
        given_n(data, 5, domains=["book"])


def test_parts_that_were_read_apart_get_the_users_and_items_of_both():
    train = Ratings.from_arrays({"a": ([1, 2, 3], ["x", "y", "z"], [1, 2, 5])}, scale=(1, 5))
    test = Ratings.from_arrays({"a": (["3", "9"], ["w", "x"], [3, 4])}, scale=(1, 5), titles={"a": {"w": "Double-u"}})
    split = Split(train, test)
    mine, theirs = split.train["a"], split.test["a"]
    assert mine.users is theirs.users
    assert theirs.users.decode(theirs.user) == ["3", "9"]
    assert theirs.items.decode(theirs.item) == ["w", "x"]
    assert mine.items.decode(mine.item) == ["x", "y", "z"]
    assert [theirs.title(c) for c in theirs.item] == ["Double-u", "x"]


def test_parts_that_do_not_belong_together_are_refused():
    columns = [1, 2], ["x", "y"], [1, 2]
    a, b = (Ratings.from_arrays({name: columns}, scale=(1, 5)) for name in "ab")
    with pytest.raises(DataError, match="must have the same domains; got a and b"):
        Split(a, b)
    with pytest.raises(DataError, match=r"must have the same scale; got 1 to 5 by 1 and 1 to 10 by 1\. Pass scale="):
        Split(a, Ratings.from_arrays({"a": columns}, scale=(1, 10)))


def test_a_split_of_ones_own_says_how_long_its_parts_must_be():
    data = Ratings.from_arrays({"a": ([1, 1, 2], [1, 2, 1], [5, 4, 3])}, scale=(1, 5))
    with pytest.raises(DataError, match="the part of 'a' must have a number for each of its 3 ratings"):
        Split.of(data, {"a": [1, 2]})
    assert repr(Split.of(data, {"a": [1, 2, 1]}, {"kind": "mine"})) == \
        "Split(kind='mine'): 2 ratings to learn from, 1 to test"
