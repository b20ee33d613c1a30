"""The core of EM: worked by hand, additive, climbing, recovering, the same on every engine."""

import warnings

import numpy as np
import pytest
from problems import made

from pclf import engines
from pclf.clusters.loop import STARTS, Schedule, Step, random_memberships, random_posteriors, run
from pclf.clusters.mstep import Priors, memberships, mstep, prior_means, shares
from pclf.clusters.state import Params, Stats
from pclf.data.ratings import Ratings, Vocabulary
from pclf.engines.reference import ReferenceEngine
from pclf.models import FMM
from pclf.problem import Layout, Problem, View

ENGINES = [("reference", "float64"), ("cpu", "float64"), ("cpu", "float32")]
RTOL = {"float64": 1e-10, "float32": 2e-4}      # relative, against the float64 reference


def engine_of(name, dtype):
    return ReferenceEngine() if name == "reference" else engines.create(name, dtype=dtype)


@pytest.fixture(params=ENGINES, ids="-".join)
def engine(request):
    return engine_of(*request.param)


def tolerance(engine):
    return RTOL[str(getattr(engine, "dtype", "float64"))]


def random_ratings(domains=2, shared_users=False, shared_items=False, seed=0, n_users=30, n_items=20, n=250):
    rng = np.random.default_rng(seed)
    arrays = {}
    for z in range(domains):
        pairs = rng.choice(n_users * n_items, n, replace=False)
        arrays["abc"[z]] = pairs // n_items, pairs % n_items, rng.integers(1, 6, n)
    return Ratings.from_arrays(arrays, scale=(1, 5), shared_users=shared_users, shared_items=shared_items)


def pclf_layout(domains=2, k=4, t=3, spec=5, weight=1.0):
    return Layout(k, (View("common", tuple(range(domains)), t, weight),
                      *(View("abc"[z], (z,), spec) for z in range(domains))))


def put(engine, stats):
    return Stats(engine.put(stats.users), tuple(map(engine.put, stats.items)), tuple(map(engine.put, stats.tables)), 0)


def start_params(engine, problem, seed=0, priors=Priors()):
    stats = put(engine, random_memberships(problem, np.random.default_rng(seed)))
    return mstep(stats, problem, priors, prior_means(stats, problem))


def all_arrays(x):
    return [x.users, *x.items, *x.tables]


# Two domains, two users and two items each, ratings on 1-2. K = 2, T = 1, L = 2.
#   domain a: (u0, v0, 1) (u0, v1, 2) (u1, v0, 2)         S_1 = 3
#   domain b: (u2, v0, 1) (u3, v1, 1)                     S_2 = 2
HAND = {"a": (["u0", "u0", "u1"], ["v0", "v1", "v0"], [1, 2, 2]), "b": (["u2", "u3"], ["v0", "v1"], [1, 1])}


@pytest.fixture
def hand():
    problem = Problem.of(Ratings.from_arrays(HAND, scale=(1, 2)), pclf_layout(2, k=2, t=1, spec=2))
    users = np.array([[.2, .2], [.1, .1], [.1, .1], [.1, .1]])       # P(k | u) even: only tables decide on k
    items = (np.array([[.4], [.2], [.2], [.2]]),                     # common, T = 1
             np.array([[.5, .0], [.0, .5]]),                         # a: v0 in cluster 0, v1 in cluster 1
             np.array([[.25, .25], [.25, .25]]))                     # b: even
    tables = (np.array([[[.25], [.75]], [[.75], [.25]]]),            # common: P(1 | k) = 1/4, 3/4
              np.array([[[.5, .2], [.5, .8]], [[.5, .8], [.5, .2]]]),
              np.array([[[.9, .3], [.6, .2]], [[.1, .7], [.4, .8]]]))
    return problem, Params(users, items, tables)


