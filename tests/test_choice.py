"""What people pick: the fast sums against the formulas, written out."""

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

import pclf
from pclf.choice import Choice, graded, learn
from pclf.choice.crossing import learn_crossing
from pclf.choice.gram import gram, inverse, quadratic, sums
from pclf.choice.items import learn_items
from pclf.choice.rows import as_rows, taken
from pclf.choice.validate import PENALTIES, Calibration, Setting, find_setting, gain, hide, peak
from pclf.errors import DataError

RTOL = 2e-4      # float32 against float64


def matrix(n_people=80, n_items=30, density=0.2, seed=0):
    """Two kinds of people, who choose mostly among even or among odd items; some items are chosen by hardly anybody."""
    rng = np.random.default_rng(seed)
    taste = np.where((np.arange(n_people)[:, None] + np.arange(n_items)) % 2, 0.3, 1.7)
    often = np.geomspace(2, 0.1, n_items)
    chosen = rng.random((n_people, n_items)) < density * taste * often
    return chosen * rng.uniform(0.2, 1, chosen.shape)


def rows_of(x):
    return as_rows(*np.nonzero(x), x[np.nonzero(x)], x.shape)


def expected_by_hand(x, people, mean, penalty):
    """The conditional mean of each item given all others, one regression at a time."""
    precision = np.linalg.inv(x.T @ x + penalty * np.eye(x.shape[1]))
    out = np.empty((len(people), x.shape[1]))
    for u, row in enumerate(people):
        for j in range(x.shape[1]):
            others = np.arange(x.shape[1]) != j
            weights = -precision[others, j] / precision[j, j]
            out[u, j] = mean[u, j] + (row - mean[u])[others] @ weights
    return out


def test_the_fast_sums_are_the_products():
    x = matrix()
    rows, square = rows_of(x), x.T @ x
    np.testing.assert_allclose(np.tril(gram(rows)), np.tril(square), rtol=RTOL)
    np.testing.assert_array_equal(gram(rows, 1), gram(rows, 3))
    precision = inverse(gram(rows), 5.0)
    np.testing.assert_allclose(precision, np.linalg.inv(square + 5 * np.eye(30)), rtol=RTOL, atol=1e-6)
    np.testing.assert_array_equal(precision, precision.T)
    np.testing.assert_allclose(sums(rows, precision), x @ precision, rtol=RTOL, atol=1e-6)
    np.testing.assert_allclose(quadratic(rows, precision), np.einsum("ui,ij,uj->u", x, precision, x), rtol=RTOL)


def test_a_score_is_the_mean_of_an_item_given_all_others():
    x = matrix()
    choice = learn([rows_of(x)], settings=[Setting(7.0, 0.3)])
    people = x[:5]
    found = choice.scores(0, [rows_of(people)])
    mean = np.tile(0.3 * x.sum(axis=0) / (x.sum(axis=1) > 0).sum(), (5, 1))
    wanted = expected_by_hand(x, people, mean, 7.0)
    np.testing.assert_allclose(found[people == 0], wanted[people == 0], rtol=1e-3, atol=1e-5)


def test_without_the_mean_it_is_ease():
    """Steck's B = I - P / diag(P), which has a diagonal of zeros."""
    x = (matrix() > 0).astype(float)
    precision = np.linalg.inv(x.T @ x + 7 * np.eye(30))
    b = np.eye(30) - precision / np.diag(precision)
    found = learn([rows_of(x)], settings=[Setting(7.0, 0.0)]).scores(0, [rows_of(x[:9])])
    np.testing.assert_allclose(found[x[:9] == 0], (x[:9] @ b)[x[:9] == 0], rtol=1e-3, atol=1e-5)


def test_a_tail_is_as_if_its_block_were_the_diagonal_of_its_row_sums():
    x, penalty = matrix(), 7.0
    items = learn_items(rows_of(x), penalty, core=12)
    block = x.T @ x
    tail = items.tail
    block[np.ix_(tail, tail)] = np.diag(block[np.ix_(tail, tail)].sum(axis=1))
    precision = np.linalg.inv(block + penalty * np.eye(30))
    np.testing.assert_allclose(items.spread, np.diag(precision), rtol=RTOL)
    for given in (rows_of(x[:9]), x[:9]):
        np.testing.assert_allclose(items.times(given), x[:9] @ precision, rtol=1e-3, atol=1e-5)


