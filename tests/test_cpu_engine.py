"""The CPU engine against the reference, one E-step at a time; and the other kernels against plain NumPy."""

import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import replace

import numba
import numpy as np
import pytest
from problems import made, start_of

import pclf
from pclf import bench
from pclf.clusters.state import Params
from pclf.engines import cpu, kernels
from pclf.engines.cpu import CpuEngine
from pclf.engines.kernels import fold_in, top_n
from pclf.engines.reference import ReferenceEngine
from pclf.errors import EngineError
from pclf.problem import Layout, View

RTOL = {"float64": 1e-10, "float32": 2e-4}     # against the float64 reference
COMMON = View("common", (0, 1, 2), 5)
LAYOUTS = {
    "one view": Layout(3, (COMMON,)),
    "two of three domains": Layout(4, (View("outer", (2, 0), 6),)),
    "a view alone": Layout(8, (View("second", (1,), 2),)),
    "common and specific": Layout(20, (
        COMMON, View("first", (0,), 3, 0.7), View("second", (1,), 9, 1.5), View("third", (2,), 17, 0.0))),
    "one cluster": Layout(1, (View("common", (0, 1, 2), 1),)),
}


@pytest.fixture(params=["float32", "float64"])
def engine(request):
    return CpuEngine(request.param)


def problem_of(layout, n_ratings=(500, 300, 200), n_users=(70, 40, 33), n_items=(12, 25, 9), shared=False):
    return made(layout, n_ratings, n_users, n_items, shared)


def estep(engine, problem, params=None, beta=1.0):
    params = params or start_of(problem)
    own = Params(engine.put(params.users), tuple(map(engine.put, params.items)), tuple(map(engine.put, params.tables)))
    return engine.estep(engine.place(problem), own, beta)


def arrays(stats):
    return [stats.users, *stats.items, *stats.tables]


