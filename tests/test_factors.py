"""Factors: row steps against their specification, the population of rows, choices, attributes, and every bridge."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import pclf
from pclf.datasets import demo
from pclf.engines import cpu, cpu_rows
from pclf.engines.cpu_rows import Cores, as_met, empty_sums, newton, precisions, squares, vectors
from pclf.engines.reference import Seen, row_step
from pclf.engines.reference import collect as collect_literally
from pclf.factors.attributes import AttributeRegression, align, attribute_axes
from pclf.factors.choices import learn_choices
from pclf.factors.fitted import joint_steps
from pclf.factors.hyper import Hyper
from pclf.factors.population import Moments, Population, learned, trusted_squares
from pclf.factors.rows import softmax, tilts
from pclf.factors.side import _alike as alike_people
from pclf.factors.source import Ties
from pclf.models import trial as trials
from pclf.models import weights

FREEDOM = Hyper().freedom
ONLY = {"n_user_clusters": 2, "n_common_clusters": 2, "n_specific_clusters": 2, "n_restarts": 1, "max_iter": 1,
        "common_weight": 0.0, "factor_weight": 1.0}                # factors alone, and no trial


def triangle(square, n):
    """The symmetric matrix of which `square` starts with the lower triangle, row by row. (n, n)"""
    out = np.zeros((n, n))
    out[np.tril_indices(n)] = square[:n * (n + 1) // 2]
    assert not square[n * (n + 1) // 2:].any()
    return out + np.tril(out, -1).T


def positive(rng, size):
    """A covariance."""
    root = rng.normal(0, 1, (size, size))
    return np.linalg.inv(root @ root.T + np.eye(size))


class Rows:
    """Three rows of one domain with many ratings, none, and a few, and the rows of the other side."""

    def __init__(self, n_levels, n_factors, seed=0):
        rng = np.random.default_rng([n_levels, n_factors, seed])
        self.tilt, self.base = tilts(n_levels), rng.normal(0, 1, n_levels)
        self.shape, self.size = len(self.tilt), len(self.tilt) + n_factors
        self.others = rng.normal(0, 0.4, (40, self.size)).astype(np.float32)
        self.squares = squares(self.others[:, self.shape:]) + squares(rng.normal(0, 0.3, (40, n_factors)))
        self.indptr = np.array([0, 133, 133, 138])      # more than two batches, no ratings at all, a tile and one
        self.other = rng.integers(0, 40, 138).astype(np.int32)
        self.level = rng.integers(0, n_levels, 138).astype(np.uint8)
        self.own, self.mean = rng.normal(0, 0.3, (3, self.size)), rng.normal(0, 0.2, (3, self.size))
        self.covariance, self.trust = positive(rng, self.size), np.array([1.0, 1.0, 0.4])

    def seen(self, row):
        """What the specification is given."""
        some = slice(self.indptr[row], self.indptr[row + 1])
        others = self.others[self.other[some]].astype(float)
        n = self.size - self.shape
        doubts = np.array([triangle(self.squares[i], n) for i in self.other[some]]).reshape(len(others), n, n)
        doubts = doubts - np.einsum("nf,ng->nfg", others[:, self.shape:], others[:, self.shape:])
        return Seen(others, doubts, self.level[some], self.base, self.tilt)

    def lists(self):
        return Cores().side(np.repeat(np.arange(3, dtype=np.int32), np.diff(self.indptr)), self.other, self.level, 3,
                            40, len(self.base))


@pytest.mark.parametrize("n_levels", [2, 3, 5, 10])
@pytest.mark.parametrize(("n_factors", "freedom"), [(0, FREEDOM), (3, 0.0), (3, FREEDOM), (12, FREEDOM), (20, 0.0)])
def test_a_step_is_the_specified_one(n_levels, n_factors, freedom):
    r = Rows(n_levels, n_factors)
    own, trust, square = r.own.copy(), r.trust.copy(), np.zeros((3, r.squares.shape[1]), np.float32)
    *of_base, shape_total, total = sums = empty_sums(n_levels, r.shape, r.size)
    newton(r.indptr, r.other, r.level, own, square, trust, *as_met(r.others, r.tilt), r.squares,
           *precisions(r.covariance, r.shape), r.mean, freedom, r.base, r.tilt, 0, 3, *sums,
           *vectors(n_factors, r.size))
    assert (own[1].tolist(), trust[1], square[1].any()) == (r.own[1].tolist(), 1.0, False)     # without ratings
    covariances, shape_covariances = np.zeros((r.size, r.size)), np.zeros((r.shape, r.shape))
    expected_of_base = [np.zeros_like(x) for x in of_base]
    for row in (0, 2):
        seen = r.seen(row)
        expected, cov, now = row_step(r.own[row], r.mean[row], r.covariance, r.trust[row], freedom, [seen])
        np.testing.assert_allclose(own[row], expected, atol=1e-5)
        f = expected[r.shape:]
        np.testing.assert_allclose(triangle(square[row], n_factors), cov[r.shape:, r.shape:] + np.outer(f, f),
                                   atol=1e-5)
        assert trust[row] == pytest.approx(now, rel=1e-4)
        covariances += cov
        shape_covariances += r.trust[row] * cov[:r.shape, :r.shape]
        for got, said in zip(expected_of_base, collect_literally(r.own[row], seen)[2:], strict=True):
            got += said
    np.testing.assert_allclose(total, covariances, atol=1e-5)
    np.testing.assert_allclose(shape_total, shape_covariances, atol=1e-5)
    for got, expected in zip(of_base, expected_of_base, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize(("n_levels", "n_factors"), [(2, 3), (5, 0), (5, 12), (10, 20)])
def test_what_ratings_say_is_the_specified_gradient_and_hessian(n_levels, n_factors):
    r = Rows(n_levels, n_factors)
    gradient, hessian, *of_base = Cores().collect(r.lists(), r.own, r.others, r.squares, r.base, r.tilt)
    assert not gradient[1].any()
    assert not hessian[1].any()
    totals = [np.zeros_like(x) for x in of_base]
    for row in range(3):
        g, h, *said = collect_literally(r.own[row], r.seen(row))
        np.testing.assert_allclose(gradient[row], g, atol=2e-4)
        np.testing.assert_allclose(hessian[row], h, atol=2e-4)
        totals = [a + b for a, b in zip(totals, said, strict=True)]
    for got, expected in zip(of_base, totals, strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-4)


def test_the_specified_gradient_is_that_of_the_log_likelihood():
    """By finite differences, where nothing is in doubt."""
    r = Rows(5, 3)
    seen = r.seen(0)
    seen = Seen(seen.others, 0 * seen.doubts, seen.levels, seen.base, seen.tilt)

    def log_likelihood(row):
        x = row[:r.shape] + seen.others[:, :r.shape]
        x[:, 0] += seen.others[:, r.shape:] @ row[r.shape:]
        return np.log(softmax(seen.base + x @ seen.tilt))[np.arange(len(x)), seen.levels].sum()

    gradient, hessian, _, _ = collect_literally(r.own[0], seen)
    for i, step in enumerate(1e-4 * np.eye(r.size)):
        up, down = log_likelihood(r.own[0] + step), log_likelihood(r.own[0] - step)
        assert (up - down) / 2e-4 == pytest.approx(gradient[i], abs=1e-4)
        assert (up + down - 2 * log_likelihood(r.own[0])) / 1e-8 == pytest.approx(-hessian[i, i], rel=1e-2)


@pytest.mark.parametrize("freedom", [0.0, FREEDOM])
def test_rows_of_several_domains_step_together_as_specified(freedom):
    """Five levels and ten, three people, two domains of three."""
    parts, rng = [Rows(5, 4), Rows(3, 4), Rows(10, 4)], np.random.default_rng(1)
    sizes = [r.size for r in parts]
    between = {(a, b): 0.4 * rng.random((sizes[a], sizes[b])) / 4 for a, b in ((0, 1), (0, 2), (1, 2))}
    people = Population(tuple(r.shape for r in parts), tuple(positive(rng, n) for n in sizes), between, freedom)
    domains, own = [0, 2], [parts[0], parts[2]]
    rows = np.concatenate([r.own for r in own], axis=1)
    means = np.concatenate([r.mean for r in own], axis=1)
    trust, before = np.array([1.0, 0.7, 0.4]), rows.copy()
    said = [[collect_literally(r.own[i], r.seen(i))[:2] for i in range(3)] for r in own]
    gradient = np.concatenate([np.array([g for g, _ in part]) for part in said], axis=1)
    cov = joint_steps(people, domains, rows, means, trust, gradient, [np.array([h for _, h in part]) for part in said])
    at = people.places(domains)
    for i, trusted in enumerate((1.0, 0.7, 0.4)):
        expected = row_step(before[i], means[i], people.covariance[np.ix_(at, at)], trusted, freedom,
                            [r.seen(i) for r in own])
        for got, wanted in zip((rows[i], cov[i], trust[i]), expected, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-9)


@pytest.mark.parametrize("n_levels", [1, 2, 3, 5, 10])
def test_tilts_are_orthogonal_and_the_first_spans_as_much_on_every_long_scale(n_levels):
    tilt = tilts(n_levels)
    assert tilt.shape == (max(1, min(4, n_levels - 1)), n_levels)
    assert np.ptp(tilt[0]) == pytest.approx(min(4, n_levels - 1))
    np.testing.assert_allclose(np.diff(tilt[0], n=2), 0, atol=1e-12)
    np.testing.assert_allclose(tilt.sum(axis=1), 0, atol=1e-12)
    product = tilt @ tilt.T
    np.testing.assert_allclose(product - np.diag(np.diag(product)), 0, atol=1e-12)


def test_the_covariance_is_the_one_that_rows_were_drawn_with():
    """Shapes drawn with trusts of their own, factors that depend on them."""
    rng, n, t = np.random.default_rng(0), 40_000, 2
    root = rng.normal(size=(5, 5))
    drawn = root @ root.T + np.eye(5)
    trust = rng.gamma(4, 1 / 4, n)
    slope = np.linalg.solve(drawn[:t, :t], drawn[:t, t:])
    rest = drawn[t:, t:] - drawn[t:, :t] @ slope
    x = rng.multivariate_normal(np.zeros(t), drawn[:t, :t], n) / np.sqrt(trust)[:, None]
    rows = np.concatenate([x, x @ slope + rng.multivariate_normal(np.zeros(3), rest, n)], axis=1)
    squares = trusted_squares(rows.T @ rows, rows[:, :t].T @ (trust[:, None] * rows[:, :t]), np.arange(t))
    begin = Population((t,), (np.eye(5),), {}, 4.0)
    found = learned(begin, [Moments([0], squares, n)], begin, 0.0).own[0]
    np.testing.assert_allclose(found, drawn, atol=0.03 * np.abs(drawn).max())


def three_domains():
    rng = np.random.default_rng(0)
    own = [2 * positive(rng, n) for n in (3, 4, 5)]
    between = {(a, b): rng.normal(0, 0.15, (len(own[a]), len(own[b]))) for a, b in ((0, 1), (0, 2), (1, 2))}
    return Population((1, 2, 2), tuple(own), between, 0.0)


def test_a_population_lays_its_blocks_where_its_domains_are():
    people = three_domains()
    whole = people.covariance
    np.testing.assert_allclose(whole, whole.T)
    for z, block in enumerate(people.own):
        at = people.places([z])
        np.testing.assert_allclose(whole[np.ix_(at, at)], block)
    roots = [np.linalg.cholesky(block) for block in people.own]
    for (a, b), k in people.between.items():
        block = whole[np.ix_(people.places([a]), people.places([b]))]
        inner = np.linalg.inv(roots[a]) @ block @ np.linalg.inv(roots[b]).T          # K, turned on both sides
        np.testing.assert_allclose(np.linalg.svd(inner)[1], np.linalg.svd(k)[1])
    np.testing.assert_array_equal(people.shape_places([2, 0]), [0, 1, 5])


def test_rows_are_expected_where_the_textbook_says():
    """E[b | a] = S_ba S_aa^-1 a, from one domain and from two."""
    people, rng = three_domains(), np.random.default_rng(1)
    s = people.covariance
    gaps = {0: rng.normal(size=(6, 3)), 2: rng.normal(size=(6, 5))}
    for given in ([0], [2], [0, 2]):
        a, b = people.places(given), people.places([1])
        known = np.concatenate([gaps[z] for z in given], axis=1)
        expected = (s[np.ix_(b, a)] @ np.linalg.inv(s[np.ix_(a, a)]) @ known.T).T
        np.testing.assert_allclose(people.expected(1, {z: gaps[z] for z in given}), expected)


def drawn_moments(people, domains, n, seed, chosen=lambda rows: np.ones(len(rows), bool)):
    at = people.places(domains)
    rows = np.random.default_rng(seed).multivariate_normal(np.zeros(len(at)), people.covariance[np.ix_(at, at)], n)
    rows = rows[chosen(rows)]
    return Moments(domains, rows.T @ rows, len(rows))


def without_ties(people):
    """What is expected when nothing is known: small variances, and no correlation between domains."""
    return replace(people, own=tuple(np.eye(n) for n in people.sizes),
                   between={pair: np.zeros_like(k) for pair, k in people.between.items()})


def test_the_covariance_over_domains_is_found_in_rows_that_were_drawn_with_it():
    people = three_domains()
    moments = [drawn_moments(people, domains, 20_000, seed) for seed, domains in enumerate(([0, 1, 2], [0, 1], [2]))]
    begin = without_ties(people)
    found = learned(begin, moments, begin, 50.0)
    np.testing.assert_allclose(found.covariance, people.covariance, atol=0.05 * np.abs(people.covariance).max())


def test_a_domain_in_which_only_the_outstanding_are_rated_does_not_run_away():
    """Rated in the second domain is what stands far out in the first. The variance of these is no domain's variance:
    compared with each other, the covariance of the second would grow without end."""
    own, k = 0.5 * np.eye(2), {(0, 1): 0.95 * np.eye(2)}
    people = Population((1, 1), (own, own), k, 0.0)
    both = drawn_moments(people, [0, 1], 4000, 0, lambda rows: np.abs(rows[:, :2]).max(axis=1) > 1.0)
    rest = drawn_moments(people, [0], 4000, 0, lambda rows: np.abs(rows).max(axis=1) <= 1.0)
    found = people
    for _ in range(20):
        found = learned(found, [both, rest], people, 50.0)
    assert both.squares[2, 2] / both.n > 0.8, "the rows in both are far out"
    np.testing.assert_allclose(np.diag(found.covariance), 0.5, atol=0.06)


def test_a_guess_is_worth_as_many_rows_as_it_says():
    people, begin = three_domains(), without_ties(three_domains())
    some = drawn_moments(people, [0, 1, 2], 50, 0)
    for worth in (50.0, 150.0):
        found = learned(begin, [some], begin, worth).covariance
        expected = (some.squares + worth * begin.covariance) / (50 + worth)
        np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(learned(people, [], begin, 50.0).covariance, begin.covariance, atol=1e-12)


def test_correlations_that_contradict_each_other_are_lowered():
    """Nobody is like the second and the third, who are the opposite of each other."""
    eye = np.eye(2)
    whole = np.block([[eye, 0.95 * eye, 0.95 * eye], [0.95 * eye, eye, -0.95 * eye], [0.95 * eye, -0.95 * eye, eye]])
    made = Population((1, 1, 1), (eye, eye, eye), {}, 0.0).with_covariance(whole)
    assert np.linalg.eigvalsh(made.covariance)[0] > 0
    assert 0 < made.between[0, 1][0, 0] < 0.95


def both_sides(user, item, shape):
    return Cores().lists(user.astype(np.int32), item.astype(np.int32), np.zeros(len(user), np.uint8), *shape, 1, 0)


def choices_of(user, item, shape, of_domains=None):
    """Choices of all as one domain, or of several. -> lists of users, and what they choose, and by whom"""
    sides = both_sides(user, item, shape)
    if of_domains is None:
        of_domains = tuple(np.bincount(x, minlength=n)[:, None].astype(float) for x, n in zip((user, item), shape,
                                                                                              strict=True))
    return sides[0], *learn_choices(*sides, of_domains, 12, 0, Cores())


def test_choices_tell_groups_apart_and_distrust_a_few():
    """Fans of even and of odd items, who stray now and then."""
    rng, n_users, n_items = np.random.default_rng(0), 80, 60
    fan = np.arange(n_users) % 2
    odds = np.where(fan[:, None] == np.arange(n_items) % 2, 0.5, 0.05)
    user, item = np.nonzero(rng.random((n_users, n_items)) < odds)
    by_user, chosen, choosers = choices_of(user, item, (n_users, n_items))
    best = chosen.variance.argmax()
    places, stands = chosen.places[:, best], chosen.of_all(by_user, Cores())[:, best]
    assert (np.sign(places) == np.sign(places[0]) * np.where(np.arange(n_items) % 2, -1, 1)).all()
    assert (np.sign(stands) == np.sign(places[0]) * np.where(fan, -1, 1)).all()
    few, many = (chosen.of_one(np.arange(0, 2 * n, 2, dtype=np.int32))[best] for n in (2, 20))
    assert 0 < few / places[0:4:2].mean() < many / places[0:40:2].mean() < 1
    np.testing.assert_allclose(chosen.of_one(item[user == 3]), chosen.of_all(by_user, Cores())[3], atol=1e-6)
    assert choosers.variance.max() > 10 * np.median(choosers.variance)


def test_choices_by_chance_differ_less():
    """Places are sought where users differ, so some of it is found in chance too."""
    rng = np.random.default_rng(1)
    fan = np.arange(300)[:, None] % 2 == np.arange(200) % 2
    largest = []
    for odds in (np.full(fan.shape, 0.1), np.where(fan, 0.15, 0.05)):
        largest.append(choices_of(*np.nonzero(rng.random(fan.shape) < odds), fan.shape)[1].variance.max())
    assert largest[0] < 0.4 * largest[1]


def test_choices_in_two_domains_tell_tastes_apart_and_not_the_domains():
    """Films and books, even and odd; some people know both. The first axis is the taste within each domain."""
    rng, n, half = np.random.default_rng(0), 160, 40
    taste, likes = np.arange(n) % 2, np.arange(2 * half) % 2
    reads = np.stack([np.arange(n) < 100, np.arange(n) >= 60], axis=1)                     # films, books
    odds = np.where(taste[:, None] == likes, 0.4, 0.1) * reads[:, np.repeat([0, 1], half)]
    user, item = np.nonzero(rng.random((n, 2 * half)) < odds)
    book = item >= half
    of_domains = [np.stack([np.bincount(x[~book], minlength=m), np.bincount(x[book], minlength=m)], axis=1)
                  .astype(float) for x, m in ((user, n), (item, 2 * half))]

    def correlations(*of):
        _, chosen, _ = choices_of(user, item, (n, 2 * half), *of)
        place = chosen.places[:, chosen.variance.argmax()]
        return [abs(np.corrcoef(place, x)[0, 1]) for x in (likes, np.arange(2 * half) >= half)]

    by_taste, by_domain = correlations(tuple(of_domains))
    assert by_taste > 0.9
    assert by_domain < 0.2
    assert correlations()[1] > 0.9                       # as one domain, the first axis is the domain


def regression(n_items=400, n_features=6, seed=0, noise=0.3):
    """Rows that follow their attributes, with known weights. -> regression, rows, weights"""
    rng = np.random.default_rng(seed)
    attributes = sparse.csr_matrix((rng.random((n_items, n_features)) < 0.4).astype(float))
    weights = rng.normal(0, 0.5, (n_features, 5))
    rows = attributes @ weights + rng.normal(0, noise, (n_items, 5))
    return AttributeRegression(attributes, np.zeros((n_features, 5))), rows, weights


def solved(parts, noise, rounds=10):
    for _ in range(rounds):
        for own, rows in parts:
            own.add(rows, np.ones(len(rows), bool))
        AttributeRegression.solve_together([own for own, _ in parts], [2] * len(parts), np.arange(3),
                                           [noise**2 * np.eye(5)] * len(parts))


def test_weights_of_attributes_are_found_and_those_of_chance_are_next_to_nothing():
    own, rows, weights = regression()
    solved([(own, rows)], 0.3)
    np.testing.assert_allclose(own.weights, weights, atol=0.1)
    np.testing.assert_allclose(own.means(), own.attributes @ weights, atol=0.2)
    chance = AttributeRegression(own.attributes, np.zeros_like(weights))
    noise = np.random.default_rng(5).normal(0, 0.3, rows.shape)
    solved([(chance, noise)], 0.3)
    plain = np.linalg.lstsq(own.attributes.toarray(), noise, rcond=None)[0]
    assert np.abs(chance.weights).max() < 0.05
    assert np.square(chance.weights).sum() < 0.5 * np.square(plain).sum()            # which is not shrunk


def test_two_domains_have_one_regression_on_what_means_the_same():
    """One of them has next to no items: its weights are the other's. Weights along choices of its own are not."""
    (own, rows, weights), (small, few, _) = regression(), regression(n_items=4, seed=1)
    solved([(own, rows), (small, few)], 0.3)
    np.testing.assert_array_equal(small.weights, own.weights)
    for part, x in ((own, rows), (small, few)):
        part.add(x, np.ones(len(x), bool))
    AttributeRegression.solve_together([own, small], [2, 2], np.arange(1), [0.09 * np.eye(5)] * 2)
    np.testing.assert_array_equal(small.weights[:, :3], own.weights[:, :3])
    assert not np.allclose(small.weights[:, 3:], own.weights[:, 3:], atol=0.05)
    np.testing.assert_allclose(own.weights[:, 3:], weights[:, 3:], atol=0.1)


