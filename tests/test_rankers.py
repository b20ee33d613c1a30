"""Models that sort items and predict no ratings: Popular and EASE."""

import numpy as np
import pytest
from sklearn.base import clone

import pclf
from pclf import models
from pclf.errors import NotFittedError, UnknownNameError
from pclf.serving.lists import Recommendation


def taste(events):
    """Even users like even items, odd users odd ones; the first items are chosen most, the last by nobody."""
    rng = np.random.default_rng(0)
    often = np.append(np.geomspace(0.9, 0.1, 39), 0)
    u, v = np.nonzero(rng.random((120, 40)) < often * np.where((np.arange(120)[:, None] + np.arange(40)) % 2, 0.4, 0.8))
    alike = (u + v) % 2 == 0
    u, v, alike = (np.append(x, y) for x, y in ((u, 120), (v, 39), (alike, True)))      # one admirer of the last item
    users, items = [f"u{i}" for i in u], [f"i{i}" for i in v]
    if events:
        return pclf.Ratings.from_events({"shop": (users, items), "other": (["x"], ["y"])})
    rating = np.where(alike, 5, 2)
    return pclf.Ratings.from_arrays({"shop": (users, items, rating), "other": (["x"], ["y"], [3])}, scale=(1, 5))


@pytest.fixture(scope="module", params=[False, True], ids=["ratings", "events"])
def data(request):
    return taste(request.param)


@pytest.fixture(scope="module", params=models.RANKERS)
def fitted(request, data):
    return models.create(request.param).fit(data, random_state=3)


def test_popular_is_what_most_people_chose(data):
    d = data["shop"]
    counts = np.bincount(d.item, minlength=d.n_items)
    found = pclf.Popular().fit(data).recommend("shop", d.users.ids[0], n=40, exclude_seen=False)
    assert [r.score for r in found] == sorted(counts, reverse=True)
    assert all(counts[d.items.code(r.item)] == r.score for r in found)


def test_ease_finds_the_taste_that_popular_cannot_see(data):
    split = pclf.hold_out(data.only("shop"), 0.2)
    scores = pclf.compare({"EASE": pclf.EASE(), "Popular": pclf.Popular()}, [split], metrics=["ndcg@5"]).scores
    ease, popular = (s.value for s in scores)
    assert ease > 1.1 * popular


def test_ease_is_the_closed_form(data):
    """Steck 2019: B = I - P / diag(P)."""
    shop = data.only("shop")
    d = shop["shop"]
    x = np.zeros((d.n_users, d.n_items))
    x[d.user[d.liked], d.item[d.liked]] = 1
    precision = np.linalg.inv(x.T @ x + 20 * np.eye(d.n_items))
    wanted = x @ (np.eye(d.n_items) - precision / np.diag(precision))
    model = pclf.EASE(penalty=20).fit(shop)
    lists = model.recommend("shop")
    for row, (codes, scores) in enumerate(zip(lists.codes, lists.scores, strict=True)):
        assert not x[row, codes].any()
        if x[row].any():
            np.testing.assert_allclose(scores, wanted[row, codes], rtol=1e-3, atol=1e-5)


def test_lists_leave_out_what_was_rated_and_strangers_get_the_popular(fitted, data):
    d = data["shop"]
    lists = fitted.recommend("shop", n=5)
    seen = set(zip(d.user.tolist(), d.item.tolist(), strict=True))
    assert not seen & {(row, int(c)) for row, codes in enumerate(lists.codes) for c in codes}
    stranger = fitted.recommend("shop", "x", n=3)
    everybody = np.bincount(d.item[d.liked] if isinstance(fitted, pclf.EASE) else d.item, minlength=d.n_items)
    assert [d.items.code(r.item) for r in stranger] == np.argsort(-everybody, kind="stable")[:3].tolist()


def test_a_refit_and_a_file_give_the_same_lists(fitted, data, tmp_path):
    before = fitted.get_params()
    again = clone(fitted).fit(data, random_state=3)
    assert again.get_params() == before
    fitted.save(tmp_path / "m")
    for other in (again, pclf.load(tmp_path / "m")):
        np.testing.assert_array_equal(other.recommend("shop").codes, fitted.recommend("shop").codes)


def test_an_item_with_one_admirer_is_first_for_nobody(data):
    lists = pclf.EASE().fit(data).recommend("shop", n=5)
    code = data["shop"].items.code("i39")
    assert not (lists.codes[:, 0] == code).any()


def test_what_rankers_cannot_do_is_said(fitted, data):
    name = type(fitted).__name__
    with pytest.raises(TypeError, match=f"{name} sorts items and predicts no ratings. Use recommend"):
        fitted.predict("shop", "u0", "i0")
    with pytest.raises(UnknownNameError, match="unknown user 'nobody'"):
        fitted.recommend("shop", "nobody")
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        clone(fitted).recommend("shop", "u0")
    for wrong in ({"penalty": 0}, {"n_core_items": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
            pclf.EASE(**wrong).fit(data)


def test_a_recommendation_shows_itself_with_few_digits():
    found = Recommendation("b1", 0.123456789, "A Book", rating=3.98765, liked=0.00001234567)
    assert repr(found) == "Recommendation('b1', 'A Book', score=0.123, rating=3.99, liked=1.23e-05)"
