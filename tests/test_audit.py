"""Audit: pooling that must help and pooling that cannot, the statistics by hand, sentences word for word."""

import json

import numpy as np
import pytest
from scipy import stats

from pclf.data.ratings import Ratings
from pclf.errors import DataError
from pclf.evaluate.audit import audit
from pclf.evaluate.merged import merged
from pclf.evaluate.significance import effect
from pclf.evaluate.trial import Arm, Fit, Trial, _lists, _popular, ranks, twin
from pclf.evaluate.verdicts import verdict
from pclf.models.bias import Bias
from pclf.models.fmm import FMM
from pclf.models.pclf import PCLF
from pclf.models.rmgm import RMGM
from pclf.report import plots

KEYS = {"part", "target", "size", "given", "model", "sources", "shuffled", "bridges", "measure", "mean", "against",
        "effect_percent", "low", "high", "p", "p_holm", "p_wilcoxon", "n_users"}
CODEBOOK = np.array([[5, 4, 2, 1], [2, 5, 5, 3], [3, 1, 4, 5], [1, 2, 1, 4]])   # tastes x kinds of item
SMALL = PCLF(8, 6, 2, factor_weight=0.0, n_restarts=3, max_iter=50, lists=False)
QUICK = PCLF(3, 2, 2, factor_weight=0.0, n_restarts=1, max_iter=10, lists=False)
FACTORS = PCLF(2, 2, 2, factor_weight=1.0, n_factors=4, n_restarts=1, max_iter=2)


def catalogue(rng, n_users, n_items=40, n_rated=20):
    """Users of four tastes and items of four kinds, rated by the codebook with some noise."""
    taste, kind = rng.integers(4, size=n_users), rng.integers(4, size=n_items)
    user = np.repeat(np.arange(n_users), n_rated)
    item = np.concatenate([rng.permutation(n_items)[:n_rated] for _ in range(n_users)])
    rating = np.rint(CODEBOOK[taste[user], kind[item]] + rng.normal(0, 0.5, len(user))).clip(1, 5)
    return user, item, rating


def two_domains(related=True, seed=0):
    """Many films, rated as the codebook says or at random; 14 people's books, rated as it says."""
    rng = np.random.default_rng(seed)
    user, item, rating = catalogue(rng, 120)
    films = user, item, rating if related else rng.permutation(rating)
    return Ratings.from_arrays({"films": films, "books": catalogue(rng, 14)}, scale=(1, 5))


def three_domains():
    rng = np.random.default_rng(0)
    return Ratings.from_arrays({name: catalogue(rng, 12, 15, 8) for name in ("a", "b", "c")}, scale=(1, 5))


def events(seed=0):
    """What the same 60 people of four tastes did: mostly things of one kind, many films and few books."""
    rng = np.random.default_rng(seed)
    taste, logs = rng.integers(4, size=60), {}
    for name, n_items, often in (("films", 80, 0.6), ("books", 40, 0.4)):
        kind = rng.integers(4, size=n_items)
        logs[name] = np.nonzero(rng.random((60, n_items)) < np.where(taste[:, None] == kind, often, 0.03))
    return Ratings.from_events(logs, shared_users=True)


def row(effect_percent=0.0, low=None, high=None, p_holm=0.001, *, target="books", sources=("music",), size=200,
        part="pooling", against="alone", shuffled=False, bridges=()):
    if low is None:
        low, high = effect_percent - 0.9, effect_percent + 0.9
    return {"part": part, "target": target, "size": size, "model": "PCLF", "sources": list(sources),
            "shuffled": shuffled, "bridges": list(bridges), "against": against, "effect_percent": effect_percent,
            "low": low, "high": high, "p_holm": p_holm}


@pytest.fixture(scope="module")
def related():
    return audit(two_domains(), given=6, sizes=(8, None), model=SMALL)


@pytest.fixture(scope="module")
def unrelated():
    return audit(two_domains(related=False), given=6, sizes=(8, None), model=SMALL)


