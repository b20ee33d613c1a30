"""The GPU engine against the reference: in Triton's interpreter, or on a GPU where there is one."""

import importlib
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from problems import made, start_of

import pclf
from pclf.clusters.loop import Schedule, random_memberships, run
from pclf.clusters.mstep import Priors, memberships
from pclf.clusters.state import Params
from pclf.engines.cpu_rows import Cores, squares
from pclf.engines.reference import ReferenceEngine
from pclf.errors import EngineError
from pclf.factors.choices import learn_choices
from pclf.factors.hyper import Hyper
from pclf.factors.rows import tilts
from pclf.problem import Layout, View

torch = pytest.importorskip("torch", reason="the GPU engine needs PyTorch")
CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"     # read when Triton is imported, so before it is
pytest.importorskip("triton", reason="the GPU engine needs Triton")
gpu, gpu_rows = (importlib.import_module(f"pclf.engines.{name}") for name in ("gpu", "gpu_rows"))
if not (CUDA or gpu.INTERPRETED):
    pytest.skip("Triton was imported before TRITON_INTERPRET was set", allow_module_level=True)

SWEEPS = {} if CUDA else {"sweeps": 5}      # the interpreter takes its time
RTOL = 2e-4                                  # float32 against the float64 reference
COMMON = View("common", (0, 1), 5)
LAYOUTS = {
    "one view": Layout(3, (COMMON,)),
    "a view alone": Layout(3, (View("second", (1,), 2),)),
    "common and specific": Layout(4, (COMMON, View("first", (0,), 3, 0.7), View("second", (1,), 9, 1.5))),
    "one cluster": Layout(1, (View("common", (0, 1), 1),)),
    "wide": Layout(2, (View("common", (0, 1), 33),)),
}


@pytest.fixture
def engine(monkeypatch):
    if not CUDA:
        monkeypatch.setattr(gpu, "TILE", 8192)    # the interpreter takes its time by the program, not by its size
    return gpu.GpuEngine("cuda" if CUDA else "cpu")


def problem_of(layout, n_ratings=(500, 300), n_users=(30, 40), n_items=(12, 25), shared=False):
    return made(layout, n_ratings, n_users, n_items, shared)


def put(engine, params):
    users, items, tables = params.users, params.items, params.tables
    return Params(engine.put(users), tuple(map(engine.put, items)), tuple(map(engine.put, tables)))


def arrays(engine, x):
    return [engine.get(x.users), *map(engine.get, x.items), *map(engine.get, x.tables)]


def assert_same_stats(engine, problem, beta=1.0):
    reference, start = ReferenceEngine(), start_of(problem)
    got = engine.estep(engine.place(problem), put(engine, start), beta)
    want = reference.estep(problem, start, beta)
    for a, b in zip(arrays(engine, got), arrays(reference, want), strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=1e-6)
    assert got.objective == pytest.approx(want.objective, rel=1e-6)


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_estep_equals_the_reference(engine, name, shared):
    assert_same_stats(engine, problem_of(LAYOUTS[name], shared=shared))


@pytest.mark.parametrize("beta", [0.3, 0.8])
def test_tempered_estep_equals_the_reference(engine, beta):
    assert_same_stats(engine, problem_of(LAYOUTS["common and specific"]), beta)


@pytest.mark.parametrize("changes", [
    {"SPLIT": 8, "WIDTHS": (4, 8)},                                   # long lists summed in parts
    {"CACHE": 256, "FULL": 1},                                        # lists cut into blocks
    {"SPLIT": 8, "WIDTHS": (2, 4, 8), "CACHE": 256, "FULL": 1},       # both
    {"CHUNK": 50},                                                    # sorted in chunks
    {"TILE": gpu.TILE},                                               # as on a GPU
    {"TILE": 128, "BLOCK": 7},                                        # small programs, small float32 sums
], ids=str)
def test_how_the_work_is_cut_does_not_change_the_counts(engine, monkeypatch, changes):
    for name, value in changes.items():
        monkeypatch.setattr(gpu, name, value)
    assert_same_stats(engine, problem_of(LAYOUTS["common and specific"]))


def test_a_domain_without_ratings_counts_nothing(engine):
    assert_same_stats(engine, problem_of(LAYOUTS["common and specific"], n_ratings=(400, 0)))