def test_any_core_stays_positive_definite():
    """Many items with one and the same admirer: their block is far from diagonal."""
    x = np.zeros((20, 200))
    x[0] = 1
    x[:, :20] = 1
    for core in (1, 20, 100, 300):
        items = learn_items(rows_of(x), 1.0, core)
        assert np.isfinite(items.spread).all()
        assert (items.spread > 0).all()


def test_the_crossing_is_a_ridge_and_leaves_its_own_people_out():
    rng = np.random.default_rng(0)
    films, books = matrix(150, 20), matrix(150, 25, seed=1)
    for y, x in ((films, books), (films[:60], np.hstack([books[:60]] * 4))):                 # more items, more people
        people = np.arange(len(y)) * 2
        crossing = learn_crossing(rows_of(y), rows_of(x), x.mean(axis=0), people, rng)
        assert crossing is not None
        penalty = _penalty_of(crossing, y, x)
        choice = Choice((learn_items(rows_of(y), 9), learn_items(rows_of(x), 9)), (Setting(), Setting()),
                        (Calibration(), Calibration()), (None, crossing))
        visitor = choice.scores(1, [rows_of(y[:3]), None])
        centred, wanted = y - y.mean(axis=0), x - x.mean(axis=0)
        w = np.linalg.solve(centred.T @ centred + penalty * np.eye(y.shape[1]), centred.T @ wanted)
        np.testing.assert_allclose(visitor, x.mean(axis=0) * len(x) / (x.sum(axis=1) > 0).sum() + centred[:3] @ w,
                                   rtol=1e-2, atol=1e-3)
        for u in (0, 7):
            rest = np.arange(len(y)) != u
            a, b = y[rest] - y[rest].mean(axis=0), x[rest] - x[rest].mean(axis=0)
            alone = x[rest].mean(axis=0) + (y[u] - y[rest].mean(axis=0)) @ np.linalg.solve(
                a.T @ a + penalty * np.eye(y.shape[1]), a.T @ b)
            moved = choice._moved(1, [rows_of(y[[u]]), None], rows_of(x[[u]]), people[[u]])
            np.testing.assert_allclose(moved[0] + x.mean(axis=0), alone, rtol=1e-2, atol=2e-3)


def _penalty_of(crossing, y, x):
    """The one under which the leverages are those of the ridge."""
    from scipy.optimize import brentq

    centred = y - y.mean(axis=0)

    def gap(log_penalty):
        inner = np.linalg.inv(centred.T @ centred + np.exp(log_penalty) * np.eye(y.shape[1]))
        return np.einsum("ui,ij,uj->", centred, inner, centred) + 1 - crossing.leverage.sum()

    return np.exp(brentq(gap, -5, 12))


def test_a_bridge_that_carries_nothing_is_left_out():
    rng = np.random.default_rng(0)
    films, books = matrix(300, 20), matrix(300, 25, seed=1)[rng.permutation(300)]
    assert learn_crossing(rows_of(films), rows_of(books), books.mean(axis=0), np.arange(300), rng) is None
    assert learn_crossing(rows_of(films[:20]), rows_of(books[:20]), books.mean(axis=0), np.arange(20), rng) is None


def test_visitors_get_what_people_like_them_chose():
    """Whoever likes even films likes even books: a visitor's lists begin with books of the right kind."""
    rows, people = [rows_of(matrix(300, 30)), rows_of(matrix(300, 24, seed=1))], [np.arange(300)] * 2
    choice = learn(rows, people)
    assert choice.crossings[1] is not None
    visitors = matrix(40, 30, seed=2)
    best = np.argsort(-choice.scores(1, [rows_of(visitors), None]), axis=1)[:, :3]
    right = (best + np.arange(40)[:, None]) % 2 == 0
    assert right.mean() > 0.8
    nobody = choice.scores(1, [rows_of(visitors[:1] * 0), None])
    np.testing.assert_allclose(nobody[0], choice.items[1].mean, rtol=1e-6)


