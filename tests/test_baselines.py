"""Bias, NMF, CBT and TALMUD: what each claims. The contract that all models keep is in test_models.py."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pclf
from pclf.errors import DataError, UnknownNameError
from pclf.models.cbt import alternate, expand
from pclf.models.codebook import closest, co_cluster, fill_by_user_means, learn_codebook
from pclf.models.nmf import factorise

BASELINES = [pclf.Bias(), pclf.NMF(), pclf.CBT(4, 4), pclf.TALMUD(4, 4)]
TRANSFER = [pclf.CBT, pclf.TALMUD]


def grid(n_users, n_items, density, rng):
    """Some of all pairs, as the codes of a domain."""
    user, item = np.nonzero(rng.random((n_users, n_items)) < density)
    return SimpleNamespace(user=user.astype(np.int32), item=item.astype(np.int32), n_users=n_users,
                           n_items=n_items)


def rate(book, n_users, n_items, density, rng):
    """Users, items and ratings of a domain where random clusters of both follow a codebook, with noise."""
    where = grid(n_users, n_items, density, rng)
    users, items = rng.integers(len(book), size=n_users), rng.integers(book.shape[1], size=n_items)
    exact = book[users[where.user], items[where.item]]
    return where.user, where.item, np.clip(np.round(exact + rng.normal(0, 0.3, len(exact))), 1, 5)


def hide(data, fraction, rng):
    """Train and test: a fraction of the ratings of each domain is left for training."""
    kept = {name: rng.random(len(d)) < fraction for name, d in data.domains.items()}
    return data.select(kept), data.select({name: ~mask for name, mask in kept.items()})


def mae(model, test, name):
    d = test[name]
    return np.abs(model.predict_codes(name, d.user, d.item) - d.ratings).mean()


def mean_mae(train, test, name):
    return np.abs(train[name].ratings.mean() - test[name].ratings).mean()


@pytest.fixture(scope="module")
def shared():
    """A dense domain and a sparse one that share a codebook, and a third with a codebook of its own."""
    rng = np.random.default_rng(4)
    book, other = rng.permuted(np.tile([1.0, 2, 3, 4, 5], 5)).reshape(5, 5), rng.uniform(1, 5, (5, 5))
    data = pclf.Ratings.from_arrays({"films": rate(book, 150, 120, 0.9, rng),
                                     "books": rate(book, 100, 90, 0.5, rng),
                                     "music": rate(other, 150, 120, 0.9, rng)}, scale=(1, 5))
    sparse = {"books": rng.random(len(data["books"])) < 0.3}
    return data.select(sparse), data.select({"books": ~sparse["books"]})


@pytest.fixture(scope="module")
def small():
    """Two domains in which one user and one item have no ratings; the second has a scale of ten values."""
    rng = np.random.default_rng(1)
    columns = {}
    for name, top in (("a", 5), ("b", 10)):
        where = grid(30, 20, 0.4, rng)
        rating = np.clip(np.round((where.user % 3 + where.item % 2 + 1.5) * top / 5), 1, top)
        columns[name] = (where.user, where.item, rating)
    data = pclf.Ratings.from_arrays(columns, scale={"a": (1, 5), "b": (1, 10)})
    return data.select({name: (d.user != 3) & (d.item != 4) for name, d in data.domains.items()})


def test_bias_by_hand():
    """Mean 4. Items: x (1 + 0) / (2 + 2), y -1 / (1 + 2). Then users: a (3/4 - 2/3) / (2 + 1), b -1/4 / 2."""
    data = pclf.Ratings.from_arrays({"d": (["a", "a", "b"], ["x", "y", "x"], [5, 3, 4])}, scale=(1, 5))
    model = pclf.Bias(user_damping=1, item_damping=2, n_passes=1).fit(data)
    found = model.predict("d", ["a", "a", "b", "b"], ["x", "y", "x", "y"])
    a, b, x, y = 1 / 36, -1 / 8, 1 / 4, -1 / 3
    np.testing.assert_allclose(found, [4 + a + x, 4 + a + y, 4 + b + x, 4 + b + y], rtol=1e-12)


def test_bias_without_damping_is_least_squares(small):
    d = small["a"]
    model = pclf.Bias(user_damping=0, item_damping=0, n_passes=200).fit(small)
    design = np.hstack([np.eye(d.n_users)[d.user], np.eye(d.n_items)[d.item]])
    exact = design @ np.linalg.lstsq(design, d.ratings, rcond=None)[0]
    found = (model.factors_["a"][0][d.user] * model.factors_["a"][1][d.item]).sum(axis=1)
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_bias_gives_the_mean_to_a_stranger_to_a_thing_nobody_rated(small):
    model = pclf.Bias().fit(small)
    assert model.predict_codes("b", np.array([3]), np.array([4])) == pytest.approx(small["b"].ratings.mean())


def test_nmf_updates_are_those_of_lee_and_seung_where_everything_is_rated():
    rng = np.random.default_rng(2)
    where, x = grid(7, 6, 2.0, rng), rng.uniform(1, 5, (7, 6))
    w, h, _ = factorise(where, x.ravel(), 3, 0, 0.0, 0.0, np.random.default_rng(5))   # the start
    found = factorise(where, x.ravel(), 3, 1, 0.0, 0.0, np.random.default_rng(5))
    w *= (x @ h) / (w @ h.T @ h)
    h *= (x.T @ w) / (h @ w.T @ w)
    np.testing.assert_allclose(found[0], w, rtol=1e-12)
    np.testing.assert_allclose(found[1], h, rtol=1e-12)


@pytest.mark.parametrize("regularisation", [0.0, 2.0])
def test_nmf_objective_never_rises_and_factors_stay_non_negative(small, regularisation):
    model = pclf.NMF(n_factors=4, max_iter=200, tol=0, regularisation=regularisation).fit(small)
    for name, trace in model.trace_.items():
        assert (np.diff(trace) <= 1e-9 * trace[0]).all()
        assert trace[-1] < 0.9 * trace[0]
        assert min(factor.min() for factor in model.factors_[name]) >= 0


def test_nmf_recovers_a_low_rank_matrix_from_part_of_it():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.2, 1, (60, 3)) @ rng.uniform(0.2, 1, (3, 50))
    where = grid(60, 50, 0.6, rng)
    w, h, _ = factorise(where, x[where.user, where.item], 3, 3000, 0.0, 0.0, rng)
    hidden = np.ones(x.shape, bool)
    hidden[where.user, where.item] = False
    error = np.abs(w @ h.T - x)[hidden].mean()
    assert error < 0.1 * np.abs(x - x.mean())[hidden].mean()


def test_nmf_takes_a_scale_below_zero():
    rng = np.random.default_rng(3)
    where = grid(20, 20, 0.6, rng)
    rating = np.where((where.user + where.item) % 2, -3.0, 2.0)
    data = pclf.Ratings.from_arrays({"jokes": (where.user, where.item, rating)}, scale=(-3, 3))
    model = pclf.NMF(n_factors=4, max_iter=500).fit(data)
    assert mae(model, data, "jokes") < 0.2


def test_the_filled_matrix_has_the_users_means_in_its_gaps(small):
    d, levels = small["a"], small.levels("a")
    x = fill_by_user_means(d, levels)
    dense = np.full((d.n_users, d.n_items), np.nan)
    dense[d.user, d.item] = levels
    dense[3] = levels.mean()                       # a user without ratings
    means = np.nanmean(dense, axis=1)[:, None]
    np.testing.assert_allclose(x @ np.eye(d.n_items), np.where(np.isnan(dense), means, dense), atol=1e-12)
    np.testing.assert_allclose(x.H @ np.eye(d.n_users), (x @ np.eye(d.n_items)).T, atol=1e-12)


def test_co_clustering_explains_more_with_every_pass(small):
    x = fill_by_user_means(small["b"], small.levels("b"))
    for seed in range(5):
        _, explained = co_cluster(x, 4, 3, 20, np.random.default_rng(seed))
        assert (np.diff(explained) >= -1e-9 * explained[-1]).all()
        total = np.square(x @ np.eye(x.shape[1])).sum()
        assert 0 < explained[-1] <= total * (1 + 1e-12)


def test_a_codebook_is_found_again_in_a_dense_domain():
    """Up to the order of clusters: every row and column has its partner among the true ones."""
    rng = np.random.default_rng(4)
    book = rng.permuted(np.tile([0.0, 1, 2, 3, 4], 4)).reshape(4, 5)
    where = grid(80, 70, 2.0, rng)
    levels = book[where.user % 4, where.item % 5].astype(np.uint8)
    found = learn_codebook(where, levels, 4, 5, 50, 3, rng)
    np.testing.assert_allclose(np.sort(found, axis=None), np.sort(book, axis=None), atol=1e-9)
    for axis in (0, 1):
        np.testing.assert_allclose(np.sort(found.sum(axis=axis)), np.sort(book.sum(axis=axis)), atol=1e-9)


def test_more_clusters_than_rows_leaves_clusters_empty_and_the_codebook_whole():
    where = grid(3, 2, 2.0, np.random.default_rng(0))
    levels = np.array([0, 4, 0, 4, 4, 0], np.uint8)
    book = learn_codebook(where, levels, 6, 5, 10, 1, np.random.default_rng(0))
    assert book.shape == (6, 5)
    assert {0.0, 4.0} <= set(np.round(book, 9).ravel()) <= {0.0, 2.0, 4.0}     # 2 is the mean


def test_closest_is_the_row_with_the_least_squared_error():
    rng = np.random.default_rng(6)
    book, rating = rng.uniform(1, 5, (4, 3)), rng.uniform(1, 5, (10, 9))
    column = rng.integers(3, size=9)
    members = np.eye(3)[column]
    brute = [np.argmin([np.square(row - book[k, column]).sum() for k in range(4)]) for row in rating]
    assert closest(rating @ members, members.sum(axis=0), book).tolist() == brute


def test_expansion_never_raises_the_error_and_ends_where_no_move_helps(shared):
    target, rng = shared[0]["books"], np.random.default_rng(0)
    book = rng.uniform(1, 5, (4, 6))
    users, items, trace = alternate(target, target.ratings, book, rng.integers(6, size=target.n_items), 50)
    assert (np.diff(trace) <= 0).all()
    for user in range(0, target.n_users, 10):
        mine = target.user == user
        errors = np.square(target.ratings[mine] - book[:, items[target.item[mine]]]).sum(axis=1)
        assert errors[users[user]] == pytest.approx(errors.min())


@pytest.mark.parametrize("model", TRANSFER)
def test_a_shared_codebook_is_worth_more_than_a_shuffled_one_and_than_the_mean(shared, model):
    """The mechanism of CBT. The noise of the ratings leaves an error of about 0.1 to the true codebook."""
    train, test = (part.only(["films", "books"]) for part in shared)
    learned = mae(model(5, 5).fit(train), test, "books")
    control = model(5, 5, codebook="shuffled")
    assert learned < 0.5 * min(mae(control.fit(train, random_state=s), test, "books") for s in range(3))
    assert learned < 0.3 * mean_mae(train, test, "books")


def test_transfer_works_between_scales(shared):
    """The same target, rated 10, 30, 50, 70, 90: its error is 20 times that on 1 to 5."""
    films, books = (shared[0].to_frame(name) for name in ("films", "books"))
    hidden = shared[1].to_frame("books")
    columns = {"films": tuple(films.values()),
               "books": (books["user_id"], books["item_id"], 20 * books["rating"] - 10)}
    scale = {"films": (1, 5), "books": (10, 90, 20)}
    model = pclf.CBT(5, 5).fit(pclf.Ratings.from_arrays(columns, scale=scale))
    known = np.isin(hidden["user_id"], books["user_id"]) & np.isin(hidden["item_id"], books["item_id"])
    found = model.predict("books", hidden["user_id"][known], hidden["item_id"][known])
    assert np.abs(found - (20 * hidden["rating"][known] - 10)).mean() < 20 * 0.4


def test_matching_means_helps_a_target_that_rates_higher(shared):
    films = shared[0].to_frame("films")
    lower = np.maximum(films["rating"] - 1, 1)
    books = tuple(shared[0].to_frame("books").values())
    train = pclf.Ratings.from_arrays({"films": (films["user_id"], films["item_id"], lower), "books": books},
                                     scale=(1, 5))
    moved, left = (pclf.CBT(5, 5, match_means=m).fit(train).trace_["books"][-1] for m in (True, False))
    assert moved < left


def test_cbt_learns_from_the_largest_other_domain_or_the_one_named(shared):
    train = shared[0]
    sizes = {name: len(d) for name, d in train.domains.items()}
    large = max(("films", "music"), key=sizes.get)
    assert list(pclf.CBT(3, 3).fit(train).weights_["books"]) == [large]
    named = pclf.CBT(3, 3, source="books").fit(train)
    assert {target: list(found) for target, found in named.weights_.items()} == {
        "films": ["books"], "books": [large], "music": ["books"]}
    assert set(named.codebooks_) == {"books", large}


def test_talmud_gives_the_related_source_the_larger_weight(shared):
    train, test = shared
    for seed in range(3):
        model = pclf.TALMUD(5, 5).fit(train, random_state=seed)
        weights = model.weights_["books"]
        assert weights["films"] > 0.7
        assert abs(weights["music"]) < 0.3
        assert mae(model, test, "books") < 0.3 * mean_mae(train, test, "books")


def test_talmud_never_raises_the_error_and_fits_no_worse_than_any_source_alone(shared):
    target, rng = shared[0]["books"], np.random.default_rng(0)
    books = [rng.uniform(1, 5, (4, 4)) for _ in range(3)]
    *_, trace = expand(target, books, True, 50, 2, np.random.default_rng(1))
    assert (np.diff(trace) <= 1e-9 * trace[0]).all()
    for book in books:
        *_, alone = expand(target, [book], False, 50, 1, np.random.default_rng(1))
        assert trace[-1] < alone[-1]


def test_talmud_with_one_source_is_cbt_with_a_weight(shared):
    train = shared[0].only(["films", "books"])
    cbt, talmud = pclf.CBT(5, 5).fit(train), pclf.TALMUD(5, 5).fit(train)
    assert cbt.weights_["books"] == {"films": 1.0}
    assert talmud.weights_["books"]["films"] == pytest.approx(1, abs=0.05)
    assert talmud.trace_["books"][-1] <= cbt.trace_["books"][-1]


def test_talmud_uses_only_the_sources_named(shared):
    model = pclf.TALMUD(3, 3, sources=["music"]).fit(shared[0])
    assert {t: set(w) for t, w in model.weights_.items()} == {
        "films": {"music"}, "books": {"music"}, "music": {"films", "books"}}


@pytest.mark.parametrize("model", BASELINES, ids=lambda m: type(m).__name__)
def test_everybody_gets_a_rating_on_the_scale_even_in_a_domain_without_ratings(small, model):
    nothing = small.select({"a": np.zeros(len(small["a"]), bool)})
    for data in (small, nothing):
        if type(model) in TRANSFER and data is nothing:
            with pytest.raises(DataError, match="a codebook for 'b' must come from another domain"):
                model.fit(data)
            continue
        model.fit(data)
        for name, d in data.domains.items():
            user, item = (m.ravel() for m in np.meshgrid(np.arange(d.n_users), np.arange(d.n_items)))
            found = model.predict_codes(name, user, item)
            assert d.scale.values[0] <= found.min()
            assert found.max() <= d.scale.values[-1]


@pytest.mark.parametrize("model", TRANSFER)
def test_a_target_without_ratings_still_learns_from_its_source(small, model):
    empty = small.select({"a": np.zeros(len(small["a"]), bool)})["a"]
    data = pclf.Ratings({**small.domains, "c": replace(empty, name="c")})
    found = model(3, 3).fit(data).predict_codes("c", np.arange(5), np.arange(5))
    assert np.ptp(found) == pytest.approx(0)   # everyone is average
    assert 1.5 < found[0] < 4.5


@pytest.mark.parametrize("model", BASELINES, ids=lambda m: type(m).__name__)
def test_what_was_learned_comes_back_from_a_file(small, model, tmp_path):
    model.fit(small)
    model.save(tmp_path / "model")
    loaded = pclf.load(tmp_path / "model")
    assert loaded.trace_ == model.trace_
    if type(model) in TRANSFER:
        assert loaded.weights_ == model.weights_
        assert all((loaded.codebooks_[name] == book).all() for name, book in model.codebooks_.items())


@pytest.mark.parametrize(("model", "error", "says"), [
    (pclf.Bias(user_damping=-1), ValueError, "user_damping must be at least 0; got -1"),
    (pclf.Bias(n_passes=0), ValueError, "n_passes must be at least 1; got 0"),
    (pclf.NMF(n_factors=2.5), ValueError, "n_factors must be a whole number; got 2.5"),
    (pclf.CBT(n_user_clusters=2.5), ValueError, "n_user_clusters must be a whole number; got 2.5"),
    (pclf.NMF(n_factors=0), ValueError, "n_factors must be at least 1; got 0"),
    (pclf.NMF(tol=float("nan")), ValueError, "tol must be at least 0; got nan"),
    (pclf.CBT(n_user_clusters=0), ValueError, "n_user_clusters must be at least 1; got 0"),
    (pclf.CBT(codebook="random"), ValueError, "codebook must be one of: learned, shuffled; got 'random'"),
    (pclf.CBT(source="bb"), UnknownNameError, "unknown domain 'bb'"),
    (pclf.TALMUD(sources=["a", "bb"]), UnknownNameError, "unknown domain 'bb'"),
])
def test_bad_settings_are_refused_and_leave_no_state(small, model, error, says):
    with pytest.raises(error, match=says):
        model.fit(small)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_transfer_within_one_domain_is_refused(small):
    with pytest.raises(DataError, match="must come from another domain with ratings; got none"):
        pclf.CBT().fit(small.only("a"))


@pytest.mark.parametrize("name", ["Bias", "NMF", "CBT", "TALMUD"])
def test_every_baseline_beats_the_mean_on_real_ratings(data_dir, name):
    """MovieLens 100K and the Book-Crossing sub-matrix, four fifths for training."""
    from scipy.io import loadmat
    from scipy.sparse import coo_array

    films = np.loadtxt(data_dir / "ml-100k" / "u.data", dtype=int)
    books = coo_array(loadmat(data_dir / "book-crossing" / "bx_500x1000.mat")["bx_sparse"])
    columns = {"films": tuple(films[:, :3].T), "books": (books.row, books.col, books.data)}
    data = pclf.Ratings.from_arrays(columns, scale={"books": np.linspace(1, 5, 10)})
    train, test = hide(data, 0.8, np.random.default_rng(0))
    model = pclf.models.create(name).fit(train)
    for domain in data.domains:
        assert mae(model, test, domain) < 0.95 * mean_mae(train, test, domain)