def test_attribute_axes_are_what_domains_have_in_common():
    rng = np.random.default_rng(0)
    a, b = (sparse.csr_matrix((rng.random((200, 5)) < 0.5) * known) for known in ([1, 1, 1, 0, 0], [1, 1, 0, 1, 0]))
    axes, n_common = attribute_axes([a, b], 8)
    assert n_common == 2
    for x, own, column in zip((a, b), axes, (2, 3), strict=True):
        assert own.shape == (5, 3)
        assert not own[2:, :n_common].any()                 # one domain alone has these, or none
        assert np.flatnonzero(own[:, 2]).tolist() == [column]            # what it alone has makes an axis of its own
        np.testing.assert_allclose(np.var(x @ own[:, 2]), 1)
    spread = np.mean([np.var(x @ own[:, :n_common], axis=0) for x, own in zip((a, b), axes, strict=True)], axis=0)
    np.testing.assert_allclose(spread, 1)
    (alone,), n_common = attribute_axes([a], 8)
    assert (alone.shape, n_common) == ((5, 3), 3)
    assert attribute_axes([None, sparse.csr_matrix((4, 5))], 8) is None


def test_axes_of_choices_are_aligned_by_the_attributes_that_lie_on_them():
    """Two catalogues with the same genres; the axes of the second come in another order, and turned."""
    rng = np.random.default_rng(0)
    attributes = [sparse.csr_matrix(np.eye(6)[rng.integers(0, 6, n)]) for n in (300, 200)]
    places = rng.normal(size=(6, 3))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    first, second = (a @ places + 0.2 * rng.normal(size=(a.shape[0], 3)) for a in attributes)
    turns, agreements = align([first, second @ turn], attributes, seed=0)
    np.testing.assert_allclose(turns[0], np.eye(3), atol=1e-9)
    np.testing.assert_allclose(turns[1], turn.T, atol=0.1)
    np.testing.assert_allclose(agreements, 1, atol=0.05)                          # less what chance could do
    for noise in rng.normal(size=(5, *second.shape)):                             # can be turned to agree, too
        assert align([first, noise], attributes, seed=0)[1][1].mean() < 0.5