def assert_same(got, want, rtol):
    for a, b in zip(arrays(got), arrays(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * 1e-3)
    n = float(want.users.sum())                # the objective is a sum of so many logarithms, which may cancel
    assert got.objective == pytest.approx(want.objective, abs=min(rtol, 1e-6) * n)


def assert_parity(engine, problem, params=None, beta=1.0):
    want = estep(ReferenceEngine(), problem, params, beta)
    assert_same(estep(engine, problem, params, beta), want, RTOL[engine.dtype.name])


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_counts_equal_the_reference(engine, name, shared):
    assert_parity(engine, problem_of(LAYOUTS[name], shared=shared))


@pytest.mark.parametrize("beta", [0.3, 0.8])
def test_tempered_counts_equal_the_reference(engine, beta):
    assert_parity(engine, problem_of(LAYOUTS["common and specific"]), beta=beta)


@pytest.mark.parametrize("n_clusters", [*range(1, 34), 50, 100])
def test_any_number_of_clusters_equals_the_reference(engine, n_clusters):
    layout = Layout(n_clusters, (View("all", (0, 1, 2), n_clusters),))
    assert_parity(engine, problem_of(layout, n_ratings=(150, 60, 1)))


def test_a_domain_without_ratings_counts_nothing(engine):
    problem = problem_of(LAYOUTS["common and specific"], n_ratings=(400, 0, 1))
    assert_parity(engine, problem)
    assert not estep(engine, problem).items[2].any()


def test_with_one_cluster_the_counts_are_the_data(engine):
    problem = problem_of(LAYOUTS["one cluster"])
    stats = estep(engine, problem)
    n_users = np.concatenate([np.bincount(u, minlength=len(r))
                              for u, r in zip(problem.user, problem.user_rows, strict=True)])
    np.testing.assert_allclose(stats.users[:, 0], n_users, rtol=1e-6)
    np.testing.assert_allclose(stats.tables[0].ravel(), np.bincount(np.concatenate(problem.level)), rtol=1e-6)


def test_an_item_rated_twice_in_a_row_counts_twice(engine):
    """Four ratings go through at a time; the same item among them, and in the next user's, must not be lost."""
    problem = problem_of(LAYOUTS["a view alone"])
    same = [np.zeros_like(x) for x in problem.item]
    assert_parity(engine, replace(problem, item=tuple(same)))


def test_counts_of_two_parts_add_up_to_the_whole(engine):
    problem = problem_of(LAYOUTS["common and specific"], shared=True)

    def half(remainder):
        return replace(problem, **{name: tuple(x[np.arange(len(x)) % 2 == remainder] for x in getattr(problem, name))
                                   for name in ("user", "item", "level")})

    rtol = 1e-12 if engine.dtype == np.float64 else 1e-5
    assert_same(estep(engine, half(0)) + estep(engine, half(1)), estep(engine, problem), rtol)


@pytest.fixture
def many_parts(monkeypatch):
    """Small data cut as large data are; four cores whatever the machine has."""
    monkeypatch.setattr(cpu, "cores", lambda: 4)
    monkeypatch.setattr(cpu, "SMALL", 0)
    monkeypatch.setattr(cpu, "DENSE", 1)


@pytest.mark.parametrize("beta", [1.0, 0.7])
@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.usefixtures("many_parts")
def test_any_number_of_threads_gives_the_same_bits(dtype, beta):
    problem = problem_of(LAYOUTS["common and specific"], (9000, 5000, 3000), (900, 500, 300), shared=True)
    placed = CpuEngine(dtype).place(problem)
    assert min(len(index.parts) for index in placed.indices.values()) > 4
    one, *others = (estep(CpuEngine(dtype, n_threads=n), problem, beta=beta) for n in (1, 2, 4, 2, 4))
    for other in others:
        assert other.objective == one.objective
        for a, b in zip(arrays(other), arrays(one), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.usefixtures("many_parts")
def test_how_a_sweep_is_cut_does_not_change_the_counts(engine, monkeypatch):
    problem = problem_of(LAYOUTS["common and specific"], (9000, 5000, 3000), (900, 500, 300))
    cut = estep(engine, problem)
    monkeypatch.setattr(cpu, "PARTS", 1)
    assert_same(cut, estep(engine, problem), 1e-12 if engine.dtype == np.float64 else 1e-5)
    assert_parity(engine, problem)


def test_float32_sums_over_many_ratings_stay_accurate():
    """A hundred thousand ratings of one item: errors must not grow with their number."""
    layout, n = Layout(3, (View("all", (0, 1, 2), 4),)), (200_000, 1, 1)
    problem = problem_of(layout, n, (2000, 2, 2), (3, 2, 2))
    assert_same(estep(CpuEngine(), problem), estep(CpuEngine("float64"), problem), 2e-5)


def test_tiny_memberships_give_finite_counts(engine):
    problem = problem_of(LAYOUTS["one view"])
    start = start_of(problem)
    users, items = start.users.copy(), start.items[0].copy()
    users[:, 0] *= 1e-30
    items[::2, :3] *= 1e-36
    stats = estep(engine, problem, Params(users, (items,), start.tables))
    assert all(np.isfinite(x).all() for x in arrays(stats))
    assert stats.users.sum() == pytest.approx(problem.n_ratings, rel=1e-5)


def test_an_impossible_rating_counts_nothing_and_spoils_nothing(engine):
    problem = problem_of(LAYOUTS["a view alone"])
    start = start_of(problem)
    table = start.tables[0].copy()
    table[2] = 0
    stats = estep(engine, problem, Params(start.users, start.items, (table,)))
    assert all(np.isfinite(x).all() for x in arrays(stats))
    assert stats.users.sum() == pytest.approx(np.count_nonzero(problem.level[1] != 2), rel=1e-5)
    assert -np.inf < stats.objective < estep(engine, problem).objective


def test_memory_is_a_few_bytes_a_rating():
    """Neither ratings x clusters nor a copy of the index for each view."""
    views = (View("common", (0, 1, 2), 32), *(View(f"only {z}", (z,), 32) for z in range(3)))
    problem = problem_of(Layout(4, views), (200_000, 100_000, 100_000), (2000, 1000, 1000))
    engine = CpuEngine(n_threads=1)
    estep(engine, problem)                      # compiles
    tracemalloc.start()
    estep(engine, problem)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / problem.n_ratings < 12


def test_arrays_come_in_the_precision_asked_for(engine):
    problem = problem_of(LAYOUTS["one view"])
    stats = estep(engine, problem)
    assert engine.put(np.ones((2, 3))).dtype == stats.users.dtype == stats.items[0].dtype == engine.dtype
    assert engine.put(np.ones((2, 3, 4))).dtype == stats.tables[0].dtype == np.float64
    assert type(engine.get(stats.users)) is np.ndarray


def test_more_threads_than_cores_are_capped_and_said():
    with pytest.warns(UserWarning, match=rf"n_threads=1000 is more than the {cpu.cores()} cores"):
        assert CpuEngine(n_threads=1000).n_threads == cpu.cores()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CpuEngine().n_threads == cpu.cores()


@pytest.mark.parametrize(("settings", "message"), [
    ({"dtype": "float16"}, "dtype must be 'float32' or 'float64'; got 'float16'"),
    ({"n_threads": 0}, "n_threads must be at least 1; got 0"),
])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CpuEngine(**settings)


@pytest.mark.usefixtures("many_parts")
def test_after_an_error_in_a_thread_no_other_is_still_at_work():
    engine, finished = CpuEngine(n_threads=2), []

    def task(i):
        if i == 0:
            raise KeyboardInterrupt
        finished.append(i)

    with pytest.raises(KeyboardInterrupt):
        engine._map(task, range(50))
    before = list(finished)
    engine._map(lambda i: None, range(4))       # the pool works on, and nothing old is left in it
    assert finished == before


def test_numba_is_imported_when_it_is_needed():
    code = "import sys, pclf.engines.cpu; sys.exit('numba' in sys.modules or 'llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("n", [0, 1, 3, 10, 60, 100])
def test_top_n_is_a_sort_without_what_was_seen(n):
    rng = np.random.default_rng(n)
    scores = rng.integers(0, 9, (20, 60)).astype(np.float32)      # many ties
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    scores[3] = -np.inf
    seen = [rng.permutation(60)[:rng.integers(0, 60)].astype(np.int32) for _ in range(20)]
    indptr = np.cumsum([0, *map(len, seen)])
    codes, values = top_n(scores, indptr, np.concatenate(seen), n)
    assert codes.shape == values.shape == (20, n)
    assert (codes.dtype, values.dtype) == (np.int32, np.float32)
    for i, mine in enumerate(seen):
        allowed = scores[i].copy()
        allowed[mine] = -np.inf
        best = np.argsort(-allowed, kind="stable")[:np.isfinite(allowed).sum()][:n]
        assert codes[i].tolist() == best.tolist() + [-1] * (n - len(best))
        assert values[i].tolist() == allowed[best].tolist() + [-np.inf] * (n - len(best))


def test_fold_in_ends_at_its_fixed_point():
    rng = np.random.default_rng(0)
    likelihood, weights, prior = rng.random((30, 6)) ** 4, rng.random(30), rng.random(6)
    theta = fold_in(likelihood, weights, np.ones(6), prior, 100_000, 1e-14)
    shares = theta * likelihood / (likelihood @ theta)[:, None]
    expected = prior + weights @ shares
    np.testing.assert_allclose(theta, expected / expected.sum(), rtol=1e-9)


def test_fold_in_without_ratings_is_the_prior_and_without_both_the_start():
    start, prior, none = np.array([3.0, 1.0]), np.array([1.0, 4.0]), np.empty((0, 2))
    np.testing.assert_allclose(fold_in(none, np.empty(0), start, prior), [0.2, 0.8])
    np.testing.assert_allclose(fold_in(none, np.empty(0), start, 0 * prior), [0.75, 0.25])


def test_fold_in_leaves_out_what_no_cluster_explains():
    likelihood, weights, start, prior = np.array([[0.0, 0.0], [2.0, 1.0]]), np.ones(2), np.ones(2), np.ones(2)
    theta = fold_in(likelihood, weights, start, prior)
    np.testing.assert_allclose(theta, fold_in(likelihood[1:], weights[1:], start, prior))
    assert theta[0] > theta[1]


def test_fold_in_does_not_touch_its_arguments():
    start, prior = np.array([0.5, 1.5]), np.array([1.0, 0.0])
    fold_in(np.ones((2, 2)), np.ones(2), start, prior)
    assert (start.tolist(), prior.tolist()) == ([0.5, 1.5], [1.0, 0.0])


def test_too_little_memory_is_said_before_it_happens(monkeypatch):
    from pclf.engines import cpu
    from pclf.errors import EngineError

    monkeypatch.setattr(cpu, "free_memory", lambda: 1000)
    data = pclf.Ratings.from_arrays({"a": ([1, 2, 3], [1, 2, 3], [1, 3, 5])}, scale=(1, 5))
    with pytest.raises(EngineError, match=r"a fit of these 3 ratings needs about .* GiB of memory; 0\.0 GiB are free"):
        pclf.PCLF.paper(n_user_clusters=2).fit(data, engine="cpu")


@pytest.mark.parametrize(("n_users", "n_items", "n_clusters", "n_levels"), [
    (2_000, 500, 10, 5), (50_000, 500, 10, 101), (2_000, 10_000, 100, 5)])
def test_the_memory_that_is_asked_for_is_enough(n_users, n_items, n_clusters, n_levels):
    layout = Layout(8, (View("all", (0,), n_clusters),))
    problem = replace(problem_of(layout, (300_000,), (n_users,), (n_items,)), n_levels=n_levels)
    engine = CpuEngine()
    estep(engine, problem)                                                         # compiles
    params = bench.start_of(engine, problem)
    assert bench.peak_bytes(lambda: engine.estep(engine.place(problem), params, 1.0)) < engine._bytes_needed(problem)


def test_more_rows_than_keys_can_name_are_refused():
    problem = problem_of(LAYOUTS["a view alone"])
    rows = np.broadcast_to(np.int32(0), 1 << 25)
    many = replace(problem, n_levels=250, user_rows=(rows,) * len(problem.user))
    with pytest.raises(EngineError, match="users times levels must be below 4,294,967,296 here; got 33,554,432 users"):
        CpuEngine()._sort(many, 0, 12)


def test_without_a_place_for_the_cache_code_is_compiled_all_the_same(monkeypatch):
    """As in a container that root installed: numba refuses to cache where it may not write."""
    def njit(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(kernels, "njit", njit)
    assert kernels.compiled(lambda x: x + 1)(1) == 2
