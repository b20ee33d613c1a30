"""Times, strengths and half-lives of events; events beside ratings; splits by time."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

import pclf
from pclf.choice import graded
from pclf.errors import DataError, UnknownNameError

DAY = 86_400


def log(**columns):
    return pclf.Ratings.from_events({"shop": pd.DataFrame({"user": [1, 1, 2, 1], "item": [7, 8, 7, 7], **columns})},
                                    **{f"{name}_col": True for name in columns})["shop"]


def test_times_are_not_read_unless_asked_for():
    frame = {"user": [1], "item": [2], "rating": [3], "timestamp": ["nonsense"]}
    assert pclf.Ratings.from_frames({"a": frame}, scale=(1, 5))["a"].time is None


@pytest.mark.parametrize("when", [
    [1e9, 1e9 + DAY], [10**12, 10**12 + 1000 * DAY], [10**15, 10**15 + 10**6 * DAY], ["1000000000", "1000086400"],
    ["2001-09-09T01:46:40", "2001-09-10 01:46:40"], ["2001-09-09 03:46:40+02:00", "2001-09-10T01:46:40+00:00"],
    pd.to_datetime(["2001-09-09 01:46:40", "2001-09-10 01:46:40"])], ids=str)
def test_times_are_numbers_or_dates(when):
    """Milliseconds and microseconds are told from seconds by their size."""
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1, 2], "time": when})
    data = pclf.Ratings.from_frames({"a": frame}, scale=(1, 5), time_col=True)
    assert data["a"].time.tolist() == [1_000_000_000, 1_000_000_000 + DAY]


def test_times_of_other_frames_and_files(tmp_path):
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "stars": [1, 2],
                          "seen": [datetime(2020, 1, 1), datetime(2020, 1, 2)]})
    data = pclf.Ratings.from_frames({"a": frame}, scale=(1, 5), time_col="seen")
    assert np.diff(data["a"].time).tolist() == [DAY]
    (tmp_path / "r.dat").write_text("1::5::3::978300760\n2::6::4::978302109\n")
    data = pclf.Ratings.from_files({"a": tmp_path / "r.dat"}, scale=(1, 5), time_col=True)
    assert data["a"].time.tolist() == [978300760, 978302109]
    assert data["a"].ratings.tolist() == [3, 4]
    long = pclf.Ratings.from_frame({"domain": ["a", "b"], "user": [1, 1], "item": [1, 1], "rating": [1, 2],
                                    "time": [5, 6]}, scale=(1, 5), time_col=True)
    assert [long[name].time.tolist() for name in "ab"] == [[5], [6]]


def test_strengths_of_repeated_events_add_up():
    plain = log()
    assert dict(zip(zip(plain.user, plain.item, strict=True), plain.weight.tolist(), strict=True)) == {
        (0, 1): 1, (1, 0): 1, (0, 0): 2}
    plays = pclf.Ratings.from_events(
        {"shop": {"user": [1, 1, 2, 1], "item": [7, 8, 7, 7], "plays": [3, 1, 5, 4]}}, weight_col=True)["shop"]
    assert sorted(plays.weight.tolist()) == [1, 5, 7]
    once = pclf.Ratings.from_events({"shop": ([1, 2], [1, 2])})["shop"]
    assert once.weight is None


def test_an_event_counts_half_after_a_half_life():
    data = pclf.Ratings.from_events({"shop": {"user": [1, 2, 3], "item": [7, 7, 7], "time": [0, 10 * DAY, 20 * DAY],
                                              "plays": [8, 8, 8]}}, time_col=True, weight_col=True, half_life=10)
    np.testing.assert_allclose(data["shop"].weight, [2, 4, 8])
    np.testing.assert_allclose(graded(data["shop"]).toarray().ravel(), np.log2([1.5, 2, 3]), rtol=1e-6)


def test_ratings_and_events_in_one_fit(tmp_path):
    rng = np.random.default_rng(0)
    films = pd.DataFrame({"user": rng.integers(0, 40, 400), "film": rng.integers(0, 30, 400),
                          "rating": rng.integers(1, 6, 400)})
    films = films.drop_duplicates(["user", "film"])
    loans = pd.DataFrame({"user": rng.integers(0, 40, 300), "book": rng.integers(0, 25, 300),
                          "count": rng.integers(1, 9, 300)})
    films.to_csv(tmp_path / "films.csv", index=False)
    loans.to_csv(tmp_path / "loans.csv", index=False)
    data = pclf.Ratings.from_files({"films": tmp_path / "films.csv", "books": tmp_path / "loans.csv"}, events=["books"],
                                   weight_col=True, shared_users=True, scale={"films": (1, 5)})
    assert [d.events for d in data.domains.values()] == [False, True]
    assert data.n_levels == 5
    assert data["films"].weight is None
    assert data["books"].weight.sum() == loans["count"].sum()
    model = pclf.PCLF(2, 2, 2, n_restarts=1, max_iter=5).fit(data)
    model.save(tmp_path / "m")
    kept = pclf.load(tmp_path / "m").data_
    np.testing.assert_array_equal(kept["books"].weight, data["books"].weight)
    assert kept.fingerprint == data.fingerprint
    found = pclf.compare({"EASE": pclf.EASE(), "Popular": pclf.Popular()}, [pclf.hold_out(data, 0.2)])
    assert {(s.domain, s.metric) for s in found.scores} == {
        (name, metric) for name in data.domains for metric in ("ndcg@10", "recall@10")}


def test_strengths_beside_ratings_and_attributes(tmp_path):
    """Tables of attributes are found by the id columns alone, whatever else is read of events."""
    people, genres = list(range(6)), ["war", "love"] * 3
    films = {"viewer": people, "film": people, "rating": [1, 5, 3, 2, 4, 1]}
    loans = {"user": people, "item": people, "plays": [2, 3, 4, 5, 6, 7], "time": [1, 2, 3, 4, 5, 6]}
    facts = {"films": {"film": people, "genre": genres}, "books": {"item": people, "genre": genres[::-1]}}
    data = pclf.Ratings.from_frames({"films": films, "books": loans}, events=["books"], item_col={"films": "film"},
                                    user_col={"films": "viewer"}, weight_col=True, time_col={"books": "time"},
                                    half_life=1, scale={"films": (1, 5)}, attributes=facts)
    assert data["books"].time.tolist() == loans["time"]
    assert data["books"].weight == pytest.approx(loans["plays"], rel=1e-4)
    assert data["films"].time is None
    half = data.select({"books": np.array([True, False] * 3)}).compact()
    assert half["books"].time.tolist() == [1, 3, 5]
    assert half["books"].weight == pytest.approx([2, 4, 6], rel=1e-4)
    np.testing.assert_array_equal(half.attributes.of("books").toarray(), data.attributes.of("books").toarray()[::2])


def timed():
    return pclf.Ratings.from_frames({"a": {"user": [1, 1, 1, 2, 2, 3], "item": [1, 2, 3, 1, 2, 3], "rating": [1] * 6,
                                           "time": [30, 10, 20, 5, 40, 50]},
                                     "b": {"user": [9], "item": [9], "rating": [2], "time": [45]}},
                                    scale=(1, 5), time_col=True)


def test_by_time_tests_what_came_after_one_moment():
    split = pclf.by_time(timed(), 0.4)
    assert split.recipe["moment"] == 40
    assert split.test["a"].time.tolist() == [40, 50]
    assert split.test["b"].time.tolist() == [45]
    assert split.train["a"].time.max() < 40


def test_last_n_tests_the_last_of_everybody_with_more():
    split = pclf.last_n(timed(), 1)
    assert sorted(split.test["a"].time.tolist()) == [30, 40]                 # user 3 has a single rating
    split = pclf.last_n(timed(), 2)
    assert sorted(split.test["a"].time.tolist()) == [20, 30]
    assert not len(split.test["b"])


@pytest.mark.parametrize(("call", "says"), [
    (lambda: log(time=[1, 2, "soon", 3]), "times must be seconds since 1970 or dates such as .*; got 'soon' in row 2"),
    (lambda: log(time=[1, 2, -1e300, 3]), "times must be seconds since 1970 or dates .*; got -1e\\+300 in row 2"),
    (lambda: log(weight=[1, 2, 1e300, 1]), r"strengths must be from 1e-30 to 1e\+30; got 1e\+300 in row 2"),
    (lambda: log(time=[1, 2, None, 3]), "times must not be missing; got none in row 2"),
    (lambda: log(time=[1, 2, (datetime.now(UTC) + timedelta(days=9)).isoformat(), 3]), "not lie in the future; got"),
    (lambda: log(weight=[1, 2, -3, 1]), "strengths must be above 0; got -3 in row 2"),
    (lambda: log(weight=[1, 2, 0, 1]), "strengths must be above 0; got 0 in row 2"),
    (lambda: log(weight=[1, 2, "much", 1]), "strengths must be finite numbers; got 'much' in row 2"),
    (lambda: pclf.Ratings.from_events({"a": {"user": [1], "item": [1], "time": [1]}}, time_col=True, half_life=0),
     "half_life must be a number of days above 0; got 0"),
    (lambda: pclf.Ratings.from_events({"a": ([1], [1])}, half_life=3), "half_life must come with the times of events"),
    (lambda: pclf.Ratings.from_events({"a": ([1], [1])}, time_col=True), r"must be \(users, items, times\); got 2"),
    (lambda: pclf.Ratings.from_arrays({"a": ([1], [1], [1])}, scale=(1, 5), half_life=3),
     "half_life must come with a domain"),
    (lambda: pclf.Ratings.from_frames({"a": {"user": [1], "item": [1], "rating": [1], "plays": [1]}}, weight_col=True),
     "'a' has ratings, and only events have strengths; got weight_col=True"),
    (lambda: pclf.Ratings.from_frames({"a": {"user": [1], "item": [1]}}, events=["a"], scale={"a": (1, 5)}),
     "'a' has events, which are on no scale"),
    (lambda: pclf.by_time(pclf.Ratings.from_arrays({"a": ([1], [1], [1])}, scale=(1, 5))),
     "by_time must know the time of each rating in 'a'"),
    (lambda: pclf.by_time(timed(), 1.5), "fraction to hold out must be between 0 and 1; got 1.5"),
    (lambda: pclf.last_n(timed(), 0), "must be a whole number, 1 or more; got 0"),
    (lambda: pclf.last_n(timed(), 9), "users must have more than n = 9 ratings"),
])
def test_wrong_times_and_strengths_are_refused_in_words(call, says):
    with pytest.raises(DataError, match=says):
        call()


def test_an_unknown_domain_of_events_is_guessed():
    with pytest.raises(UnknownNameError, match="unknown domain 'book' in events: did you mean 'books'"):
        pclf.Ratings.from_frames({"books": {"user": [1], "item": [1]}}, events=["book"])