def test_every_rating_counts_once_in_each_view(engine):
    problem = problem_of(LAYOUTS["common and specific"])
    stats = engine.estep(engine.place(problem), put(engine, start_of(problem)), 1.0)
    per_view = np.array([800, 0.7 * 500, 1.5 * 300])
    assert [float(x.sum()) for x in stats.items] == pytest.approx(per_view, rel=1e-5)
    assert [float(x.sum()) for x in stats.tables] == pytest.approx(per_view, rel=1e-5)
    assert float(stats.users.sum()) == pytest.approx(per_view.sum(), rel=1e-5)


def test_two_runs_give_the_same_bits(engine):
    problem = problem_of(LAYOUTS["common and specific"])
    start = put(engine, start_of(problem))
    first, second = (engine.estep(engine.place(problem), start, 0.9) for _ in range(2))
    for a, b in zip(arrays(engine, first), arrays(engine, second), strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.objective == second.objective


def test_the_order_of_the_ratings_does_not_change_a_bit(engine):
    problem = problem_of(LAYOUTS["one view"])
    order = [np.random.default_rng(3).permutation(len(x)) for x in problem.level]
    codes = {name: getattr(problem, name) for name in ("user", "item", "level")}
    other = replace(problem, **{
        name: tuple(x[o] for x, o in zip(parts, order, strict=True)) for name, parts in codes.items()})
    start = put(engine, start_of(problem))
    first, second = (engine.estep(engine.place(p), start, 1.0) for p in (problem, other))
    for a, b in zip(arrays(engine, first), arrays(engine, second), strict=True):
        np.testing.assert_array_equal(a, b)


def fit(engine, problem, priors):
    """P(r | u, v) of the first view after annealed EM, and the objective of each iteration."""
    start = random_memberships(problem, np.random.default_rng(2))
    fitted = run(engine, problem, start, priors=priors,
                 schedule=Schedule(betas=(0.9, 1.0), steps=3, max_iter=10, tol=0.0))
    p_u = memberships(fitted.params.users, problem.user_groups, fitted.means.users)
    p_v = memberships(fitted.params.items[0], problem.item_groups[0], fitted.means.items[0])
    return np.einsum("uk,rkc,vc->uvr", p_u, fitted.params.tables[0], p_v), [s.objective for s in fitted.trace]


@pytest.mark.parametrize("priors", [Priors(), Priors(2.0, 3.0, 4.0)], ids=["plain", "with priors"])
def test_a_whole_fit_predicts_what_the_reference_predicts(engine, priors):
    problem = problem_of(LAYOUTS["common and specific"])
    (got, got_trace), (want, want_trace) = (fit(e, problem, priors) for e in (engine, ReferenceEngine()))
    np.testing.assert_allclose(got, want, atol=1e-4)
    np.testing.assert_allclose(got_trace, want_trace, rtol=1e-5)


def test_a_rating_that_underflows_counts_nothing_and_is_not_nan(engine):
    problem = problem_of(LAYOUTS["one cluster"], n_ratings=(4, 4))
    start = start_of(problem)
    start.users[problem.user[0][0]] = 1e-44
    stats = engine.estep(engine.place(problem), put(engine, start), 1.0)
    assert all(np.isfinite(x).all() for x in arrays(engine, stats))
    assert np.isfinite(stats.objective)


def test_the_callers_matmul_precision_is_given_back(engine):
    problem, before = problem_of(LAYOUTS["one view"]), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        engine.estep(engine.place(problem), put(engine, start_of(problem)), 1.0)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_data_larger_than_the_card_is_refused_with_both_sizes(engine, monkeypatch):
    problem = problem_of(LAYOUTS["one view"])
    monkeypatch.setattr(gpu.GpuEngine, "_free", lambda self: 2.0**13)
    monkeypatch.setattr(gpu.GpuEngine, "_index", lambda *args: pytest.fail("allocated before it was checked"))
    with pytest.raises(EngineError, match=r"800 ratings of 70 users need 0\.\d\d GiB.* has 0\.00 GiB free"):
        engine.place(problem)


def test_memory_needed_grows_with_every_part_of_the_problem():
    small = gpu.bytes_needed(problem_of(LAYOUTS["one view"]))
    assert gpu.bytes_needed(problem_of(LAYOUTS["one view"], n_ratings=(9000, 300))) > small
    assert gpu.bytes_needed(problem_of(LAYOUTS["one view"], n_users=(3000, 40))) > small
    assert gpu.bytes_needed(problem_of(LAYOUTS["one view"], n_items=(1200, 25))) > small
    assert gpu.bytes_needed(problem_of(LAYOUTS["wide"])) > small


@pytest.mark.skipif(CUDA, reason="there is a GPU here")
def test_without_a_gpu_the_engine_says_what_to_install():
    with pytest.raises(EngineError, match=r"needs an NVIDIA GPU.*pip install 'pclf\[gpu\]'.*engine='cpu'"):
        gpu.GpuEngine()


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_without_its_packages_the_engine_says_what_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "pclf.engines.gpu")
    with pytest.raises(EngineError, match=rf"{package} is not installed. pip install 'pclf\[gpu\]'"):
        importlib.import_module("pclf.engines.gpu")


