"""What people pick: the fast sums against the formulas, written out."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack
from threadpoolctl import threadpool_info, threadpool_limits

import pclf
from pclf.choice import Choice, crossing, graded, learn
from pclf.choice.calibration import Calibration, calibrate, find_calibration
from pclf.choice.crossing import learn_crossing
from pclf.choice.few import Together
from pclf.choice.gram import gram, in_strips, inverse, quadratic, sums, sums_of_strips
from pclf.choice.items import learn_items
from pclf.choice.rows import Setting, as_rows, taken
from pclf.choice.sums import Chosen, Counts
from pclf.choice.things import elsewhere, mean_row, places, translated
from pclf.choice.validate import PENALTIES, find_setting, gain, hide, peak
from pclf.errors import DataError
from pclf.models.embeddings import learn_embeddings

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


def precision_by_hand(x, setting, block=lambda square: square):
    """P as the formula says, with people counted by how much they chose."""
    n = (x > 0).sum(axis=1)
    weight = np.maximum(n, 1.0) ** -setting.even
    square = (x * (weight / np.average(weight, weights=n))[:, None]).T @ x
    own = setting.penalty + setting.doubt * np.diag(square)
    return np.linalg.inv(block(square) + np.diag(own))


def expected_by_hand(people, mean, precision):
    """The conditional mean of each item given all others, one regression at a time."""
    out = np.empty(people.shape)
    for u, row in enumerate(people):
        for j in range(people.shape[1]):
            others = np.arange(people.shape[1]) != j
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
    np.testing.assert_allclose(sums_of_strips(rows, in_strips(precision), 30), x @ precision, rtol=RTOL, atol=1e-6)
    np.testing.assert_allclose(inverse(gram(rows), np.arange(30.0)), np.linalg.inv(square + np.diag(np.arange(30.0))),
                               rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(quadratic(rows, precision), np.einsum("ui,ij,uj->u", x, precision, x), rtol=RTOL)


@pytest.mark.parametrize("n", range(6))
def test_sums_taken_four_rows_at_a_time_are_those_of_one_after_the_other(n):
    """Also where a row has no whole fours, or something is left beside them."""
    rng = np.random.default_rng(n)
    table, value = rng.normal(size=(9, 1500)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    item = np.sort(rng.permutation(9)[:n])
    rows = csr_array((value, item, [0, n]), shape=(1, 9))
    one_by_one = np.zeros((1, 1500), np.float64)
    for x, i in zip(value, item, strict=True):               # float64 has room for the product, so this is one rounding
        one_by_one = (one_by_one + np.float64(x) * table[i]).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(sums(rows, table), one_by_one, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(sums(vstack([rows, rows], format="csr"), table)[1:], sums(rows, table))


def test_a_score_is_the_mean_of_an_item_given_all_others():
    x = matrix()
    setting = Setting(7.0, 0.3, even=0.5, doubt=0.2)
    choice = learn([rows_of(x)], settings=[setting])
    people = x[:5]
    found = choice.scores(0, [rows_of(people)])
    mean = np.tile(0.3 * x.sum(axis=0) / (x.sum(axis=1) > 0).sum(), (5, 1))
    wanted = expected_by_hand(people, mean, precision_by_hand(x, setting))
    np.testing.assert_allclose(found[people == 0], wanted[people == 0], rtol=1e-3, atol=1e-5)


def test_without_the_mean_it_is_ease():
    """Steck's B = I - P / diag(P), which has a diagonal of zeros."""
    x = (matrix() > 0).astype(float)
    precision = np.linalg.inv(x.T @ x + 7 * np.eye(30))
    b = np.eye(30) - precision / np.diag(precision)
    found = learn([rows_of(x)], settings=[Setting.ease(7.0)]).scores(0, [rows_of(x[:9])])
    np.testing.assert_allclose(found[x[:9] == 0], (x[:9] @ b)[x[:9] == 0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n_people", [80, 10])
def test_a_tail_is_as_if_its_block_were_the_diagonal_of_its_row_sums(n_people):
    """Where people are fewer than items of the core, sums are taken over pairs of people instead."""
    x, setting = matrix(n_people), Setting(7.0)
    items = learn_items(Chosen([rows_of(x)]), 0, setting, core=12)
    tail = items.tail

    def lumped(square):
        square[np.ix_(tail, tail)] = np.diag(square[np.ix_(tail, tail)].sum(axis=1))
        return square

    precision = precision_by_hand(x, setting, lumped)
    np.testing.assert_allclose(items.spread, np.diag(precision), rtol=RTOL)
    for given in (rows_of(x[:9]), x[:9]):
        np.testing.assert_allclose(items.times(given), x[:9] @ precision, rtol=1e-3, atol=1e-5)


def test_any_core_stays_positive_definite():
    """Many items with one and the same admirer: their block is far from diagonal."""
    x = np.zeros((20, 200))
    x[0] = 1
    x[:, :20] = 1
    for core in (1, 20, 100, 300):
        items = learn_items(Chosen([rows_of(x)]), 0, Setting(1.0), core)
        assert np.isfinite(items.spread).all()
        assert (items.spread > 0).all()


def test_the_crossing_is_a_ridge_and_leaves_its_own_people_out():
    rng = np.random.default_rng(0)
    films, books = matrix(150, 20), matrix(150, 25, seed=1)
    for y, x in ((films, books), (films[:60], np.hstack([books[:60]] * 4))):                 # more items, more people
        people = np.arange(len(y)) * 2
        both = (y > 0).any(axis=1) & (x > 0).any(axis=1)
        y, x, people = y[both], x[both], people[both]
        known = Chosen([rows_of(y), rows_of(x)], [people] * 2)
        crossing = learn_crossing(known, known, 1, x.mean(axis=0), rng)
        assert crossing is not None
        penalty = _penalty_of(crossing, y, x)
        items = tuple(learn_items(known, z, Setting(9)) for z in range(2))
        choice = Choice(items, (Setting(), Setting()),
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
    for n in (300, 20):
        known = Chosen([rows_of(films[:n]), rows_of(books[:n])], [np.arange(n)] * 2)
        assert learn_crossing(known, known, 1, books.mean(axis=0), rng) is None


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


def test_hidden_choices_find_a_setting():
    rows = rows_of((matrix(900, 40) > 0).astype(float))
    setting = find_setting(rows, np.random.default_rng(0))
    assert PENALTIES[0] <= setting.penalty <= PENALTIES[-1]
    shown, hidden = hide(taken(rows, np.arange(300)), np.random.default_rng(1))
    assert (shown + hidden != rows[:300]).nnz == 0
    assert (np.diff(hidden.indptr) >= (np.diff(rows[:300].indptr) > 0)).all()


@pytest.mark.parametrize("core", [20, 12])
def test_choices_are_hidden_as_if_items_had_never_been_learned_from_them(core):
    """Person by person, against learning anew without them. The doubt stays as it was, and a tail is lumped anew."""
    x, rng = matrix(60, 20), np.random.default_rng(0)
    hide = (rng.random(x.shape) < 0.3) & (np.arange(60) < 8)[:, None]
    for setting in (Setting(7.0, 0.3, 0.4, 0.0), Setting(7.0, 0.0, 0.0, 0.0)):
        source = Chosen([rows_of(x)])
        items, counts = learn_items(source, 0, setting, core), Counts.of(source, 0, setting)
        found = items.expected_without(rows_of(x * ~hide)[:8], rows_of(x * hide)[:8], counts, setting)
        for u in range(8):
            y = x.copy()
            y[u][hide[u]] = 0
            n = (y > 0).sum(axis=1)
            square = (y * (np.maximum(n, 1.0) ** -setting.even / counts.usual[0])[:, None]).T @ y
            precision = np.linalg.inv(square + setting.penalty * np.eye(20))
            wanted = (setting.pull * y.sum(axis=0) / counts.people - y[u]) @ precision / np.diag(precision)
            np.testing.assert_allclose(found[u][y[u] == 0], wanted[y[u] == 0], atol=1e-4 if core == 20 else 0.05)


@pytest.mark.parametrize(("n_people", "density"), [(1500, 0.2), (3000, 0.03)])
def test_of_the_items_that_head_lists_as_many_come_as_is_said(n_people, density):
    """Also of people who chose little, for whom lists are made in another way."""
    x = (matrix(n_people, 150, density) > 0).astype(float)
    rng = np.random.default_rng(1)
    late = (rng.random(x.shape) < 0.2) & (np.arange(n_people) < n_people // 3)[:, None]
    known, hidden = rows_of(x * ~late), x * late > 0
    choice = learn([known])
    n = np.diff(known.indptr)
    z = choice.scores(0, [known], None, Together.of(known, choice.settings[0]))
    p = choice.probability(0, np.maximum(z, 0), n)
    p[known.toarray() > 0] = 0
    best = np.argsort(-p, axis=1)[:, :20]
    told, came = (np.take_along_axis(values, best, 1)[:n_people // 3] for values in (p, hidden))
    few = n[:n_people // 3] < np.median(n)
    for some in (few, ~few):
        assert told[some].mean() == pytest.approx(came[some].mean(), rel=0.2)
    for part in np.array_split(np.argsort(told, axis=None), 5):
        assert abs(told.ravel()[part].mean() - came.ravel()[part].mean()) < 0.04


def test_a_better_item_is_always_more_probable():
    """Also where few hidden choices came back, and beyond all that was seen when the curve was learned."""
    rng = np.random.default_rng(0)
    for n_pairs in (100, 3000):
        curve = calibrate(rng.random(n_pairs), rng.integers(1, 9, n_pairs), rng.random(n_pairs) < 0.1)
        p = curve.probability(np.geomspace(1e-3, 30, 200)[None, :], np.array([5.0]))[0]
        assert (np.diff(p) > 0).all()
        assert 0 < p[0] < p[-1] < 1


def test_without_anything_to_learn_from_there_is_no_curve():
    for x in (matrix(5, 30), np.zeros((40, 30)), np.eye(12)):
        source = Chosen([rows_of(x)])
        items, counts = learn_items(source, 0, Setting()), Counts.of(source, 0, Setting())
        found = find_calibration(source.rows[0], items, Setting(), counts, np.random.default_rng(0))
        assert np.isfinite(found[:2]).all()
        assert (np.diff(found.logits) >= 0).all()
    assert calibrate(np.ones(9), np.ones(9), np.zeros(9, bool)) == Calibration()


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
        learn([csr_array(np.full((3, 3), 1e10))], settings=[Setting.ease(1e-3)])


def test_rows_of_another_catalogue_are_translated_by_their_things():
    here, there = np.array([5, 2, 9]), np.array([2, 7, 5])                          # rows among all things
    np.testing.assert_array_equal(places(here, there), [1, -1, 0])
    x = np.array([[1.0, 2, 3], [0, 4, 0]])
    np.testing.assert_array_equal(translated(rows_of(x), places(here, there), 3).toarray(), [[3, 1, 0], [0, 0, 0]])


def test_what_is_popular_elsewhere_is_not_taken_for_popular_here():
    """Everybody there chose the first item, and nobody here: there it counts less, and the mean is that of here."""
    here, there = np.tile([0.0, 1, 1, 0], (60, 1)), np.tile([1.0, 1, 1, 1], (500, 1))
    more = elsewhere([rows_of(here), rows_of(there)], [np.arange(4)] * 2, 0)
    assert more.shape == (500, 4)
    assert more.toarray()[0, 0] < 0.7 * more.toarray()[0, 1]
    assert mean_row(rows_of(here), more)[0] < 0.25 < 0.75 < mean_row(rows_of(here), more)[1]


def test_few_people_here_get_better_lists_by_what_goes_together_elsewhere():
    x, codes = matrix(600, 30), np.random.default_rng(3).permutation(30)
    here, there = x[:40], x[40:][:, codes]                                          # the same things by other codes
    things = [np.arange(30), codes]
    alone, tied = (learn([rows_of(here), rows_of(there)], None, t) for t in (None, things))
    assert tied.settings[0].things > 0 == alone.settings[0].things
    new = matrix(200, 30, seed=5)
    shown, hidden = hide(rows_of(new), np.random.default_rng(0))
    by = [gain(choice.scores(0, [shown, None]), shown, hidden).mean() for choice in (alone, tied)]
    assert by[1] > by[0] + 0.02
    kept = Choice.from_arrays("choice", tied.to_arrays("choice"), [30, 30], 600)
    assert kept.settings == tied.settings


def test_visitors_get_lists_by_the_things_they_chose_elsewhere():
    """Nobody is known in both catalogues. Whoever chose even things there finds even things here, where lists of what
    is popular alone would hold as many odd ones; and nothing that they have already."""
    x = matrix(400, 30) > 0
    frames = {name: {"user_id": [f"{name}{u}" for u in part.nonzero()[0]], "item_id": part.nonzero()[1],
                     "rating": np.random.default_rng(0).integers(3, 6, part.sum())}
              for name, part in (("a", x[:120]), ("b", x[120:]))}
    data = pclf.Ratings.from_frames(frames, shared_items=True, scale=(1, 5))
    model = pclf.PCLF(n_restarts=1).fit(data)
    lists = model.recommend("a", [f"b{u}" for u in range(20, 60)], n=3, rank_by="chosen")
    items = np.array([[int(r.item) for r in found] for found in lists])
    users = np.arange(20, 60)
    assert ((items + users[:, None]) % 2 == 0).mean() > 0.65
    assert not x[120 + users[:, None], items].any()


def test_inner_products_of_embeddings_sort_as_choices_do():
    """With as many numbers as items they are exact, for people of the domain, visitors and guests."""
    data = pclf.datasets.load("demo")
    model = pclf.PCLF(n_restarts=1).fit(data)
    exact, short = model.embeddings("books", 150), model.embeddings("books", 40)
    assert exact.agreement > 0.99
    assert 0.55 < short.agreement <= exact.agreement
    guest = model.fold_in({"films": {data["films"].items.ids[0]: 5}})
    for user, home in ((data["books"].users.ids[3], None), (data["films"].users.ids[0], "films"), (guest, None)):
        wanted = model.recommend("books", user, n=5, rank_by="chosen", user_domain=home)
        scores = exact.vectors @ exact.embedding(user, user_domain=home)
        place = [data["books"].items.code(r.item) for r in wanted]
        np.testing.assert_allclose(scores[place], [r.score for r in wanted], atol=2e-3)
    assert repr(short) == ("Embeddings of 'books': 150 items, 41 numbers each; "
                           f"{short.agreement:.0%} of the first 10 are those of recommend")
    table = exact.to_arrow()
    assert table.column_names == ["item_id", "title", "vector"]
    assert len(table) == data["books"].n_items
    with pytest.raises(pclf.errors.ArgumentError, match="a model without lists has no vectors"):
        pclf.PCLF(n_restarts=1, lists=False).fit(data).embeddings("books")


def test_agreement_of_embeddings_is_measured_on_people_they_were_not_made_of():
    asked, chosen = [], csr_array((200, 30), dtype=np.float32)
    scores = np.random.default_rng(0).normal(size=(200, 30))

    def of_codes(codes):
        asked.append(set(codes.tolist()))
        return scores[codes], chosen[codes]

    noise = learn_embeddings(SimpleNamespace(n_users=200), np.zeros(30), of_codes, None, 5, np.random.default_rng(1))
    made_of, tried = asked
    assert (len(made_of), len(tried), made_of & tried) == (180, 20, set())
    assert noise.agreement < 0.75                                  # of noise, five numbers of thirty say little


def test_factorisations_across_catalogues_stay_on_one_thread(monkeypatch):
    """Of a few columns: on a busy machine threads wait for each other at each column, 57 of 125 s of an update."""
    seen, qr = [], np.linalg.qr

    def watched(columns):
        seen.append({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
        return qr(columns)

    monkeypatch.setattr(np.linalg, "qr", watched)
    table = np.random.default_rng(0).normal(size=(60, 40)).astype(np.float32)
    with threadpool_limits(2, user_api="blas"):
        left, right = crossing._leading(table, 40, np.random.default_rng(1))
    np.testing.assert_allclose(left @ right, table, atol=1e-4)
    assert seen
    assert all(threads <= {1} for threads in seen)
