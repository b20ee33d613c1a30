"""The contract of every model, and what only mixtures do."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

import pclf
from pclf import models
from pclf.clusters.fitted import Member
from pclf.clusters.loop import Schedule, random_posteriors, run
from pclf.clusters.mstep import Priors
from pclf.engines import cpu, cpu_rows
from pclf.errors import EngineError, NotFittedError, UnknownNameError
from pclf.factors import learn as factor_model
from pclf.factors.rows import softmax
from pclf.models import weights
from pclf.models.people import find
from pclf.problem import Problem

MIXTURES = ["PCLF", "RMGM", "FMM"]
SMALL = {"PCLF": {"n_user_clusters": 4, "n_common_clusters": 3, "n_specific_clusters": 3},
         "RMGM": {"n_user_clusters": 4, "n_item_clusters": 4}, "FMM": {"n_user_clusters": 4, "n_item_clusters": 4}}


@pytest.fixture(scope="module")
def data():
    """Films and books with three kinds of people and two kinds of things; one film and one book nobody rated."""
    rng = np.random.default_rng(0)
    frames = {}
    for name, n_users, n_items, n in (("films", 60, 40, 1200), ("books", 40, 30, 500)):
        pairs = rng.choice(n_users * n_items, n, replace=False)
        u, v = pairs // n_items, pairs % n_items
        rating = np.clip(np.round(3 + 1.5 * ((u + v % 2) % 3 - 1) + rng.normal(0, .5, n)), 1, 5)
        frames[name] = ([f"{name[0]}{i}" for i in u], [f"{name} {i}" for i in v], rating)
    whole = pclf.Ratings.from_arrays(frames, scale=(1, 5))
    masks = {name: (d.item != 7) & (d.user != 5) for name, d in whole.domains.items()}
    return whole.select(masks)


@pytest.fixture(scope="module", params=[name for name in models.NAMES if name not in models.RANKERS])
def rated(request, data):
    """A model that predicts ratings."""
    return models.create(request.param, **SMALL.get(request.param, {})).fit(data, random_state=3)


@pytest.fixture(scope="module", params=models.NAMES)
def fitted(request, data):
    return models.create(request.param, **SMALL.get(request.param, {})).fit(data, random_state=3)


@pytest.fixture(scope="module", params=MIXTURES)
def mixture(request, data):
    return models.create(request.param, **SMALL[request.param]).fit(data, random_state=3)


@pytest.fixture(scope="module")
def model(data):
    return pclf.PCLF.paper(**SMALL["PCLF"], max_iter=100).fit(data, random_state=3)


@pytest.fixture(scope="module")
def factor_fit(data):
    return pclf.PCLF(n_restarts=1, max_iter=10).fit(data, random_state=3)


def test_predictions_are_on_the_scale_for_everyone_and_everything(rated, data):
    """User 5 and item 7 of each domain have no training ratings at all."""
    for name, d in data.domains.items():
        users, items = np.meshgrid(np.arange(d.n_users), np.arange(d.n_items), indexing="ij")
        for rule in rated.rules:
            found = rated.predict_codes(name, users.ravel(), items.ravel(), rule=rule)
            assert np.isfinite(found).all()
            assert found.min() >= 1
            assert found.max() <= 5


def test_predictions_beat_the_mean_of_the_training_ratings(rated, data):
    """CBT and TALMUD see too little structure in such small domains to be asked for more than not to be worse."""
    for name, d in data.domains.items():
        error = np.abs(rated.predict_codes(name, d.user, d.item) - d.ratings).mean()
        assert error < np.abs(d.ratings.mean() - d.ratings).mean() * 1.01


def test_ids_and_codes_give_the_same_prediction(rated, data):
    d = data["books"]
    by_id = rated.predict("books", d.users.decode(d.user[:20]), d.items.decode(d.item[:20]))
    np.testing.assert_allclose(by_id, rated.predict_codes("books", d.user[:20], d.item[:20]))


def test_refit_repeats_and_settings_stay_untouched(rated, data):
    before = rated.get_params()
    again = clone(rated).fit(data, random_state=3)
    assert again.get_params() == before == rated.get_params()
    d = data["films"]
    # BLAS may round the last bit otherwise when its arrays lie elsewhere in memory.
    np.testing.assert_allclose(again.predict_codes("films", d.user, d.item),
                               rated.predict_codes("films", d.user, d.item), rtol=1e-5)


def test_a_second_fit_forgets_what_was_seen_in_the_first(fitted, data):
    model = clone(fitted).fit(data.select({n: np.arange(len(d)) % 2 == 0 for n, d in data.domains.items()}))
    model.recommend("books")
    model.fit(data)
    d = data["books"]
    seen = set(zip(d.users.decode(d.user), d.items.decode(d.item), strict=True))
    assert not seen & {(user, item.item) for user, found in model.recommend("books").items() for item in found}


def test_a_namesake_in_another_domain_is_somebody_else():
    rng = np.random.default_rng(0)
    data = pclf.Ratings.from_arrays({n: (rng.integers(0, 9, 60), rng.integers(0, 30, 60), rng.integers(1, 6, 60))
                                     for n in ("films", "books")}, duplicates="last", scale=(1, 5))
    books = data["books"]
    own = set(books.items.decode(books.item[books.user == books.users.code(7)]))
    model = pclf.PCLF(2, 2, 2, n_restarts=1).fit(data)
    assert own <= {r.item for r in model.recommend("books", 7, n=30, user_domain="films")}
    assert not own & {r.item for r in model.recommend("books", 7, n=30)}
    with pytest.raises(UnknownNameError, match="known in 'films' only"):
        pclf.Bias().fit(data).predict("books", 7, books.items.ids[0], user_domain="films")
    with pytest.raises(UnknownNameError, match="nowhere"):
        model.predict("books", 7, books.items.ids[0], user_domain="nowhere")


def test_users_and_items_must_be_equally_many(rated):
    with pytest.raises(ValueError, match="equally many, or one of either; got 2 users and 3 items"):
        rated.predict("books", ["b1", "b2"], ["books 1", "books 2", "books 3"])
    with pytest.raises(ValueError, match="got 2 users and 3 items"):
        rated.predict_codes("books", np.arange(2), np.arange(3))
    assert len(rated.predict("books", "b1", ["books 1", "books 2"])) == 2


def test_the_same_seed_gives_the_same_parameters_to_the_bit(data):
    fits = [pclf.PCLF.paper(**SMALL["PCLF"]).fit(data, random_state=seed).members_[0] for seed in (1, 1, 2)]
    assert (fits[0].users == fits[1].users).all()
    assert all((a == b).all() for a, b in zip(fits[0].tables, fits[1].tables, strict=True))
    assert not (fits[0].users == fits[2].users).all()


def test_save_and_load_give_the_same_model(fitted, data, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = pclf.load(tmp_path / "model")
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    d = data["books"]
    for rule in fitted.rules:
        np.testing.assert_allclose(loaded.predict_codes("books", d.user, d.item, rule=rule),
                                   fitted.predict_codes("books", d.user, d.item, rule=rule), rtol=1e-5)
    assert [r.score for r in loaded.recommend("books", "b1")] == pytest.approx(
        [r.score for r in fitted.recommend("books", "b1")], rel=1e-5)


def test_recommendations_are_the_best_unseen_items(rated, data):
    d = data["books"]
    code = d.users.code("b1")
    seen = set(d.item[d.user == code])
    scores = rated.predict_codes("books", np.full(d.n_items, code), np.arange(d.n_items))
    found = rated.recommend("books", "b1", n=5, rank_by="rating")
    assert len(found) == 5
    assert not {d.items.code(r.item) for r in found} & seen
    unseen = sorted((s for c, s in enumerate(scores) if c not in seen), reverse=True)
    np.testing.assert_allclose([r.score for r in found], unseen[:5], rtol=1e-4)
    everything = rated.recommend("books", "b1", n=d.n_items + 3, exclude_seen=False)
    assert len(everything) == d.n_items


def test_recommend_honours_candidates_and_exclusions(fitted):
    chosen = ["books 1", "books 2", "books 3"]
    found = fitted.recommend("books", "b1", n=5, exclude_seen=False, candidates=chosen, exclude=["books 2"])
    assert {r.item for r in found} == {"books 1", "books 3"}


def test_recommend_in_batches_equals_one_by_one(fitted, data):
    everyone = fitted.recommend("books", n=4)
    assert len(everyone) == data["books"].n_users
    for row in (0, 3, 17):
        alone = fitted.recommend("books", everyone.users[row], n=4)
        assert [r.score for r in everyone[row]] == pytest.approx([r.score for r in alone], rel=1e-5)
    table = everyone.to_arrow()
    assert {"user_id", "item_id", "title", "score", "rank"} <= set(table.column_names)
    assert table.num_rows == 4 * len(everyone)


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda m: m.predict("bokos", "b1", "books 1"), UnknownNameError, "did you mean 'books'"),
    (lambda m: m.predict("books", "b1", "books 1x"), UnknownNameError, "books 1"),
    (lambda m: m.predict("books", "b100", "books 1"), UnknownNameError, "b100"),
    (lambda m: m.predict("books", "b1", "books 1", rule="mode"), ValueError, "rule must be one of"),
    (lambda m: m.recommend("books", "b1", n=0), ValueError, "n must be a whole number from 1 on; got 0"),
    (lambda m: m.recommend("books", "b1", candidates=["nothing"]), UnknownNameError, "nothing"),
])
def test_bad_requests_say_what_is_wrong(rated, call, error, says):
    with pytest.raises(error, match=says):
        call(rated)


@pytest.mark.parametrize("name", models.NAMES)
def test_an_unfitted_model_says_so(name, tmp_path):
    model = models.create(name)
    calls = [lambda: model.recommend("a", 1), lambda: model.save(tmp_path / "m")]
    for call in calls if name in models.RANKERS else [*calls, lambda: model.predict("a", 1, 1)]:
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            call()
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", MIXTURES)
def test_an_unfitted_mixture_takes_no_guest(name):
    for guest in ({}, {"a": {1: 5}}):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            models.create(name).fold_in(guest)


def test_an_unknown_model_name_is_guessed():
    with pytest.raises(UnknownNameError, match="did you mean 'PCLF'"):
        models.create("pclff")


@pytest.mark.parametrize(("settings", "says"), [
    ({"n_user_clusters": 0}, "n_user_clusters must be at least 1; got 0"),
    ({"n_common_clusters": 0}, "of the view 'common' must be at least 1; got 0"),
    ({"n_user_clusters": 2.5}, "n_user_clusters must be a whole number; got 2.5"),
    ({"n_restarts": 1.5}, "n_restarts must be 'auto' or a whole number; got 1.5"),
    ({"user_prior": float("nan")}, "user_prior must be 0 .off. or positive; got nan"),
    ({"betas": 0.9}, "betas must be one or more numbers"),
    ({"n_specific_clusters": {"films": 2, "books": -1}}, "of the view 'books' must be at least 1; got -1"),
    ({"n_specific_clusters": {"films": 2, "bokos": 3}}, "did you mean 'books'"),
    ({"common_weight": 1.2}, "between 0 and 1; got 1.2"),
    ({"user_prior": -1.0}, "user_prior must be 0"),
    ({"betas": ()}, "betas must be one or more numbers"),
    ({"betas": (0.5, 1.5)}, "betas must be one or more numbers"),
    ({"start": "zeros"}, "start must be one of: posteriors, memberships, posteriors by id, memb"),
    ({"max_iter": 0}, "max_iter must be at least 1"),
    ({"n_factors": "many"}, "n_factors must be 'auto' or a whole number; got 'many'"),
])
def test_bad_settings_are_refused_by_fit_and_leave_no_state(data, settings, says):
    model = pclf.PCLF(**settings)
    with pytest.raises((ValueError, UnknownNameError), match=says):
        model.fit(data)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_more_clusters_than_users_is_a_warning(data):
    few = pclf.Ratings.from_arrays({"a": ([1, 1, 2], [1, 2, 1], [1, 5, 3])}, scale=(1, 5))
    with pytest.warns(UserWarning, match="more than the 2 users"):
        model = pclf.FMM(n_user_clusters=3, n_item_clusters=2).fit(few)
    assert np.isfinite(model.predict("a", [1, 2], [1, 2])).all()


def test_data_of_the_wrong_kind_is_refused():
    with pytest.raises(TypeError, match="must be Ratings, a data frame, or a dict of these"):
        pclf.PCLF().fit([[1, 2, 3]])


def test_a_dict_of_frames_is_data():
    import pandas as pd

    frame = pd.DataFrame({"user_id": [1, 1, 2, 3], "item_id": ["x", "y", "x", "y"], "rating": [1, 5, 3, 4]})
    model = pclf.FMM(n_user_clusters=2, n_item_clusters=2).fit({"a": frame})
    assert 1 <= model.predict("a", 1, "x")[0] <= 5


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_float32_predicts_as_the_reference_after_whole_fits(data, rule):
    d = data["books"]
    found = [pclf.PCLF.paper(**SMALL["PCLF"], max_iter=20).fit(data, engine=e, dtype=t, random_state=1)
             .predict_codes("books", d.user, d.item, rule=rule)
             for e, t in (("reference", "float64"), ("cpu", "float32"))]
    different = np.abs(found[0] - found[1]) > 1e-3
    # A median jumps by a level where a cumulative probability is next to 1/2.
    assert different.mean() <= (0.0 if rule == "mean" else 0.01)


def test_threads_do_not_change_a_bit(data, monkeypatch):
    for room in (cpu, cpu_rows):
        monkeypatch.setattr(room, "SMALL", 0)                # so that even these few ratings are shared out
    monkeypatch.setattr(cpu, "cores", lambda: 3)
    one, three = (pclf.PCLF(**SMALL["PCLF"]).fit(data, engine="cpu", n_threads=n, random_state=1) for n in (1, 3))
    assert (one.members_[0].users == three.members_[0].users).all()
    for name in data.domains:
        a, b = (model.factors_[name].domains[name] for model in (one, three))
        assert (a.users == b.users).all()
        assert (a.items == b.items).all()


def test_distribution_sums_to_one_and_gives_mean_and_median(mixture, data):
    d = data["films"]
    users, items = d.users.decode(d.user[:50]), d.items.decode(d.item[:50])
    probability = mixture.predict_proba("films", users, items)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_allclose(probability @ [1, 2, 3, 4, 5], mixture.predict("films", users, items), rtol=1e-6)
    median = mixture.predict("films", users, items, rule="median")
    assert set(median) <= {1, 2, 3, 4, 5}
    below = np.array([p[: int(m) - 1].sum() for p, m in zip(probability, median, strict=True)])
    assert (below < .5 + 1e-9).all()


def test_prediction_is_the_papers_formula(model, data):
    """f(u, v) = W1 p_u S_com p_vcom + W2 p_u S_spe p_vspe, worked out from the parameters."""
    member = model.members_[0]
    books = data["books"]
    u, v = books.user[0], books.item[0]
    row_u, row_v = data.user_rows[1][u], data.item_rows[1][v]
    s_com, s_spe = model.common_rating_matrix_["books"], model.specific_rating_matrices_["books"]
    w1 = model.weights_["books"][0]
    expected = (w1 * member.users[row_u] @ s_com @ member.items[0][row_v]
                + (1 - w1) * member.users[row_u] @ s_spe @ member.items[2][v])
    assert model.predict_codes("books", np.array([u]), np.array([v]))[0] == pytest.approx(expected, rel=1e-5)


def test_common_weight_can_be_changed_after_the_fit(data):
    model = pclf.PCLF.paper(**SMALL["PCLF"]).fit(data, random_state=3)
    d = data["books"]
    found = {}
    for weight in (0.0, 0.35, 1.0):
        model.set_common_weight("books", weight)
        found[weight] = model.predict_codes("books", d.user, d.item)
    np.testing.assert_allclose(found[.35], .35 * found[1.0] + .65 * found[0.0], rtol=1e-5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.set_common_weight("books", -0.1)


def test_without_weight_on_the_common_view_pclf_is_fmm(data):
    """The same start, the same steps: memberships and tables of the domains are those of FMM."""
    pclf_views = pclf.PCLF(4, 3, 3)._layout(data)
    off = replace(pclf_views, views=(replace(pclf_views.views[0], weight=0.0), *pclf_views.views[1:]))
    fmm = pclf.FMM(4, 3)._layout(data)
    problems = [Problem.of(data, layout) for layout in (off, fmm)]
    start = random_posteriors(problems[1], np.random.default_rng(0))
    common = random_posteriors(problems[0], np.random.default_rng(0))
    start_off = replace(start, items=(0 * common.items[0], *start.items), tables=(common.tables[0], *start.tables))
    schedule, priors = Schedule(max_iter=15, tol=0), Priors(1.0, 1.0, 1.0)
    engine = pclf.engines.create("cpu", dtype="float64")
    with_common, alone = (run(engine, p, s, schedule=schedule, priors=priors)
                          for p, s in zip(problems, (start_off, start), strict=True))
    np.testing.assert_allclose(with_common.params.users, alone.params.users, rtol=1e-9)
    for z in range(2):
        np.testing.assert_allclose(with_common.params.tables[1 + z], alone.params.tables[z], rtol=1e-9)


def test_a_user_of_one_domain_is_scored_in_another(model, data):
    """The paper's last claim. People of kind k like the same kind of things in both domains."""
    found = model.predict("books", "f1", [f"books {i}" for i in range(20)])
    assert found.std() > 0.3
    assert model.recommend("books", "f1", n=3) == model.recommend("books", "f1", n=3, user_domain="films")
    films = data["films"]
    kinds = {k: [u for u in films.users.ids if int(u[1:]) % 3 == k and u != "f5"] for k in range(3)}
    even = {k: model.predict("books", u, ["books 2"] * len(u)).mean() for k, u in kinds.items()}
    # In the data, kind k rates even items 3 + 1.5 (k - 1): 1.5, 3, 4.5. Item clusters are only common in part,
    # so books are rated by film users with less contrast, but in the same order of the extremes.
    assert even[2] > even[0]


