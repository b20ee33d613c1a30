"""Frames out: results go to pandas, polars and Arrow, and a print of them is short."""

import logging
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.model_selection import GridSearchCV

import pclf
from pclf.evaluate.compare import compare


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.choice(4000 * 40, 20_000, replace=False), 40)
    return pclf.Ratings.from_arrays({"films": (user, item, rng.integers(1, 6, 20_000))}, scale=(1, 5))


@pytest.fixture(scope="module")
def lists(data):
    return pclf.Bias().fit(data).recommend("films", n=10)


def test_lists_become_frames_with_the_same_columns(lists):
    table = lists.to_arrow()
    assert isinstance(lists.to_pandas(), pd.DataFrame)
    assert list(lists.to_pandas()) == lists.to_polars().columns == table.column_names
    assert lists.to_polars()["score"].to_list() == table["score"].to_pylist()


def test_whatever_reads_arrow_streams_reads_results(lists):
    assert pa.table(lists).equals(lists.to_arrow())
    assert pl.DataFrame(lists).equals(lists.to_polars())


def test_a_print_of_lists_of_thousands_is_short(lists):
    text = repr(lists)
    assert len(text) < 1000
    first, *_, last = text.splitlines()
    assert first == f"{len(lists):,} lists of up to 10 items of films"
    assert last.endswith(f"and {len(lists) - 5:,} more")
    assert lists[0][0].title in text
    assert lists._repr_html_().count("<tr>") == 7


def test_a_print_obeys_no_title():
    data = pclf.Ratings.from_arrays({"films": (["\x1b[31m", "b"], ["<b>", "x"], [1, 5])}, scale=(1, 5))
    lists = pclf.Bias().fit(data).recommend("films", n=1)
    assert "\x1b" not in repr(lists)
    assert "<b>" not in lists._repr_html_()


def test_a_guest_is_shown_as_one(data):
    model = pclf.PCLF(2, 2, 2, max_iter=2, n_restarts=1, lists=False).fit(data)
    assert "a guest" in repr(model.recommend("films", [model.fold_in({"films": {1: 5}})], n=2))


def test_comparisons_become_frames(data):
    found = compare({"Bias": pclf.Bias()}, [pclf.hold_out(data, 0.2)], baselines=False)
    assert list(found.to_pandas()) == found.to_arrow().column_names == list(pl.DataFrame(found).columns)


def long_frame():
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.choice(60 * 30, 900, replace=False), 30)
    rating = np.clip(rng.integers(1, 6, 900) + item % 3 - 1, 1, 5)
    return pd.DataFrame({"user_id": user, "item_id": item, "rating": rating})


def test_one_frame_is_one_domain_or_several_by_its_column():
    frame = long_frame()
    assert list(pclf.Bias().fit(frame).data_.domains) == ["ratings"]
    assert list(pclf.Bias().fit(pl.DataFrame(frame)).data_.domains) == ["ratings"]
    frame["domain"] = np.where(frame.user_id < 30, "films", "books")
    assert set(pclf.Bias().fit(frame).data_.domains) == {"films", "books"}
    with pytest.raises(ValueError, match="data must be Ratings, a data frame, or a dict of these"):
        pclf.Bias().fit([1, 2])


def test_the_score_is_minus_the_error_and_scikit_learn_searches_by_it():
    frame = long_frame()
    model = pclf.Bias().fit(frame[:800])
    test = frame[800:]
    found = model.predict("ratings", test.user_id.tolist(), test.item_id.tolist(), unknown="newcomer")
    assert model.score(test) == pytest.approx(-np.abs(found - test.rating).mean())
    search = GridSearchCV(pclf.NMF(), {"n_factors": [1, 8]}, cv=3).fit(frame)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_ in ({"n_factors": 1}, {"n_factors": 8})
    assert search.best_estimator_.score(frame) > -2
    with pytest.raises(ValueError, match="predicts no ratings"):
        pclf.Popular().fit(frame).score(frame)


def test_what_takes_time_is_logged_under_the_name_pclf(data, caplog):
    with caplog.at_level(logging.INFO, logger="pclf"):
        pclf.RMGM(2, 2, max_iter=2, n_restarts=1).fit(data)
    assert [record.name for record in caplog.records] == ["pclf"]
    assert re.fullmatch(r"fit RMGM: \d+\.\d\d s", caplog.messages[0])