def test_pooling_lowers_the_error_of_a_tiny_domain_with_the_same_codebook(related):
    assert related.verdicts[1].startswith("Pooling with films lowers the error of books by ")
    assert "shuffled" not in related.verdicts[1]
    assert related.affinity["books"]["films"]["high"] < -5      # percent


def test_pooling_with_ratings_at_random_is_never_said_to_lower_the_error(unrelated):
    assert not any("lowers" in sentence or "would lower" in sentence for sentence in unrelated.verdicts)


def test_a_gain_from_ratings_at_random_is_not_called_transfer():
    """Many clusters over-fit eleven people, and any other ratings hold them back: the control does, too."""
    model = PCLF(factor_weight=0.0, n_restarts=2, max_iter=25, lists=False)
    sentence = audit(two_domains(related=False, seed=1), given=6, sizes=(), model=model).verdicts[1]
    assert "lowers" not in sentence or "but shuffled data of films help as much" in sentence


def test_a_control_with_shuffled_ratings_loses_what_the_codebook_gave(related):
    against = [r for r in related.rows if r["target"] == "books" and r["against"] == "shuffled"
               and r["part"] == "pooling"]
    assert len(against) == 1
    assert against[0]["effect_percent"] < -5
    assert against[0]["p_holm"] < 0.05


def test_the_same_seed_gives_the_same_audit_in_one_process_or_two():
    one, two, other = (audit(three_domains(), given=4, sizes=(), repeats=1, model=QUICK, seed=seed, n_jobs=n_jobs)
                       for seed, n_jobs in ((0, 1), (0, 2), (1, 1)))
    assert one.to_dict() == two.to_dict()
    assert one.rows[0]["mean"] != other.rows[0]["mean"]


def test_every_row_has_every_key_and_everything_is_json(related):
    assert all(set(r) == KEYS for r in related.rows)
    assert set(related.to_arrow().column_names) == KEYS
    assert related.to_arrow().num_rows == len(related.rows)
    assert json.loads(json.dumps(related.to_dict(), allow_nan=False))["verdicts"] == related.verdicts


def test_every_test_user_counts_once_and_is_tested_once_in_five_repeats(related):
    sizes = {(r["target"], r["n_users"]) for r in related.rows if r["part"] == "pooling"}
    assert sizes == {("films", 120), ("books", 14)}


def test_the_page_says_the_verdicts_first_and_shows_every_model(related):
    page = str(related)
    assert page.index(related.verdicts[0]) < page.index(related.verdicts[1]) < page.index("pooled with")
    assert all(name in page for name in ("alone", "merged", "PCLF", "Bias", "films, shuffled", "Affinity", "Learning"))


def test_html_shows_domain_names_as_text():
    data = Ratings.from_arrays({"<b>": catalogue(np.random.default_rng(0), 8, 12, 8),
                                "c": catalogue(np.random.default_rng(1), 8, 12, 8)}, scale=(1, 5))
    html = audit(data, given=3, repeats=1, sizes=(), model=QUICK)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_plots_take_what_the_audit_offers(related):
    curve = plots.learning_curve(related.learning_curve["books"], domain="books")
    assert {line.get_label() for line in curve.lines} >= {"alone", "Bias", "PCLF"}
    matrix = plots.affinity(related.gains, significant=related.significant)
    title = " ".join(matrix.get_title(loc="left").split())
    assert title.startswith("Pooling changes books with films most: its error falls by")


def test_the_learning_curve_has_the_sizes_that_a_domain_has(related):
    sizes = {target: [point[0] for point in curves["PCLF"]] for target, curves in related.learning_curve.items()}
    assert sizes == {"films": [8, 96], "books": [8, 11]}
    for size, error, low, high in related.learning_curve["books"]["alone"]:
        assert error == low == high, size