def test_a_user_known_in_several_other_domains_must_be_named(data):
    arrays = {name: ([1, 2, 3], ["x", "y", "x"], [1, 3, 5]) for name in ("a", "b")}
    arrays["c"] = ([7, 8], ["x", "y"], [1, 5])
    model = pclf.PCLF(2, 2, 2).fit(pclf.Ratings.from_arrays(arrays, scale=(1, 5)))
    with pytest.raises(UnknownNameError, match="several other domains"):
        model.recommend("c", 1)
    assert len(model.recommend("c", 1, user_domain="a")) == 2


@pytest.mark.parametrize("prior", [0.0, 2.0])
def test_fold_in_of_a_users_own_ratings_gives_that_users_membership(prior):
    """At EM's fixed point, to 1e-6: a separable toy problem converges that far."""
    rng = np.random.default_rng(1)
    pairs = rng.choice(30 * 20, 400, replace=False)
    u, v = pairs // 20, pairs % 20
    data = pclf.Ratings.from_arrays({"a": (u, v, rng.integers(1, 6, 400))}, scale=(1, 5))
    model = pclf.PCLF.paper(n_user_clusters=2, n_common_clusters=2, n_specific_clusters=2, user_prior=prior,
                            item_prior=prior, table_prior=prior, betas=(1.0,), max_iter=20_000, tol=0.0)
    model.fit(data, engine="cpu", dtype="float64", random_state=0)
    d = data["a"]
    for code in (0, 3, 11):
        own = d.user == code
        items, ratings = d.items.decode(d.item[own]), d.ratings[own]
        guest = model.fold_in({"a": dict(zip(items, ratings, strict=True))})
        np.testing.assert_allclose(guest.memberships["a"][0], model.members_[0].users[code], atol=1e-6)


