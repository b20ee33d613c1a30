"""Neighbours: what rows leave of ratings of items that people rate alike."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from test_door import forge, put

import pclf
from pclf import neighbours as near
from pclf.errors import ModelFileError
from pclf.factors.rows import softmax
from pclf.neighbours import Left, Neighbours


def editions(n_users=300, n_works=20, seed=0):
    """Every work is sold in two editions, and who rates both rates them the same, whatever else they like."""
    rng = np.random.default_rng(seed)
    work = rng.integers(1, 6, (n_users, n_works))
    user, item = np.nonzero(rng.random((n_users, 2 * n_works)) < 0.5)
    return pclf.Ratings.from_arrays({"books": (user, item, work[user, item // 2])}, scale=(1, 5))


@pytest.fixture(scope="module")
def shop():
    split = pclf.hold_out(editions(), 0.1)
    return split.train, split.test, pclf.PCLF(lists=False).fit(split.train)


def reference(left, weights, rows, items):
    """As the page of the room has it, a pair at a time."""
    left, weights, out = left.toarray(), weights.toarray(), []
    for u, v in zip(rows, items, strict=True):
        rated = left[u] != 0 if u >= 0 else np.zeros(left.shape[1], bool)
        own = weights[v][rated] if v >= 0 else np.zeros(rated.sum())
        out.append(own @ left[u][rated] / max(1, np.abs(own).sum()))
    return np.array(out)


def test_offsets_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    left, weights = (csr_array(rng.normal(size=shape) * (rng.random(shape) < 0.4), dtype=np.float32)
                     for shape in ((6, 9), (9, 9)))
    rows, items = np.array([0, 1, 5, 3, -1, 2], np.int32), np.array([8, 0, 3, -1, 2, 2], np.int32)
    found = Neighbours(weights, 1.0, 10.0, 1.0).offsets(Left(left, rows), items)
    np.testing.assert_allclose(found, reference(left, weights, rows, items), rtol=1e-5, atol=1e-6)
    everything = Neighbours(weights, 1.0, 10.0, 1.0).of_all(Left(left, rows))
    for v in range(9):
        np.testing.assert_allclose(everything[:, v], reference(left, weights, rows, [v] * len(rows)), rtol=1e-5,
                                   atol=1e-6)


def test_what_rows_leave_is_the_gap_of_the_expected_level(shop):
    train, _, model = shop
    own, d = model.factors_["books"].domains["books"], train["books"]
    left, spread = near.left_of(own, own.user_rows(np.arange(d.n_users)), d.user, d.item, d.value)
    p = softmax(own.logits(own.user_rows(d.user), own.item_rows[d.item]).astype(float))
    gap = own.tilt[0][d.value] - p @ own.tilt[0]
    np.testing.assert_allclose(spread, np.mean(p @ own.tilt[0]**2 - (p @ own.tilt[0])**2), rtol=1e-4)
    np.testing.assert_allclose(left.toarray()[d.user, d.item], gap / spread, rtol=1e-3, atol=1e-4)


def test_weights_are_those_of_a_ridge_on_the_other_items(shop):
    """Column by column, by least squares with a penalty."""
    left = csr_array(np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32))
    one, = near.learn(left, 1.0, (10.0,))
    x = left.toarray().astype(float)
    for i in range(7):
        others = np.delete(np.arange(7), i)
        expected = np.linalg.solve(x[:, others].T @ x[:, others] + 10 * np.eye(6), x[:, others].T @ x[:, i])
        kept = np.where(np.abs(expected) >= near.LEAST, expected, 0)
        np.testing.assert_allclose(one.weights.toarray()[i, others], kept, rtol=1e-3, atol=1e-5)


def test_the_other_edition_is_the_nearest_neighbour(shop):
    _, _, model = shop
    weights = model.neighbours_["books"].weights.toarray()
    codes = np.arange(40)
    ids = np.array(model.data_["books"].items.decode(codes))
    nearest = ids[weights.argmax(axis=1)]
    assert (nearest // 2 == ids // 2).mean() == 1


def test_neighbours_lower_the_error_where_people_rate_editions_alike(shop):
    train, test, model = shop
    without = pclf.PCLF(lists=False, neighbours=False).fit(train)
    d = test["books"]
    errors = [np.abs(m.predict_codes("books", d.user, d.item) - d.ratings).mean() for m in (model, without)]
    assert errors[0] < 0.95 * errors[1], errors


def test_guests_and_everybody_at_once_are_moved_as_known_people_are(shop):
    """The scores of lists are the predictions of pairs, and a guest who says what a user said is near that user."""
    train, _, model = shop
    d = train["books"]
    user = d.users.decode([0])[0]
    unseen = model.recommend("books", user, n=5, rank_by="rating")
    np.testing.assert_allclose([r.score for r in unseen], model.predict("books", user, [r.item for r in unseen]),
                               rtol=1e-4)
    mine = d.user == 0
    guest = model.fold_in({"books": dict(zip(d.items.decode(d.item[mine]), d.ratings[mine].tolist(), strict=True))})
    other = [r.item for r in unseen]
    np.testing.assert_allclose(model.predict("books", guest, other), model.predict("books", user, other), atol=0.25)


def test_known_people_visitors_and_guests_get_together_what_each_gets_alone(shop):
    """Only what those who ask rated is looked at, so who is beside whom must not matter."""
    _, _, model = shop
    d = model.data_["books"]
    titles = d.items.decode(np.arange(6))
    guests = [model.fold_in({"books": dict(zip(titles[:n], (5, 1, 4, 2), strict=False))}) for n in (1, 4)]
    people = [guests[0], d.users.ids[3], guests[1], d.users.ids[0], model.fold_in({})]
    together = model.recommend("books", people, n=8)
    for found, who in zip(together, people, strict=True):
        alone = model.recommend("books", who, n=8)
        assert [r.item for r in found] == [r.item for r in alone]
        np.testing.assert_allclose([r.score for r in found], [r.score for r in alone], rtol=1e-4)
    np.testing.assert_allclose([model.predict("books", [who] * 6, titles) for who in people],
                               np.reshape(model.predict("books", [who for who in people for _ in titles],
                                                        list(titles) * len(people)), (len(people), 6)), rtol=1e-5)


def test_neighbours_are_saved_and_an_update_keeps_their_setting(shop, tmp_path):
    _, test, model = shop
    model.save(tmp_path / "model")
    again, d = pclf.load(tmp_path / "model"), test["books"]
    np.testing.assert_array_equal(again.predict_codes("books", d.user, d.item),
                                  model.predict_codes("books", d.user, d.item))
    again.update(test)
    assert (again.neighbours_["books"].penalty, again.neighbours_["books"].strength) == (
        model.neighbours_["books"].penalty, model.neighbours_["books"].strength)


def test_where_ratings_of_a_person_have_nothing_more_in_common_there_are_no_neighbours():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((200, 60)) < 0.3)
    rating = np.clip(np.rint(3 + rng.normal(size=60)[item] + rng.normal(size=len(user))), 1, 5)
    model = pclf.PCLF(lists=False).fit(pclf.Ratings.from_arrays({"books": (user, item, rating)}, scale=(1, 5)))
    assert model.neighbours_ == {}


FORGED = {"an item that is none": put("model.neighbours.0.item", 40), "a weight that is none": put(
    "model.neighbours.0.value", np.nan), "lists that begin too late": put("model.neighbours.0.start", 1),
    "lists beyond the end": put("model.neighbours.0.start", 10**6, at=-1),
    "no spread": put("model.neighbours.0.numbers", 0.0), "half of it": lambda manifest, arrays: arrays.pop(
        "model.neighbours.0.item"), "of no domain": lambda manifest, arrays: arrays.update(
        {"model.neighbours.3.item": arrays["model.neighbours.0.item"]})}


@pytest.mark.parametrize("what", FORGED)
def test_neighbours_that_no_model_has_are_refused(shop, tmp_path, what):
    shop[2].save(tmp_path / "model")
    forge(tmp_path / "model", FORGED[what])
    with pytest.raises(ModelFileError, match=r"neighbours|domain"):
        pclf.load(tmp_path / "model")
