"""The GPU engine on one GPU: is it right, and how fast is it? Needs the library's own packages, PyTorch and Triton.

    PYTHONPATH=src python benchmarks/gpu.py --out benchmarks/results/gpu-h200.jsonl

Data are drawn on the device: users of log-normal activity, items of Zipf-Mandelbrot popularity (the first is
rated by about half of the users), item codes in random order. Each line printed is one JSON result. Seconds
are medians of events on the device after a warm-up; a *rating x view* is one update.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

import pclf
from pclf.clusters.mstep import Priors, log_prior, mstep, prior_means
from pclf.clusters.state import Params
from pclf.engines import gpu
from pclf.engines.cpu import cores
from pclf.engines.cpu_rows import Cores
from pclf.engines.gpu_rows import Card
from pclf.engines.reference import ReferenceEngine
from pclf.factors.hyper import Hyper
from pclf.factors.learn import fit
from pclf.factors.rows import softmax
from pclf.factors.source import Source, Ties
from pclf.problem import Layout, Problem, View

DEVICE = "cuda"
PRIORS = Priors(users=2.0, items=2.0, table=2.0)
VARIANTS = (                                      # what --tune compares, beside the settings as they are
    {"TILE": 256}, {"TILE": 1024}, {"TILE": 1024, "WARPS": 2}, {"WARPS": 2},
    {"WIDTHS": (512,)}, {"WIDTHS": (16, 512)}, {"WIDTHS": (2, 4, 8, 16, 32, 512)},
    {"SPLIT": 128, "WIDTHS": (4, 8, 16, 128)}, {"SPLIT": 2048, "WIDTHS": (4, 8, 16, 2048)},
    {"CACHE": 8 << 20}, {"CACHE": 36 << 20}, {"CACHE": 1 << 40}, {"FULL": 8}, {"FULL": 128},
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=int, default=200_000_000, help="of the E-step benchmark")
    parser.add_argument("--clusters", type=int, nargs="*", default=[10, 16, 32])
    parser.add_argument("--large", type=int, default=1_000_000_000, help="ratings of the whole fit; 0: none")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--per-user", type=int, default=200, help="ratings of a user, on average")
    parser.add_argument("--items", type=int, default=100_000, help="of a domain")
    parser.add_argument("--levels", type=int, default=5)
    parser.add_argument("--tune", action="store_true", help="compare settings of the kernel")
    parser.add_argument("--out", type=Path, help="append the results to this file")
    args = parser.parse_args()
    report = Report(args.out)
    check_against_reference(report)
    copy_bandwidth(report)
    if args.ratings:
        esteps(args, report)
    check_factors(report)
    if args.large:
        whole_fit(args, report)
        learn_factors(args, report)
    for engine, n in (("cpu", args.ratings // 10), ("gpu", args.ratings // 10), ("gpu", args.ratings // 2)):
        if n:
            default_fit(args, report, engine, n)
    top_n(report)
    pooled_top_n(report)


class Report:
    def __init__(self, path):
        self.path = path
        self.always = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "triton": gpu.triton.__version__}

    def __call__(self, name, **values):
        rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in values.items()}
        line = json.dumps({"name": name, **rounded, **self.always})
        print(line, flush=True)
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(line + "\n")


def seconds(work, repeats=7):
    """Median time of `work()` on the device, and the spread of the middle half."""
    work()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1e3)
    quarters = statistics.quantiles(times, n=4)
    return statistics.median(times), quarters[2] - quarters[0]


def draw(n, n_users, n_items, n_levels, seed):
    """Codes of n ratings on the device. A pair may come twice: the engine does not care."""
    rng = torch.Generator(DEVICE).manual_seed(seed)
    activity = torch.randn(n_users, generator=rng, device=DEVICE, dtype=torch.float64).exp().cumsum(0)
    ends = (activity / activity[-1] * n).round().long()
    popularity = (1 / (torch.arange(n_items, device=DEVICE, dtype=torch.float64) + 50)).cumsum(0)
    names = torch.randperm(n_items, generator=rng, device=DEVICE).int()
    user, item = (torch.empty(n, dtype=torch.int32, device=DEVICE) for _ in range(2))
    level = torch.empty(n, dtype=torch.uint8, device=DEVICE)
    for part in torch.arange(n, device=DEVICE).split(1 << 25):
        u = torch.searchsorted(ends, part, right=True)
        chance = torch.rand(len(part), generator=rng, device=DEVICE, dtype=torch.float64)
        v = names[torch.searchsorted(popularity, chance * popularity[-1])]
        noise = torch.randint(-1, 2, (len(part),), generator=rng, device=DEVICE)
        span = slice(int(part[0]), int(part[-1]) + 1)
        user[span], item[span] = u, v
        level[span] = ((u % 7 * 3 + v % 5 * 2) % n_levels + noise).clamp(0, n_levels - 1)
    return user, item, level


def problem_of(domains, n_users, n_items, n_levels, layout):
    """Domains with users and items of their own; codes may be tensors."""
    def groups(sizes):
        return tuple(pairwise(np.cumsum([0, *sizes]).tolist()))

    def rows(sizes):
        return tuple(np.arange(start, stop, dtype=np.int32) for start, stop in groups(sizes))

    sizes = [[n_items[z] for z in view.domains] for view in layout.views]
    return Problem(
        layout, n_levels, sum(n_users), *zip(*domains, strict=True), rows(n_users), groups(n_users),
        tuple(map(sum, sizes)), tuple(map(rows, sizes)), tuple(map(groups, sizes)))


def start_of(problem, seed=0):
    rng = torch.Generator(DEVICE).manual_seed(seed)

    def draw_joint(*shape):
        x = torch.rand(shape, generator=rng, device=DEVICE) + 0.5
        return x / x.sum()

    k = problem.layout.n_user_clusters
    tables = [draw_joint(problem.n_levels, k, view.n_clusters) for view in problem.layout.views]
    sizes = zip(problem.n_items, problem.layout.views, strict=True)
    return Params(draw_joint(problem.n_users, k), tuple(draw_joint(n, view.n_clusters) for n, view in sizes),
                  tuple(x / x.sum(0) for x in tables))


def distance(got, want):
    """|got - want| / |want|"""
    got, want = (np.asarray(x.cpu() if isinstance(x, torch.Tensor) else x, np.float64) for x in (got, want))
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def check_against_reference(report):
    """A small problem, every array of counts against the float64 reference, at two temperatures."""
    layout = Layout(20, (View("common", (0, 1), 10), View("first", (0,), 15, 0.5), View("second", (1,), 32)))
    sizes = {"n_users": (2000, 1000), "n_items": (700, 300), "n_levels": 5}
    n_ratings = (60_000, 30_000)
    drawn = [draw(n, u, v, 5, seed) for seed, (n, u, v) in
             enumerate(zip(n_ratings, sizes["n_users"], sizes["n_items"], strict=True))]
    host = problem_of([tuple(x.cpu().numpy() for x in codes) for codes in drawn], layout=layout, **sizes)
    engine, reference, worst = gpu.GpuEngine(DEVICE), ReferenceEngine(), 0.0
    start = start_of(host)
    exact = Params(*(tuple(np.asarray(y.cpu(), np.float64) for y in x) if isinstance(x, tuple) else
                     np.asarray(x.cpu(), np.float64) for x in (start.users, start.items, start.tables)))
    for beta in (1.0, 0.6):
        got, again = (engine.estep(engine.place(host), start, beta) for _ in range(2))
        want = reference.estep(host, exact, beta)
        pairs = [(got.users, want.users), *zip(got.items, want.items, strict=True),
                 *zip(got.tables, want.tables, strict=True)]
        worst = max([worst, *(distance(a, b) for a, b in pairs)])
        assert worst < 1e-5, f"counts are {worst:.2g} away from the reference"
        assert abs(got.objective / want.objective - 1) < 1e-6, (got.objective, want.objective)
        assert torch.equal(got.users, again.users), "two runs differ"
        assert got.objective == again.objective, "two runs differ"
    report("check against the reference", ratings=sum(n_ratings), views=3, worst_distance=worst)


def check_sample(report, problem, params, stats, seed=0):
    """Some rows of the first domain, in full size, against the posteriors in float64."""
    rng = np.random.default_rng(seed)
    user, item, level = problem.user[0], problem.item[0], problem.level[0]
    counts = torch.bincount(item)
    items = [int(counts.argmax()), *rng.integers(0, problem.n_items[0] // len(problem.user), 3).tolist()]
    views = [i for i, view in enumerate(problem.layout.views) if 0 in view.domains]
    worst = 0.0
    for v in items:
        mine = (item == v).nonzero().squeeze(1)
        parts = [(user[p], item[p], level[p]) for p in mine.split(1 << 18)]
        want = sum(posterior(params, views[0], *part).sum((0, 1)) for part in parts)
        worst = max(worst, distance(stats.items[views[0]][v], want))
    for u in rng.integers(0, len(problem.user_rows[0]), 8).tolist():
        mine = (user == u).nonzero().squeeze(1)
        want = sum(posterior(params, i, user[mine], item[mine], level[mine]).sum((0, 2)) for i in views)
        worst = max(worst, distance(stats.users[u], want))
    total = float(stats.users.sum(dtype=torch.float64)) / problem.n_ratings / (2 if len(views) > 1 else 1)
    assert worst < 1e-4, f"counts are {worst:.2g} away from the posteriors"
    assert abs(total - 1) < 1e-5, f"{total} counts a rating and view"
    report("check of sampled rows", ratings=problem.n_ratings, worst_distance=worst, counts_per_update=total,
           longest_list=int(counts.max()))


def posterior(params, view, user, item, level):
    """P(k, c | u, v, r) in float64. (n, K, C)"""
    users, items, table = (x.double() for x in (params.users, params.items[view], params.tables[view]))
    joint = users[user.long()][:, :, None] * items[item.long()][:, None, :] * table[level.long()]
    return joint / joint.sum((1, 2), keepdim=True)


def copy_bandwidth(report):
    source = torch.rand(1 << 30, device=DEVICE)
    target = torch.empty_like(source)
    time_, spread = seconds(lambda: target.copy_(source))
    report("copy", seconds=time_, spread=spread, bytes_per_s=2 * source.nbytes / time_)


def esteps(args, report):
    """One domain, one view."""
    n_users = args.ratings // args.per_user
    codes = draw(args.ratings, n_users, args.items, args.levels, seed=1)
    engine = gpu.GpuEngine(DEVICE)
    for clusters in args.clusters:
        layout = Layout(20, (View("all", (0,), clusters),))
        problem = problem_of([codes], [n_users], [args.items], args.levels, layout)
        params = start_of(problem)
        data = engine.place(problem)
        common = {"ratings": args.ratings, "clusters": clusters, "user_clusters": 20, "views": 1,
                  "users": n_users, "items": args.items, "levels": args.levels}
        time_, spread = seconds(lambda: engine.estep(data, params, 1.0))  # noqa: B023
        report("estep", **common, seconds=time_, spread=spread, updates_per_s=args.ratings / time_)
        phases(report, data, params, **common)
        if clusters == 16:
            place_from_host(report, engine, problem, common)
            check_sample(report, problem, params, engine.estep(data, params, 1.0))
            plain_torch(report, problem, params, common)
            if args.tune:
                tune(report, engine, problem, params, common)


def place_from_host(report, engine, problem, common):
    host = replace(problem, **{name: tuple(x.cpu().numpy() for x in getattr(problem, name))
                               for name in ("user", "item", "level")})
    start = time.perf_counter()
    engine.place(host)
    torch.cuda.synchronize()
    report("place from the host", **common, seconds=time.perf_counter() - start)


def phases(report, data, params, **common):
    """Where the time of an E-step goes: the two gathers, and the rest (products, sums)."""
    domain = data.domains[0]
    b, g = gpu._side_by_side(params.items[0], params.tables[0])
    q = (params.users @ g).view(-1, b.shape[1])
    by_user, _ = seconds(lambda: domain.by_user.gather(q, b))
    by_item, _ = seconds(lambda: domain.by_item.gather(b, q, log=True))
    whole, _ = seconds(lambda: gpu._count(domain, params.users, b, g))
    gathered = common["ratings"] * (b.shape[1] + 1) * 4       # a row of the other side and its index
    report("phases", **common, by_user=by_user, by_item=by_item, products=whole - by_user - by_item,
           by_user_bytes_per_s=gathered / by_user, by_item_bytes_per_s=gathered / by_item)


def tune(report, engine, problem, params, common):
    for changes in ({}, *VARIANTS, {}):
        before = {name: getattr(gpu, name) for name in changes}
        for name, value in changes.items():
            setattr(gpu, name, value)
        phases(report, engine.place(problem), params, **common, variant=str(changes))
        for name, value in before.items():
            setattr(gpu, name, value)


def plain_torch(report, problem, params, common):
    """The same E-step without the kernel: index_add_, chunk by chunk."""
    b, g = gpu._side_by_side(params.items[0], params.tables[0])
    q = (params.users @ g).view(-1, b.shape[1])
    row, item = problem.user[0] * problem.n_levels + problem.level[0], problem.item[0]
    s, t = torch.zeros_like(q), torch.zeros_like(b)

    def work():
        for i, v in zip(row.split(1 << 24), item.split(1 << 24), strict=True):
            x, y = q[i], b[v]
            w = 1 / (x * y).sum(1, keepdim=True)
            s.index_add_(0, i, y * w)
            t.index_add_(0, v, x * w)

    time_, spread = seconds(work, 2)
    report("plain torch gathers", **common, seconds=time_, spread=spread, updates_per_s=len(row) / time_)


def whole_fit(args, report):
    """PCLF's views over two domains: place, then full EM with priors, everything on the device."""
    layout = Layout(20, (View("common", (0, 1), 10), View("first", (0,), 15), View("second", (1,), 15)))
    n = args.large // 2
    n_users = n // args.per_user
    codes = [draw(n, n_users, args.items, args.levels, seed) for seed in (2, 3)]
    problem = problem_of(codes, [n_users] * 2, [args.items] * 2, args.levels, layout)
    common = {"ratings": 2 * n, "clusters": "10+15+15", "user_clusters": 20, "views": 2, "users": 2 * n_users,
              "items": 2 * args.items, "levels": args.levels}
    engine, params = gpu.GpuEngine(DEVICE), start_of(problem)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    data = engine.place(problem)
    torch.cuda.synchronize()
    elapsed, held = time.perf_counter() - start, torch.cuda.memory_allocated() - before
    report("place", **common, seconds=elapsed, index_bytes_per_rating=held / (2 * n),
           peak_bytes=torch.cuda.max_memory_allocated(), bytes_needed=gpu.bytes_needed(problem))
    time_, spread = seconds(lambda: engine.estep(data, params, 1.0), 5)
    report("estep", **common, seconds=time_, spread=spread, updates_per_s=4 * n / time_)
    stats = engine.estep(data, params, 1.0)
    check_sample(report, problem, params, stats)
    means, trace = prior_means(stats, problem), []
    time_, spread = seconds(lambda: mstep(stats, problem, PRIORS, means), 5)
    report("mstep", **common, seconds=time_, spread=spread)
    del stats
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(args.iterations):
        stats = engine.estep(data, params, 1.0)
        trace.append(stats.objective + log_prior(params, problem, PRIORS, means))
        params = mstep(stats, problem, PRIORS, means)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    assert all(b >= a - 1e-7 * abs(a) for a, b in pairwise(trace)), "the objective fell"
    report("fit", **common, iterations=args.iterations, seconds=elapsed,
           updates_per_s=4 * n * args.iterations / elapsed, peak_bytes=torch.cuda.max_memory_allocated(),
           first_objective=trace[0], final_objective=trace[-1])