def test_a_guest_without_ratings_is_the_population(model):
    guest = model.fold_in({})
    np.testing.assert_allclose(guest.memberships["films"][0], model.members_[0].user_shares[0], rtol=1e-6)


def test_a_guest_does_not_get_what_they_rated(model):
    guest = model.fold_in({"films": {"films 1": 5, "films 2": 1}, "books": {"books 3": 4}})
    found = model.recommend("books", guest, n=100)
    assert "books 3" not in {r.item for r in found}
    with pytest.raises(UnknownNameError, match="films 1"):
        model.fold_in({"films": {"films 1x": 5}})
    with pytest.raises(ValueError, match="of 'films 1' must be on the scale of 'films', 1 to 5 by 1; got 11"):
        model.fold_in({"films": {"films 1": 11}})


def test_a_new_item_is_placed_by_its_ratings(model, data):
    """Rated like an even film by users who know films: predicted like one."""
    films = data["films"]
    users = [u for u in films.users.ids if u != "f5"][:40]
    ratings = {u: float(np.clip(np.round(3 + 1.5 * (int(u[1:]) % 3 - 1)), 1, 5)) for u in users}
    item = model.fold_in_item("films", ratings)
    high = model.predict("films", [u for u in users if int(u[1:]) % 3 == 2], item)
    low = model.predict("films", [u for u in users if int(u[1:]) % 3 == 0], item)
    assert high.mean() > low.mean() + 1
    with pytest.raises(ValueError, match="belongs to 'films'"):
        model.predict("books", "b1", item)