def test_fits_are_shared_and_leaving_one_of_three_out_is_pooling_with_the_other(monkeypatch):
    fits = []
    call = Trial.__call__
    monkeypatch.setattr(Trial, "__call__", lambda self, fit: fits.append(fit) or call(self, fit))
    found = audit(three_domains(), given=4, repeats=2, sizes=(None,), model=QUICK)
    assert len(fits) == len(set(fits))
    arms = {fit.arm for fit in fits if fit.target == "a" and not (fit.arm.shuffled and len(fit.arm.sources) == 1)}
    assert arms == {Arm("alone"), Arm("Bias"), Arm("merged", ("b", "c")), Arm("PCLF", ("b", "c")),
                    Arm("PCLF", ("b", "c"), shuffled=True), Arm("PCLF", ("b",)), Arm("PCLF", ("c",))}
    left_out = [r for r in found.rows if r["part"] == "left out"]
    assert [(r["target"], *r["sources"]) for r in left_out] == [("a", "c"), ("a", "b"), ("b", "c"), ("b", "a"),
                                                              ("c", "b"), ("c", "a")]
    assert set(found.affinity["a"]) == {"b", "c"}


def test_an_rmgm_can_be_audited_with_its_own_number_of_clusters():
    model = RMGM(4, 5, n_restarts=1, max_iter=10)
    found = audit(two_domains(), given=6, repeats=1, sizes=(), model=model)
    assert found.recipe["model"] == "RMGM"
    assert {r["model"] for r in found.rows} == {"alone", "merged", "Bias", "RMGM"}
    alone = twin(model, "books")
    assert isinstance(alone, FMM)
    assert (alone.n_user_clusters, alone.n_item_clusters, alone.max_iter) == (4, 5, 10)


def test_the_twin_is_the_same_model_with_the_settings_of_one_domain():
    model = PCLF(7, 3, {"films": 4, "books": 5}, common_weight={"films": 0.2, "books": 0.3}, user_prior=2.5,
                 factor_weight={"films": 0.0, "books": 0.5}, n_restarts=2, hyper={"sweeps": 3})
    alone = twin(model, "books")
    assert isinstance(alone, PCLF)
    of_books = {"n_specific_clusters": {"books": 5}, "common_weight": {"books": 0.3}, "factor_weight": {"books": 0.5}}
    assert alone.get_params() == model.get_params() | of_books


def trial(data, given=6):
    return Trial(data, SMALL, given, 0, {})


def test_test_users_keep_the_given_ratings_and_only_so_many_others_are_learnt_from():
    t, arm = trial(two_domains()), Arm("alone")
    tested = t._tested("books", 0)
    user = t.data["books"].user
    kept = {size: t._kept(Fit("books", size, 6, 0, arm)) for size in (3, 11)}
    for size, mask in kept.items():
        counts = np.bincount(user[mask], minlength=14)
        assert (counts[tested] == 6).all()
        others = np.delete(counts, tested)
        assert sorted(others) == [0] * (11 - size) + [20] * size
    assert not (kept[3] & ~kept[11]).any()


def test_five_repeats_test_everybody_once_and_the_next_five_in_another_order():
    t = trial(two_domains())
    turns = [[t._tested("books", 5 * turn + part).tolist() for part in range(5)] for turn in range(2)]
    for parts in turns:
        assert sorted(user for part in parts for user in part) == list(range(14))
    assert turns[0] != turns[1]


def test_shuffling_moves_the_ratings_of_the_sources_and_nothing_else():
    t = trial(two_domains())
    pool = t._pool(Fit("books", 11, 6, 0, Arm("PCLF", ("films",), shuffled=True)))
    films, before = pool["films"], t.data["films"]
    assert pool["books"] is t.data["books"]
    np.testing.assert_array_equal(films.user, before.user)
    np.testing.assert_array_equal(films.item, before.item)
    np.testing.assert_array_equal(np.bincount(films.value), np.bincount(before.value))
    assert (films.value != before.value).mean() > 0.5


def test_the_effect_is_the_paired_t_test_where_the_reference_is_constant():
    rng = np.random.default_rng(0)
    base, own, user = np.full(30, 0.5), 0.48 + 0.05 * rng.normal(size=30), np.arange(30)
    found = effect(own, base, user, np.zeros(30))
    expected = stats.ttest_rel(own, base)
    assert found.percent == pytest.approx(100 * (own.mean() / 0.5 - 1))
    assert found.p == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((200 * low, 200 * high))
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(own - base).pvalue)