def test_eleven_parameter_sets_worked_by_hand(engine, hand):
    """One EM step, every parameter set of the paper against numbers worked out here.

    Common view, T = 1: q(k | r) is proportional to P(r | k): r = 1 -> (1/4, 3/4); r = 2 -> (3/4, 1/4).
      counts users u0: r=1 and r=2 -> (1, 1); u1: r=2 -> (3/4, 1/4); u2, u3: r=1 -> (1/4, 3/4)
      items a.v0: 2, a.v1: 1, b.v0: 1, b.v1: 1
      table  r=1: three ratings (3/4, 9/4); r=2: two ratings (6/4, 2/4)
    View a: the item's cluster is known.
      (u0, v0, 1): P(1 | k, 0) = (.5, .5) -> (1/2, 1/2) in column 0
      (u0, v1, 2): P(2 | k, 1) = (.8, .2) -> (4/5, 1/5) in column 1
      (u1, v0, 2): P(2 | k, 0) = (.5, .5) -> (1/2, 1/2) in column 0
      users u0: (1.3, .7), u1: (.5, .5)
    View b, r = 1 for both: weights (.9, .3; .6, .2) / 2 = q = (.45, .15; .3, .1) over (k, l)
      users u2, u3: (.6, .4) each; items v0, v1: (.75, .25) each; table r=1: twice q, r=2: 0
    """
    problem, params = hand
    stats = engine.estep(engine.place(problem), Params(*(
        tuple(map(engine.put, x)) if isinstance(x, tuple) else engine.put(x)
        for x in (params.users, params.items, params.tables))), 1.0)
    rtol = tolerance(engine)

    def close(actual, expected):
        np.testing.assert_allclose(np.asarray(actual, float), expected, rtol=rtol, atol=1e-7 if rtol > 1e-6 else 1e-12)

    users = np.array([[1 + 1.3, 1 + .7], [.75 + .5, .25 + .5], [.25 + .6, .75 + .4], [.25 + .6, .75 + .4]])
    new = mstep(stats, problem, Priors(), prior_means(stats, problem))
    close(new.user_clusters(), users.sum(0) / 10)                                     # (Cu): 2 * (3 + 2) = 10
    close(new.users_given_cluster(), users / users.sum(0))                            # (uConCu)
    close(new.item_clusters(0), [1.0])                                                # (Cvcom)
    close(new.item_clusters(1), [2 / 3, 1 / 3])                                       # (Cvspeone)
    close(new.item_clusters(2), [.75, .25])                                           # (Cvspetwo)
    close(new.items_given_cluster(0), np.array([[2], [1], [1], [1]]) / 5)             # (vConCvcom)
    close(new.items_given_cluster(1), [[1, 0], [0, 1]])                               # (vConCvspeone)
    close(new.items_given_cluster(2), [[.5, .5], [.5, .5]])                           # (vConCvspetwo)
    close(new.tables[0][0, :, 0], [.75 / 2.25, 2.25 / 2.75])                          # (rConCuCvcom)
    close(new.tables[1], [[[.5, 0], [.5, 0]], [[.5, 1], [.5, 1]]])                    # (rConCuCvspeone)
    close(new.tables[2], [[[1, 1], [1, 1]], [[0, 0], [0, 0]]])                        # (rConCuCvspetwo)
    # objective: log of each rating's total, common and specific views in turn
    common = [.4 * .2 * 1, .2 * .2 * 1, .4 * .1 * 1, .2 * .1 * 1, .2 * .1 * 1]
    specific = [.2 * .5 * 1, .2 * .5 * 1, .1 * .5 * 1, .1 * .25 * 2, .1 * .25 * 2]
    assert stats.objective == pytest.approx(np.log(common + specific).sum(), rel=rtol)


@pytest.mark.parametrize("beta", [0.6, 1.0])
def test_stats_of_two_parts_add_up_to_the_whole(engine, beta):
    data = random_ratings(2)
    layout = pclf_layout()
    half = {name: np.arange(len(d)) % 2 == 0 for name, d in data.domains.items()}
    other = {name: ~mask for name, mask in half.items()}
    whole, a, b = (Problem.of(part, layout) for part in (data, data.select(half), data.select(other)))
    params = start_params(engine, whole)
    stats = [engine.estep(engine.place(p), params, beta) for p in (whole, a, b)]
    for total, added in zip(all_arrays(stats[0]), all_arrays(stats[1] + stats[2]), strict=True):
        np.testing.assert_allclose(total, added, rtol=10 * tolerance(engine), atol=1e-6 * tolerance(engine) ** .5)
    assert stats[0].objective == pytest.approx(stats[1].objective + stats[2].objective, rel=tolerance(engine))


