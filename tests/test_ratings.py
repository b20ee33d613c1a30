"""Ratings: what goes in comes out, whatever the ids; what is wrong is said, and where."""

import math
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pclf.data import Domain, Ratings, Scale, Vocabulary, columns
from pclf.errors import DataError, UnknownNameError, did_you_mean

odd_inputs = settings(deadline=None, max_examples=100, derandomize=os.environ.get("TEST_SEED") != "any")

COLUMNS = {"user_id": ["ann", "ben", "ann", "eve"], "item_id": [7, 7, -3, 9], "rating": [1, 5, 3, 4]}
AS_FRAME = {
    "pandas": lambda table: pytest.importorskip("pandas").DataFrame(table),
    "polars": lambda table: pytest.importorskip("polars").DataFrame(table),
    "pyarrow": pa.table,
}

simple_ids = st.one_of(st.integers(), st.text(st.characters()), st.booleans(), st.binary(max_size=3),
                       st.floats(allow_nan=False))
ids = {
    "strings": st.text(st.characters()),
    "negative numbers": st.integers(-10**6, 10**6),
    "large numbers": st.integers(),
    "halves": st.integers(-40, 40).map(lambda i: i / 2),
    "tuples": st.tuples(st.integers(), st.text(max_size=3)),
    "mixed": st.one_of(simple_ids, st.tuples(simple_ids, simple_ids)),
}


def some_ratings(**options):
    return Ratings.from_arrays({"films": tuple(COLUMNS.values())}, **options)


def triples(ratings, name):
    return list(zip(*(column.tolist() for column in ratings.to_frame(name).values()), strict=True))


@pytest.mark.parametrize("kind", AS_FRAME)
def test_a_frame_holds_the_same_ratings_as_arrays(kind):
    made = Ratings.from_frames({"films": AS_FRAME[kind](COLUMNS)})
    assert made.fingerprint == some_ratings().fingerprint
    assert made["films"].users == Vocabulary(["ann", "ben", "eve"])
    assert made["films"].items.ids == (7, -3, 9)


@pytest.mark.parametrize("kind", AS_FRAME)
def test_a_long_frame_is_taken_apart_by_its_domain_column(kind):
    long = {"domain": ["films", "books", "films", "books"], **COLUMNS}
    made = Ratings.from_frame(AS_FRAME[kind](long), scale=(1, 5))
    assert triples(made, "films") == [("ann", 7, 1.0), ("ann", -3, 3.0)]
    assert triples(made, "books") == [("ben", 7, 5.0), ("eve", 9, 4.0)]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_series_are_columns_too(kind):
    frame = AS_FRAME[kind](COLUMNS)
    made = Ratings.from_arrays({"films": tuple(frame[c] for c in COLUMNS)})
    assert made.fingerprint == some_ratings().fingerprint


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_categorical_column_brings_only_the_values_that_occur(kind):
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        users = pd.Series(pd.Categorical(["b", "a", "b"], categories=["z", "a", "b"]))
    else:
        pl = pytest.importorskip("polars")
        users = pl.Series(["b", "a", "b"], dtype=pl.Enum(["z", "a", "b"]))
    made = Ratings.from_arrays({"films": (users, [1, 2, 3], [1, 2, 3])})
    assert made["films"].users.ids == ("b", "a")


def test_a_pandas_column_of_mixed_objects_keeps_them():
    pd = pytest.importorskip("pandas")
    users = pd.Series([("a", 1), "b", 3], dtype=object)
    frame = pd.DataFrame({"user": users, "item": 1, "rating": [1, 2, 3]})
    assert Ratings.from_frames({"films": frame})["films"].users.ids == (("a", 1), "b", 3)


@pytest.mark.parametrize("names", [("userId", "movieId", "rating"), ("User-ID", "ISBN", "Book-Rating"),
                                   ("uid", "item", "Stars"), ("reviewerID", "asin", "overall")])