def test_similar_items_are_of_the_same_kind_also_across_domains(model, factor_fit):
    for each in (model, factor_fit):
        even = each.similar_items("films", "films 2", n=10)
        assert len(even) == 10
        assert sum(int(r.item.split()[1]) % 2 == 0 for r in even) >= 8
        assert all(before.score >= after.score for before, after in pairwise(even))
    books = model.similar_items("films", "films 2", n=10, to="books")
    assert all(r.item.startswith("books") for r in books)


def test_an_explanation_names_what_the_user_rated_that_is_like_the_item(factor_fit, data):
    model, films = factor_fit, data["films"]
    title = films.title(int(films.item[films.user == films.users.code("f1")][0]))
    for who in ("f1", model.fold_in({"films": {"films 2": 5, "films 4": 4, "films 3": 1}})):
        why = model.explain("films", who, "films 8")
        assert 1 <= len(why.nearest) <= 3
        assert all(int(near.title.split()[1]) % 2 == 0 for near in why.nearest)
        assert f"Most like it, among what you know: {why.nearest[0].title}, rated {why.nearest[0].rating:g}" in why.text
    assert title not in [near.title for near in model.explain("films", "f1", title).nearest]
    assert not model.explain("films", "b1", "films 8").nearest                # a reader, who rated no film


def test_what_somebody_disliked_is_no_reason_why_they_will_like_something(factor_fit):
    model = factor_fit
    guest = model.fold_in({"films": {"films 2": 5, "films 4": 1, "films 6": 5, "films 10": 4}})
    why = model.explain("films", guest, "films 8")
    assert why.prediction > 3
    assert why.nearest
    assert all(near.rating > 3 for near in why.nearest)


def test_a_taste_for_numbers_says_the_number_or_the_column():
    """Not the knots that a year lies between, and not all numbers of an embedding."""
    rng = np.random.default_rng(0)
    year, u, v = 1950 + np.arange(60), *np.divmod(rng.choice(40 * 60, 900, replace=False), 60)
    rating = np.clip(np.round(3 + np.where(u % 2, 1, -1) * (v - 30) / 15 + rng.normal(0, .3, 900)), 1, 5)
    data = pclf.Ratings.from_arrays({"films": (u, v, rating)}, scale=(1, 5), attributes={"films": {
        "item_id": np.arange(60), "year": year, "mood": [[float(i), 1.0 + i % 7] for i in range(60)]}})
    why = pclf.PCLF(n_restarts=1, max_iter=3, lists=False).fit(data).explain("films", 1, 55)
    tastes = {taste.column: taste for taste in why.tastes}
    assert tastes["year"].value == 2005
    assert tastes["mood"].value is None
    assert "ou like 2005 (year)" in why.text
    assert "around" not in why.text


def test_an_explanation_says_that_nothing_is_known(factor_fit):
    why = factor_fit.explain("films", factor_fit.fold_in({}), "films 8")
    assert why.nearest == ()
    assert repr(why) == str(why) == why.text                                # as a notebook shows it
    assert why.text.splitlines()[1:] == ["Nothing that you rated says much about what you would think of it."]