def test_one_genre_that_two_catalogues_have_in_common_is_enough_to_agree():
    rng = np.random.default_rng(0)
    attributes = [sparse.csr_matrix((rng.random((n, 1)) < 0.3).astype(float)) for n in (300, 200)]
    of_fans = np.array([[1.0, 0.0, 0.0]])
    directions = [a @ of_fans + 0.5 * rng.normal(size=(a.shape[0], 3)) for a in attributes]
    assert align(directions, attributes, seed=0)[1][1][0] > 0.9


def test_axes_stay_as_they_are_where_attributes_do_not_say_how_they_turn():
    """One genre tells one direction; rounding must not decide about the others."""
    rng = np.random.default_rng(0)
    attributes = [sparse.csr_matrix((rng.random((n, 1)) < 0.4).astype(float)) for n in (300, 200)]
    directions = [a @ np.array([[1.0, 0.5, 0.2]]) for a in attributes]
    turns = [align([x + 1e-7 * rng.normal(size=x.shape) for x in directions], attributes, seed=0)[0][1]
             for _ in range(2)]
    np.testing.assert_allclose(turns[0], turns[1], atol=1e-3)
    np.testing.assert_allclose(turns[0], np.eye(3), atol=0.02)


def expected_error(user, item, level, test, **hyper):
    """Fit factors to all ratings but the test ones, which they are judged by."""
    data = pclf.Ratings.from_arrays({"d": (user, item, level + 1)}, scale=(1, 5))
    n_factors = hyper.pop("n_factors", 12)
    model = pclf.PCLF(**ONLY, n_factors=n_factors, hyper=hyper).fit(data.select({"d": ~test}))
    return np.abs(model.predict_codes("d", data["d"].user[test], data["d"].item[test]) - level[test] - 1).mean()