def test_columns_are_found_by_their_usual_names(names):
    frame = pa.table(dict(zip(["title", *names], [["x"] * 4, *COLUMNS.values()], strict=True)))
    assert Ratings.from_frames({"films": frame}).fingerprint == some_ratings().fingerprint


def test_columns_can_be_named():
    frame = pa.table({"user_id": COLUMNS["item_id"], "who": COLUMNS["user_id"], "what": COLUMNS["item_id"],
                      "how": COLUMNS["rating"]})
    made = Ratings.from_frames({"films": frame}, user_col="who", item_col="what", rating_col="how")
    assert made.fingerprint == some_ratings().fingerprint


@pytest.mark.parametrize("kind", ids)
def test_any_hashable_ids_come_back_as_they_went_in(kind):
    @odd_inputs
    @given(st.lists(st.tuples(ids[kind], ids[kind], st.integers(1, 5)), min_size=1, max_size=30,
                    unique_by=lambda triple: triple[:2]))
    def check(rows):
        made = Ratings.from_arrays({"d": tuple(map(list, zip(*rows, strict=True)))}, scale=(1, 5))
        assert triples(made, "d") == rows
        assert made["d"].users.ids == tuple(dict.fromkeys(user for user, _, _ in rows))

    check()


@odd_inputs
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.5, 3.0, 4.5])), min_size=1,
                unique_by=lambda triple: triple[:2]), st.integers(1, 7))
def test_any_small_data_set_has_levels_and_values_within_its_scale(rows, levels):
    """One rating, one user, one item, all ratings equal: all of them are drawn here."""
    users, items, ratings = map(list, zip(*rows, strict=True))
    for n_levels in (None, levels):
        made = Ratings.from_arrays({"d": (users, items, ratings)}, levels=n_levels)
        worth = made.level_values("d")
        assert made["d"].ratings.tolist() == ratings
        assert made.levels("d").max() < made.n_levels == len(worth)
        assert min(ratings) <= worth.min() <= worth.max() <= max(ratings)


def test_a_domain_of_one_value_does_not_flatten_the_others():
    made = Ratings.from_arrays({"likes": ([1, 2], [1, 1], [1, 1]), "films": ([1, 2], [1, 1], [1, 5])})
    assert made.n_levels == 5
    assert made.levels("likes").tolist() == [2, 2]
    assert made.level_values("likes").tolist() == [1.0] * 5


def test_the_shortest_scale_gives_the_number_of_levels():
    made = Ratings.from_arrays({"films": ([1, 2], [1, 1], [0.5, 5]), "books": ([1, 2], [1, 1], [0, 10])},
                               scale={"films": (0.5, 5, 0.5), "books": (0, 10)})
    assert made.n_levels == 10
    assert made.levels("books").tolist() == [0, 9]


def test_ratings_that_are_no_scale_are_refused():
    with pytest.raises(DataError, match=r"'d': ratings must lie on a scale of few values; got 500 .*nearest"):
        Ratings.from_arrays({"d": (range(500), range(500), np.random.default_rng(0).random(500))})


@pytest.mark.parametrize(("given_scale", "expected"), [
    ((1, 5), (1, 2, 3, 4, 5)), ((1, 2, 0.5), (1, 1.5, 2)), ((1, 2, 3), (1, 2, 3)),
    ([1, 3, 9, 10], (1, 3, 9, 10)),
    (Scale((1, 3)), (1, 3)), ({"d": (1, 3)}, (1, 2, 3)), (range(1, 4), (1, 2, 3)),
])
def test_a_scale_can_be_written_in_many_ways(given_scale, expected):
    assert Ratings.from_arrays({"d": ([1], [1], [1])}, scale=given_scale)["d"].scale.values == expected


@pytest.mark.parametrize("wrong", [(5, 1), (1, 5, 0.3), (1, 1000), [3, 2, 1, 0], (math.nan, 3), "1-5", 5, ()])
def test_a_scale_that_is_none_is_refused(wrong):
    with pytest.raises(DataError, match=r"scale|steps"):
        some_ratings(scale=wrong)


