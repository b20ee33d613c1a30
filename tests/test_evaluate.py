"""Evaluate: metrics and tests of significance worked by hand, models compared over splits."""

import numpy as np
import pytest

from pclf.data.ratings import Ratings
from pclf.data.splits import given_n, hold_out
from pclf.errors import DataError, UnknownNameError
from pclf.evaluate import metrics
from pclf.evaluate.compare import compare
from pclf.evaluate.significance import holm, interval, paired_tests
from pclf.models.base import Recommender


class ItemMean(Recommender):
    """Every user the same: an item's mean rating, drawn to the domain's mean."""

    def __init__(self, shrink=5.0):
        self.shrink = shrink

    def _fit(self, ratings, rng):
        self.means_ = {}
        for name, d in ratings.domains.items():
            total = np.bincount(d.item, weights=d.ratings, minlength=d.n_items)
            count = np.bincount(d.item, minlength=d.n_items)
            self.means_[name] = (total + self.shrink * d.ratings.mean()) / (count + self.shrink)

    def _factors(self, domain):
        return np.ones((self.data_.domains[domain].n_users, 1)), self.means_[domain][:, None]


class Blend(ItemMean):
    """Stands for PCLF: a weight between item means and the domain's middle, a rule, a distribution."""

    rules = ("mean", "median")

    def _fit(self, ratings, rng):
        super()._fit(ratings, rng)
        self.weight_ = dict.fromkeys(ratings.domains, 0.35)

    def set_common_weight(self, domain, weight):
        self.weight_[domain] = weight

    def predict_codes(self, domain, users, items, *, rule="mean"):
        w, means = self.weight_[domain], self.means_[domain]
        mean = w * means.mean() + (1 - w) * means[items]
        return mean if rule == "mean" else np.rint(mean)

    def predict_proba(self, domain, users, items):
        return np.full((len(items), self.data_.n_levels), 1 / self.data_.n_levels)


def test_mae_and_rmse_by_hand():
    assert metrics.mae([1, 2, 5], [2, 2, 3]) == 1.0
    assert metrics.rmse([1, 2, 5], [2, 2, 3]) == pytest.approx(np.sqrt(5 / 3))


def test_log_score_is_the_mean_log_probability_and_never_infinite():
    proba = [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    assert metrics.log_score(proba, [0, 2]) == pytest.approx(np.log(0.5))
    assert metrics.log_score(proba, [2, 2]) == pytest.approx((np.log(1e-12) + np.log(0.5)) / 2)


def test_ece_by_hand():
    """Two levels: four claims of 0.25 "it is at most level 0", one of which comes true, or none, or all."""
    proba = np.tile([0.25, 0.75], (4, 1))
    assert metrics.ece(proba, [0, 1, 1, 1]) == pytest.approx(0.0)
    assert metrics.ece(proba, [1, 1, 1, 1]) == pytest.approx(0.25)
    assert metrics.ece(proba, [0, 0, 0, 0]) == pytest.approx(0.75)


def test_ece_weighs_bins_by_their_claims():
    proba = np.array([[0.9, 0.1]] * 3 + [[0.2, 0.8]])
    assert metrics.ece(proba, [0, 0, 1, 1]) == pytest.approx((3 * abs(0.9 - 2 / 3) + 0.2) / 4)


def test_coverage_counts_border_levels_by_the_part_inside():
    """Probabilities .2 .6 .2: the middle 80 % holds the middle level and half of each outer one."""
    proba = np.tile([0.2, 0.6, 0.2], (4, 1))
    assert metrics.coverage(proba, [0, 1, 1, 2]) == pytest.approx((0.5 + 1 + 1 + 0.5) / 4)
    assert metrics.coverage(proba, [0, 1, 1, 2], whole_levels=True) == 1.0
    assert metrics.coverage(np.tile([0.05, 0.9, 0.05], (2, 1)), [0, 2], whole_levels=True) == 0.0


@pytest.mark.parametrize("mass", [0.5, 0.8, 0.95])
def test_ratings_drawn_from_the_forecast_are_covered_as_promised(mass):
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(5), 40_000)
    levels = (rng.random((40_000, 1)) > proba.cumsum(axis=1)[:, :-1]).sum(axis=1)
    assert metrics.coverage(proba, levels, mass=mass) == pytest.approx(mass, abs=0.01)    # 4 standard errors
    assert metrics.coverage(proba, levels, mass=mass, whole_levels=True) > mass
    assert metrics.ece(proba, levels) < 0.01