def test_tastes_in_what_the_same_people_choose_are_found_in_few_ratings():
    """Genres show in who chose what. Half of the people like the one, half the other, whichever they mostly choose."""
    rng, n_users, n_items, each = np.random.default_rng(0), 200, 200, 12
    genre, taste = np.arange(n_items) % 2, rng.choice([-1, 1], n_users)
    odds = np.where(np.arange(n_users)[:, None] % 2 == genre, 1.0, 0.4)
    user = np.repeat(np.arange(n_users), each)
    item = np.concatenate([rng.choice(n_items, each, replace=False, p=row / row.sum()) for row in odds])
    level = 2 + taste[user] * (2 * genre[item] - 1) + rng.normal(0, 1, len(user))
    ratings = user, item, np.clip(np.round(level), 0, 4).astype(int), rng.random(len(user)) < 0.2
    assert expected_error(*ratings) < 0.9 * expected_error(*ratings, taste=0.0)


def test_factors_are_found_where_everybody_chose_everything():
    rng = np.random.default_rng(1)
    user, item = np.nonzero(np.ones((80, 60)))
    factors = rng.normal(size=(80, 2)) @ rng.normal(size=(60, 2)).T
    level = np.clip(np.round(2 + 0.8 * factors[user, item] + rng.normal(0, 0.5, len(user))), 0, 4).astype(int)
    ratings = user, item, level, rng.random(len(user)) < 0.1
    assert expected_error(*ratings) < 0.75 * expected_error(*ratings, n_factors=0)