def learned(user, item, level, n_users, n_items, n_levels, machine):
    """The factors of one domain by itself."""
    rows = (np.arange(n, dtype=np.int32) for n in (n_users, n_items))
    source = Source("a", user, item, level, n_users, n_items, n_levels, 0, *rows)
    with machine.here():
        return fit([source], Ties(False, False, False), Hyper(), 12, 0, machine).domains["a"]


def check_factors(report):
    """Factors learned here and by the CPU: the ratings that they expect."""
    n_users, n_items, n_levels = 3000, 1000, 5
    user, item, level = (x.cpu().numpy() for x in draw(300_000, n_users, n_items, n_levels, 4))
    card, expected = Card(gpu.GpuEngine(DEVICE)), []
    for machine in (Cores(cores()), card, card):
        own = learned(user, item, level, n_users, n_items, n_levels, machine)
        expected.append(softmax(own.logits(own.user_rows(user), own.item_rows[item])) @ np.arange(n_levels))
    worst = float(np.abs(expected[0] - expected[1]).max())
    assert worst < 1e-4, f"expected ratings are {worst:.2g} away from those of the CPU"
    assert np.array_equal(*expected[1:]), "two runs differ"
    report("check of factors", ratings=len(user), worst_distance=worst)


def learn_factors(args, report):
    """The factors of two domains that nothing ties, from codes in the machine's memory to rows there."""
    n = args.large // 2
    n_users, took, card = n // args.per_user, [], Card(gpu.GpuEngine(DEVICE))
    torch.cuda.empty_cache()
    for seed in (2, 3):
        user, item, level = (x.cpu().numpy() for x in draw(n, n_users, args.items, args.levels, seed))
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        own = learned(user, item, level, n_users, args.items, args.levels, card)
        took.append(time.perf_counter() - start)
        assert np.isfinite(own.users).all()
    report("factors", ratings=2 * n, users=2 * n_users, items=2 * args.items, levels=args.levels, factors=12,
           sweeps=Hyper().sweeps, seconds=sum(took), peak_bytes=torch.cuda.max_memory_allocated())