def test_a_model_that_is_a_tenth_better_for_everybody_is_so_without_doubt():
    base = np.random.default_rng(0).random(20) + 0.5
    found = effect(0.9 * base, base, np.arange(20), np.arange(20) % 4)
    assert (found.percent, found.low, found.high) == pytest.approx((-10, -10, -10))
    assert found.p < 1e-6


def test_a_user_who_is_tested_twice_counts_once():
    rng = np.random.default_rng(0)
    own, base, user = rng.random(10), rng.random(10), np.arange(10)
    once = effect(own, base, user, np.zeros(10))
    again = effect(np.tile(own, 2), np.tile(base, 2), np.tile(user, 2), np.repeat([0, 1], 10))
    assert again == pytest.approx(once)


def test_luck_of_a_whole_repeat_widens_the_interval():
    """The same users and mean, but one fit is lucky for all its users and another unlucky."""
    rng = np.random.default_rng(0)
    noise, base, repeat = 0.02 * rng.normal(size=100), np.full(100, 1.0), np.arange(100) % 5
    own = 1 + noise - np.array([noise[repeat == r].mean() for r in range(5)])[repeat]
    lucky = own + np.array([-0.05, 0.05, 0, -0.05, 0.05])[repeat]
    fair, wide = effect(own, base, np.arange(100), repeat), effect(lucky, base, np.arange(100), repeat)
    independent = effect(lucky, base, np.arange(100), np.zeros(100))
    assert wide.high - wide.low > 1.5 * (independent.high - independent.low)
    assert independent.high - independent.low > fair.high - fair.low