def test_crps_of_a_sure_forecast_is_the_absolute_error():
    sure = np.eye(5)[[0, 3, 4]]
    assert metrics.crps(sure, [2, 3, 0]) == pytest.approx((2 + 0 + 4) / 3)
    assert metrics.crps(sure, [2, 3, 0], [1, 3, 5, 7, 9]) == pytest.approx((4 + 0 + 8) / 3)
    assert metrics.crps([[0.5, 0.5]], [0]) == pytest.approx(0.25)


def test_list_metrics_by_hand():
    """User 0: one of two liked items, on place 2 of 3. User 1: nothing found. User 2 has none."""
    lists, rows, items = [[7, 4, 9], [1, -1, -1], [5, 6, 7]], [0, 0, 1], [4, 3, 2]
    assert metrics.precision_at(3, lists, rows, items) == pytest.approx((1 / 3 + 0) / 2)
    assert metrics.recall_at(3, lists, rows, items) == pytest.approx((1 / 2 + 0) / 2)
    ideal = 1 + 1 / np.log2(3)
    assert metrics.ndcg_at(3, lists, rows, items) == pytest.approx((1 / np.log2(3) / ideal + 0) / 2)
    assert metrics.recall_at(1, lists, rows, items) == 0.0
    assert metrics.ndcg_at(1, [[4]], [0], [4]) == 1.0


@pytest.mark.parametrize(("call", "said"), [
    (lambda: metrics.mae([1, 2], [1]), "equally long"),
    (lambda: metrics.mae([], []), "not empty"),
    (lambda: metrics.log_score([[0.5, 0.5]], [2]), "levels must be 0 to 1"),
    (lambda: metrics.ece([0.5, 0.5], [0, 1]), "proba must be"),
    (lambda: metrics.precision_at(5, [[1]], [], []), "at least one relevant"),
    (lambda: metrics.crps([[0.5, 0.5]], [0], [1, 2, 3]), "one for each of the 2 levels"),
])
def test_metrics_refuse_arrays_that_do_not_fit(call, said):
    with pytest.raises(DataError, match=said):
        call()