def default_fit(args, report, engine, n):
    """PCLF() on two domains, after a small fit that compiles: everything from `Ratings` on."""
    n_users = n // 2 // args.per_user

    def ratings(n, n_users):
        drawn = {name: draw(n // 2, n_users, args.items, args.levels, seed) for name, seed in (("a", 5), ("b", 6))}
        codes = {name: tuple(x.cpu().numpy() for x in each) for name, each in drawn.items()}
        return pclf.Ratings.from_arrays({name: (u, v, r + 1) for name, (u, v, r) in codes.items()},
                                        scale=(1, args.levels), duplicates="last")

    pclf.PCLF().fit(ratings(1_000_000, 10_000), engine=engine)
    data = ratings(n, n_users)
    torch.cuda.empty_cache()
    start = time.perf_counter()
    model = pclf.PCLF().fit(data, engine=engine)
    took = time.perf_counter() - start
    assert model.factors_
    report(f"default fit, {engine}", ratings=data.n_ratings, users=data.n_users, items=2 * args.items, seconds=took,
           threads=cores())


def top_n(report, n_users=200_000, n_items=100_000, n_factors=20, n=10):
    users, items = (torch.rand(rows, n_factors, device=DEVICE) for rows in (n_users, n_items))
    seen = torch.randint(0, n_items, (n_users * 100,), device=DEVICE)
    indptr = torch.arange(0, len(seen) + 1, 100, device=DEVICE)
    time_, spread = seconds(lambda: gpu.score_top_n(users, items, indptr, seen, n, DEVICE), 3)
    report("top-10 of all items", users=n_users, items=n_items, factors=n_factors, seconds=time_,
           spread=spread, users_per_s=n_users / time_)


def pooled_top_n(report, n_users=20_000, n_items=100_000, n_factors=25, n=10, levels=5, shape=4, own_factors=12):
    """With factors: the distribution of every pair, alone or pooled. A few lists are checked in float64."""
    def rand(*size):
        return torch.randn(size, device=DEVICE)

    users, items = rand(levels, n_users, n_factors).abs(), rand(n_items, n_factors).abs()
    pooled = gpu.Own(0.3 * rand(n_users, shape + own_factors), 0.3 * rand(n_items, shape + own_factors), rand(levels),
                     rand(shape, levels), torch.arange(1.0, levels + 1, device=DEVICE),
                     torch.rand(n_users, device=DEVICE), 1e-4)
    alone = pooled._replace(weight=torch.ones(n_users, device=DEVICE))
    indptr, seen = torch.zeros(n_users + 1, dtype=torch.int64, device=DEVICE), torch.zeros(0, device=DEVICE)
    for name, factors, own in (("top-10 with factors", users[:, :, :0], alone),
                               ("top-10 with factors, pooled", users, pooled)):
        def lists(factors=factors, own=own):
            return gpu.score_top_n(factors, items, indptr, seen, n, DEVICE, own)[0]

        time_, spread = seconds(lists, 3)
        for user, best in enumerate(lists()[:5]):
            score = pooled_mean(own, user, users[:, user].double() @ items.double().T).cpu().numpy()
            assert np.allclose(np.sort(score)[::-1][:n], score[best], atol=1e-4), "not the best items"
        report(name, users=n_users, items=n_items, factors=factors.shape[2], seconds=time_, spread=spread,
               users_per_s=n_users / time_)


def pooled_mean(own, user, mixture):
    """The mean rating of all items by one user as models.weights has it, in float64."""
    n, mine, theirs = len(own.tilt), own.users[user].double(), own.items.double()
    shape = mine[:n] + theirs[:, :n]
    shape[:, 0] += theirs[:, n:] @ mine[n:]
    by_factors = (own.base.double() + shape @ own.tilt.double()).softmax(1).clamp(min=own.floor).T
    logs = own.weight[user].double() * by_factors.log() + (1 - own.weight[user].double()) * mixture.clamp(min=own.floor).log()
    return own.values.double() @ logs.softmax(0)


if __name__ == "__main__":
    main()