@pytest.mark.parametrize(("rows", "sentence"), [
    ([row(-1.8, -2.6, -0.9)],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6)."),
    ([row(1.8, 0.9, 2.6)],
     "Pooling with music raises the error of books by 1.8 % (95 % interval 0.9 to 2.6)."),
    ([row(0.2, -0.3, 0.7, 0.4)],
     "Pooling with music makes no difference to the error of books."),
    ([row(-0.1, -0.2, -0.05)],
     "Pooling with music makes no difference to the error of books."),
    ([row(-0.5, -3.1, 2.0, 0.6)],
     "Pooling with music has no effect on the error of books that could be told from chance (95 % interval 3.1 % "
     "lower to 2.0 % higher)."),
    ([row(-1.8, -2.6, -0.9), row(0.1, -0.2, 0.4, 0.9, sources=("films",)),
      row(-2.0, -3.0, -1.0, sources=("music", "films"))],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6); with films it makes no "
     "difference; with both together it lowers it by 2.0 % (95 % interval 1.0 to 3.0)."),
    ([row(2.0, 1.0, 3.0, sources=("games",)), row(-1.8, -2.6, -0.9), row(-0.9, -2.0, -0.1, 0.2, sources=("tv",)),
      row(0, -0.1, 0.1, 1, sources=("films",)), row(0, -0.1, 0.1, 1, sources=("art",)),
      row(0.3, -0.5, 0.9, 1, sources=("games", "music", "tv", "films", "art"))],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6); with games it raises it by "
     "2.0 % (95 % interval 1.0 to 3.0); with tv no effect can be told from chance (95 % interval 0.1 to 2.0 % "
     "lower); with films or art it makes no difference; with all 5 together it makes no difference."),
    ([row(0, -0.1, 0.1, 1, sources=("music", "films")), row(0.1, -0.3, 0.5, 1), row(0, 0, 0, 1, sources=("films",))],
     "Pooling with music, films or both together makes no difference to the error of books."),
    ([row(-1.8, -2.6, -0.9), row(-0.1, -0.9, 0.7, 0.8, against="shuffled"),
      row(-1.7, -2.5, -0.8, shuffled=True)],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6), but shuffled data of music "
     "help as much, so it is not knowledge about tastes that is transferred."),
    ([row(-1.8, -2.6, -0.9), row(-1.5, -3.1, 0.1, 0.07, against="shuffled")],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6), though shuffled data of "
     "music are not clearly worse."),
    ([row(-1.8, -2.6, -0.9), row(-1.5, -2.1, -0.9, against="shuffled"), row(3.0, 2.0, 4.0, against="Bias")],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6); a plain bias model does better "
     "(PCLF is 3.0 % above it)."),
    ([row(0.2, -0.3, 0.7, 0.4), row(1.2, 0.4, 2.0, against="merged"), row(-0.4, -0.9, 0.1, 0.2, against="Bias")],
     "Pooling with music makes no difference to the error of books; one merged table of all ratings does better "
     "(PCLF is "
     "1.2 % above it)."),
    ([row(-1.8, -2.6, -0.9), row(-1.5, -2.1, -0.9, against="shuffled"),
      row(-1.9, -2.7, -1.1, part="bridges", bridges=("people",)),
      row(0.1, -0.3, 0.5, 0.9, part="bridges", bridges=("things",)),
      row(0.6, -0.9, 2.1, 0.7, part="bridges", bridges=("attributes",))],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6). By themselves, the people in "
     "common lower it by 1.9 % (95 % interval 1.1 to 2.7); the things in common make no difference; the attributes in "
     "common have no effect that could be told from chance (95 % interval 0.9 % lower to 2.1 % higher)."),
    ([row(0.2, -0.3, 0.7, 0.4), row(-6.1, -8.2, -4.0, part="visitors"),
      row(-5.8, -8.0, -3.6, part="visitors", against="shuffled"),
      row(0.9, 0.3, 1.5, part="visitors", against="merged")],
     "Pooling with music makes no difference to the error of books. For visitors, whom music knows and books "
     "does not, it "
     "lowers the error by 6.1 % (95 % interval 4.0 to 8.2); one merged table of all ratings does better (PCLF is 0.9 % "
     "above it)."),
    ([row(0.2, -0.3, 0.7, 0.4), row(-6.1, -8.2, -4.0, part="visitors"),
      row(-0.2, -2.0, 1.6, 0.8, part="visitors", against="shuffled")],
     "Pooling with music makes no difference to the error of books. For visitors, whom music knows and books "
     "does not, it "
     "lowers the error by 6.1 % (95 % interval 4.0 to 8.2), but shuffled data of music help as much, so it is "
     "not knowledge "
     "about tastes that is transferred."),
    ([row(0.2, -0.3, 0.7, 0.4), row(12.0, 5.1, 18.9, part="lists"),
      row(-9.0, -12.0, -6.0, part="lists", against="most popular"),
      row(0.0, -0.5, 0.5, 0.9, part="lists of visitors"),
      row(3.0, -2.0, 8.0, 0.3, part="lists of visitors", against="most popular")],
     "Pooling with music makes no difference to the error of books. Lists are better by 12.0 % (95 % interval "
     "5.1 to 18.9) "
     "than without the others and worse by 9.0 % (95 % interval 6.0 to 12.0) than the most popular items. Those "
     "of visitors "
     "are no better or worse than without the others and not surely better or worse (95 % interval 2.0 % lower "
     "to 8.0 % "
     "higher) than the most popular items."),
    ([row(0, -0.1, 0.1, 1), row(-4.0, -6.0, -2.0, part="learning curve", size=10),
      row(-2.0, -3.0, -1.0, part="learning curve", size=30)],
     "Pooling with music makes no difference to the error of books; with only 10 users of its own to learn from it "
     "would lower it by 4.0 % (95 % interval 2.0 to 6.0)."),
    ([row(0, -0.1, 0.1, 1), row(-4.0, -6.0, -2.0, part="learning curve", size=10),
      row(2.0, 1.0, 3.0, part="learning curve", size=10, against="Bias"),
      row(-1.0, -1.5, -0.5, part="learning curve", size=30, against="Bias")],
     "Pooling with music makes no difference to the error of books; with only 10 users of its own to learn from it "
     "would lower it by 4.0 % (95 % interval 2.0 to 6.0); a plain bias model does better (PCLF is 2.0 % above it)."),
    ([row(-1.8, -2.6, -0.9), row(-1, -2, -0.1, sources=("films",)), row(-2.0, -3, -1, sources=("music", "films")),
      row(0, -1, 1, 1, against="shuffled"), row(0, -1, 1, 1, against="shuffled", sources=("films",)),
      row(0, -1, 1, 1, against="shuffled", sources=("music", "films"))],
     "Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6); with films it lowers it by "
     "1.0 % (95 % interval 0.1 to 2.0); with both together it lowers it by 2.0 % (95 % interval 1.0 to 3.0), but "
     "shuffled data of the others help as much, so it is not knowledge about tastes that is transferred."),
])
def test_the_verdict_is_in_sentences(rows, sentence):
    others = [row(-9, -10, -8, target="films"), row(9, 8, 10, against="all", part="left out")]
    assert verdict("books", "PCLF", [*rows, *others]) == sentence