@pytest.mark.parametrize("make", [lambda i: i, str, lambda i: (i, "x"), lambda i: i / 2],
                         ids=["int", "str", "tuple", "float"])
def test_encoding_many_ids_agrees_with_a_dict(make):
    """More ids than a dict is used for, known and unknown, so that Arrow's path is taken too."""
    known = [make(i) for i in np.random.default_rng(0).permutation(3000).tolist()]
    asked = [make(i) for i in np.random.default_rng(1).integers(-500, 3500, 5000).tolist()]
    by_hand = {id: code for code, id in enumerate(known)}
    vocabulary = Vocabulary(known)
    codes = vocabulary.encode(asked)
    assert codes.dtype == np.int32
    assert codes.tolist() == [by_hand.get(i, -1) for i in asked]
    assert vocabulary.decode(codes[codes >= 0]) == [i for i in asked if i in by_hand]
    assert vocabulary.encode(asked[:5]).tolist() == codes[:5].tolist()


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int32", "float64", "object"])
def test_numbers_of_any_dtype_find_their_code(dtype):
    asked = np.arange(100).repeat(10).astype(dtype)
    codes = Vocabulary(np.arange(90)[::-1]).encode(asked)
    assert (codes == np.where(asked < 90, 89 - asked.astype(int), -1)).all()


def test_ids_come_back_as_python_objects():
    for values in (np.array([3, 1]), np.array(["a", "b"]), [np.int64(3), "a"], np.array([0.5, 1.5])):
        assert {type(i) for i in Vocabulary(values).decode([0, 1])} <= {int, str, float}


def test_the_code_of_an_unknown_id_is_not_decoded():
    for ids in ([1, 2], ["a", "b"], [(1,), "b"]):
        with pytest.raises(DataError, match="codes must be 0 to 1; got -1 to 0"):
            Vocabulary(ids).decode([0, -1])


def test_equal_keys_of_a_dict_are_one_id():
    made = Ratings.from_arrays({"d": ([1, 1.0, "1", True], [1, 2, 3, 4], [1, 2, 3, 4])})
    assert made["d"].users.ids == (1, "1")
    assert made["d"].user.tolist() == [0, 0, 1, 0]


def test_a_text_is_not_a_number():
    assert Vocabulary(["1", "2"]).encode([1, "2"]).tolist() == [-1, 1]
    assert 1 not in Vocabulary(["1"])


@pytest.mark.parametrize(("known", "asked", "message"), [
    (["Alien", "Heat"], "alien", "unknown item 'alien': did you mean 'Alien'? (Alien, Heat)"),
    ([7, 8], "7", "unknown item '7' (str): did you mean 7 (int)?"),
    (["7", "8"], 7, "unknown item 7 (int): did you mean '7' (str)?"),
    (range(100), "zzz", "unknown item 'zzz' (known are 0, 1, 2 and others)"),
])
def test_an_unknown_id_is_answered_with_the_closest(known, asked, message):
    with pytest.raises(UnknownNameError) as caught:
        Vocabulary(known).code(asked, "item")
    assert str(caught.value) == message


