"""Audit: pooling that must help and pooling that cannot, the statistics by hand, sentences word for word."""

import json

import numpy as np
import pytest
from scipy import stats

from pclf.data.ratings import Ratings
from pclf.errors import DataError
from pclf.evaluate.audit import audit, effect
from pclf.evaluate.trial import Arm, Fit, Trial, ranks, twin
from pclf.evaluate.verdicts import verdict
from pclf.models.bias import Bias
from pclf.models.fmm import FMM
from pclf.models.pclf import PCLF
from pclf.models.rmgm import RMGM
from pclf.report import plots

KEYS = {"part", "target", "size", "model", "sources", "shuffled", "measure", "error", "against", "effect_percent",
        "low", "high", "p", "p_holm", "p_wilcoxon", "n_users"}
CODEBOOK = np.array([[5, 4, 2, 1], [2, 5, 5, 3], [3, 1, 4, 5], [1, 2, 1, 4]])   # tastes x kinds of item
SMALL = PCLF(8, 6, 2, factor_weight=0.0, n_restarts=3, max_iter=50)
QUICK = PCLF(3, 2, 2, factor_weight=0.0, n_restarts=1, max_iter=10)


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
        part="pooling", against="FMM", shuffled=False):
    if low is None:
        low, high = effect_percent - 0.9, effect_percent + 0.9
    return {"part": part, "target": target, "size": size, "model": "PCLF", "sources": list(sources),
            "shuffled": shuffled, "against": against, "effect_percent": effect_percent, "low": low, "high": high,
            "p_holm": p_holm}


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
    model = PCLF(factor_weight=0.0, n_restarts=2, max_iter=25)
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
    assert one.rows[0]["error"] != other.rows[0]["error"]


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
    assert all(name in page for name in ("FMM", "RMGM", "PCLF", "Bias", "films, shuffled", "Affinity", "Learning"))


def test_html_shows_domain_names_as_text():
    data = Ratings.from_arrays({"<b>": catalogue(np.random.default_rng(0), 8, 12, 8),
                                "c": catalogue(np.random.default_rng(1), 8, 12, 8)}, scale=(1, 5))
    html = audit(data, given=3, repeats=1, sizes=(), model=QUICK)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_plots_take_what_the_audit_offers(related):
    curve = plots.learning_curve(related.learning_curve["books"], domain="books")
    assert {line.get_label() for line in curve.lines} >= {"FMM", "Bias", "PCLF"}
    matrix = plots.affinity(related.gains, significant=related.significant)
    title = " ".join(matrix.get_title(loc="left").split())
    assert title.startswith("Pooling changes books with films most: its error falls by")


def test_the_learning_curve_has_the_sizes_that_a_domain_has(related):
    sizes = {target: [point[0] for point in curves["PCLF"]] for target, curves in related.learning_curve.items()}
    assert sizes == {"films": [8, 96], "books": [8, 11]}
    for size, error, low, high in related.learning_curve["books"]["FMM"]:
        assert error == low == high, size


def test_fits_are_shared_and_leaving_one_of_three_out_is_pooling_with_the_other(monkeypatch):
    fits = []
    call = Trial.__call__
    monkeypatch.setattr(Trial, "__call__", lambda self, fit: fits.append(fit) or call(self, fit))
    found = audit(three_domains(), given=4, repeats=2, sizes=(None,), model=QUICK)
    assert len(fits) == len(set(fits))
    arms = {fit.arm for fit in fits if fit.target == "a" and not (fit.arm.shuffled and len(fit.arm.sources) == 1)}
    assert arms == {Arm("FMM"), Arm("Bias"), Arm("RMGM", ("b", "c")), Arm("PCLF", ("b", "c")),
                    Arm("PCLF", ("b", "c"), shuffled=True), Arm("PCLF", ("b",)), Arm("PCLF", ("c",))}
    left_out = [r for r in found.rows if r["part"] == "left out"]
    assert [(r["target"], *r["sources"]) for r in left_out] == [("a", "c"), ("a", "b"), ("b", "c"), ("b", "a"),
                                                              ("c", "b"), ("c", "a")]
    assert set(found.affinity["a"]) == {"b", "c"}


def test_an_rmgm_can_be_audited_with_its_own_number_of_clusters():
    model = RMGM(4, 5, n_restarts=1, max_iter=10)
    found = audit(two_domains(), given=6, repeats=1, sizes=(), model=model)
    assert found.recipe["model"] == "RMGM"
    assert {r["model"] for r in found.rows} == {"FMM", "Bias", "RMGM"}


def test_the_twin_has_the_clusters_that_the_target_is_predicted_with():
    model = PCLF(7, 3, {"films": 4, "books": 5}, common_weight={"films": 0.2, "books": 0.3}, user_prior=2.5,
                 factor_weight={"films": 0.0, "books": 0.5}, n_restarts=2)
    alone = twin(model, "books")
    assert isinstance(alone, FMM)
    assert (alone.n_user_clusters, alone.n_item_clusters) == (7, 8)
    assert (alone.user_prior, alone.n_restarts, alone.factor_weight) == (1.25, 2, {"books": 0.5})


def trial(data, given=6):
    return Trial(data, SMALL, given, 0, {})


def test_settings_by_domain_are_those_of_the_domains_in_an_arm():
    model = PCLF(factor_weight={"films": 0.0, "books": 0.5})
    assert twin(model, "books", RMGM, ["films"]).factor_weight == {"films": 0.0, "books": 0.5}


def test_test_users_keep_the_given_ratings_and_only_so_many_others_are_learnt_from():
    t, arm = trial(two_domains()), Arm("FMM")
    tested = t._tested("books", 0)
    user = t.data["books"].user
    kept = {size: t._kept(Fit("books", size, 0, arm), tested) for size in (3, 11)}
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
    pool = t._pool(Fit("books", 11, 0, Arm("PCLF", ("films",), shuffled=True)))
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
def test_the_verdict_is_one_sentence(rows, sentence):
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
    found = audit(events(), given=1, repeats=2, sizes=(8,), model=PCLF(4, 2, 2, n_restarts=1, max_iter=10))
    books = [r for r in found.rows if r["target"] == "books"]
    assert {r["measure"] for r in books} == {"mean rank"}
    assert "Bias" not in {r["model"] for r in books}
    own = [r for r in books if (r["part"], r["model"], r["shuffled"]) == ("pooling", "PCLF", False)]
    pooled, control = (next(r for r in own if r["against"] == base) for base in ("FMM", "shuffled"))
    assert pooled["error"] < 0.3                                 # chance is 0.5
    assert max(pooled["high"], control["high"]) < 0
    assert found.verdicts[1].startswith("Pooling with films lowers the error of books by ")
    page = str(found)
    assert "held-out users known by 1 event, 2 repeats" in page
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
    np.testing.assert_allclose(ranks(model, books, user, item), expected)


def test_shuffled_events_keep_how_much_people_did_and_lose_what():
    t = trial(events())
    pool = t._pool(Fit("books", 11, 0, Arm("PCLF", ("films",), shuffled=True)))
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