def test_one_domain_is_not_enough():
    with pytest.raises(DataError, match=r"an audit needs at least two domains; got 1 \('books'\)"):
        audit(two_domains().only("books"))


def test_too_few_users_to_hold_any_out_is_said_before_anything_is_fitted():
    with pytest.raises(DataError, match="films has too few users to hold any out: 0 of 120 have more than 20 ratings"):
        audit(two_domains(), given=20)


def test_a_domain_with_too_few_users_is_skipped_and_the_others_are_audited():
    data = two_domains()
    few = data.select({"books": data["books"].user < 4})
    found = audit(few, given=6, repeats=1, sizes=(), model=QUICK)
    assert found.verdicts[1].startswith("books has too few users to hold any out: 4 of 14 have more than 6 ratings")
    assert {r["target"] for r in found.rows} == {"films"}


def constant(names):
    rng = np.random.default_rng(0)
    arrays = {name: catalogue(rng, 30) for name in ("films", "books")}
    return Ratings.from_arrays({name: (u, i, np.full(len(r), 4.0) if name in names else r)
                                for name, (u, i, r) in arrays.items()}, scale=(1, 5))


def test_nothing_can_be_learnt_or_lost_where_all_ratings_are_the_same():
    found = audit(constant({"books"}), given=6, repeats=1, sizes=(), model=QUICK)
    assert found.verdicts[1] == "All ratings of books are 4: nothing can be learnt or lost there by pooling."
    assert found.verdicts[0].startswith("Pooling with books ")
    with pytest.raises(DataError, match="no domain can be audited: All ratings of films are 4"):
        audit(constant({"films", "books"}), given=6)


@pytest.mark.parametrize(("options", "message"), [
    ({"model": Bias()}, "must be a PCLF or RMGM, which pool domains; got Bias"),
    ({"given": 0}, "given must be at least 1; got 0"),
    ({"repeats": 0}, "repeats must be at least 1; got 0"),
    ({"n_jobs": 0}, "n_jobs must be at least 1; got 0"),
    ({"sizes": (10, 0)}, "sizes must be numbers of users, 1 or more, or None for all; got 0"),
])
def test_bad_options_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        audit(two_domains(), **options)


def test_events_are_audited_by_where_they_stand_in_the_lists():
    found = audit(events(seed=1), given=1, repeats=1, sizes=(8,),
                  model=PCLF(4, 2, 2, n_factors=4, n_restarts=1, max_iter=10))
    books = [r for r in found.rows if r["target"] == "books" and r["measure"] != "nDCG@10"]
    assert {r["measure"] for r in books} == {"mean rank"}
    assert "Bias" not in {r["model"] for r in books}
    own = [r for r in books if (r["part"], r["model"], r["shuffled"]) == ("pooling", "PCLF", False)]
    pooled, control = (next(r for r in own if r["against"] == base) for base in ("alone", "shuffled"))
    assert pooled["mean"] < 0.3                                 # chance is 0.5
    assert max(pooled["high"], control["high"]) < 0
    assert found.verdicts[1].startswith("Pooling with films lowers the error of books by ")
    page = str(found)
    assert "held-out users known by 1 event, 1 repeat" in page
    assert "Learning curve of books: mean rank by" in page