@pytest.mark.parametrize("priors", [Priors(), Priors(2.0, 1.0, 3.0)], ids=["plain", "priors"])
def test_objective_never_falls_within_a_temperature(engine, priors):
    """Every step is checked; across temperatures the values do not compare."""
    problem = Problem.of(random_ratings(3), pclf_layout(3))
    start = random_posteriors(problem, np.random.default_rng(1))
    trace = run(engine, problem, start, priors=priors,
                schedule=Schedule((0.7, 0.9, 1.0), steps=12, max_iter=60, tol=0)).trace
    slack = 1e-9 if tolerance(engine) < 1e-6 else 1e-6
    for beta in (0.7, 0.9, 1.0):
        steps = np.diff([s.objective for s in trace if s.beta == beta])
        assert len(steps) >= 11
        assert (steps >= -slack * abs(trace[-1].objective)).all(), steps.min()


CASES = [(z, shared, beta, priors) for z in (1, 2, 3) for shared in (False, True) for beta in (0.7, 1.0)
         for priors in (Priors(), Priors(1.5, 0.5, 2.0))]


@pytest.mark.parametrize(("domains", "shared", "beta", "priors"), CASES)
def test_cpu_float64_equals_the_reference_after_whole_fits(domains, shared, beta, priors):
    """20 iterations, every parameter, to 1e-9 relative."""
    problem = Problem.of(random_ratings(domains, shared_users=shared), pclf_layout(domains, weight=0.8))
    start = random_posteriors(problem, np.random.default_rng(2))
    schedule = Schedule((beta, 1.0), steps=10, max_iter=20, tol=0)
    fits = [run(e, problem, start, schedule=schedule, priors=priors)
            for e in (ReferenceEngine(), engine_of("cpu", "float64"))]
    for expected, actual in zip(all_arrays(fits[0].params), all_arrays(fits[1].params), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-15)
    for a, b in zip(fits[0].trace, fits[1].trace, strict=True):
        assert (a.iteration, a.beta) == (b.iteration, b.beta)
        assert a.objective == pytest.approx(b.objective, rel=1e-10)


