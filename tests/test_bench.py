"""The benchmark: rows that mean what they say, beside a loop that computes the same."""

import json

import numpy as np
import pytest

from pclf import bench
from pclf.bench import memory
from pclf.bench.posterior_loop import PosteriorLoop
from pclf.clusters.state import Params
from pclf.engines.cpu import CpuEngine, cores
from pclf.engines.kernels import AHEAD, product
from pclf.engines.reference import ReferenceEngine
from pclf.problem import Layout, View

KEYS = {"name", "ratings", "clusters", "views", "seconds", "updates_per_s", "peak_bytes_per_rating", "ratio"}
TWO = Layout(4, (View("common", (0, 1), 3, 0.5), View("a", (0,), 5), View("b", (1,), 5)))


@pytest.fixture(scope="module")
def rows():
    """The whole of `pclf bench --quick`, on data so small that times mean nothing."""
    return bench.quick(n_ratings=100_000, n_items=1000, clusters=(10, 32), fit_ratings=20_000, n_guests=20, repeats=1)


def named(rows, name):
    return [row for row in rows if row["name"] == name]


def test_every_row_has_the_same_keys_and_positive_times(rows):
    assert set(map(tuple, rows)) == {tuple(rows[0])}
    assert set(rows[0]) >= KEYS
    for row in rows:
        assert row["seconds"] > 0
        assert row["updates_per_s"] > 0
        assert row["ratio"] > 0


def test_the_estep_is_measured_for_each_size_on_one_thread_and_on_all(rows):
    threads = {1, cores()}
    for name in ("estep", "posterior loop", "bound", "traffic"):
        measured = {(row["clusters"], row["threads"]) for row in named(rows, name)}
        assert measured == {(c, t) for c in (10, 32) for t in threads}
    assert {row["threads"] for name in ("copy", "gather") for row in named(rows, name)} == threads


def test_ratios_compare_the_speeds_of_the_rows(rows):
    measured = {(row["name"], row["clusters"], row["threads"]): row for row in rows}
    names = "posterior loop", "bound", "traffic"
    for row in named(rows, "estep"):
        loop, *floors = (measured[name, row["clusters"], row["threads"]] for name in names)
        assert row["ratio"] == pytest.approx(row["updates_per_s"] / loop["updates_per_s"], rel=1e-2)
        for floor in floors:
            assert floor["ratio"] == pytest.approx(row["updates_per_s"] / floor["updates_per_s"], rel=1e-2)


def test_whole_models_are_measured(rows):
    fit, = named(rows, "fit")
    assert fit["updates_per_s"] == pytest.approx(50 * 2 * fit["ratings"] / fit["seconds"], rel=1e-2)
    default, = named(rows, "default fit")
    assert default["ratio"] == pytest.approx(default["seconds"] / fit["seconds"], rel=1e-2)
    assert default["peak_bytes_per_rating"] > fit["peak_bytes_per_rating"]
    assert named(rows, "recommend")
    median, late = named(rows, "fold_in p50")[0], named(rows, "fold_in p99")[0]
    assert median["seconds"] <= late["seconds"]


def test_an_estep_needs_less_memory_than_the_posteriors_would(rows):
    """K x C numbers of 4 bytes a rating; the index and the counts are a small part of that."""
    for row in named(rows, "estep"):
        assert 4 <= row["peak_bytes_per_rating"] < bench.K * row["clusters"] * 4 / 5


def test_growth_counts_the_codes_that_go_in():
    small, large = bench.growth((50_000, 200_000), iterations=2)
    for row in (small, large):
        assert row["peak_bytes_per_rating"] > 9                 # user 4, item 4, level 1
    assert small["ratio"] == 1
    times = [row["seconds"] / row["ratings"] for row in (small, large)]
    assert large["ratio"] == pytest.approx(times[0] / times[1], rel=1e-2)


def test_rows_are_appended_with_the_machine_they_are_from(rows, tmp_path):
    bench.write(rows[:2], tmp_path / "results")
    path = bench.write(rows[2:3], tmp_path / "results")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["name"] for line in lines] == [row["name"] for row in rows[:3]]
    for line in lines:
        assert line["machine"]
        assert line["cores"] == cores()
        assert {"commit", "load", "date"} <= set(line)


@pytest.mark.parametrize("beta", [1.0, 0.8])
def test_the_posterior_loop_gives_the_counts_of_the_reference(beta):
    problem = bench.synthetic(3000, TWO, n_items=40, per_user=30)
    want, got = (engine.estep(engine.place(problem), bench.start_of(engine, problem), beta)
                 for engine in (ReferenceEngine(), PosteriorLoop(n_threads=2)))
    for a, b in zip((got.users, *got.items, *got.tables), (want.users, *want.items, *want.tables), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4 * b.mean())
    assert got.objective == pytest.approx(want.objective, rel=1e-5)


def test_synthetic_items_follow_zipfs_law():
    """Rank r is rated about 1 / r times as often as rank 1: a straight line of slope -1 on log axes."""
    problem = bench.synthetic(400_000, Layout(2, (View("all", (0,), 2),)), n_items=1000)
    counts = np.sort(np.bincount(problem.item[0], minlength=1000))[::-1][2:300]
    slope = np.polyfit(np.log(np.arange(3, 301)), np.log(counts), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)
    assert problem.level[0].max() == 4
    assert problem.user[0].max() < problem.n_users


def test_the_bound_updates_a_row_of_counts_for_each_rating():
    """Each update adds the first item's memberships, here 1, to the counts of the item rated."""
    item = np.concatenate([np.arange(400) % 7, np.zeros(AHEAD)]).astype(np.int32)
    b, t, out = (np.full((n, 16), x, np.float32) for n, x in ((7, 1), (7, 0), (1, 0)))
    memory._update(item, 0, 400, b, t, out, (0,) * 16)
    assert t.tolist() == np.repeat(np.bincount(item[:400])[:, None], 16, axis=1).tolist()
    assert out.tolist() == [[400.0] * 16]


@pytest.mark.parametrize(("clusters", "numbers"), [(5, 8), (10, 16), (16, 16), (17, 32)])
def test_an_update_reads_two_rows_and_writes_one(clusters, numbers):
    assert memory.bytes_per_update(clusters) == 4 + 3 * 4 * numbers
    assert memory.bytes_per_read(clusters) == 4 + 4 * numbers


def test_peak_bytes_sees_arrays():
    assert 8e6 <= bench.peak_bytes(lambda: np.zeros(1_000_000)) < 8.1e6


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 1100), (0, 4, 3), (2, 0, 3)])
def test_product_is_a_matrix_product(shape):
    rng = np.random.default_rng(0)
    a, b = rng.random(shape[:2]).astype(np.float32), rng.random(shape[1:]).astype(np.float32)
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-5)


def test_start_values_are_probabilities():
    engine, problem = CpuEngine(), bench.synthetic(1000, TWO, n_items=20)
    params = bench.start_of(engine, problem)
    assert isinstance(params, Params)
    for part in (params.users, *params.items):
        assert part.sum() == pytest.approx(1, rel=1e-5)
    for table in params.tables:
        np.testing.assert_allclose(table.sum(axis=0), 1, rtol=1e-5)