def test_ranks_are_the_places_among_what_a_user_has_not_done():
    data = events()
    model = FMM(4, 4, n_restarts=1, max_iter=5).fit(data)
    books = data["books"]
    lists = [[r.item for r in model.recommend("books", user, n=40)] for user in range(3)]
    new = [(user, item) for user, of_user in enumerate(lists) for item in of_user]
    user, item = (np.array(codes, np.int32) for codes in zip(
        *((books.users.encode([u])[0], books.items.encode([i])[0]) for u, i in new), strict=True))
    expected = np.concatenate([np.linspace(0, 1, len(of_user)) for of_user in lists])
    users, row = np.unique(user, return_inverse=True)
    whole = _lists(model, "books", users, np.arange(books.n_items, dtype=np.int32), books.n_items)
    np.testing.assert_allclose(ranks(whole, row, item, books.n_items), expected)


def test_shuffled_events_keep_how_much_people_did_and_lose_what():
    t = trial(events())
    pool = t._pool(Fit("books", 11, 6, 0, Arm("PCLF", ("films",), shuffled=True)))
    films, before = pool["films"], t.data["films"]
    pairs = [set(zip(d.user.tolist(), d.item.tolist(), strict=True)) for d in (films, before)]
    assert len(pairs[0]) == len(films)                           # each pair once
    assert len(films) > 0.7 * len(before)
    assert len(pairs[0] & pairs[1]) < 0.5 * len(films)


def test_ctrl_c_ends_the_audit_and_not_only_the_fit():
    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(two_domains(), given=6, model=QUICK, fit_options={"callbacks": [interrupt]})


def shared_people(seed=0, n_users=100, attributes=False):
    """The same people of two tastes, with marks of their own habit; 30 films and 20 books of two kinds each."""
    rng = np.random.default_rng(seed)
    taste, habit, arrays, facts = rng.integers(2, size=n_users), rng.normal(0, 0.7, n_users), {}, {}
    for name, n_items, n_rated in (("films", 30, 14), ("books", 20, 8)):
        kind = rng.integers(2, size=n_items)
        user = np.repeat(np.arange(n_users), n_rated)
        item = np.concatenate([rng.permutation(n_items)[:n_rated] for _ in range(n_users)])
        level = 3 + habit[user] + np.where(taste[user] == kind[item], 1, -1) + rng.normal(0, 0.4, len(user))
        arrays[name] = user, item + 1000 * (name == "books"), np.rint(level).clip(1, 5)
        facts[name] = {"item": np.arange(n_items) + 1000 * (name == "books"), "kind": [f"kind {k}" for k in kind]}
    return Ratings.from_arrays(arrays, scale=(1, 5), shared_users=True, attributes=facts if attributes else None)


def test_people_in_common_are_a_bridge_and_visitors_gain_from_it():
    found = audit(shared_people(attributes=True), given=2, repeats=1, sizes=(), model=FACTORS)
    books = [r for r in found.rows if r["target"] == "books" and not r["shuffled"]]
    bridges = {tuple(r["bridges"]): r for r in books if r["part"] == "bridges"}
    assert set(bridges) == {("people",), ("attributes",)}
    assert bridges["people",]["high"] < 0
    visitors = {r["against"]: r for r in books if (r["part"], r["model"]) == ("visitors", "PCLF")}
    assert set(visitors) == {"alone", "Bias", "merged", "shuffled"}
    assert {r["given"] for r in visitors.values()} == {0}
    assert visitors["alone"]["high"] < -20                       # percent: their habits and tastes show in films
    assert visitors["shuffled"]["high"] < 0
    assert "By themselves, the people in common lower it by" in found.verdicts[1]
    assert "For visitors, whom films knows and books does not, it lowers the error by" in found.verdicts[1]
    lists = {(r["part"], r["model"]) for r in books if r["measure"] == "nDCG@10"}
    assert lists == {(part, model) for part in ("lists", "lists of visitors")
                     for model in ("alone", "most popular", "PCLF")}
    assert all(0 <= r["mean"] <= 1 for r in books if r["measure"] == "nDCG@10")


