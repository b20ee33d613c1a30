"""Odd but legal data: every model fits it, and predicts finite numbers on the scale."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pclf
from pclf import models

SMALL = {"PCLF": {"n_user_clusters": 2, "max_iter": 5, "n_factors": 1},
         **{name: {"n_user_clusters": 2, "max_iter": 5} for name in ("RMGM", "FMM")}}
ids = st.one_of(st.integers(-5, 5), st.text(max_size=3), st.tuples(st.integers(0, 2), st.text(max_size=1)))


def fit_and_check(data, name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_user_clusters=2 is more than")
        model = models.create(name, **SMALL.get(name, {})).fit(data)
    for domain, d in data.domains.items():
        users, items = (x.ravel() for x in np.meshgrid(np.arange(d.n_users), np.arange(d.n_items)))
        for rule in model.rules:
            found = model.predict_codes(domain, users, items, rule=rule)
            assert np.isfinite(found).all()
            assert found.min() >= d.scale.values[0]
            assert found.max() <= d.scale.values[-1]
        assert len(model.recommend(domain, n=2)) == d.n_users
    return model


ODD = {
    "one rating": {"a": ([1], ["x"], [4])},
    "one user": {"a": ([1] * 4, list("wxyz"), [1, 2, 3, 4])},
    "one item": {"a": ([1, 2, 3, 4], ["x"] * 4, [1, 2, 3, 5])},
    "all ratings equal": {"a": ([1, 1, 2, 2], list("xyxy"), [3, 3, 3, 3]), "b": ([1, 2], ["x", "y"], [3, 3])},
    "one level in one domain": {"a": ([1, 1, 2], list("xyx"), [5, 5, 5]), "b": ([1, 2, 2], list("xxy"), [1, 3, 5])},
    "very different sizes": {"a": ([1], ["x"], [2]), "b": ([*range(60)] * 2, ["p"] * 60 + ["q"] * 60, [1, 5] * 60)},
    "negative, mixed and tuple ids": {"a": ([-1, "one", (1, 2), 2.5], [(0,), "x", -7, (0,)], [1, 2, 4, 5])},
}


@pytest.mark.parametrize("name", ["PCLF", "RMGM", "FMM", "Bias", "NMF"])
@pytest.mark.parametrize("case", ODD)
def test_odd_data_fit_and_predict_on_the_scale(case, name):
    fit_and_check(pclf.Ratings.from_arrays(ODD[case], scale=(1, 5)), name)


@pytest.mark.filterwarnings("ignore:(users|items) are shared, but no id")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("ab"), ids, ids, st.integers(1, 5)), min_size=1, max_size=25,
                unique_by=lambda r: r[:3]), st.booleans(), st.booleans())
def test_any_few_ratings_fit_and_predict_on_the_scale(rows, shared_users, shared_items):
    arrays = {}
    for domain, user, item, rating in rows:
        for column, value in zip(arrays.setdefault(domain, ([], [], [])), (user, item, rating), strict=True):
            column.append(value)
    fit_and_check(pclf.Ratings.from_arrays(arrays, scale=(1, 5), shared_users=shared_users,
                                           shared_items=shared_items), "PCLF")


def test_a_million_rows_with_duplicate_pairs_are_refused_or_merged():
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user_id": rng.integers(0, 2000, 1_000_000), "item_id": rng.integers(0, 1000, 1_000_000),
                          "rating": rng.integers(1, 6, 1_000_000)})
    with pytest.raises(pclf.errors.DataError, match=r"duplicates="):
        pclf.Ratings.from_frames({"a": frame})
    pairs = frame.drop_duplicates(["user_id", "item_id"], keep="last")
    last = pclf.Ratings.from_frames({"a": frame}, duplicates="last")
    assert len(last["a"]) == len(pairs)
    assert last["a"].ratings.sum() == pairs["rating"].sum()
    mean = pclf.Ratings.from_frames({"a": frame}, duplicates="mean")
    assert len(mean["a"]) == len(pairs)