def two_shops(n_users=(400, 60), given=(20, 8), n_items=80, seed=0):
    """Other people in each shop, the same items. -> tied data, one merged table, a mask of the small shop's tests"""
    rng = np.random.default_rng(seed)
    quality, kind, frames = rng.normal(0, 0.8, n_items), rng.normal(size=(n_items, 2)), {}
    for name, n, each in zip(("large", "small"), n_users, given, strict=True):
        user = np.repeat(np.arange(n), each)
        item = np.concatenate([rng.permutation(n_items)[:each] for _ in range(n)])
        taste, offset = rng.normal(size=(n, 2)), rng.normal(0, 0.5, n)
        score = 3 + offset[user] + quality[item] + 0.5 * np.einsum("nf,nf->n", taste[user], kind[item])
        frames[name] = user, item, np.clip(np.round(score + rng.normal(0, 0.4, len(user))), 1, 5)
    test = np.arange(len(frames["small"][0])) % given[1] >= given[1] - 3
    return frames, test


def fitted_shops(frames, test, **options):
    """PCLF on both shops without the tests. -> model, mean absolute error of the small shop's tests"""
    data = pclf.Ratings.from_arrays(frames, scale=(1, 5), shared_items=len(frames) > 1)
    name = list(frames)[-1]
    keep = {name: np.ones(len(d), bool) for name, d in data.domains.items()}
    keep[name][-len(test):] = ~test
    model = pclf.PCLF(**{**ONLY, **options}).fit(data.select(keep))
    d = data[name]
    user, item, truth = (x[-len(test):][test] for x in (d.user, d.item, d.ratings))
    return model, np.abs(model.predict_codes(name, user, item) - truth).mean()


@pytest.fixture(scope="module")
def shops():
    return two_shops()


def test_things_sold_in_two_shops_are_known_in_both(shops):
    """A small shop with the catalogue of a large one predicts about as the merged table does, and not as if alone."""
    frames, test = shops
    tied = fitted_shops(frames, test)[1]
    alone = fitted_shops({"small": frames["small"]}, test)[1]
    (u, i, r), (v, j, s) = frames["large"], frames["small"]
    merged = fitted_shops({"both": (np.concatenate([u, 1000 + v]), np.concatenate([i, j]), np.concatenate([r, s]))},
                          test)[1]
    assert tied < 1.04 * merged
    assert tied < 0.85 * alone


def test_a_bridge_is_used_where_it_helps_and_said_so(shops):
    frames, test = shops
    model, _ = fitted_shops(frames, test, factor_weight="auto")
    bridge = model.transfer_["small"].bridges["things"]
    assert bridge.used
    assert bridge.percent < -5
    assert model.factors_["small"].things.between                     # tied
    assert str(bridge) == (f"things: 80 items of small are also in large; knowing that lowers the error of small by "
                           f"{-bridge.percent:.1f} %.")
    assert str(model.transfer_["small"]).splitlines() == [str(bridge), model.transfer_["small"].text]