def test_the_bar_is_not_full_before_lists_are_learned(data, monkeypatch):
    from contextlib import contextmanager

    from pclf.models import pclf as room

    seen = []

    @contextmanager
    def bar(what, total, **options):
        yield lambda amount=1.0, note="": seen.append((amount, note, total))

    monkeypatch.setattr(room, "progress", bar)
    room.PCLF(n_restarts=1, max_iter=5).fit(data)
    begun = next(i for i, (_, note, _) in enumerate(seen) if note == "lists")
    assert sum(amount for amount, _, _ in seen[:begun]) < 0.9 * seen[0][2]
    assert sum(amount for amount, _, _ in seen) <= seen[0][2]


def test_explanations_are_of_the_prediction(mixture):
    why = mixture.explain("books", "b1", "books 2")
    assert why.prediction == pytest.approx(mixture.predict("books", "b1", "books 2")[0], rel=1e-5)
    assert "books 2" in str(why)
    assert sum(part.weight for part in why.parts) == pytest.approx(1)


def test_an_explanation_of_the_published_model_adds_up_to_its_prediction(model):
    why = model.explain("books", "b1", "books 2")
    assert sum(part.weight * part.prediction for part in why.parts) == pytest.approx(why.prediction, rel=1e-4)


def test_clusters_have_shares_and_typical_members(mixture):
    by_view: dict[tuple[str, ...], float] = {}
    for cluster in mixture.clusters_:
        key = cluster.view, *cluster.members                 # FMM's user clusters are each of one domain
        by_view[key] = by_view.get(key, 0) + cluster.share
        for members in cluster.members.values():
            weights = [w for _, _, w in members]
            assert all(0 <= w <= 1 + 1e-6 for w in weights)
    assert all(total == pytest.approx(1, rel=1e-3) for total in by_view.values())


def test_the_share_of_a_user_cluster_is_that_of_the_ratings(model, data):
    counts = np.concatenate([np.bincount(d.user, minlength=d.n_users) for d in data.domains.values()])
    shares = [cluster.share for cluster in model.clusters_ if cluster.view == "users"]
    np.testing.assert_allclose(shares, counts @ model.members_[0].users / counts.sum(), rtol=1e-5)


def test_shared_users_are_one_person_with_one_membership():
    arrays = {name: ([1, 1, 2, 2, 3], ["p", "q", "p", "q", "p"], [1, 5, 5, 1, 3]) for name in ("a", "b")}
    data = pclf.Ratings.from_arrays(arrays, scale=(1, 5), shared_users=True)
    model = pclf.PCLF(2, 2, 2).fit(data)
    assert model.members_[0].users.shape[0] == 3
    separate = pclf.PCLF(2, 2, 2).fit(pclf.Ratings.from_arrays(arrays, scale=(1, 5)))
    assert separate.members_[0].users.shape[0] == 6