def test_the_same_seed_gives_the_same_model_with_any_threads_and_from_a_file():
    rows, people = [rows_of(matrix(300, 30)), rows_of(matrix(300, 24, seed=1))], [np.arange(300)] * 2
    first, second = learn(rows, people, core=10, n_threads=1), learn(rows, people, core=10, n_threads=2)
    kept = Choice.from_arrays("choice", first.to_arrays("choice"), [30, 24], 300)
    for other in (second, kept):
        np.testing.assert_array_equal(first.scores(1, rows, people[1]), other.scores(1, rows, people[1]))
        assert first.settings == other.settings
        assert first.calibrations == other.calibrations


def test_hidden_choices_find_a_setting_and_a_calibration():
    rows = rows_of((matrix(900, 40) > 0).astype(float))
    setting, calibration = find_setting(rows, np.random.default_rng(0))
    assert PENALTIES[0] <= setting.penalty <= PENALTIES[-1]
    shown, hidden = hide(taken(rows, np.arange(300)), np.random.default_rng(1))
    assert (shown + hidden != rows[:300]).nnz == 0
    assert (np.diff(hidden.indptr) >= (np.diff(rows[:300].indptr) > 0)).all()
    known = vstack([shown, rows[300:]], format="csr")
    p = calibration.probability(learn([known], settings=[setting]).scores(0, [shown]), np.diff(shown.indptr))
    unseen = (shown.toarray() == 0) & (np.diff(rows[:300].indptr) >= 3)[:, None]    # the setting is of such people
    for low, high in ((0, 0.05), (0.05, 0.15), (0.15, 1)):
        part = unseen & (p >= low) & (p < high)
        assert part.sum() > 100
        assert abs(p[part].mean() - (hidden.toarray() > 0)[part].mean()) < 0.04


def test_gain_and_peak_by_hand():
    hidden = rows_of(np.array([[0, 0, 0.5, 1.0]]))
    ideal = 1.0 + 0.5 / np.log2(3)
    assert gain(np.array([[0.0, 1, 2, 3]]), None, hidden)[0] == pytest.approx(1)
    assert gain(np.array([[3.0, 2, 1, 0]]), None, hidden)[0] == pytest.approx(
        (0.5 / np.log2(4) + 1.0 / np.log2(5)) / ideal)
    assert gain(np.array([[3.0, 0, 1, 2]]), rows_of(np.array([[1.0, 0, 0, 0]])), hidden)[0] == pytest.approx(1)
    assert peak((1.0, 4.0, 16.0), [0, 1, 0]) == pytest.approx(4)
    assert peak((1.0, 4.0, 16.0), [2, 1, 0]) == 1.0


def test_a_fake_account_lifts_nothing():
    x = (matrix(400, 30) > 0).astype(float)
    for n_favourites in (3, 20):
        fake = np.zeros((1, 31))
        fake[0, :n_favourites], fake[0, 30] = 1, 1
        rows = rows_of(np.vstack([np.hstack([x, np.zeros((400, 1))]), fake]))
        z = learn([rows]).scores(0, [rows[:400]])
        z[rows[:400].toarray() > 0] = -np.inf
        assert ((z > z[:, [30]]).sum(axis=1) >= 10)[np.isfinite(z).sum(axis=1) > 12].mean() > 0.99


def test_choices_are_graded_by_their_ratings():
    data = pclf.Ratings.from_arrays({"a": ([1, 1, 2], [1, 2, 1], [1, 5, 3])}, scale=(1, 5))
    np.testing.assert_allclose(graded(data["a"]).toarray(), [[0.2, 1.0], [0.6, 0]])
    log = pclf.Ratings.from_events({"a": ([1, 1, 2], [1, 2, 1])})
    np.testing.assert_allclose(graded(log["a"]).toarray(), [[1, 1], [1, 0]])


def test_numbers_that_cannot_be_inverted_are_refused():
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(DataError, match="what a choice counts must be a finite number above 0; got"):
            learn([csr_array(np.array([[bad, 1.0], [1.0, 1.0]]))])
    with pytest.raises(DataError, match="choices must be of a moderate size; their sums, up to 3e"):
        learn([csr_array(np.full((3, 3), 1e10))], settings=[Setting(1e-3, 0.0)])