def test_the_cpu_device_is_for_the_interpreter_alone(monkeypatch):
    monkeypatch.setattr(gpu, "INTERPRETED", False)
    with pytest.raises(EngineError, match="TRITON_INTERPRET=1"):
        gpu.GpuEngine("cpu")


def top_n_case(n_users=17, n_items=40, seed=0):
    rng = np.random.default_rng(seed)
    users, items = rng.random((n_users, 4), np.float32), rng.random((n_items, 4), np.float32)
    seen = [np.sort(rng.choice(n_items, n, replace=False)) for n in rng.integers(0, n_items, n_users)]
    return users, items, np.cumsum([0, *map(len, seen)]), np.concatenate(seen), seen


def test_top_n_are_the_best_unseen_items_in_order(engine):
    users, items, indptr, flat, seen = top_n_case()
    best, scores = gpu.score_top_n(users, items, indptr, flat, 5, device=engine.device)
    for i, row in enumerate(seen):
        left = np.setdiff1d(np.arange(len(items)), row)
        want = left[np.argsort(-(users[i] @ items[left].T))][:5]
        assert best[i].tolist() == [*want, *[-1] * (5 - len(want))]
        np.testing.assert_allclose(scores[i, : len(want)], (users[i] @ items.T)[want], rtol=1e-5)
        assert np.isneginf(scores[i, len(want) :]).all()


def test_more_items_asked_than_there_are_leaves_minus_one(engine):
    best, scores = gpu.score_top_n(*top_n_case(n_items=3)[:4], 5, device=engine.device)
    assert (best[:, 3:] == -1).all()
    assert np.isneginf(scores[:, 3:]).all()


def test_scores_of_pairs_are_their_products(engine):
    users, items, *_ = top_n_case()
    u, v = np.array([0, 3, 3, 16]), np.array([5, 5, 39, 0])
    got = gpu.score_pairs(users, items, u, v, device=engine.device)
    np.testing.assert_allclose(got, (users[u] * items[v]).sum(1), rtol=1e-5)