def test_shared_items_have_one_common_row_and_a_specific_row_in_each_domain():
    data = random_ratings(2, shared_items=True)
    problem = Problem.of(data, pclf_layout())
    assert problem.n_items[0] == data.n_items < problem.n_items[1] + problem.n_items[2]
    start = random_posteriors(problem, np.random.default_rng(0))
    fits = [run(e, problem, start, schedule=Schedule(max_iter=10, tol=0))
            for e in (ReferenceEngine(), engine_of("cpu", "float64"))]
    np.testing.assert_allclose(fits[1].params.items[0], fits[0].params.items[0], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("start", list(STARTS))
def test_start_values_count_every_rating_once_a_view(start):
    problem = Problem.of(random_ratings(2), pclf_layout())
    stats = STARTS[start](problem, np.random.default_rng(0))
    n = problem.n_ratings
    assert stats.users.sum() == pytest.approx(2 * n)
    assert stats.items[0].sum() == pytest.approx(n)
    assert [t.sum() for t in stats.tables] == pytest.approx([n, n / 2, n / 2], rel=0.1)
    again = STARTS[start](problem, np.random.default_rng(0))
    assert all((a == b).all() for a, b in zip(all_arrays(stats), all_arrays(again), strict=True))
    other = STARTS[start](problem, np.random.default_rng(1))
    assert all((a != b).any() for a, b in zip(all_arrays(stats), all_arrays(other), strict=True))


def test_random_posteriors_are_uniform_numbers_divided_by_their_sum():
    """One rating a user and item: its counts are the sums of its posterior, whose cells must be spread as NumPy's."""
    n, k, c = 20_000, 3, 4
    codes = np.arange(n, dtype=np.int32)
    problem = Problem(Layout(k, (View("a", (0,), c), View("b", (0,), 1))), n, n, (codes,), (codes,), (codes,),
                      (codes,), ((0, n),), (n, n), ((codes,), (codes,)), (((0, n),), ((0, n),)))
    stats = random_posteriors(problem, np.random.default_rng(0))
    found = stats.tables[0]                                               # a level of its own for each rating
    np.testing.assert_allclose(found.sum(axis=(1, 2)), 1)
    np.testing.assert_allclose(found.sum(axis=1), stats.items[0])
    np.testing.assert_allclose(found.sum(axis=2) + stats.tables[1].sum(axis=2), stats.users)
    expected = np.random.default_rng(1).random((n, k, c))
    expected /= expected.sum(axis=(1, 2), keepdims=True)
    noise = expected.std() / n**.5                                        # of a cell's mean; five of them are rare
    assert np.abs(found.mean(axis=0) - 1 / (k * c)).max() < 5 * noise
    np.testing.assert_allclose(found.var(axis=0), expected.var(), rtol=5 * (2 / n)**.5)
    between = np.corrcoef(found.reshape(n, -1), rowvar=False)             # cells of a rating: -1 / (cells - 1)
    assert np.abs(between[~np.eye(k * c, dtype=bool)] + 1 / (k * c - 1)).max() < 5 / n**.5
    assert abs(np.corrcoef(found[1:].ravel(), found[:-1].ravel())[0, 1]) < 5 / (n * k * c)**.5


def test_random_posteriors_add_to_the_right_rows():
    """Counts of each row, view and level are those of the ratings, times the weight of the view."""
    data = random_ratings(3, shared_users=True, shared_items=True)
    problem = Problem.of(data, pclf_layout(3, weight=0.3))
    stats = random_posteriors(problem, np.random.default_rng(0))
    n_users = np.zeros(problem.n_users)
    for i, view in enumerate(problem.layout.views):
        n_items, n_levels = np.zeros(problem.n_items[i]), np.zeros(problem.n_levels)
        for z, rows in zip(view.domains, problem.item_rows[i], strict=True):
            np.add.at(n_users, problem.user_rows[z][problem.user[z]], view.weight)
            np.add.at(n_items, rows[problem.item[z]], view.weight)
            np.add.at(n_levels, problem.level[z], view.weight)
        np.testing.assert_allclose(stats.items[i].sum(axis=1), n_items)
        np.testing.assert_allclose(stats.tables[i].sum(axis=(1, 2)), n_levels)
    np.testing.assert_allclose(stats.users.sum(axis=1), n_users)


def test_start_memory_stays_far_below_ratings_times_clusters():
    import tracemalloc

    problem = Problem.of(random_ratings(1, n_users=300, n_items=300, n=40_000), Layout(20, (View("a", (0,), 20),)))
    tracemalloc.start()
    random_posteriors(problem, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000 * 20 * 20 * 8 / 2


def test_default_schedule_leaves_the_symmetric_saddle():
    """The hardest case: every user and item cluster has the same mean, so only the interaction tells them apart.

    A fit that stayed in the saddle, or that took its plateau for convergence, would predict the mean everywhere.
    """
    data, _, _, _ = drawn_ratings(seed=3)
    problem = Problem.of(data, pclf_layout(2, k=3, t=3, spec=3))
    for seed in range(3):
        fit = run(engine_of("cpu", "float64"), problem, random_posteriors(problem, np.random.default_rng(seed)),
                  schedule=Schedule(max_iter=200))
        s = np.einsum("r,rkc->kc", np.arange(1, 6), fit.params.tables[0])
        assert s.std() > 0.5


def drawn_ratings(seed=0, n_users=150, n_items=90, n=4000):
    """Two domains drawn from hard co-clusters with well separated mean ratings."""
    rng = np.random.default_rng(seed)
    s = np.array([[1.3, 3.0, 4.7], [4.7, 1.3, 3.0], [3.0, 4.7, 1.3]])
    arrays, users, items = {}, [], []
    for z in range(2):
        k, c = rng.integers(0, 3, n_users), rng.integers(0, 3, n_items)
        pairs = rng.choice(n_users * n_items, n, replace=False)
        u, v = pairs // n_items, pairs % n_items
        arrays["ab"[z]] = u, v, np.clip(np.round(s[k[u], c[v]] + rng.normal(0, .4, n)), 1, 5)
        _, first_u = np.unique(u, return_index=True)
        order_u, order_v = u[np.sort(first_u)], v[np.sort(np.unique(v, return_index=True)[1])]
        users.append(k[order_u])
        items.append(c[order_v])
    return Ratings.from_arrays(arrays, scale=(1, 5)), np.concatenate(users), np.concatenate(items), s


def test_known_clusters_are_recovered():
    """In each domain: turning the clusters of users and items of one domain in a circle leaves s as it is."""
    from scipy.optimize import linear_sum_assignment
    from scipy.stats import norm
    from sklearn.metrics import adjusted_rand_score

    data, users, items, s = drawn_ratings()
    problem = Problem.of(data, Layout(3, (View("common", (0, 1), 3),)))
    fits = [run(engine_of("cpu", "float64"), problem, random_posteriors(problem, np.random.default_rng(seed)),
                schedule=Schedule(max_iter=200)) for seed in range(4)]
    params = max(fits, key=lambda f: f.trace[-1].objective).params
    found = np.einsum("r,rkc->kc", np.arange(1, 6), params.tables[0])
    edges = norm.cdf((np.arange(1.5, 5) - s[..., None]) / 0.4)      # of the normal noise, rounded and cut at 1 and 5
    truth = 5 - edges.sum(axis=-1)
    for of_users, of_items in zip(problem.user_groups, problem.item_groups[0], strict=True):
        orders = []
        for kinds, joint, rows in ((users, params.users, of_users), (items, params.items[0], of_items)):
            kind, mass = kinds[slice(*rows)], joint[slice(*rows)]
            assert adjusted_rand_score(kind, mass.argmax(1)) >= 0.9
            orders.append(linear_sum_assignment([-mass[kind == k].sum(0) for k in range(3)])[1])
        assert np.abs(found[np.ix_(*orders)] - truth).max() < 0.15


def test_held_out_likelihood_stops_the_run_and_the_best_parameters_are_kept():
    problem = Problem.of(random_ratings(1), Layout(3, (View("a", (0,), 3),)))
    values = iter([1.0, 2.0, 3.0, 2.5, 2.4, 2.3, 2.2, 2.1])
    seen = []

    def held_out(params, means):
        seen.append(params.users.copy())
        return next(values)

    fit = run(ReferenceEngine(), problem, random_memberships(problem, np.random.default_rng(0)),
              schedule=Schedule((1.0,), max_iter=50, tol=0, patience=3), held_out=held_out)
    assert len(fit.trace) == 6
    assert fit.converged
    assert (fit.params.users == seen[2]).all()


def test_patience_begins_anew_at_each_temperature():
    problem = Problem.of(random_ratings(1), Layout(3, (View("a", (0,), 3),)))
    values = iter([3.0, 2.0, 1.0, 0.9, 4.0, 5.0, 4.0, 4.0, 4.0, 4.0])
    fit = run(ReferenceEngine(), problem, random_memberships(problem, np.random.default_rng(0)),
              schedule=Schedule((0.5, 1.0), steps=4, max_iter=50, tol=0, patience=3), held_out=lambda *_: next(values))
    assert [step.beta for step in fit.trace] == [0.5] * 4 + [1.0] * 5


def test_sums_of_very_many_rows_do_not_stand_still():
    counts = np.full((20_000_000, 2), [0.75, 0.25], np.float32)
    np.testing.assert_allclose(shares(counts, ((0, len(counts)),)), [[0.75, 0.25]], rtol=1e-5)


def test_tolerance_stops_the_run():
    problem = Problem.of(random_ratings(1), Layout(3, (View("a", (0,), 3),)))
    start = random_memberships(problem, np.random.default_rng(0))
    loose, tight = (run(ReferenceEngine(), problem, start, schedule=Schedule((1.0,), max_iter=200, tol=tol))
                    for tol in (1e-3, 1e-6))
    assert loose.converged
    assert len(loose.trace) < len(tight.trace)


def test_callbacks_see_each_step_and_can_stop_the_run():
    problem = Problem.of(random_ratings(1), Layout(3, (View("a", (0,), 3),)))
    steps = []

    def stop_at_seven(step: Step) -> bool:
        steps.append(step)
        return step.iteration == 7

    fit = run(ReferenceEngine(), problem, random_memberships(problem, np.random.default_rng(0)),
              callbacks=[stop_at_seven])
    assert [s.iteration for s in steps] == list(range(1, 8))
    assert [s.beta for s in steps] == [0.8] * 5 + [0.9] * 2
    assert tuple(steps) == fit.trace


def test_ctrl_c_keeps_the_model_so_far():
    problem = Problem.of(random_ratings(1), Layout(3, (View("a", (0,), 3),)))

    def interrupt(step):
        if step.iteration == 4:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted after 4 of 50 iterations"):
        fit = run(ReferenceEngine(), problem, random_memberships(problem, np.random.default_rng(0)),
                  callbacks=[interrupt])
    assert np.isfinite(fit.params.users).all()


def test_rows_without_ratings_get_the_share_of_their_group():
    counts = np.array([[3.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    groups = ((0, 2), (2, 3))
    np.testing.assert_allclose(memberships(counts, groups, np.array([[.75, .25], [.5, .5]])),
                               [[.75, .25], [.75, .25], [.5, .5]])


def test_priors_pull_memberships_towards_the_share_of_the_group():
    """One user with 1 rating surely in cluster 1; share (3/4, 1/4); strength 3: (0 + 9/4, 1 + 3/4) / 4."""
    problem = Problem.of(random_ratings(1), Layout(2, (View("a", (0,), 2),)))
    stats = put(ReferenceEngine(), random_memberships(problem, np.random.default_rng(0)))
    stats.users[:] = 0.0
    stats.users[0], stats.users[1] = [0, 1], [3, 0]
    means = prior_means(stats, problem)
    np.testing.assert_allclose(means.users[0], [.75, .25])
    params = mstep(stats, problem, Priors(users=3.0), means)
    np.testing.assert_allclose(params.users[0] / params.users[0].sum(), [9 / 16, 7 / 16])


def test_tiny_probabilities_do_not_become_nan(engine):
    """A user all but sure to be in a cluster whose table all but excludes the rating."""
    problem = Problem.of(Ratings.from_arrays({"a": ([1, 2], [1, 2], [1, 5])}, scale=(1, 5)),
                         Layout(2, (View("a", (0,), 1),)))
    users = engine.put(np.array([[.5, 1e-37], [1e-37, .5]]))
    table = np.full((5, 2, 1), 1e-30)
    params = Params(users, (engine.put(np.full((2, 1), .5)),), (engine.put(table),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stats = engine.estep(engine.place(problem), params, 1.0)
    assert all(np.isfinite(a).all() for a in all_arrays(stats))
    assert np.isfinite(stats.objective)


@pytest.mark.parametrize("start", ["memberships by id", "posteriors by id"])
def test_a_start_by_id_does_not_depend_on_the_order_of_rows(start):
    """The same ratings in another order, with ids as text: predictions differ by rounding alone."""
    rng = np.random.default_rng(3)
    pairs = np.unique(rng.integers(0, (40, 30), (400, 2)), axis=0)
    ratings, order = rng.integers(1, 6, len(pairs)), rng.permutation(len(pairs))
    fits = []
    for rows, name in ((np.arange(len(pairs)), int), (order, str)):
        users, items = ([name(i) for i in column] for column in pairs[rows].T)
        data = Ratings.from_arrays({"films": (users, items, ratings[rows])}, scale=(1, 5))
        model = FMM(4, 4, start=start, n_restarts=1, max_iter=12).fit(data, dtype="float64")
        fits.append(model.predict("films", [name(u) for u in range(5)], [name(v) for v in range(5)]))
    assert np.allclose(*fits, atol=1e-9)


def test_ids_of_two_domains_start_alike_only_where_they_are_shared():
    arrays = {"films": (["Ann", "Ben"], ["Heat", "Jaws"], [5, 3]), "books": (["Ben", "Cid"], ["Emma", "Dune"], [2, 3])}
    for shared in (True, False):
        data = Ratings.from_arrays(arrays, scale=(1, 5), shared_users=shared)
        keys = Problem.of(data, Layout(2, (View("all", (0, 1), 2),)), keyed=True).user_keys
        assert len(set(keys.tolist())) == (3 if shared else 4)


@pytest.mark.parametrize("stopped", [1, 5, 7, 12])
def test_a_run_that_was_saved_goes_on_with_the_same_bits(stopped):
    """Within a temperature, at the end of one, and at the very end."""
    problem = made(Layout(3, (View("a", (0,), 2),)), [300], [20], [15])
    start, schedule = random_memberships(problem, np.random.default_rng(0)), Schedule(max_iter=12)
    priors, engine, kept = Priors(1.0, 1.0, 1.0), engine_of("cpu", "float64"), []
    whole = run(engine, problem, start, schedule=schedule, priors=priors, save=kept.append)
    saved = next(s for s in kept if len(s.trace) == stopped)
    again = run(engine, problem, start, schedule=schedule, priors=priors, saved=saved)
    assert np.array_equal(again.params.users, whole.params.users)
    assert [s.objective for s in again.trace] == [s.objective for s in whole.trace]
    assert again.converged == whole.converged


def test_a_hash_of_an_id_is_that_of_its_text():
    numbers, texts = Vocabulary([7, -12, 3 * 10**15]), Vocabulary(["7", "-12", "3000000000000000"])
    assert numbers.keys().tolist() == texts.keys().tolist()
    assert texts.take(np.array([2])).keys()[0] == texts.keys()[2]
    many = Vocabulary([f"user {i}" for i in range(10_000)]).keys()
    assert len(set(many.tolist())) == 10_000
    assert abs((many >> np.uint64(63)).mean() - 0.5) < 0.03
    assert abs((many & np.uint64(1)).mean() - 0.5) < 0.03