def test_a_trial_makes_visitors_of_people_in_several_domains():
    """One in ten, who keep nothing in one domain and something in another."""
    rng = np.random.default_rng(0)
    frames = {name: (np.repeat(np.arange(400), 6), np.tile(np.arange(6), 400), rng.integers(1, 6, 2400).astype(float))
              for name in ("films", "books")}
    data = pclf.Ratings.from_arrays(frames, shared_users=True)
    part, held_out = weights.hold_out_of_each(data, np.random.default_rng(1))
    gone = {name: np.bincount(part[name].user, minlength=400) == 0 for name in frames}
    assert 10 < gone["films"].sum() < 40
    assert 10 < gone["books"].sum() < 40
    assert not (gone["films"] & gone["books"]).any()
    assert (np.bincount(held_out["films"].user, minlength=400)[gone["films"]] == 6).all()


def test_a_bridge_tells_what_it_does_for_visitors():
    """People who are as generous with books as with films: who never rated a book is known by their films."""
    data, _ = one_world(shared_users=True)
    bridge = pclf.PCLF(n_restarts=1, max_iter=3, lists=False).fit(data).transfer_["films"].bridges["people"]
    assert bridge.used
    assert bridge.visitors < -10
    assert (f"knowing that lowers the error of films by {-bridge.visitors:.1f} % for visitors, who never rated there; "
            f"for people who did, it ") in bridge.text


def test_a_bridge_of_wrong_links_is_not_used_or_does_no_harm(shops):
    """The items of the large shop under other names: what one shop knows says nothing about the other."""
    frames, test = shops
    user, item, rating = frames["large"]
    wrong = {"large": (user, np.random.default_rng(5).permutation(80)[item], rating), "small": frames["small"]}
    model, error = fitted_shops(wrong, test, factor_weight="auto")
    alone = fitted_shops({"small": frames["small"]}, test, factor_weight="auto")[1]
    assert error < 1.003 * alone
    bridge = model.transfer_["small"].bridges["things"]
    assert not bridge.used
    assert f"it would raise the error of small by {bridge.percent:.1f} %, so it is not used" in bridge.text


@pytest.mark.parametrize(("small", "large", "used"), [
    (-0.02, -0.1, False),     # the small domain seems to lose, the large one is surely harmed: links that are wrong
    (0.02, -0.1, True),       # the small one seems to gain, whatever it does to the large one
    (0.0, 0.0, True),         # nobody is surely harmed, and newcomers may gain
    (-0.2, 0.1, False),       # harm here
])
def test_a_bridge_that_surely_harms_another_domain_must_seem_to_help_here(small, large, used):
    tied, rng = Ties(False, True, False), np.random.default_rng(0)
    trial = object.__new__(trials.Trial)
    trial._chosen, trial.fits = {}, dict.fromkeys((trials.APART, tied), SimpleNamespace(domains=("small", "large")))
    noise = {"small": rng.normal(0, 0.5, 100), "large": rng.normal(0, 0.1, 100)}
    trial._scores = {(name, ties): (gain + noise[name] - noise[name].mean()) * (ties == tied)
                     for name, gain in (("small", small), ("large", large)) for ties in trial.fits}
    assert (trial.ties("small") == tied) == used


def test_bridges_can_be_chosen(shops):
    frames, test = shops
    with_none = fitted_shops(frames, test, bridges=())[1]
    alone = fitted_shops({"small": frames["small"]}, test)[1]
    assert with_none == alone
    for wrong in ("things", ("bridge",)):
        with pytest.raises(ValueError, match="bridges must be 'auto' or some of 'people', 'things', 'attributes'"):
            fitted_shops(frames, test, bridges=wrong)


def one_world(n_users=150, n_items=60, given=12, seed=0, scales=(5, 5), **options):
    """Two domains with the same people, whose offset is the same in both. -> ratings, the offset of each person"""
    rng = np.random.default_rng(seed)
    offset, frames = rng.normal(0, 1, n_users), {}
    for name, start, top in (("films", 0, scales[0]), ("books", 40, scales[1])):      # the last 40 people have no book
        people = np.arange(n_users - start)
        user = np.repeat(people, given)
        item = np.concatenate([rng.permutation(n_items)[:given] for _ in people])
        score = 0.625 + 0.25 * (offset[user] + 0.3 * rng.normal(size=len(user)))
        frames[name] = user, item, np.clip(np.round(1 + (top - 1) * score), 1, top)
    scale = dict(zip(frames, ((1, top) for top in scales), strict=True))
    return pclf.Ratings.from_arrays(frames, scale=scale, **options), offset


@pytest.fixture(scope="module")
def shared():
    data, offset = one_world(shared_users=True)
    return pclf.PCLF(n_restarts=1, max_iter=10).fit(data, random_state=0), offset


def test_a_person_is_known_in_a_domain_where_they_never_rated(shared):
    model, offset = shared
    people = np.arange(110, 150)
    got = model.predict("books", people.tolist(), 3, user_domain="films")
    assert np.corrcoef(got, offset[people])[0, 1] > 0.8


def test_a_guest_is_known_where_they_did_not_rate(shared):
    model, _ = shared
    kind, strict = (model.fold_in({"films": dict.fromkeys(range(10), rating)}) for rating in (5, 1))
    assert model.predict("books", kind, 3)[0] > model.predict("books", strict, 3)[0] + 0.5
    assert set(kind.rows) == {"films", "books"}


def test_a_guest_with_ratings_in_several_domains_is_placed_by_all_of_them(shared):
    """Between the guests who have the ratings of one domain alone; in each, nearer to the one of that domain."""
    model, _ = shared
    kind, strict = {"films": dict.fromkeys(range(8), 5)}, {"books": dict.fromkeys(range(8), 1)}
    for domain, near in (("films", 5), ("books", 1)):
        low, both, high = (model.predict(domain, model.fold_in(given), 30)[0]
                           for given in (strict, {**kind, **strict}, kind))
        assert low < both < high
        assert abs(both - near) < 0.6 * (high - low)