def test_visitors_are_those_among_the_tested_whom_another_domain_knows():
    data = shared_people()
    some = data.select({"films": data["films"].user < 20})
    t = Trial(some, QUICK, 2, 0, {})
    tested, asked = t._tested("books", 0), t._asked(Fit("books", 48, 0, 0, Arm("alone")))
    assert set(asked) == {u for u in tested if some["books"].users.ids[u] < 20}
    assert not t._kept(Fit("books", 48, 0, 0, Arm("alone")))[np.isin(some["books"].user, tested)].any()
    assert t.n_visitors("books") == 20


def test_a_merged_table_has_everybody_and_everything_once_on_the_scale_of_the_target():
    films = (["Ann", "Ben", "Ann"], ["Heat", "Heat", "Jaws"], [5, 1, 3])
    books = (["Ann", "Cid"], ["Heat", "Emma"], [10, 6])
    facts = {"films": {"item": ["Heat"], "new": [True]}, "books": {"item": ["Emma", "Heat"], "new": [False, True]}}
    data = Ratings.from_arrays({"films": films, "books": books}, scale={"films": (1, 5), "books": (2, 10)},
                               shared_users=True, shared_items=True, attributes=facts)
    one = merged(data, "films")
    d = one["films"]
    assert (list(one.domains), d.n_users, d.n_items) == (["films"], 3, 3)
    users, items = (dict(zip(rows.tolist(), ids, strict=True)) for rows, ids in (
        (np.concatenate(data.user_rows), data["films"].users.ids + data["books"].users.ids),
        (np.concatenate(data.item_rows), data["films"].items.ids + data["books"].items.ids)))
    rated = {(users[u], items[i], r) for u, i, r in zip(d.user, d.item, d.ratings, strict=True)}
    assert rated == {("Ann", "Heat", 5), ("Ben", "Heat", 1), ("Ann", "Jaws", 3), ("Cid", "Emma", 3)}   # her film
    known = {items[c]: (one.attributes.of("films")[[c]].toarray().ravel().tolist(), bool(there))
             for c, there in enumerate(one.attributes.known("films"))}
    before = {name: data.attributes.of(name).toarray().tolist() for name in data.domains}
    heat, emma = data["films"].items.code("Heat"), data["books"].items.code("Emma")
    assert known == {"Heat": (before["films"][heat], True), "Emma": (before["books"][emma], True),
                     "Jaws": ([0.0] * len(before["films"][heat]), False)}
    apart = merged(Ratings.from_arrays({"films": films, "books": books}, scale=(1, 10)), "books")
    assert (apart["books"].n_users, apart["books"].n_items, len(apart["books"])) == (4, 4, 5)


def test_the_most_popular_items_are_those_that_a_user_has_not():
    arrays = [0, 1, 2, 0, 1, 2, 2], list("xxxyyzw"), [5, 4, 3, 5, 4, 3, 1]
    data = Ratings.from_arrays({"a": arrays}, scale=(1, 5))["a"]
    kept = np.array([True] * 6 + [False])
    lists = _popular(data, kept, np.array([0, 2], np.int32))
    names = [[data.items.ids[c] for c in row[:2]] for row in lists]
    assert names == [["z", "w"], ["y", "w"]]


def test_lists_are_learnt_only_where_somebody_asks_for_them():
    t = Trial(shared_people(), FACTORS, 2, 0, {})
    full = t.n_training_users("books")
    wanted = {arm: t._model(Fit("books", full, 2, 0, arm)).lists for arm in (
        Arm("alone"), Arm("PCLF", ("films",)), Arm("PCLF", ("films",), shuffled=True), Arm("merged", ("films",)),
        Arm("PCLF", ("films",), bridges=("people",)))}
    assert list(wanted.values()) == [True, True, False, False, False]
    assert not t._model(Fit("books", full, 2, 3, Arm("alone"))).lists
    assert t._model(Fit("books", full, 2, 3, Arm("PCLF", ("films",), bridges=("people",)))).bridges == ("people",)