def test_own_scales_come_back():
    """1-5 beside 1-10: predictions of each on its own scale."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(300, 200, replace=False)
    five = rng.integers(1, 6, 200)
    data = pclf.Ratings.from_arrays({"a": (pairs // 15, pairs % 15, five), "b": (pairs // 15, pairs % 15, 2 * five)},
                                    scale={"a": (1, 5), "b": (1, 10)})
    assert data.n_levels == 5
    model = pclf.PCLF(3, 3, 3).fit(data)
    assert model.predict_codes("a", pairs // 15, pairs % 15).max() <= 5
    assert model.predict_codes("b", pairs // 15, pairs % 15).max() > 5


def test_members_normalise_what_a_run_leaves(data):
    layout = pclf.PCLF(3, 2, 2)._layout(data)
    problem = Problem.of(data, layout)
    fit = run(pclf.engines.create("cpu"), problem, random_posteriors(problem, np.random.default_rng(0)),
              schedule=Schedule(max_iter=5), priors=Priors(1, 1, 1))
    member = Member.of(fit, problem)
    for rows in (member.users, *member.items):
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-4)


def test_ctrl_c_in_a_fit_returns_the_model_so_far_with_a_warning(data):
    def interrupt(step):
        if step.iteration == 6:
            raise KeyboardInterrupt

    model = pclf.PCLF(**SMALL["PCLF"], common_weight=0.35, factor_weight=1.0)
    with pytest.warns(UserWarning, match="interrupted after 6 of 35 iterations; the model so far is kept"):
        model.fit(data, callbacks=[interrupt])
    assert model.interrupted_
    assert np.isfinite(model.predict("books", "b1", "books 2")).all()


def test_ctrl_c_in_the_factors_keeps_the_clusters(data, monkeypatch):
    whole = pclf.PCLF(**SMALL["PCLF"]).fit(data)
    real, calls = factor_model.fit_apart, []

    def fit(*args, **options):
        calls.append(args)
        if len(calls) == 2:                                  # after the one of the trial: nothing ties these domains
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(factor_model, "fit_apart", fit)
    with pytest.warns(UserWarning, match="interrupted before the end; the model has the clusters, and no factors"):
        model = pclf.PCLF(**SMALL["PCLF"]).fit(data)
    assert model.interrupted_
    assert not model.factors_
    assert [m.users.tolist() for m in model.members_] == [m.users.tolist() for m in whole.members_]
    assert np.isfinite(model.predict("books", "b1", "books 2")).all()


def test_ctrl_c_in_a_trial_leaves_the_model_as_it_was(data):
    def interrupt(step):
        raise KeyboardInterrupt

    model = pclf.PCLF(**SMALL["PCLF"])
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, callbacks=[interrupt])
    assert not hasattr(model, "data_")


def test_ctrl_c_between_restarts_keeps_the_finished_ones(data, monkeypatch):
    real, calls = cpu.CpuEngine.place, []

    def place(self, problem):
        calls.append(problem)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, problem)

    monkeypatch.setattr(cpu.CpuEngine, "place", place)
    model = pclf.FMM(**SMALL["FMM"], n_restarts=4)
    with pytest.warns(UserWarning, match="interrupted before the end"):
        model.fit(data, engine="cpu")
    assert (model.interrupted_, len(model.members_)) == (True, 2)


@pytest.mark.parametrize("kind", MIXTURES)
def test_a_trial_may_draw_nobody_of_a_domain(kind, monkeypatch):
    rng = np.random.default_rng(0)
    large = np.unique(rng.integers(0, 300 * 40, 3000))
    data = pclf.Ratings.from_arrays({"large": (large // 40, large % 40, large % 5 + 1), "small": ([1], [1], [3])},
                                    scale=(1, 5))
    monkeypatch.setattr(weights, "some_users", lambda data, rng: data.select({"small": np.zeros(1, bool)}).compact())
    model = getattr(pclf, kind)(**SMALL[kind], n_restarts=1).fit(data, engine="cpu")
    assert model.predict("small", 1, 1) == pytest.approx(3, abs=1.5)


def test_a_trial_has_as_many_ratings_of_a_small_domain_as_of_a_large_one(monkeypatch):
    rng = np.random.default_rng(0)
    pairs = {"large": np.unique(rng.integers(0, 900 * 40, 20_000)), "small": np.unique(rng.integers(0, 100 * 40, 900))}
    data = pclf.Ratings.from_arrays({name: (p // 40, p % 40, p % 5 + 1) for name, p in pairs.items()})
    monkeypatch.setattr(weights, "TRIAL", 1000)
    some = weights.some_users(data, rng)
    assert len(some["small"]) == len(data["small"])
    assert 800 < len(some["large"]) < 1200


def test_factors_that_do_not_fit_are_left_out_in_time(data, monkeypatch):
    monkeypatch.setattr(cpu, "free_memory", lambda: 2_000_000)
    monkeypatch.setattr(cpu.CpuEngine, "place", lambda *args: pytest.fail("EM began"))
    with pytest.raises(EngineError, match=r"a model with factors of these [\d,]+ ratings needs .* factor_weight=0"):
        pclf.PCLF(factor_weight=1.0, n_factors=400).fit(data, engine="cpu")
    monkeypatch.undo()
    monkeypatch.setattr(cpu_rows.Cores, "check_room", lambda *args: cpu.check_room(10**18, "this", "Do without"))
    with pytest.warns(UserWarning, match=r"no factors of films, books: this needs .* A GPU can do more"):
        assert not pclf.PCLF(**SMALL["PCLF"], n_restarts=1).fit(data, engine="cpu").factors_


def test_the_factors_do_not_depend_on_a_trial(data):
    one, other = (pclf.PCLF(**SMALL["PCLF"], n_restarts=1, max_iter=3, common_weight=0.0, factor_weight=1.0,
                            early_stopping=trial)
                  .fit(data, random_state=3) for trial in (False, True))
    a, b = (model.factors_["films"].domains["films"].items for model in (one, other))
    assert (a == b).all()


def test_a_list_is_as_long_as_the_catalogue_at_most(mixture):
    assert len(mixture.recommend("books", "b1", 10**9, exclude_seen=False)) == 30


def test_nothing_asked_is_nothing_answered(mixture):
    assert mixture.predict("films", "f1", []).shape == (0,)
    assert mixture.predict_proba("films", "f1", []).shape == (0, 5)
    assert mixture.predict("films", [], []).shape == (0,)


def test_lists_of_ids_of_two_types_become_text():
    data = pclf.Ratings.from_arrays({"a": ([1, "x", 2, 1], ["p", 7, 7, 8], [1, 2, 3, 4])})
    table = pclf.FMM(2, 2, n_restarts=1, max_iter=2).fit(data).recommend("a", n=2, exclude_seen=False).to_arrow()
    assert set(table["user_id"].to_pylist()) == {"1", "x", "2"}
    assert table["rank"].to_pylist() == [1, 2] * 3


def test_a_guest_comes_with_domains(mixture):
    guest = mixture.fold_in({"films": {"films 1": 5}})
    with pytest.raises(UnknownNameError, match="unknown domain 'flims': did you mean 'films'"):
        mixture.recommend("books", guest, user_domain="flims")
    with pytest.raises(ValueError, match=r"must be given as \{domain: \{item: rating\}\}; got 'x'"):
        mixture.fold_in(["x"])
    with pytest.raises(ValueError, match=r"'films' must be given as \{item: rating\}; got None"):
        mixture.fold_in({"films": None})


def test_a_trial_with_some_of_the_people_finds_the_weights(data, monkeypatch):
    seen = []
    monkeypatch.setattr(weights, "TRIAL", 400)
    real = weights.learn
    monkeypatch.setattr(weights, "learn", lambda user, *rest: seen.append(len(np.unique(user))) or real(user, *rest))
    model = pclf.PCLF(**SMALL["PCLF"], n_restarts=1).fit(data)
    assert 10 < seen[0] < 30 < model.data_["films"].n_users
    assert set(model.factor_weights_) == {"films", "books"}
    assert np.isfinite(model.predict("films", "f1", "films 2")).all()


@pytest.mark.parametrize("combine", ["average", "best"])
def test_ctrl_c_in_a_later_restart_keeps_the_whole_ones_alone(data, combine):
    def interrupt(step):
        steps.append(step)
        if len(steps) == 14:                                 # the second iteration of the second restart
            raise KeyboardInterrupt

    settings = {**SMALL["FMM"], "max_iter": 12, "tol": 0.0, "combine": combine}
    model, steps = pclf.FMM(**settings, n_restarts=2), []
    with pytest.warns(UserWarning, match="interrupted after 2 of 12"):
        model.fit(data, callbacks=[interrupt], random_state=0)
    assert (model.interrupted_, len(model.members_), model.n_iter_) == (True, 1, 12)


@pytest.mark.parametrize("settings", [{}, {"early_stopping": True}, {"combine": "best"}])
def test_ctrl_c_before_the_first_iteration_is_just_that(data, settings, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cpu.CpuEngine, "estep", interrupt)
    model = pclf.PCLF(**SMALL["PCLF"], **settings)
    with pytest.raises(KeyboardInterrupt):
        model.fit(data)
    assert not hasattr(model, "data_")


def test_early_stopping_without_anything_to_hold_out_goes_on_to_the_end():
    once = pclf.Ratings.from_arrays({"a": (range(40), np.arange(40) % 7, np.arange(40) % 5 + 1)})
    assert pclf.FMM(2, 2, early_stopping=True, max_iter=12, tol=0.0, n_restarts=1).fit(once).n_iter_ == 12


def test_a_model_without_factors_learns_its_weights_without_one(data, monkeypatch):
    monkeypatch.setattr(cpu_rows.Cores, "most", 1000)                          # fewer than there are
    with pytest.warns(UserWarning, match="no factors of films, books: there are more than 1,000 ratings"):
        found = pclf.PCLF(**SMALL["PCLF"], n_restarts=1).fit(data)
    plain = pclf.PCLF(**SMALL["PCLF"], n_restarts=1, factor_weight=0.0).fit(data)
    assert not found.factors_
    assert found.weights_ == plain.weights_


@pytest.mark.parametrize("name", ["common", "users", "factors"])
def test_a_domain_is_not_called_like_a_part_of_the_model(data, name):
    with pytest.raises(ValueError, match=f"must not be called '{name}'"):
        pclf.PCLF().fit(replace(data, domains={name: replace(data["books"], name=name)}))


def test_a_guest_or_new_item_of_another_fit_is_refused(mixture, data, tmp_path):
    guest = mixture.fold_in({"books": {"books 1": 5}})
    item = mixture.fold_in_item("books", {"b1": 5})
    mixture.save(tmp_path / "model")
    for same in (mixture, pclf.load(tmp_path / "model"), pickle.loads(pickle.dumps(mixture))):
        assert same.recommend("books", guest, n=1)
        assert np.isfinite(same.predict("books", "b1", item)).all()
    other = clone(mixture).fit(data, random_state=4)
    with pytest.raises(ValueError, match="this guest was placed by another fit"):
        other.recommend("books", guest)
    with pytest.raises(ValueError, match="this new item was placed by another fit"):
        other.predict("books", "b1", item)
    with pytest.raises(ValueError, match="needs at least one rating"):
        mixture.fold_in_item("books", {})


def test_lists_of_guests_become_a_table(mixture):
    guest = mixture.fold_in({"books": {"books 1": 5}})
    table = mixture.recommend("books", ["b1", guest], n=1).to_arrow()
    assert table["user_id"].to_pylist() == ["b1", None]


def test_a_pickled_model_does_not_ask_for_the_gpu_it_was_fitted_on(mixture):
    there = clone(mixture)
    there.__dict__.update(mixture.__dict__, _device="cuda")
    assert pickle.loads(pickle.dumps(there))._device is None


def test_early_stopping_ends_all_fits_at_the_best_held_out_iteration(data):
    """Plain maximum likelihood with far too many clusters over-fits these few ratings after a while."""
    steps = []
    model = pclf.FMM.paper(n_user_clusters=15, n_item_clusters=15, max_iter=100, early_stopping=True)
    model.fit(data, callbacks=[steps.append], random_state=0)
    trial = steps[: -model.n_iter_]
    assert all(step.held_out is not None for step in trial)
    assert model.n_iter_ == max(trial, key=lambda step: step.held_out).iteration < 100
    assert all(step.held_out is None for step in model.trace_)


def test_a_guest_of_models_fitted_apart_is_placed_in_each_domain_by_its_own_ratings(data):
    model = pclf.FMM(4, 4, n_restarts=1).fit(data)
    film, book = {"films 1": 5, "films 2": 1}, {"books 1": 4, "books 3": 2}
    both, reader, nobody = (model.fold_in(given) for given in ({"films": film, "books": book}, {"books": book}, {}))
    items = list(data["books"].items.ids)
    np.testing.assert_allclose(model.predict("books", both, items), model.predict("books", reader, items))
    np.testing.assert_allclose(model.predict("books", model.fold_in({"films": film}), items),
                               model.predict("books", nobody, items))


def test_a_guest_of_a_fit_with_other_factors_is_refused(data):
    plain, own = (pclf.PCLF(4, 3, 3, factor_weight=w, n_restarts=1, max_iter=5).fit(data) for w in (0.0, 1.0))
    with pytest.raises(ValueError, match="placed by another fit"):
        own.predict("books", plain.fold_in({"films": {"films 1": 5}}), "books 1")


@pytest.mark.parametrize("shared_users", [False, True])
def test_shared_items_that_were_rated_elsewhere_are_not_recommended(shared_users):
    rng = np.random.default_rng(0)
    arrays = {name: (np.repeat(np.arange(12), 6), np.concatenate([rng.permutation(20)[:6] for _ in range(12)]),
                     rng.integers(1, 6, 72)) for name in ("shop", "site")}
    data = pclf.Ratings.from_arrays(arrays, scale=(1, 5), shared_users=shared_users, shared_items=True)
    model = pclf.PCLF(3, 2, 2, n_restarts=1, max_iter=5).fit(data)
    rated = {name: set(arrays[name][1][arrays[name][0] == 3].tolist()) for name in arrays}
    guest = model.fold_in({"shop": dict.fromkeys(rated["shop"], 4)})
    offered = {r.item for r in model.recommend("site", guest, n=20)}
    assert offered == set(data["site"].items.ids) - rated["shop"]
    offered = {r.item for r in model.recommend("site", 3, n=20, user_domain="shop")}
    mine = rated["shop"] | rated["site"] if shared_users else rated["shop"]
    assert offered == set(data["site"].items.ids) - mine
    everybody = model.recommend("site", n=20)
    mine = rated["shop"] | rated["site"] if shared_users else rated["site"]
    assert {r.item for r in everybody[everybody.users.index(3)]} == set(data["site"].items.ids) - mine


def test_the_parts_of_an_explanation_add_up_over_restarts(data):
    model = pclf.FMM(4, 4, n_restarts=3).fit(data)
    for user in ("f1", "f2", "f3"):
        why = model.explain("films", user, "films 1")
        assert why.parts[0].prediction == pytest.approx(why.prediction)


def test_one_prediction_is_explained_at_a_time(model):
    with pytest.raises(ValueError, match="one prediction is explained at a time"):
        model.explain("films", ["f1", "f2"], "films 1")


def test_weights_set_by_hand_are_told(data):
    model = pclf.PCLF(4, 3, 3, n_restarts=1, max_iter=5).fit(data)
    model.set_common_weight("books", 0.7)
    assert str(model.transfer_["books"]) == "W1 of books is 0.7, as set."


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_chance_hardly_ever_gets_a_weight_from_few_users(n):
    rng = np.random.default_rng(0)
    fooled = sum(weights.surely_best({0: np.zeros(n), 1: rng.normal(size=n)}) for _ in range(2000))
    assert fooled <= 0.04 * 2000


def test_factors_that_are_wrong_are_not_heard():
    rng, n = np.random.default_rng(0), 400
    level = rng.integers(0, 5, n).astype(np.uint8)
    right, wrong = np.full((n, 5), 0.1), np.full((n, 5), 0.2375)
    right[np.arange(n), level], wrong[np.arange(n), level] = 0.6, 0.05
    values = 1.0, 2.0, 3.0, 4.0, 5.0
    _, own, _ = weights.learn(np.arange(n) % 100, level, values, None, right, wrong, (0.0,), weights.FACTORS)
    assert own == 0.0


def test_lists_of_many_users_are_a_sequence(model):
    lists = model.recommend("books", ["b1", "b2", "f1"], n=2)
    assert [len(found) for found in lists] == [2, 2, 2]
    assert dict(lists.items())["b2"] == lists[1] == list(lists)[1]
    with pytest.raises(TypeError, match="slice"):
        lists[0:2]


def test_everybody_of_another_domain_gets_lists(model, data):
    lists = model.recommend("books", n=2, user_domain="films")
    assert list(lists.users) == list(data["films"].users.ids)
    assert lists[3] == model.recommend("books", lists.users[3], n=2)


def test_ids_come_as_arrow_columns_and_ranges(model, data):
    pa = pytest.importorskip("pyarrow")
    table = model.recommend("books", n=1).to_arrow()
    expected = model.predict("books", table["user_id"].to_pylist(), table["item_id"].to_pylist())
    np.testing.assert_array_equal(model.predict("books", table["user_id"], table["item_id"]), expected)
    some = model.recommend("books", "b1", candidates=pa.array(["books 1", "books 2"]), exclude_seen=False,
                           exclude=pa.array(["books 2", "?"]))
    assert [r.item for r in some] == ["books 1"]
    numbered = pclf.Bias().fit({"a": {"user": [1, 2, 3], "item": [7, 8, 8], "rating": [1, 2, 3]}})
    assert numbered.predict("a", range(1, 4), 7).shape == (3,)


@pytest.mark.parametrize("name", ["Bias", "PCLF"])
def test_a_set_cannot_be_paired(data, name):
    fitted = models.create(name, **SMALL.get(name, {})).fit(data)
    with pytest.raises(TypeError, match="users must come in an order to be paired; got a set"):
        fitted.predict("books", {"b1", "b2"}, ["books 1", "books 2"])


def test_new_items_may_be_in_a_list_with_others(model):
    new = model.fold_in_item("books", {"b1": 5, "b2": 1})
    both = model.predict("books", "b3", [new, "books 1", new])
    np.testing.assert_allclose(both, [model.predict("books", "b3", item)[0] for item in (new, "books 1", new)])


def test_ids_beyond_64_bits_are_written_as_text():
    big = 2**64 + 1
    model = pclf.Bias().fit(pclf.Ratings.from_arrays({"a": ([big, 2], [big, 3], [1, 2])}, scale=(1, 5)))
    assert model.recommend("a").to_arrow()["user_id"].to_pylist() == [str(big), "2"]


def test_a_changed_setting_does_not_spoil_the_file(data, tmp_path):
    model = pclf.PCLF(4, 3, 3, n_restarts=1, max_iter=5).fit(data)
    before = model.predict("books", "b1", "books 1")
    model.set_params(n_specific_clusters=9).save(tmp_path / "m")
    again = pclf.load(tmp_path / "m")
    assert again.predict("books", "b1", "books 1") == before
    assert [c.view for c in again.clusters_].count("books") == 3


@pytest.mark.parametrize(("settings", "message"), [
    ({"n_specific_clusters": 2.7}, "must be a whole number; got 2.7"),
    ({"common_weight": None}, "common_weight must be 'auto' or a number between 0 and 1; got None"),
    ({"user_prior": None}, r"user_prior must be 0 \(off\) or positive; got None"),
])
def test_settings_of_a_wrong_type_are_refused(data, settings, message):
    with pytest.raises(ValueError, match=message):
        pclf.PCLF(**settings).fit(data)


@pytest.mark.parametrize("name", MIXTURES)
def test_strangers_are_scored_alike_alone_and_together(data, name):
    model = models.create(name, **SMALL[name], n_restarts=1, max_iter=5).fit(data)
    users = list(data["films"].users.ids)[:5]
    together = model.predict("books", users, "books 1", user_domain="films")
    np.testing.assert_allclose(together, [model.predict("books", user, "books 1")[0] for user in users], rtol=1e-6)


def test_a_mixture_that_is_not_heard_changes_nothing(data):
    model = pclf.PCLF(4, 3, 3, factor_weight=1.0, n_restarts=1, max_iter=5).fit(data)
    users = model._users(find(data, "books", ["b1", "b2"], None))
    items = model._items("books", ["books 1", "books 2"])
    own = softmax(model.factors_["books"].domains["books"].logits(users.rows, items.rows).astype(float))
    mixture = model.mixture_.distribution("books", users.memberships, items.memberships)
    np.testing.assert_allclose(model._distribution("books", users, items), weights.pool(own, mixture, 1.0))


@pytest.mark.parametrize("name", ["NMF", "FMM"])
def test_a_generator_of_the_older_kind_is_a_seed(data, name):
    one, two = (models.create(name, **SMALL.get(name, {})).fit(data, random_state=np.random.RandomState(5))
                .predict("films", "f1", "films 1") for _ in range(2))
    assert one == two


def test_a_guest_of_whom_nothing_is_known_is_offered_what_most_people_pick(data):
    model = pclf.PCLF(**SMALL["PCLF"], n_restarts=1, max_iter=3).fit(data)
    anybody = model.fold_in({})
    found = model.recommend("books", anybody, n=5, rank_by="chosen")
    often = np.argsort(-np.bincount(data["books"].item, minlength=data["books"].n_items), kind="stable")[:30]
    assert {book.item for book in found} <= set(data["books"].items.decode(often))
    both = model.recommend("books", [anybody, data["films"].users.ids[0]], n=5)
    assert [book.item for book in both[0]] == [book.item for book in model.recommend("books", anybody, n=5)]