def test_holm_by_hand():
    """Sorted .01 .02 .03 .04 times 4 3 2 1 is .04 .06 .06 .04; the last may not fall below the one before."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([0.02, np.nan, 0.01]) == pytest.approx([0.02, np.nan, 0.02], nan_ok=True)
    assert holm([]).tolist() == []


def test_paired_tests_by_hand():
    """Differences 1, 2, 3: t = 2 / (1 / sqrt 3) with two degrees of freedom, and all ranks positive."""
    scores = {"base": {0: 1.0, 1: 2.0, 2: 3.0}, "other": {0: 2.0, 1: 4.0, 2: 6.0}}
    [test] = paired_tests(scores, "base")
    t = 2 * np.sqrt(3)
    assert test.effect == pytest.approx(2.0)
    assert test.relative == pytest.approx(1.0)
    assert test.p_t == pytest.approx(1 - t / np.sqrt(2 + t * t))        # Student's distribution for 2 degrees
    assert test.p_wilcoxon == pytest.approx(2 / 2 ** 3)
    half = 4.302653 / np.sqrt(3)                                        # its 97.5 % point
    assert (test.low, test.high) == pytest.approx((2 - half, 2 + half), rel=1e-6)
    assert (test.p_t_holm, test.p_wilcoxon_holm) == (test.p_t, test.p_wilcoxon)


def test_paired_tests_pair_by_split_and_correct_within_the_family():
    base = {s: float(s) for s in range(8)}
    scores = {"base": base, "same": dict(base), "worse": {s: base[s] + 1 + s / 100 for s in (7, 1, 3, 5, 0)}}
    same, worse = paired_tests(scores, "base")
    assert (same.effect, same.p_wilcoxon, same.p_t) == (0.0, 1.0, 1.0)
    assert (worse.splits, worse.p_wilcoxon) == (5, pytest.approx(2 / 2 ** 5))
    assert worse.p_wilcoxon_holm == pytest.approx(2 * worse.p_wilcoxon)
    with pytest.raises(UnknownNameError, match="did you mean 'base'"):
        paired_tests(scores, "bace")


def test_one_split_has_an_effect_but_no_p():
    [test] = paired_tests({"a": {0: 1.0}, "b": {0: 1.5}}, "a")
    assert test.effect == 0.5
    assert np.isnan([test.low, test.p_t, test.p_wilcoxon, test.p_t_holm]).all()
    assert interval([2.0])[0] == 2.0


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    arrays = {}
    for name in ("films", "books"):
        pairs = rng.choice(60 * 40, 900, replace=False)
        users, items = pairs // 40, pairs % 40
        arrays[name] = users, items, np.clip(np.rint(1 + items % 5 + rng.normal(0, 0.7, 900)), 1, 5)
    return Ratings.from_arrays(arrays, scale=(1, 5))


def test_compare_gives_one_row_a_model_split_domain_metric_and_rule(ratings):
    splits = [hold_out(ratings, 0.2, seed=s) for s in range(3)]
    found = compare({"plain": ItemMean(), "blend": Blend()}, splits, metrics=("mae", "log_score"))
    table = found.to_arrow()
    assert table.column_names == ["model", "split", "domain", "metric", "rule", "value", "seconds", "n", "n_train"]
    kinds = {(r["model"], r["metric"], r["rule"]) for r in table.to_pylist()}
    assert kinds == {("plain", "mae", "mean"), ("blend", "mae", "mean"), ("blend", "mae", "median"),
                     ("blend", "log_score", None)}
    assert len(table) == 4 * 2 * 3
    assert {(r["n"], r["n_train"]) for r in table.to_pylist()} == {(180, 720)}


def test_compare_scores_what_a_model_fitted_by_hand_scores(ratings):
    split = given_n(ratings, 5, seed=1)
    found = compare({"m": ItemMean(shrink=2.0)}, [split], metrics=("rmse",))
    model, test = ItemMean(shrink=2.0).fit(split.train), split.test.domains["books"]
    by_hand = metrics.rmse(test.ratings, model.predict_codes("books", test.user, test.item))
    [row] = [s for s in found.scores if s.domain == "books"]
    assert row.value == pytest.approx(by_hand)


def test_compare_fits_each_model_once_a_split_and_leaves_it_unfitted(ratings, monkeypatch):
    fits, plain = [], ItemMean._fit

    def counted(self, data, rng):
        fits.append(self.shrink)
        plain(self, data, rng)

    monkeypatch.setattr(ItemMean, "_fit", counted)
    models = {"a": ItemMean(1.0), "b": ItemMean(9.0)}
    compare(models, (hold_out(ratings, seed=s) for s in range(2)), metrics=("mae", "rmse"))
    assert fits == [1.0, 9.0, 1.0, 9.0]
    assert not any(hasattr(model, "data_") for model in models.values())


def test_summary_and_tests_agree_with_the_rows(ratings):
    splits = [hold_out(ratings, 0.2, seed=s) for s in range(4)]
    found = compare({"a": ItemMean(1.0), "b": ItemMean(200.0)}, splits, metrics=("mae",))
    films = [s for s in found.scores if s.domain == "films"]
    values = {model: np.array([s.value for s in films if s.model == model]) for model in "ab"}
    row = next(r for r in found.summary() if (r["model"], r["domain"]) == ("b", "films"))
    assert (row["mean"], row["sd"]) == pytest.approx((values["b"].mean(), values["b"].std(ddof=1)))
    paired = next(p for p in found.paired("a") if p.domain == "films")
    assert paired.test.effect == pytest.approx((values["b"] - values["a"]).mean())
    assert f"{row['mean']:.4f} ± {row['sd']:.4f}" in str(found)
    assert repr(found) == str(found)
    with pytest.raises(UnknownNameError, match="model"):
        found.paired("c")


def test_list_metrics_rank_unseen_items_against_liked_test_ratings(ratings):
    """By hand: the five unseen items with the highest means, against test ratings of 4 and 5."""
    split = hold_out(ratings, 0.3, seed=2)
    found = compare({"m": ItemMean()}, [split], metrics=("recall@5",))
    model = ItemMean().fit(split.train)
    train, test = (part.domains["films"] for part in (split.train, split.test))
    recalls = []
    for user in range(test.n_users):
        liked = set(test.item[(test.user == user) & (test.ratings >= 4)].tolist())
        seen = set(train.item[train.user == user].tolist())
        best = [i for i in np.argsort(-model.means_["films"]).tolist() if i not in seen][:5]
        recalls += [len(liked & set(best)) / len(liked)] if liked else []
    [value] = [s.value for s in found.scores if s.domain == "films"]
    assert 0 < value == pytest.approx(np.mean(recalls))


def test_two_processes_find_what_one_finds(ratings):
    splits = [hold_out(ratings, 0.2, seed=s) for s in range(2)]
    models = {"a": ItemMean(1.0), "b": ItemMean(9.0)}
    one, two = (compare(models, splits, n_jobs=n, metrics=("mae",)) for n in (1, 2))
    assert [s._replace(seconds=0) for s in one.scores] == [s._replace(seconds=0) for s in two.scores]


@pytest.mark.parametrize(("settings", "said"), [
    ({"metrics": ("mea",)}, "did you mean 'mae'"),
    ({"metrics": ("ndcg@0",)}, "unknown metric 'ndcg@0'"),
    ({"rules": ("mode",)}, "mean, median"),
])
def test_compare_refuses_what_it_does_not_know(ratings, settings, said):
    with pytest.raises((UnknownNameError, ValueError), match=said):
        compare({"a": ItemMean()}, [hold_out(ratings)], **settings)


def some_split():
    rng = np.random.default_rng(0)
    pairs = rng.choice(30 * 20, 300, replace=False)
    return hold_out(Ratings.from_arrays({"a": (pairs // 20, pairs % 20, rng.integers(1, 6, 300))}, scale=(1, 5)), 0.2)


@pytest.mark.parametrize(("models", "splits", "options", "said"), [
    ([ItemMean()], 1, {}, "pass a dict of name and model"),
    ({"m": ItemMean()}, 0, {}, r"at least one split, such as pclf.hold_out\(data\)"),
    ({"m": ItemMean()}, 1, {"metrics": "mae"}, "rules and metrics must be lists of names"),
    ({"m": ItemMean()}, 1, {"n_jobs": 0}, "n_jobs must be at least 1; got 0"),
    ({"m": ItemMean()}, 1, {"fit_options": {"enigne": "gpu"}}, "no model here has an option 'enigne' of fit"),
])
def test_compare_says_what_it_needs(models, splits, options, said):
    with pytest.raises(ValueError, match=said):
        compare(models, [some_split()] if splits else some_split().train, **options)


def test_a_metric_asked_for_twice_counts_once():
    assert len(compare({"m": ItemMean()}, [some_split()], metrics=["mae", "mae"]).scores) == 1


def test_a_model_without_a_score_is_told():
    with pytest.warns(UserWarning, match="m has no score: log_score cannot be asked of it"):
        compare({"m": ItemMean()}, [some_split()], metrics=["log_score"])


def largest_error(truth, prediction):
    return np.abs(truth - prediction).max()


def test_a_metric_of_ones_own(ratings):
    found = compare({"plain": ItemMean()}, [hold_out(ratings, 0.2)], metrics=["mae", largest_error])
    for domain in ratings.domains:
        mae, largest = (s for s in found.scores if s.domain == domain)
        assert (largest.metric, largest.rule) == ("largest_error", "mean")
        assert mae.value < largest.value <= 4


def test_splits_that_were_measured_apart_add_up(ratings):
    splits = [hold_out(ratings, 0.2, seed=s) for s in range(3)]
    models = {"plain": ItemMean(), "blend": Blend()}
    together, apart = compare(models, splits), compare(models, splits[:1]) + compare(models, splits[1:])
    assert [s[:6] for s in sorted(apart.scores)] == [s[:6] for s in sorted(together.scores)]
    with pytest.raises(ValueError, match="only comparisons of the same models add up; got Popular, EASE, plain, "):
        together + compare({"plain": ItemMean()}, splits)


def test_the_t_test_allows_for_overlapping_splits():
    """Two models that do not differ, on ten overlapping halves of 200 users: an interval must hold 0 nearly always."""
    rng, held = np.random.default_rng(0), []
    for _ in range(200):
        users = rng.normal(size=200)
        differences = [users[rng.permutation(200)[:100]].mean() for _ in range(10)]
        scores = {"a": dict(enumerate(differences)), "b": dict.fromkeys(range(10), 0.0)}
        held.append([t.low <= 0 <= t.high for overlap in (0.0, 1.0) for t in paired_tests(scores, "b", overlap)])
    naive, corrected = np.mean(held, axis=0)
    assert naive < 0.8
    assert corrected > 0.94


def test_what_lists_are_made_of_by_hand():
    """Four items, chosen by 4, 2, 1 and 0 of four people; two lists with one item in common."""
    from scipy.sparse import csr_array

    chosen = csr_array(np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], np.float32))
    lists = [[0, 1, 3], [1, 2, -1]]
    assert metrics.catalogue_at(2, lists, chosen) == 3 / 4
    assert metrics.catalogue_at(1, lists, chosen) == 2 / 4
    assert metrics.popular_at(2, lists, chosen) == 1 / 4                      # item 0 alone has half of the choices
    assert metrics.novelty_at(2, lists, chosen) == pytest.approx((0 + 1 + 1 + 2) / 4)
    assert metrics.novelty_at(3, lists, chosen) == pytest.approx((0 + 1 + 3 + 1 + 2) / 5)      # half a person of four
    cosines = 2 / np.sqrt(4 * 2), 1 / np.sqrt(2 * 1)
    assert metrics.similarity_at(2, lists, chosen) == pytest.approx(np.mean(cosines))
    assert metrics.similarity_at(3, lists, chosen) == pytest.approx(np.mean([cosines[0] / 3, cosines[1]]))
    assert metrics.overlap_at(2, lists, chosen) == 1 / 2
    assert metrics.overlap_at(2, [[0, 1], [1, 0], [0, 1]], chosen) == 1
    with pytest.raises(DataError, match="must have at least one item in a list"):
        metrics.catalogue_at(2, [[-1]], chosen)


def test_by_default_lists_are_measured_beside_popular_and_ease():
    found = compare({"m": ItemMean()}, [some_split()])
    assert {s.model for s in found.scores} == {"Popular", "EASE", "m"}
    assert {s.metric for s in found.scores if s.model == "EASE"} == {"ndcg@10", "recall@10"}
    assert {s.metric for s in found.scores if s.model == "m"} == {"mae", "rmse", "ndcg@10", "recall@10"}
    assert {s.model for s in compare({"m": ItemMean()}, [some_split()], baselines=False).scores} == {"m"}
    whole = compare({"m": ItemMean()}, [some_split()], metrics=["catalogue@5", "overlap@5", "similarity@5"])
    assert all(0 <= s.value <= 1 for s in whole.scores)
    assert len(whole.scores) == 3 * len(some_split().test.domains)