@pytest.mark.parametrize("factor_weight", [0.0, 0.4, 1.0])
def test_a_model_fitted_on_the_gpu_predicts_and_recommends_there_as_on_the_cpu(engine, monkeypatch, factor_weight):
    """A whole fit from the same start: predictions to 1e-4, the same lists."""
    rng = np.random.default_rng(0)
    pairs = {name: rng.choice(20 * 15, 150, replace=False) for name in ("a", "b")}
    data = pclf.Ratings.from_arrays({n: (p // 15, p % 15, rng.integers(1, 6, 150)) for n, p in pairs.items()},
                                    scale=(1, 5))
    settings = {"n_user_clusters": 3, "n_common_clusters": 2, "n_specific_clusters": 2, "max_iter": 12,
                "factor_weight": factor_weight, "n_factors": 2, "hyper": SWEEPS}
    cpu = pclf.PCLF.paper(**settings).fit(data, engine="cpu")
    monkeypatch.setattr(pclf.engines, "create", lambda *args, **options: engine)
    there = pclf.PCLF.paper(**settings).fit(data, engine="gpu")
    d = data["b"]
    np.testing.assert_allclose(there.predict_codes("b", d.user, d.item), cpu.predict_codes("b", d.user, d.item),
                               atol=1e-4)
    np.testing.assert_allclose(there.predict("b", 3, [1, 2, 3]), cpu.predict("b", 3, [1, 2, 3]), atol=1e-4)
    lists = [model.recommend("b", n=3) for model in (cpu, there)]
    np.testing.assert_allclose(lists[0].scores, lists[1].scores, atol=1e-4)
    one = there.recommend("b", there.fold_in({"a": {1: 5, 2: 1}}), n=3)
    assert len(one) == 3


def ratings_by_row(n_rows=9, n_others=7, n=80, n_levels=5, seed=0):
    """Codes of ratings; the last row has none."""
    rng = np.random.default_rng(seed)
    row, other = rng.integers(0, n_rows - 1, n).astype(np.int32), rng.integers(0, n_others, n).astype(np.int32)
    return row, other, rng.integers(0, n_levels, n).astype(np.uint8)


@pytest.mark.parametrize("freedom", [0.0, Hyper().freedom])
@pytest.mark.parametrize(("n_levels", "n_factors"), [(2, 0), (3, 12), (5, 3), (10, 18)])
def test_a_row_step_is_that_of_the_cpu(engine, monkeypatch, n_levels, n_factors, freedom):
    monkeypatch.setattr(gpu, "SPLIT", 8)                          # long lists are summed in parts
    monkeypatch.setattr(gpu, "WIDTHS", (4, 8))
    monkeypatch.setattr(gpu_rows, "MEET", 4)                   # or by a program in several turns,
    monkeypatch.setattr(gpu_rows, "ROOM", 4 * 64 * (4 + n_factors) ** 2)   # and four rows are solved at a time
    rng, tilt, n_rows, n_others = np.random.default_rng(n_levels), tilts(n_levels), 9, 7
    shape, size = len(tilt), len(tilt) + n_factors
    rows, mean, others = (rng.normal(0, 0.3, (n, size)) for n in (n_rows, n_rows, n_others))
    doubts = squares(others[:, shape:]) + squares(rng.normal(0, 0.3, (n_others, n_factors)))
    root = rng.normal(0, 1, (size, size))
    prior, base, trust = np.linalg.inv(root @ root.T + np.eye(size)), rng.normal(0, 1, n_levels), rng.random(n_rows)
    found = []
    for machine in (Cores(), gpu_rows.Card(engine)):
        lists, _ = machine.lists(*ratings_by_row(n_levels=n_levels), n_rows, n_others, n_levels, 0)
        changed = [machine.put(x.copy()) for x in (rows, squares(rows[:, shape:]), trust)]
        sums = machine.step(lists, *changed, machine.put(others), machine.put(doubts), prior, machine.put(mean),
                            freedom, base, tilt)
        found.append([*map(machine.get, changed), *sums])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[1][0][-1], rows[-1])       # which has no ratings


@pytest.mark.parametrize(("n_levels", "n_factors"), [(2, 0), (3, 12), (5, 3), (10, 18)])
def test_what_ratings_say_is_collected_as_on_the_cpu(engine, monkeypatch, n_levels, n_factors):
    monkeypatch.setattr(gpu, "SPLIT", 8)
    monkeypatch.setattr(gpu, "WIDTHS", (4, 8))
    rng, tilt, n_rows, n_others = np.random.default_rng(n_levels), tilts(n_levels), 9, 7
    shape, size = len(tilt), len(tilt) + n_factors
    rows, others = (rng.normal(0, 0.3, (n, size)) for n in (n_rows, n_others))
    doubts = squares(others[:, shape:]) + squares(rng.normal(0, 0.3, (n_others, n_factors)))
    base, found = rng.normal(0, 1, n_levels), []
    for machine in (Cores(), gpu_rows.Card(engine)):
        lists = machine.side(*ratings_by_row(n_levels=n_levels), n_rows, n_others, n_levels)
        found.append(machine.collect(lists, *map(machine.put, (rows, others, doubts)), base, tilt))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert not found[1][0][-1].any()


def people_in_two_domains(rng):
    """Most of 20 people know both; ten levels in the second."""
    pairs = {"a": rng.choice(20 * 15, 150, replace=False), "b": rng.choice(16 * 15, 120, replace=False)}
    return pclf.Ratings.from_arrays({n: (p // 15, p % 15, rng.integers(1, top + 1, len(p)))
                                     for (n, p), top in zip(pairs.items(), (5, 10), strict=True)},
                                    scale={"a": (1, 5), "b": (1, 10)}, shared_users=True)


def things_with_attributes(rng):
    """Other people in each domain; items of both have a genre."""
    pairs = {n: rng.choice(20 * 15, 150, replace=False) for n in ("a", "b")}
    facts = {n: {"item_id": list(range(15)), "genre": ["horror" if i % 3 else "comedy" for i in range(15)]}
             for n in pairs}
    return pclf.Ratings.from_arrays({n: (p // 15, p % 15, rng.integers(1, 6, 150)) for n, p in pairs.items()},
                                    scale=(1, 5), attributes=facts)


@pytest.mark.parametrize("made_of", [people_in_two_domains, things_with_attributes])
def test_factors_that_bridges_tie_are_learned_on_the_gpu_as_on_the_cpu(engine, monkeypatch, made_of):
    """Whole fits from the same start: rows, populations, predictions of known people, visitors and guests."""
    data = made_of(np.random.default_rng(0))
    settings = {"n_user_clusters": 2, "n_common_clusters": 2, "n_specific_clusters": 2, "max_iter": 2,
                "factor_weight": 1.0, "n_factors": 2, "hyper": SWEEPS}
    cpu = pclf.PCLF.paper(**settings).fit(data, engine="cpu")
    monkeypatch.setattr(pclf.engines, "create", lambda *args, **options: engine)
    there = pclf.PCLF.paper(**settings).fit(data, engine="gpu")
    assert cpu.factors_["b"].people.between
    for side in ("people", "things"):
        one, two = (getattr(model.factors_["b"], side).covariance for model in (cpu, there))
        np.testing.assert_allclose(two, one, atol=2e-4)
    for name, d in data.domains.items():
        one, two = (model.factors_[name].domains[name] for model in (cpu, there))
        np.testing.assert_allclose(two.users, one.users, atol=5e-4)
        np.testing.assert_allclose(two.items, one.items, atol=5e-4)
        np.testing.assert_allclose(there.predict_codes(name, d.user, d.item), cpu.predict_codes(name, d.user, d.item),
                                   atol=5e-4)
    for who in (19, {"a": {1: 5, 2: 1}}):                          # who has no rating in b
        one, two = (model.predict("b", model.fold_in(who) if isinstance(who, dict) else who, [1, 2, 3],
                                  user_domain="a") for model in (cpu, there))
        np.testing.assert_allclose(two, one, atol=5e-4)


def by_domain(sides):
    """Choices of one domain: of each user, and of each item."""
    return tuple(side.n_chosen[:, None].astype(float) for side in sides)


@pytest.mark.parametrize("least", [0, 2])
def test_choices_are_learned_on_the_gpu_as_on_the_cpu(engine, least):
    found = []
    for machine in (Cores(), gpu_rows.Card(engine)):
        sides = machine.lists(*ratings_by_row(30, 25, 300), 30, 25, 5, least)
        chosen, choosers = learn_choices(*sides, by_domain(sides), 12, 0, machine)
        found.append([sides[0].rated, sides[0].n_chosen, chosen.variance, choosers.variance,
                      chosen.of_all(sides[0], machine), choosers.of_all(sides[1], machine)])
    for a, b in zip(*found, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_groups_of_people_without_a_common_item_have_factors(engine):
    """Nothing varies within a group: the sums of the card are not exact enough to see that."""
    row, other, level = ratings_by_row(20, 20, 300)
    other = ((other // 2) * 2 + row % 2).astype(np.int32)                  # even people, even items
    machine = gpu_rows.Card(engine)
    sides = machine.lists(row, other, level, 20, 20, 5, 0)
    chosen, choosers = learn_choices(*sides, by_domain(sides), 12, 0, machine)
    for choice in (chosen, choosers):
        assert np.isfinite(choice.places).all()
        assert choice.variance.max() < 1e7


def test_more_rows_with_levels_than_can_be_numbered_are_refused(engine):
    with pytest.raises(EngineError, match=r"takes up to 21,262,214 users or items at 101 levels; got 30,000,000"):
        gpu_rows.Card(engine).check_room(10, 30_000_000, 101, 16)


def test_many_levels_are_left_to_the_cpu(engine):
    assert isinstance(pclf.engines.for_rows(engine, 17), Cores)
    assert isinstance(pclf.engines.for_rows(engine, 16), gpu_rows.Card)


def test_factors_larger_than_the_card_are_refused_with_both_sizes(engine, monkeypatch):
    monkeypatch.setattr(gpu.GpuEngine, "_free", lambda self: 2.0**13)
    with pytest.raises(EngineError, match=r"the factors of 800 ratings need 1\.\d\d GiB.* has 0\.00 GiB free"):
        gpu_rows.Card(engine).check_room(800, 50, 5, 16)


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
def test_two_hundred_thousand_ratings_on_the_gpu_equal_the_reference(engine):
    views = View("common", (0, 1), 10), View("first", (0,), 15), View("second", (1,), 15)
    sizes = {"n_ratings": (120_000, 80_000), "n_users": (3000, 2000), "n_items": (800, 1500)}
    assert_same_stats(engine, problem_of(Layout(20, views), **sizes))