def test_a_vocabulary_refuses_an_id_twice_and_no_id():
    with pytest.raises(DataError, match="must differ; got 'a' again in row 2"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(DataError, match="must not be missing; got none in row 1"):
        Vocabulary(["a", None])


@pytest.mark.parametrize(("frame", "message"), [
    ({"user_id": [1], "itm_id": [1], "rating": [1]},
     "domain 'films': there must be a column like 'itemid'; did you mean 'itm_id'? "
     "got 'user_id', 'itm_id', 'rating'. Pass item_col=..."),
    ({"user_id": [1], "item_id": [1], "when": [1]},
     "domain 'films': there must be a column like 'rating'; got 'user_id', 'item_id', 'when'. "
     "Pass rating_col=..."),
    ({"user_id": [1, 2, 3], "item_id": [1, 2, 3], "rating": [1.0, None, None]},
     "domain 'films': ratings must not be missing; got none in row 1 and 1 more. Drop these rows first."),
    ({"user_id": [1, 2, 3], "item_id": [1, 2, 3], "rating": [1.0, 2.0, math.nan]},
     "domain 'films': ratings must not be missing; got none in row 2. Drop these rows first."),
    ({"user_id": [1, 2, 3], "item_id": [1, 2, 3], "rating": [1.0, math.inf, 2.0]},
     "domain 'films': ratings must be finite numbers; got inf in row 1. Drop or correct these rows first."),
    ({"user_id": [1, 2], "item_id": [1, 2], "rating": ["4", "five"]},
     "domain 'films': ratings must be finite numbers; got 'five' in row 1. "
     "Drop or correct these rows first."),
    ({"user_id": ["a", None], "item_id": [1, 2], "rating": [1, 2]},
     "domain 'films': user ids must not be missing; got none in row 1. Drop these rows first."),
    ({"user_id": ["a", "b"], "item_id": [1.0, math.nan], "rating": [1, 2]},
     "domain 'films': item ids must not be missing; got none in row 1. Drop these rows first."),
    ({"user_id": [1, 2, 3], "item_id": [1, 2, 3], "rating": [6, 2, 7]},
     "domain 'films': ratings must be on the scale 1 to 5 by 1; got 6 in row 0 and 1 more. "
     "Pass scale=..., or round them with Scale.nearest() first."),
    ({"user_id": [1, 2, 1], "item_id": ["x", "y", "x"], "rating": [1, 2, 3]},
     "domain 'films': a user must rate an item once; user 1 rates item 'x' again in row 2. "
     "Pass duplicates='last' or 'mean'."),
    ({"user_id": [], "item_id": [], "rating": []},
     "domain 'films' must have at least one row of data; got none. Leave the domain out."),
])
@pytest.mark.parametrize("kind", AS_FRAME)
def test_bad_frames_are_refused_with_a_sentence_that_helps(kind, frame, message):
    with pytest.raises(DataError) as caught:
        Ratings.from_frames({"films": AS_FRAME[kind](frame)}, scale=(1, 5))
    assert str(caught.value) == message


def test_a_named_column_that_is_missing_is_guessed():
    with pytest.raises(DataError, match="domain 'films': unknown column 'userid': did you mean 'user_id'"):
        Ratings.from_frames({"films": pa.table(COLUMNS)}, user_col="userid")


@pytest.mark.parametrize(("column", "values", "message"), [
    ("item", [1, 2, 2], r"'b'.* in row 2\. "),
    ("rating", [1, 2, 9], r"got 9 in row 2\. "),
    ("user", [1, None, 2], r"user ids must not be missing; got none in row 1\. "),
    ("domain", ["a", None, "b"], r"domains in 'domain' must not be missing; got none in row 1\. "),
])
def test_errors_count_the_rows_of_the_long_frame(column, values, message):
    frame = {"domain": ["a", "b", "b"], "user": [1, 1, 1], "item": [1, 1, 2], "rating": [1, 2, 3]}
    with pytest.raises(DataError, match=message):
        Ratings.from_frame(pa.table({**frame, column: values}), scale=(1, 5))


def test_a_long_frame_needs_its_domain_column():
    with pytest.raises(DataError, match="unknown column 'domain': did you mean 'domains'"):
        Ratings.from_frame(pa.table({"domains": ["a"], "user": [1], "item": [1], "rating": [1]}))


@pytest.mark.parametrize(("arrays", "message"), [
    ({"d": ([1, 2], [1], [1, 2])}, "users, items and ratings must be equally many; got 2, 1 and 2"),
    ({"d": ([1, 2], [1, 2])}, r"must be \(users, items, ratings\); got 2"),
    ({"d": ([[1]], [1], [1])}, r"ids must be hashable; got \[1\] in row 0"),
    ({"d": ("ab", [1, 2], [1, 2])}, "must be a sequence or an array; got 'ab'"),
    ({"d": (np.ones((2, 2)), [1, 2], [1, 2])}, r"must have one dimension; got an array of shape \(2, 2\)"),
    ({3: ([1], [1], [1])}, r"dict {domain name: \(users, items, ratings\)}; got dict with the keys \[3\]"),
    ([([1], [1], [1])], r"dict {domain name: \(users, items, ratings\)}; got list"),
    ({}, "at least one domain; got none"),
])
def test_bad_arrays_are_refused(arrays, message):
    with pytest.raises(DataError, match=message):
        Ratings.from_arrays(arrays)


@pytest.mark.parametrize(("options", "message"), [
    ({"duplicates": "lst"}, "unknown policy for duplicates 'lst': did you mean 'last'?"),
    ({"scale": {"film": (1, 5)}}, "unknown domain 'film': did you mean 'films'?"),
    ({"titles": {"film": {}}}, "unknown domain 'film': did you mean 'films'?"),
])
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(UnknownNameError, match=message):
        some_ratings(**options)


@pytest.mark.parametrize("levels", [0, -1, 257])
def test_levels_must_be_a_number_that_fits(levels):
    with pytest.raises(DataError, match="number of levels must be 1 to 256"):
        some_ratings(levels=levels)


@pytest.mark.parametrize("users", [[("a", 1), None, 3], ["a", math.nan, 3], [1.5, 2, np.float32("nan")]])
def test_a_missing_id_among_mixed_ones_is_seen(users):
    with pytest.raises(DataError, match="user ids must not be missing; got none in row"):
        Ratings.from_arrays({"d": (users, [1, 2, 3], [1, 2, 3])})


def test_a_frame_with_a_column_twice_is_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame([[1, 2, 3, 4]], columns=["user", "item", "rating", "rating"])
    with pytest.raises(DataError, match=r"domain 'd': column names must differ; .*'rating' 2 times"):
        Ratings.from_frames({"d": frame})


def test_what_is_no_frame_is_refused():
    with pytest.raises(DataError, match="must be a pandas, polars or pyarrow frame; got tuple"):
        Ratings.from_frames({"films": tuple(COLUMNS.values())})
    lazy = pytest.importorskip("polars").LazyFrame(COLUMNS)
    with pytest.raises(DataError, match=r"got LazyFrame\. Collect it first\."):
        Ratings.from_frames({"films": lazy})


def test_duplicates_are_merged_at_the_place_of_the_last():
    columns = (["a", "b", "a", "a"], [1, 1, 1, 2], [1, 2, 4, 5])
    last = Ratings.from_arrays({"d": columns}, duplicates="last")
    mean = Ratings.from_arrays({"d": columns}, duplicates="mean")
    assert triples(last, "d") == [("b", 1, 2.0), ("a", 1, 4.0), ("a", 2, 5.0)]
    assert triples(mean, "d") == [("b", 1, 2.0), ("a", 1, 3.0), ("a", 2, 5.0)]   # 2.5 goes up


def test_a_million_rows_with_duplicate_pairs_are_merged_as_by_a_dict():
    n, rng = 1_000_000, np.random.default_rng(0)
    users, items, stars = rng.integers(0, 3000, n), rng.integers(0, 1000, n), rng.integers(1, 6, n)
    frame = pa.table({"user_id": users, "item_id": items, "rating": stars})
    with pytest.raises(DataError, match=r"rate an item once; .* again in row [\d,]+ and 149,\d\d\d more"):
        Ratings.from_frames({"d": frame})
    pairs = (users * 1000 + items).tolist()
    by_hand = dict(zip(pairs, stars.tolist(), strict=True))
    made = Ratings.from_frames({"d": frame}, duplicates="last")
    d = made["d"]
    found = d.users.array()[d.user] * 1000 + d.items.array()[d.item]
    assert dict(zip(found.tolist(), d.ratings.tolist(), strict=True)) == by_hand
    sums, counts = np.bincount(pairs, stars), np.bincount(pairs)
    averaged = Ratings.from_frames({"d": frame}, duplicates="mean")["d"]
    rounded = np.floor(sums[found] / counts[found] + 0.5)
    assert (averaged.ratings == rounded).all()


def test_users_of_different_domains_are_different_unless_shared():
    arrays = {"films": (["ann", "ben"], [1, 2], [1, 2]), "books": (["eve", "ann"], [2, 3], [1, 2])}
    apart = Ratings.from_arrays(arrays)
    assert [rows.tolist() for rows in apart.user_rows] == [[0, 1], [2, 3]]
    assert [rows.tolist() for rows in apart.item_rows] == [[0, 1], [2, 3]]
    assert (apart.n_users, apart.n_items) == (4, 4)
    users = Ratings.from_arrays(arrays, shared_users=True)
    assert [rows.tolist() for rows in users.user_rows] == [[0, 1], [2, 0]]
    assert (users.n_users, users.n_items) == (3, 4)
    items = Ratings.from_arrays(arrays, shared_items=True)
    assert [rows.tolist() for rows in items.item_rows] == [[0, 1], [1, 2]]
    assert (items.n_users, items.n_items) == (4, 3)


def test_shared_ids_of_different_types_meet_as_in_a_dict():
    users = {"a": [1, 2], "b": [2.0, 0.5], "c": ["2", 1]}
    arrays = {name: (of_domain, [1, 1], [1, 2]) for name, of_domain in users.items()}
    rows = Ratings.from_arrays(arrays, shared_users=True).user_rows
    assert [r.tolist() for r in rows] == [[0, 1], [1, 2], [3, 0]]


def test_select_keeps_users_items_and_scale():
    data = some_ratings()
    part = data.select({"films": np.array([False, True, False, False])})
    assert triples(part, "films") == [("ben", 7, 5.0)]
    assert part["films"].users is data["films"].users
    assert (part.n_users, part.n_items, part.n_levels) == (3, 3, 5)
    assert part.fingerprint != data.fingerprint
    assert data.select({}).fingerprint == data.fingerprint
    with pytest.raises(DataError, match="mask of 'films' must be 4 booleans; got int64"):
        data.select({"films": np.array([0, 1, 0, 0])})


@pytest.mark.parametrize("ids", [[7, 8, 9], ["x", "y", "z"], [("x", 1), 2.5, "z"]], ids=["int", "str", "object"])
def test_compact_forgets_who_and_what_has_no_ratings(ids):
    columns = ([ids[0], ids[1], ids[2]], [ids[2], ids[1], ids[0]], [1, 2, 3])
    data = Ratings.from_arrays({"a": columns, "b": columns}, shared_users=True, titles={"a": {ids[0]: "first"}})
    some = data.select({"a": np.array([False, True, True]), "b": np.array([False, False, True])})
    small = some.compact()
    assert [triples(small, name) for name in "ab"] == [triples(some, name) for name in "ab"]
    assert [(small[name].n_users, small[name].n_items) for name in "ab"] == [(2, 2), (1, 1)]
    assert small["a"].users.kind == data["a"].users.kind
    assert small["a"].title(small["a"].items.code(ids[0])) == "first"
    assert small.n_users == 2                                       # the person of b is one of a's


def test_shared_ids_that_are_numbers_in_one_domain_and_text_in_another_are_text():
    data = Ratings.from_arrays({"a": ([1, 2], [5, 6], [1, 2]), "b": (["1", "guest"], ["5", "x"], [1, 2])},
                               shared_users=True)
    assert data.n_users == 3
    assert (data["a"].users.ids, data["a"].items.ids) == (("1", "2"), (5, 6))


def test_shared_users_who_are_not_are_told():
    with pytest.warns(UserWarning, match="users are shared, but no id is in two domains"):
        Ratings.from_arrays({"a": ([1, 2], [5, 6], [1, 2]), "b": ([3, 4], [5, 6], [1, 2])}, shared_users=True)


def test_a_missing_title_is_the_id():
    data = Ratings.from_arrays({"a": ([1, 2, 3], ["x", "y", "z"], [1, 2, 3])},
                               titles={"a": {"x": float("nan"), "y": None, "z": "Zed"}})
    assert data["a"].titles == ("x", "y", "Zed")


def test_events_leave_the_levels_of_ratings_beside_them():
    rated = Ratings.from_arrays({"films": ([1, 2], [1, 1], [1, 5])}, scale=(1, 5))
    played = Ratings.from_events({"songs": ([1, 2], [1, 1])})
    assert Ratings({**rated.domains, **played.domains}).n_levels == 5
    assert played.n_levels == 2


def test_only_keeps_the_levels_of_all():
    data = Ratings.from_arrays({"a": ([1, 2], [1, 1], [1, 6]), "b": ([1, 2], [1, 1], [1, 9])}, scale={"a": (1, 6)})
    assert data.only("b").n_levels == 6
    assert list(data.only(["b", "a"]).domains) == ["b", "a"]
    with pytest.raises(UnknownNameError, match="unknown domain 'c'"):
        data.only(["c"])


@pytest.mark.parametrize(("lengths", "levels"), [((2, 5), 5), ((2, 10), 10), ((5, 10), 5), ((6, 10, 3), 6), ((2, 3), 3),
                                                 ((1, 2), 2)])
def test_few_values_in_one_domain_do_not_take_the_levels_of_another_away(lengths, levels):
    arrays = {f"d{n}": ([1, 2], [1, 1], [1, n]) for n in lengths}
    assert Ratings.from_arrays(arrays, scale={f"d{n}": list(range(1, n + 1)) for n in lengths}).n_levels == levels


def test_a_dict_of_columns_is_a_frame_and_comes_back():
    data = some_ratings()
    again = Ratings.from_frames({name: data.to_frame(name) for name in data.domains},
                                scale={name: d.scale for name, d in data.domains.items()})
    assert [d.ratings.tolist() for d in again.domains.values()] == [d.ratings.tolist() for d in data.domains.values()]


def test_titles_find_ids_of_another_type_and_are_refused_where_none_fits():
    columns = {"d": ([1, 2], [7, 8], [1, 2])}
    assert Ratings.from_arrays(columns, titles={"d": {"7": "Seven"}})["d"].titles == ("Seven", "8")
    with pytest.raises(DataError, match="titles must be of its items, which have ids like 7; got ids like 'x'"):
        Ratings.from_arrays(columns, titles={"d": {"x": "Seven"}})
    with pytest.raises(DataError, match=r"titles must be a dict \{item_id: title\}; got list"):
        Ratings.from_arrays(columns, titles={"d": ["Seven"]})


def test_shared_items_without_a_common_one_are_told():
    with pytest.warns(UserWarning, match="items are shared, but no id is in two domains"):
        Ratings.from_arrays({"a": ([1], [1], [1]), "b": ([1], [2], [1])}, shared_items=True)


def test_the_fingerprint_follows_every_number():
    base = some_ratings()
    changed = [some_ratings(scale=(0, 5)), some_ratings(levels=3), some_ratings(shared_users=True),
               Ratings.from_arrays({"films": (COLUMNS["user_id"], COLUMNS["item_id"], [1, 5, 3, 3])}),
               Ratings.from_arrays({"films": (COLUMNS["user_id"], [7, 7, 7, -3], COLUMNS["rating"])},
                                   duplicates="last"),
               Ratings.from_arrays({"films": (COLUMNS["user_id"], COLUMNS["item_id"], [20, 100, 60, 80])}),
               Ratings.from_arrays({"other": tuple(COLUMNS.values())})]
    assert len({base.fingerprint, *(c.fingerprint for c in changed)}) == 1 + len(changed)


def test_ratings_do_not_change():
    data = some_ratings()
    with pytest.raises(ValueError, match="read-only"):
        data["films"].user[0] = 1
    with pytest.raises(AttributeError):
        data.n_levels = 3


def test_a_domain_leaves_the_callers_array_alone():
    one, user, value = Vocabulary([1]), np.zeros(1, np.int32), np.zeros(1, np.uint8)
    Domain("d", one, one, user, user, value, Scale((1,)))
    user[0] = 5
    with pytest.raises(DataError, match="'d': user must be 1 numbers of type int32; got int64"):
        Domain("d", one, one, np.zeros(1, np.int64), user, value, Scale((1,)))


def test_titles_are_shown_where_they_are_known():
    data = some_ratings(titles={"films": {7: "Alien", 9: "Heat"}})
    assert [data["films"].title(code) for code in range(3)] == ["Alien", "-3", "Heat"]
    assert some_ratings()["films"].title(0) == "7"


def test_ratings_show_their_sizes():
    data = Ratings.from_arrays({"films": tuple(COLUMNS.values()), "<b>": (["ben"], [1], [3])}, shared_users=True)
    assert repr(data) == ("Ratings: 5 in 2 domains, 5 levels, users shared\n"
                          "  films  3 users  3 items  4 ratings  1 to 5 by 1\n"
                          "  <b>     1 user   1 item   1 rating  3")
    assert "<td>&lt;b&gt;</td><td>1</td><td>1</td><td>1</td><td>1e+02 %</td>" in data._repr_html_()


def test_importing_the_room_imports_nothing_heavy():
    heavy = {"pandas", "polars", "pyarrow", "narwhals", "scipy"}
    code = f"import sys, pclf.data; print(*({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_unknown_names_are_guessed():
    engines = ["cpu", "gpu", "reference"]
    assert did_you_mean("gpuu", engines, "engine") == (
        "unknown engine 'gpuu': did you mean 'gpu'? (cpu, gpu, reference)")
    assert did_you_mean("spark", engines, "engine") == "unknown engine 'spark' (cpu, gpu, reference)"
    assert did_you_mean("spark", [], "engine") == "unknown engine 'spark'"


def test_every_usual_name_is_written_as_it_is_looked_up():
    names = [alias for aliases in columns.ALIASES.values() for alias in aliases]
    assert len(set(names)) == len(names)
    assert all(columns.plain_name(alias) == alias for alias in names)


def test_columns_may_be_named_by_domain():
    import pandas as pd

    frames = {"films": pd.DataFrame({"utente": [1], "film": ["x"], "rating": [3]}),
              "books": pd.DataFrame({"kunde": [1], "isbn": ["y"], "rating": [4]})}
    data = Ratings.from_frames(frames, user_col={"films": "utente", "books": "kunde"})
    assert data["books"].users.ids == (1,)
    with pytest.raises(UnknownNameError, match="unknown domain 'bookz' in user_col"):
        Ratings.from_frames(frames, user_col={"bookz": "kunde"})


def test_domains_of_a_column_that_read_the_same_are_refused():
    import pandas as pd

    columns = {name: [1, 2] for name in ("user", "item", "rating")}
    frame = pd.DataFrame({"domain": pd.Series([1, "1"], dtype=object), **columns})
    with pytest.raises(DataError, match="different names as text; got '1' twice"):
        Ratings.from_frame(frame)


def test_all_columns_that_are_lost_are_named_at_once(tmp_path):
    (tmp_path / "f.csv").write_text("who,what,verdict\n1,2,3\n")
    said = r"there must be columns like 'userid', 'itemid' and 'rating'; got 'who', 'what', 'verdict'. Pass user_col="
    with pytest.raises(DataError, match=rf"{said}..., item_col=..., rating_col=..., or put a line of names"):
        Ratings.from_files({"films": tmp_path / "f.csv"})


@pytest.mark.parametrize("names", ["Kundennr;Artikelnr;Bewertung", "Id Client;Produit;Étoiles",
                                   "usuario;artículo;puntuación", "Utente;Libro;Voto"])
def test_columns_of_shops_elsewhere_are_found_by_their_usual_names(names, tmp_path):
    (tmp_path / "f.csv").write_text(f"{names}\n007;A;4,5\n007;B;2\n")
    found = Ratings.from_files({"films": tmp_path / "f.csv"})["films"]
    assert (found.users.ids, found.items.ids, found.ratings.tolist()) == (("007",), ("A", "B"), [4.5, 2])