def test_ratings_elsewhere_sharpen_a_person_with_few():
    """Against the same model without the other domain: people with one book each."""
    data, offset = one_world(shared_users=True)
    books = data["books"]
    first = np.flatnonzero(np.diff(books.user, prepend=-1))
    keep = books.user < 50
    keep[first] = True
    part = data.select({"films": np.ones(len(data["films"]), bool), "books": keep})
    people = np.arange(50, 110, dtype=np.int32)
    item = np.full(len(people), 3, np.int32)
    alone, both = (pclf.PCLF(**ONLY).fit(d).predict_codes("books", people, item)
                   for d in (part.only(["books"]), part))
    truth = np.clip(3.5 + offset[people], 1, 5)
    assert np.abs(both - truth).mean() < 0.7 * np.abs(alone - truth).mean()


def test_a_training_user_folded_in_comes_near_their_row(shared):
    model, _ = shared
    films = model.data_["films"]
    own = films.user == 120                                     # who has no books
    given = zip(films.items.array()[films.item[own]].tolist(), films.ratings[own], strict=True)
    guest, row = model.fold_in({"films": dict(given)}), model.factors_["films"].domains["films"].users[120]
    assert np.corrcoef(guest.rows["films"][:len(row)], row)[0, 1] > 0.95
    np.testing.assert_allclose(guest.rows["films"][0], row[0], atol=0.3)


def arrays_of(model, name):
    """Everything that factors know about a domain."""
    part = model.factors_[name]
    z = part.names.index(name)
    own = vars(part.domains[name])
    return {key: value for key, value in own.items() if isinstance(value, np.ndarray)} | {
        "people": part.people.own[z], "things": part.things.own[z], "places": own["chosen"].places}


@pytest.mark.parametrize("scales", [(5, 5), (10, 5)])
def test_strangers_of_another_domain_do_not_change_a_bit(scales):
    """Nothing ties them, so a domain is modelled as if alone, whatever the scale of the other."""
    data, _ = one_world(scales=scales)
    alone, both = (pclf.PCLF(**ONLY).fit(d, random_state=3) for d in (data.only(["books"]), data))
    books = data["books"]
    for rule in ("mean", "median"):
        one, two = (model.predict_codes("books", books.user, books.item, rule=rule) for model in (alone, both))
        np.testing.assert_array_equal(one, two)
    expected = arrays_of(alone, "books")
    for key, array in arrays_of(both, "books").items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


@pytest.mark.parametrize("rule", ["mean", "median"])
@pytest.mark.parametrize("factor_weight", [0.0, 1.0])
def test_a_domain_of_ten_levels_predicts_as_alone_beside_one_of_five(rule, factor_weight):
    """Its values are not those of the other domain, and none is lost to the levels that both share."""
    data, _ = one_world(scales=(10, 5))
    films = data["films"]
    settings = {**ONLY, "n_user_clusters": 4, "max_iter": 20, "factor_weight": factor_weight}
    alone, both = (np.abs(pclf.PCLF(**settings).fit(d).predict_codes("films", films.user, films.item, rule=rule)
                          - films.ratings).mean() for d in (data.only(["films"]), data))
    assert both < (1.0 if factor_weight else 1.04) * alone + 1e-9
    proba = pclf.PCLF(**settings).fit(data).predict_proba("films", 0, [0, 1])
    assert proba.shape == (2, 10)
    np.testing.assert_allclose(proba.sum(axis=1), 1)


def test_threads_do_not_change_a_bit_of_rows_that_are_tied(monkeypatch):
    for room in (cpu, cpu_rows):
        monkeypatch.setattr(room, "SMALL", 0)                # so that even these few ratings are shared out
    data, _ = one_world(shared_users=True)
    one, two = (pclf.PCLF(**ONLY).fit(data, engine="cpu", n_threads=n) for n in (1, 2))
    for name in data.domains:
        expected = arrays_of(one, name)
        for key, array in arrays_of(two, name).items():
            np.testing.assert_array_equal(array, expected[key], err_msg=key)


@pytest.fixture(scope="module")
def regions():
    """The demo, with what its ratings were made from."""
    return pclf.PCLF(n_restarts=1, max_iter=10).fit(pclf.datasets.load("demo")), demo.truth()


def test_attributes_tie_visitors_to_a_domain_where_nobody_knows_them(regions):
    """What somebody thinks of Japanese films is what is expected of them with Japanese books."""
    model, truth = regions
    people, books = list(truth.region_tastes["films"])[:60], list(truth.region_of["books"])
    region = np.array([truth.regions.index(truth.region_of["books"][title]) for title in books])
    found = []
    for person in people:
        rated = model.predict("books", person, books, user_domain="films")
        by_region = np.array([rated[region == r].mean() for r in range(len(truth.regions))])
        found.append(by_region)
    found = np.array(found) - np.mean(found, axis=0)                     # less what anybody thinks of a region
    tastes = np.array([truth.region_tastes["films"][person] for person in people])
    correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(found, tastes - tastes.mean(axis=0), strict=True)]
    assert np.mean(correlations) > 0.6
    assert "attributes: the items of books have attributes (genre and region)" in str(model.transfer_["books"])


def test_a_guest_who_loves_a_region_is_offered_it_elsewhere(regions):
    model, truth = regions
    japanese, others = ([t for t, r in truth.region_of["films"].items() if (r == "Japanese") == wanted][:8]
                        for wanted in (True, False))
    guest = model.fold_in({"films": {**dict.fromkeys(japanese, 5), **dict.fromkeys(others, 2)}})
    for domain in ("music", "books"):
        offered = [truth.region_of[domain][r.item] for r in model.recommend(domain, guest, n=5)]
        assert offered.count("Japanese") >= 3
    why = model.explain("books", guest, next(t for t, r in truth.region_of["books"].items() if r == "Japanese"))
    assert why.tastes[0][:2] == ("region", "Japanese")
    assert why.tastes[0].effect > 0.1
    assert "You like Japanese (region)" in why.text


