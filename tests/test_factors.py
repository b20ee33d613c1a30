"""The personal view: its kernel against the same sums in NumPy, what choices say, people in several domains."""

import numpy as np
import pytest
from pclf.models.personal import FREEDOM, KIN, _covariance, tilts

import pclf
from pclf.engines.cpu_rows import Cores, as_met, empty_sums, newton, precisions, squares, vectors
from pclf.factors.choices import learn_choices
from pclf.models import personal, weights
from pclf.models.weights import softmax


def triangle(square, n):
    """The symmetric matrix of which `square` starts with the lower triangle, row by row. (n, n)"""
    out = np.zeros((n, n))
    out[np.tril_indices(n)] = square[:n * (n + 1) // 2]
    assert not square[n * (n + 1) // 2:].any()
    return out + np.tril(out, -1).T


def step_in_numpy(ratings, row, others, squares, precision, mean, base, tilt):
    """A Newton step of one row, written down as the formulas are. The new row and its covariance."""
    shape = len(tilt)
    gradient, hessian = -precision @ (row - mean), precision
    for other, level in ratings:
        theirs, f = others[other], others[other][shape:]
        doubt = triangle(squares[other], len(f)) - np.outer(f, f)
        x = row[:shape] + theirs[:shape]
        x[0] += row[shape:] @ f
        p = softmax((base + x @ tilt)[None])[0]
        direction = np.zeros((len(base), len(row)))             # of each level's logit by the row
        direction[:, :shape] = tilt.T
        direction[:, shape:] = np.outer(tilt[0], f)
        centred = direction - p @ direction
        gradient = gradient + direction[level] - p @ direction
        hessian = hessian + centred.T @ (p[:, None] * centred)
        spread = p @ tilt[0] ** 2 - (p @ tilt[0]) ** 2
        hessian[shape:, shape:] += spread * doubt
        gradient[shape:] -= spread * doubt @ row[shape:]
    return row + np.clip(np.linalg.solve(hessian, gradient), -1, 1), np.linalg.inv(hessian)


@pytest.mark.parametrize("n_levels", [2, 3, 5, 10])
@pytest.mark.parametrize(("n_factors", "freedom"), [(0, FREEDOM), (3, 0.0), (3, FREEDOM), (12, FREEDOM), (20, 0.0)])
def test_a_step_is_the_one_of_the_formulas(n_levels, n_factors, freedom):
    rng, tilt = np.random.default_rng(n_levels), tilts(n_levels)
    shape, size, n_others = len(tilt), len(tilt) + n_factors, 40
    others = rng.normal(0, 0.4, (n_others, size)).astype(np.float32)
    doubts = squares(others[:, shape:]) + squares(rng.normal(0, 0.3, (n_others, n_factors)))
    indptr = np.array([0, 133, 133, 138])      # more than two batches, no ratings at all, a tile and one
    other = rng.integers(0, n_others, 138).astype(np.int32)
    level = rng.integers(0, n_levels, 138).astype(np.uint8)
    own, mean = rng.normal(0, 0.3, (3, size)), rng.normal(0, 0.2, (3, size))
    root = rng.normal(0, 1, (size, size))
    covariance = np.linalg.inv(root @ root.T + np.eye(size))
    base, trust = rng.normal(0, 1, n_levels), np.array([1.0, 1.0, 0.4])
    before, trusted, square = own.copy(), trust.copy(), np.zeros((3, doubts.shape[1]), np.float32)
    *_, shape_total, total = sums = empty_sums(n_levels, shape, size)
    newton(indptr, other, level, own, square, trust, *as_met(others, tilt), doubts, *precisions(covariance, shape),
           mean, freedom, base, tilt, 0, 3, *sums, *vectors(n_factors, size))
    np.testing.assert_array_equal(own[1], mean[1])
    covariances, shape_covariances = np.zeros((size, size)), np.zeros((shape, shape))
    for row in (0, 2):
        ratings = list(zip(other, level, strict=True))[indptr[row]:indptr[row + 1]]
        precision = np.linalg.inv(with_wider_shapes(covariance, shape, trusted[row]))
        expected, cov = step_in_numpy(ratings, before[row], others.astype(float), doubts, precision, mean[row], base,
                                      tilt)
        np.testing.assert_allclose(own[row], expected, atol=1e-5)
        f = expected[shape:]
        np.testing.assert_allclose(triangle(square[row], n_factors), cov[shape:, shape:] + np.outer(f, f), atol=1e-5)
        covariances += cov
        shape_covariances += trusted[row] * cov[:shape, :shape]
        gap = (expected - mean[row])[:shape]
        inner = np.linalg.inv(covariance[:shape, :shape])
        distance = gap @ inner @ gap + np.trace(inner @ cov[:shape, :shape])
        now = (freedom + shape) / (freedom + distance) if freedom else trusted[row]
        assert trust[row] == pytest.approx(now, rel=1e-4)
    np.testing.assert_allclose(total, covariances, atol=1e-5)
    np.testing.assert_allclose(shape_total, shape_covariances, atol=1e-5)


def with_wider_shapes(covariance, n, trust):
    """The covariance of (x, f) when that of x is 1 / trust times as large and f given x is as before."""
    shapes = covariance[:n, :n]
    slope = np.linalg.solve(shapes, covariance[:n, n:]).T
    rest = covariance[n:, n:] - slope @ shapes @ slope.T
    wide = shapes / trust
    return np.block([[wide, wide @ slope.T], [slope @ wide, rest + slope @ wide @ slope.T]])


def test_the_covariance_is_the_one_that_rows_were_drawn_with():
    """Shapes drawn with trusts of their own, factors that depend on them."""
    rng, n, t = np.random.default_rng(0), 40_000, 2
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T + np.eye(5)
    trust = rng.gamma(4, 1 / 4, n)
    slope = np.linalg.solve(covariance[:t, :t], covariance[:t, t:])
    rest = covariance[t:, t:] - covariance[t:, :t] @ slope
    x = rng.multivariate_normal(np.zeros(t), covariance[:t, :t], n) / np.sqrt(trust)[:, None]
    rows = np.concatenate([x, x @ slope + rng.multivariate_normal(np.zeros(3), rest, n)], axis=1)

    def sums(n):
        return rows[:n].T @ rows[:n], rows[:n, :t].T @ (trust[:n, None] * rows[:n, :t]), n

    np.testing.assert_allclose(_covariance(*sums(n), None), covariance, atol=0.03 * np.abs(covariance).max())
    alone, advised = (_covariance(*sums(150), expected) for expected in (None, covariance))
    shapes = (150 * alone[:t, :t] + KIN * covariance[:t, :t]) / (150 + KIN)
    np.testing.assert_allclose(advised[:t, :t], shapes, atol=1e-6)
    np.testing.assert_allclose(np.linalg.solve(advised[:t, :t], advised[:t, t:]),
                               np.linalg.solve(alone[:t, :t], alone[:t, t:]), atol=1e-4)      # of factors given shapes


@pytest.mark.parametrize("n_levels", [1, 2, 3, 5, 10])
def test_tilts_are_orthogonal_and_the_first_goes_by_ones(n_levels):
    tilt = tilts(n_levels)
    assert tilt.shape == (max(1, min(4, n_levels - 1)), n_levels)
    np.testing.assert_allclose(np.diff(tilt[0]), 1)
    np.testing.assert_allclose(tilt.sum(axis=1), 0, atol=1e-12)
    product = tilt @ tilt.T
    np.testing.assert_allclose(product - np.diag(np.diag(product)), 0, atol=1e-12)


def both_sides(user, item, shape):
    return Cores().lists(user.astype(np.int32), item.astype(np.int32), np.zeros(len(user), np.uint8), *shape, 1, 0)


def test_choices_tell_groups_apart_and_distrust_a_few():
    """Fans of even and of odd items, who stray now and then."""
    rng, n_users, n_items = np.random.default_rng(0), 80, 60
    fan = np.arange(n_users) % 2
    odds = np.where(fan[:, None] == np.arange(n_items) % 2, 0.5, 0.05)
    user, item = np.nonzero(rng.random((n_users, n_items)) < odds)
    by_user, by_item = both_sides(user, item, (n_users, n_items))
    chosen, choosers = learn_choices(by_user, by_item, np.random.default_rng(0), Cores())
    best = chosen.variance.argmax()
    places, stands = chosen.places[:, best], chosen.of_all(by_user, Cores())[:, best]
    assert (np.sign(places) == np.sign(places[0]) * np.where(np.arange(n_items) % 2, -1, 1)).all()
    assert (np.sign(stands) == np.sign(places[0]) * np.where(fan, -1, 1)).all()
    few, many = (chosen.of_one(np.arange(0, 2 * n, 2, dtype=np.int32))[best] for n in (2, 20))
    assert 0 < few / places[0:4:2].mean() < many / places[0:40:2].mean() < 1
    np.testing.assert_allclose(chosen.of_one(item[user == 3]), chosen.of_all(by_user, Cores())[3], atol=1e-6)
    assert choosers.variance.max() > 10 * np.median(choosers.variance)


def expected_error(user, item, level, test, n_factors=12):
    """Fit the personal view to all ratings but the test ones, which it is judged by."""
    data = pclf.Ratings.from_arrays({"d": (user, item, level + 1)}, scale=(1, 5))
    domain = data.select({"d": ~test})["d"]
    view = personal.fit(domain, domain.value, 5, n_factors, np.random.default_rng(0), Cores())
    codes = data["d"].user[test], data["d"].item[test]
    return np.abs(softmax(view.logits(view.users[codes[0]], view.items[codes[1]])) @ np.arange(5) - level[test]).mean()


def test_tastes_in_what_the_same_people_choose_are_found_in_few_ratings(monkeypatch):
    """Genres show in who chose what. Half of the people like the one, half the other, whichever they mostly choose."""
    rng, n_users, n_items, each = np.random.default_rng(0), 200, 200, 12
    genre, taste = np.arange(n_items) % 2, rng.choice([-1, 1], n_users)
    odds = np.where(np.arange(n_users)[:, None] % 2 == genre, 1.0, 0.4)
    user = np.repeat(np.arange(n_users), each)
    item = np.concatenate([rng.choice(n_items, each, replace=False, p=row / row.sum()) for row in odds])
    level = 2 + taste[user] * (2 * genre[item] - 1) + rng.normal(0, 1, len(user))
    ratings = user, item, np.clip(np.round(level), 0, 4).astype(int), rng.random(len(user)) < 0.2
    found = expected_error(*ratings)
    monkeypatch.setattr(personal, "TASTE", 0.0)
    assert found < 0.9 * expected_error(*ratings)


def test_factors_are_found_where_everybody_chose_everything():
    rng = np.random.default_rng(1)
    user, item = np.nonzero(np.ones((80, 60)))
    factors = rng.normal(size=(80, 2)) @ rng.normal(size=(60, 2)).T
    level = np.clip(np.round(2 + 0.8 * factors[user, item] + rng.normal(0, 0.5, len(user))), 0, 4).astype(int)
    ratings = user, item, level, rng.random(len(user)) < 0.1
    assert expected_error(*ratings) < 0.75 * expected_error(*ratings, n_factors=0)


def test_choices_by_chance_differ_less():
    """Places are sought where users differ, so some of it is found in chance too."""
    rng = np.random.default_rng(1)
    fan = np.arange(300)[:, None] % 2 == np.arange(200) % 2
    largest = []
    for odds in (np.full(fan.shape, 0.1), np.where(fan, 0.15, 0.05)):
        sides = both_sides(*np.nonzero(rng.random(fan.shape) < odds), fan.shape)
        largest.append(learn_choices(*sides, np.random.default_rng(0), Cores())[0].variance.max())
    assert largest[0] < 0.4 * largest[1]


def one_world(n_users=150, n_items=60, given=12, seed=0, **options):
    """Two domains with the same people, whose offset is the same in both. -> ratings, the offset of each person"""
    rng = np.random.default_rng(seed)
    offset, frames = rng.normal(0, 1, n_users), {}
    for name, start in (("films", 0), ("books", 40)):           # the last 40 people have no book
        people = np.arange(n_users - start)
        user = np.repeat(people, given)
        item = np.concatenate([rng.permutation(n_items)[:given] for _ in people])
        score = 3.5 + offset[user] + 0.3 * rng.normal(size=len(user))
        frames[name] = user, item, np.clip(np.round(score), 1, 5)
    return pclf.Ratings.from_arrays(frames, scale=(1, 5), **options), offset


@pytest.fixture(scope="module")
def shared():
    data, offset = one_world(shared_users=True)
    return pclf.PCLF(n_restarts=1, max_iter=10).fit(data, random_state=0), offset


def test_a_person_is_known_in_a_domain_where_they_never_rated(shared):
    model, offset = shared
    people = np.arange(110, 150)
    got = [model.predict("books", int(u), 3, user_domain="films")[0] for u in people]
    assert np.corrcoef(got, offset[people])[0, 1] > 0.8


def test_a_guest_is_known_where_they_did_not_rate(shared):
    model, _ = shared
    kind, strict = (model.fold_in({"films": dict.fromkeys(range(10), rating)}) for rating in (5, 1))
    assert model.predict("books", kind, 3)[0] > model.predict("books", strict, 3)[0] + 0.5
    assert set(kind.personal) == {"films", "books"}


def test_ratings_elsewhere_sharpen_a_person_with_few(shared):
    """Against the same model without the other domain: people with one book each."""
    data, offset = one_world(shared_users=True)
    books = data["books"]
    first = np.flatnonzero(np.diff(books.user, prepend=-1))
    keep = books.user < 50
    keep[first] = True
    part = data.select({"films": np.ones(len(data["films"]), bool), "books": keep})
    people = np.arange(50, 110, dtype=np.int32)
    item = np.full(len(people), 3, np.int32)
    alone, both = (m.fit(d, random_state=0).predict_codes("books", people, item) for m, d in (
        (pclf.FMM(n_restarts=1, max_iter=5), part.only(["books"])), (pclf.PCLF(n_restarts=1, max_iter=5), part)))
    truth = np.clip(3.5 + offset[people], 1, 5)
    assert np.abs(both - truth).mean() < 0.7 * np.abs(alone - truth).mean()


def test_strangers_of_another_domain_do_not_change_a_personal_view():
    data, _ = one_world()
    alone = pclf.FMM(n_restarts=1, max_iter=3).fit(data.only(["books"]), random_state=3)
    both = pclf.PCLF(n_restarts=1, max_iter=3).fit(data, random_state=3)
    for name, array in both.personal_["books"].to_arrays("").items():
        np.testing.assert_array_equal(array, alone.personal_["books"].to_arrays("")[name])


def test_a_training_user_folded_in_comes_near_their_row(shared):
    model, _ = shared
    films = model.data_["films"]
    own = films.user == 120                                     # who has no books
    given = zip(films.items.array()[films.item[own]].tolist(), films.ratings[own], strict=True)
    guest, row = model.fold_in({"films": dict(given)}), model.personal_["films"].users[120]
    assert np.corrcoef(guest.personal["films"], row)[0, 1] > 0.95
    np.testing.assert_allclose(guest.personal["films"][0], row[0], atol=0.3)


def test_a_view_must_gain_more_than_chance_to_be_heard():
    rng = np.random.default_rng(0)
    n = 2000
    user, level = np.repeat(np.arange(200, dtype=np.int32), 10), rng.integers(0, 5, n).astype(np.uint8)
    flat = np.full((n, 5), 0.2)
    noise = softmax(0.3 * rng.normal(size=(n, 5)))
    knows = 0.8 * flat
    knows[np.arange(n), level] += 0.2
    grids = weights.COMMON, weights.PERSONAL
    assert weights.learn(user, level, noise, flat, flat, *grids)[:2] == (0.0, 1.0)
    common, own, gain = weights.learn(user, level, knows, flat, flat, *grids)
    assert (common, own) == (1.0, min(weights.PERSONAL))
    assert gain > 0.1
    assert weights.learn(user, level, None, knows, flat, (0.0,), weights.PERSONAL)[1] < 1