def test_a_new_item_is_placed_by_attributes_by_ratings_or_by_both(regions):
    model, truth = regions
    tastes = truth.region_tastes["films"]
    japanese = truth.regions.index("Japanese")
    order = sorted(tastes, key=lambda person: tastes[person][japanese])
    fans, foes = order[-30:], order[:30]
    by_attributes = model.fold_in_item("films", attributes={"region": "Japanese"})
    assert model.predict("films", fans, by_attributes).mean() > model.predict("films", foes, by_attributes).mean() + 0.5
    against = dict.fromkeys(fans[:15], 1) | dict.fromkeys(foes[:15], 5)
    by_ratings = model.fold_in_item("films", against)
    assert model.predict("films", fans, by_ratings).mean() < model.predict("films", foes, by_ratings).mean() - 0.5
    both = model.fold_in_item("films", against, attributes={"region": "Japanese"})
    gaps = [model.predict("films", fans, new).mean() - model.predict("films", foes, new).mean()
            for new in (by_ratings, both, by_attributes)]
    assert gaps[0] < gaps[1] < gaps[2]


def test_a_new_item_is_placed_by_attributes_only_where_items_have_some(shared):
    with pytest.raises(ValueError, match="the items of 'films' were fitted without attributes"):
        shared[0].fold_in_item("films", attributes={"region": "Japanese"})


@pytest.mark.parametrize("kind", ["shared", "regions"])
def test_factors_are_the_same_in_a_file(kind, request, tmp_path):
    model = request.getfixturevalue(kind)[0]
    model.save(tmp_path / "model")
    again = pclf.load(tmp_path / "model")
    assert again.factors_.keys() == model.factors_.keys()
    for name, part in model.factors_.items():
        assert again.factors_[name].hyper == part.hyper
        assert (again.factors_[name] is again.factors_["films"]) == (part is model.factors_["films"])
        expected = arrays_of(model, name)
        for key, array in arrays_of(again, name).items():
            np.testing.assert_array_equal(array, expected[key], err_msg=key)
    films = model.data_["films"]
    given = {"films": dict(zip(films.items.decode(films.item[:5]), films.ratings[:5], strict=True))}
    item = model.data_["books"].items.ids[0]
    assert again.predict("books", again.fold_in(given), item) == model.predict("books", model.fold_in(given), item)
    assert again.transfer_ == model.transfer_
    assert again.factor_weights_ == model.factor_weights_


def test_hyper_says_what_it_does_not_know():
    data, _ = one_world(60)
    with pytest.raises(ValueError, match=r"hyper must have names among: shape, .*; got \{'sweep': 3\}"):
        pclf.PCLF(**ONLY, hyper={"sweep": 3}).fit(data)
    one, two = (pclf.PCLF(**ONLY, hyper=hyper).fit(data) for hyper in (Hyper(sweeps=2), {"sweeps": 2}))
    np.testing.assert_array_equal(one.factors_["films"].domains["films"].users,
                                  two.factors_["films"].domains["films"].users)
    assert one.factors_["films"].hyper.sweeps == 2


def test_a_part_must_gain_more_than_chance_to_be_heard():
    rng = np.random.default_rng(0)
    n = 2000
    user, level = np.repeat(np.arange(200, dtype=np.int32), 10), rng.integers(0, 5, n).astype(np.uint8)
    flat = np.full((n, 5), 0.2)
    noise = softmax(0.3 * rng.normal(size=(n, 5)))
    knows = 0.8 * flat
    knows[np.arange(n), level] += 0.2
    grids, values = (weights.COMMON, weights.FACTORS), (1.0, 2.0, 3.0, 4.0, 5.0)
    assert weights.learn(user, level, values, noise, flat, flat, *grids)[:2] == (0.0, 1.0)
    common, own, gain = weights.learn(user, level, values, knows, flat, flat, *grids)
    assert (common, own) == (1.0, min(weights.FACTORS))
    assert gain > 0.1
    assert weights.learn(user, level, values, None, knows, flat, (0.0,), weights.FACTORS)[1] < 1


def test_a_model_with_other_constants_predicts_by_them_and_is_saved_with_them(tmp_path):
    data = pclf.datasets.load("demo").only("books")
    model = pclf.PCLF(**ONLY, hyper=Hyper(shape=2, sweeps=4)).fit(data)
    own = model.factors_["books"].domains["books"]
    assert own.tilt.shape == (2, 5)
    assert own.item_factors.shape[1] == own.items.shape[1] - 2
    model.save(tmp_path / "model")
    again = pclf.load(tmp_path / "model")
    assert again.hyper["shape"] == 2
    user, items = data["books"].users.ids[0], list(data["books"].items.ids[:20])
    np.testing.assert_array_equal(again.predict("books", user, items), model.predict("books", user, items))


def test_people_are_told_apart_by_any_number_of_domains():
    """More than a machine word has bits."""
    rates = np.zeros((5, 70), bool)
    rates[[0, 2], 3], rates[[0, 2], 69] = True, True
    rates[4, [3, 68]] = True
    found = {tuple(domains): who.tolist() for domains, who in alike_people(rates, np.array([0, 2, 4]))}
    assert found == {(3, 69): [0, 2], (3, 68): [4]}


def test_algebra_of_small_matrices_stays_on_one_thread(monkeypatch):
    """However many threads BLAS has: on a busy machine they would wait for each other longer than they work."""
    from threadpoolctl import threadpool_info, threadpool_limits

    from pclf.factors import learn

    seen, step = [], learn.Side.step

    def watched(*args):
        seen.append({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
        return step(*args)

    monkeypatch.setattr(learn.Side, "step", watched)
    with threadpool_limits(2, user_api="blas"):
        pclf.PCLF(**ONLY, n_factors=2, lists=False).fit(demo.load())
        after = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert seen
    assert all(threads <= {1} for threads in seen)
    assert after <= {1, 2}
    assert 2 in after or cpu.cores() == 1
