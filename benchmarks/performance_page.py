"""Write docs/performance.md and its pictures from the rows under benchmarks/results: `python benchmarks/performance_page.py`.

    cpu.jsonl          pclf bench --out benchmarks/results
    cpu-xeon.jsonl     taskset -c 0,1 pclf bench --quick --out ..., on another machine
    speed-ml1m.jsonl   python benchmarks/peers_speed.py --lists
    gpu-h200.jsonl     python benchmarks/gpu.py --out benchmarks/results/gpu-h200.jsonl

Of each measurement the last one counts. Numbers in the text, and the findings in the titles, come from the rows.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
VERSION_0_1 = ("fe56e6b", "9740131")       # commits whose factors were not yet common to domains
RESULTS, DOCS = ROOT / "benchmarks/results", ROOT / "docs"
OURS, AS_WELL, LOOP, BOUND, OTHER = "#0072b2", "#7fb8d8", "#999999", "#d55e00", "#bbbbbb"   # told apart in grey too
Row = dict[str, Any]

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "pclf", "font.family": "sans-serif",
         "font.sans-serif": ["DejaVu Sans"], "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def read(name: str, *keys: str) -> dict[tuple[Any, ...], Row]:
    """The last row for each combination of these keys."""
    lines = (RESULTS / name).read_text().splitlines()
    return {tuple(row.get(key) for key in keys): row for row in map(json.loads, lines)}


def main() -> None:
    cpu = read("cpu.jsonl", "name", "clusters", "threads", "ratings")
    peers = read("speed-ml1m.jsonl", "name")
    gpu = read("gpu-h200.jsonl", "name", "clusters", "ratings", "items")
    (DOCS / "img").mkdir(parents=True, exist_ok=True)
    steps = estep_table(cpu)
    draw_esteps(steps)
    grown = sorted((row for key, row in cpu.items() if key[0] == "growth"), key=lambda row: row["ratings"])
    draw_growth(grown)
    fits = sorted((row for (name,), row in peers.items() if "," not in name), key=lambda row: row["seconds"])
    draw_peers(fits)
    draw_gpu(gpu)
    text = "\n\n".join([intro(cpu, fits), about_esteps(cpu, steps), about_other("cpu-xeon.jsonl"), about_fits(fits), about_growth(grown),
                        about_lists(cpu, peers), about_gpu(gpu), about_gpu_peers(), AGAIN])
    (DOCS / "performance.md").write_text(text + "\n")


def estep_table(cpu: dict[tuple[Any, ...], Row]) -> list[dict[str, Row]]:
    """For each number of clusters and threads: the rows of the E-step, the loop and the bounds."""
    out: dict[tuple[int, int], dict[str, Row]] = {}
    for (name, clusters, threads, _), row in cpu.items():
        if name in ("estep", "posterior loop", "bound", "traffic"):
            out.setdefault((clusters, threads), {})[name] = row
    return [out[key] for key in sorted(out)]


def draw_esteps(steps: list[dict[str, Row]]) -> None:
    most = max(s["estep"]["threads"] for s in steps)
    steps = [s for s in steps if s["estep"]["threads"] == most]
    times = [s["estep"]["ratio"] for s in steps]
    figure, axes = _figure(f"The E-step is {min(times):.0f} to {max(times):.0f} times as fast as a loop over "
                           f"posteriors ({most} threads)")
    x = np.arange(len(steps))
    for i, (name, label, colour) in enumerate((("posterior loop", "loop over posteriors", LOOP), ("estep", "pclf", OURS),
                                               ("bound", "bound from bytes", BOUND))):
        heights = [s[name]["updates_per_s"] / 1e6 for s in steps]
        bars = axes.bar(x + 0.27 * (i - 1), heights, 0.25, label=label, color=colour)
        axes.bar_label(bars, [f"{h:.3g}" for h in heights], fontsize=8)
    axes.set_xticks(x, [str(s["estep"]["clusters"]) for s in steps])
    axes.set_xlabel("item clusters C (user clusters K = 20)")
    axes.set_ylabel("ratings x views a second, millions (log)")
    axes.set_yscale("log")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.1))
    _save(figure, "estep.svg", "Speed of the E-step, of a loop over posteriors, and of memory traffic alone")


def draw_growth(rows: list[Row]) -> None:
    if not rows:
        return
    n, seconds = (np.array([row[key] for row in rows], float) for key in ("ratings", "seconds"))
    power = np.polyfit(np.log(n), np.log(seconds), 1)[0]
    figure, axes = _figure(f"From {n[0] / 1e6:g} to {n[-1] / 1e6:g} million ratings, time grows like ratings to the "
                           f"power {power:.2f}")
    axes.plot(n, seconds[-1] * n / n[-1], "--", color="0.6", label="proportional to the ratings")
    axes.plot(n, seconds, "o-", color=OURS, label="PCLF, two domains: index, start, 3 iterations")
    for x, y, row in zip(n, seconds, rows, strict=True):
        axes.annotate(f"{y:.2g} s, {row['peak_bytes_per_rating']:.0f} bytes a rating", (x, y), xytext=(8, -10),
                      textcoords="offset points", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="ratings", ylabel="seconds", xlim=(n[0] / 2, n[-1] * 6),
             ylim=(seconds.min() / 2, seconds.max() * 2))
    axes.legend(frameon=False)
    _save(figure, "growth.svg", "Seconds against the number of ratings, on logarithmic axes")


def draw_peers(fits: list[Row]) -> None:
    ours, best = _ours_and_best(fits)
    times = ours["seconds"] / best["seconds"]
    figure, axes = _figure(f"A fit of MovieLens 1M: PCLF's 50 iterations take {times:.2f} times as long as the fastest "
                           f"peer, {best['name']}")
    names = [f"{row['name']} ({row['iterations']})" for row in fits]
    bars = axes.barh(range(len(fits)), [row["seconds"] for row in fits], xerr=[row["spread"] / 2 for row in fits],
                     color=[OURS if row is ours else AS_WELL if _is_ours(row) else OTHER for row in fits], ecolor="0.3",
                     capsize=3)
    axes.bar_label(bars, [f"{row['seconds']:.2f} s" + (f", MAE {row['mae']:.3f}" if row["mae"] else "")
                          for row in fits], fontsize=8, padding=6)          # a browser drops spaces before a label
    axes.set_yticks(range(len(fits)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(row["seconds"] for row in fits))
    axes.set_xlabel(f"seconds of a fit of {fits[0]['ratings']:,} ratings on {ours['threads']} threads (in brackets: iterations)")
    _save(figure, "peers.svg", "Seconds of a fit of MovieLens 1M for PCLF and its peers")


def draw_gpu(gpu: dict[tuple[Any, ...], Row]) -> None:
    rows = sorted((row for (name, clusters, ratings, items), row in gpu.items()
                   if name == "estep" and ratings == 200_000_000 and items == 100_000), key=lambda r: r["clusters"])
    plain = gpu["plain torch gathers", 16, 200_000_000, 100_000]
    sixteen = next(row for row in rows if row["clusters"] == 16)
    figure, axes = _figure(f"On one H200 a kernel of its own is {sixteen['updates_per_s'] / plain['updates_per_s']:.0f} "
                           "times as fast as plain PyTorch")
    names = [*(f"C = {row['clusters']}" for row in rows), "C = 16,\nplain PyTorch"]
    speeds = [row["updates_per_s"] / 1e9 for row in (*rows, plain)]
    bars = axes.bar(range(len(speeds)), speeds, 0.6, color=[OURS] * len(rows) + [LOOP])
    axes.bar_label(bars, [f"{s:.3g}" for s in speeds], fontsize=9)
    axes.set_xticks(range(len(speeds)), names)
    axes.set_ylabel("ratings x views a second, billions")
    _save(figure, "gpu.svg", "Speed of the E-step of 200 million ratings on one H200")


def intro(cpu: dict[tuple[Any, ...], Row], fits: list[Row]) -> str:
    row = next(iter(cpu.values()))
    loads = sorted({r["load"] for r in (*cpu.values(), *fits) if r.get("load") is not None})
    return f"""# Performance

How fast, beside what, and how near to what the machine allows. Everything here comes from the rows under
`benchmarks/results`, written by the commands at the end; times are medians, with the distance between the quartiles
as the spread. A *rating x view* is one update of the E-step: PCLF has two views, so a rating counts twice.

CPU: {row["machine"]}, {row["cores"]} cores, commit {commits(cpu.values())}, beside the peers {commits(fits)}; load when measured {loads[0]:g} to {loads[-1]:g}
(1-minute average, the benchmark itself included). GPU: NVIDIA H200.{about_version([*cpu.values(), *fits])}"""


def about_version(rows: Iterable[Row]) -> str:
    old = [{"commit": commit} for commit in dict.fromkeys(row["commit"] for row in rows) if commit in VERSION_0_1]
    if not old:
        return ""
    return (f"\n\n{commits(old)} and the GPU were measured with version 0.1 of the code. What is said about factors and lists is "
            "about those of that version.")


def commits(rows: Iterable[Row]) -> str:
    return " and ".join(f"`{commit}`" for commit in dict.fromkeys(row["commit"] for row in rows))


def about_esteps(cpu: dict[tuple[Any, ...], Row], steps: list[dict[str, Row]]) -> str:
    lines = ["| C | threads | loop over posteriors, M/s | pclf, M/s | times the loop | bound, M/s | pclf reaches | "
             "traffic alone, M/s | pclf reaches | bytes a rating |", "|---|---|---|---|---|---|---|---|---|---|"]
    for s in steps:
        e, b, t = s["estep"], s["bound"], s["traffic"]
        lines.append(f"| {e['clusters']} | {e['threads']} | {s['posterior loop']['updates_per_s'] / 1e6:.1f} | "
                     f"{e['updates_per_s'] / 1e6:.0f} | {e['ratio']:.0f} | {b['updates_per_s'] / 1e6:.0f} | "
                     f"{b['ratio']:.0%} | {t['updates_per_s'] / 1e6:.0f} | {t['ratio']:.0%} | "
                     f"{e['peak_bytes_per_rating']:.0f} |")
    table = "\n".join(lines)
    moved = {(name, threads): row["bytes_per_s"] / 1e9 for (name, _, threads, _), row in cpu.items()
             if name in ("copy", "gather")}
    threads = sorted({t for _, t in moved})
    speeds = "; ".join(f"{t} thread{'s' if t > 1 else ''}: copy {moved['copy', t]:.0f} GB/s, rows of 64 bytes gathered "
                       f"{moved['gather', t]:.0f} GB/s" for t in threads)
    some, said = steps[0]["estep"], times_the_bound("cpu.jsonl")
    return f"""## The E-step on the CPU

{some["ratings"] / 1e6:.0f} million synthetic ratings, items by Zipf's law, users of log-normal activity, five levels,
float32, one view, K = 20. The [loop over posteriors](estep.md) forms the K x C posterior of each rating, as published
implementations do, in numba too and on the same threads.

![Speed of the E-step](img/estep.svg)

{table}

### The bound

With W numbers in a padded row of item memberships (the next power of two: 16 for C = 10 and 16, 32 for C = 32), an update must

- read the item's code: 4 bytes, in order;
- read the item's memberships b: 4 W bytes at random;
- read and write the item's counts t: 2 x 4 W bytes at random;

together 4 + 12 W bytes, 196 for W = 16 and 388 for W = 32. Users, levels and tables add about 3 bytes at 100 ratings
a user, and stay in the first-level cache. The items' rows do not: 50,000 items of 64 bytes are 3.2 MB for b and as much
for each thread's t, so they come from the second- and third-level caches, and popular items from the first. How fast
caches give rows depends on the pattern, so that speed is measured, in the same run: rows of b alone, gathered by the same
item codes with the same prefetches. The *bound* is the time for 4 + 12 W bytes at this speed.
The E-step takes these multiples of the bound on all threads, the median and the range of the runs of this commit: {said}.

It counts loads and stores alike. A core can do both at a time, so there is a stricter one: *traffic alone* issues the very
loads, stores and prefetches of an E-step, reading b and adding to t, and leaves the arithmetic out. What the E-step adds
to that is, for each rating, an inner product of W numbers, two multiplications and additions of as many and a reciprocal;
for each user and level three products of 20 x W numbers.

In memory and at random, in the same run: {speeds}."""


def times_the_bound(name: str) -> str:
    """On the most threads, over all runs of the last commit: other programs of the machine come and go."""
    rows = [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]
    rows = [row for row in rows if row["name"] == "bound" and row["commit"] == rows[-1]["commit"]]
    most, times = max(row["threads"] for row in rows), {}
    for row in rows:
        if row["threads"] == most:
            times.setdefault(row["clusters"], []).append(1 / row["ratio"])
    runs = len(next(iter(times.values())))
    spread = "" if runs == 1 else f" ({runs} runs)"
    return ", ".join(f"{np.median(x):.2f}{f' ({min(x):.2f} to {max(x):.2f})' if runs > 1 else ''} at C = {c}"
                     for c, x in times.items()) + spread


def about_other(name: str) -> str:
    steps = estep_table(read(name, "name", "clusters", "threads", "ratings"))
    both = [s for s in steps if s["estep"]["threads"] == 2]
    speed = ", ".join(f"{s['estep']['updates_per_s'] / 1e6:.0f} M/s ({s['estep']['ratio']:.0f} times the loop) at C = "
                      f"{s['estep']['clusters']}" for s in both)
    return f"""On two cores of another machine ({both[0]["estep"]["machine"]}, 2 MB of second-level cache a core instead of 1; `taskset -c 0,1 pclf bench --quick`, 9 repeats):
{speed}; times the bound: {times_the_bound(name)}."""


def about_fits(fits: list[Row]) -> str:
    ours, best = _ours_and_best(fits)
    lines = ["| model | version | iterations | threads | seconds | spread | CPU seconds | first small fit, s | MAE | RMSE |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for r in fits:
        error = [f"{r[key]:.3f}" if r[key] else "-" for key in ("mae", "rmse")]
        lines.append(f"| {r['name']} | {r['version']} | {r['iterations']} | {r['threads']} | {r['seconds']:.3f} | "
                     f"{r['spread']:.3f} | {r['cpu_seconds']:.2f} | {r['warm_up']:.2f} | {error[0]} | {error[1]} |")
    faster = best["seconds"] / ours["seconds"]
    default, least = next(r for r in fits if r["name"] == "PCLF with its defaults"), min(r["mae"] for r in fits if r["mae"])
    said = (f"PCLF needs {ours['seconds']:.2f} s, the fastest peer, {best['name']}, {best['seconds']:.2f} s: "
            + (f"{faster:.1f} times as long." if faster >= 1 else f"{faster:.2f} times as long, so PCLF is slower here."))
    if abs(best["seconds"] - ours["seconds"]) < max(ours["spread"], best["spread"]):
        said += " That difference is smaller than the spread of the repeats: call them level."
    return f"""## A whole fit beside the peers

MovieLens 1M, {fits[0]["ratings"]:,} ratings to train on and the rest for the errors, all models on the same split in
processes of their own, {ours["repeats"]} times in turn. *PCLF* is the plain model (K = 20, T = 10, L = 15, no priors,
random memberships to start from) for 50 iterations: EM, and nothing else. *As published* adds the paper's random posteriors to
start from; *with its defaults* adds what makes it accurate, factors, and tries its weights on a part of the data first. Peers have 20 factors and their usual 15 or 20 iterations, in fast
settings that their documentation or benchmarks name, with penalties that give a sensible error, not tuned. Reading data is not counted; the first small fit, which loads libraries and
compiles, is in a column of its own.

![Seconds of a fit](img/peers.svg)

{chr(10).join(lines)}

{said} With its defaults it needs {default["seconds"]:.2f} s, and {"has the lowest MAE" if default["mae"] == least else "does not have the lowest MAE"}. implicit ranks items and does not predict ratings. The errors
of the peers are those of models set for speed; tuned ones are on the page about [accuracy](accuracy.md)."""


def about_growth(rows: list[Row]) -> str:
    lines = ["| ratings | seconds | ratings x views a second, M | peak, bytes a rating |", "|---|---|---|---|"]
    lines += [f"| {r['ratings']:,} | {r['seconds']:.2f} | {r['updates_per_s'] / 1e6:.0f} | "
              f"{r['peak_bytes_per_rating']:.1f} |" for r in rows]
    return f"""## Growth

Two domains, three views over them, everything from the codes on: building the index, start values, three iterations.
The peak counts all arrays, the 9 bytes a rating of the input included.

![Seconds against ratings](img/growth.svg)

{chr(10).join(lines)}"""


def about_lists(cpu: dict[tuple[Any, ...], Row], peers: dict[tuple[Any, ...], Row]) -> str:
    found = {name: row for (name, *_), row in cpu.items()}
    lists, p50, p99 = (found[name] for name in ("recommend", "fold_in p50", "fold_in p99"))
    text = f"""## Lists and guests

Top-10 lists for all 6,040 users of MovieLens 1M, {lists["ratings"] / 1e6:.0f} million pairs scored, what each user has
rated left out: {lists["seconds"] * 1e3:.0f} ms on {lists["threads"]} threads. A guest with ten ratings, placed by
`fold_in` and given a top-10 list: {p50["seconds"] * 1e3:.2f} ms in the median, {p99["seconds"] * 1e3:.2f} ms at the 99th
percentile."""
    ours, theirs = (peers.get((f"top-10 lists, {name}",)) for name in ("PCLF", "Surprise SVD"))
    if ours and theirs:
        text += f""" In the run beside the peers: {ours["seconds"] * 1e3:.0f} ms, and
{theirs["seconds"]:.0f} s the way Surprise's documentation gives, which predicts all unrated pairs one by one (measured on
{theirs["extrapolated_from"]} users, multiplied): {theirs["seconds"] / ours["seconds"]:,.0f} times as long."""
    return text


def about_gpu_peers() -> str:
    """Other libraries on the same card, or why they did not run there."""
    lines = ["### Other libraries on this card", "",
             "Each in its own way of training, on synthetic ratings like those above held in the machine's memory "
             "(`benchmarks/gpu_peers.py`).", "", "| model | ratings | seconds an iteration | M ratings a second |",
             "|---|---|---|---|"]
    for line in (RESULTS / "gpu-peers-h200.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "does_not_run" in row:
            lines.append(f"| {row['name'].replace('_', ' ')} | {row['ratings']:,} | did not run: {row['does_not_run']} | |")
        else:
            speed = row["ratings"] / row["seconds_an_iteration"] / 1e6
            lines.append(f"| {row['model']} | {row['ratings']:,} | {row['seconds_an_iteration']:.4f} | {speed:,.0f} |")
    return "\n".join(lines)


def about_gpu(gpu: dict[tuple[Any, ...], Row]) -> str:
    steps = {(clusters, items): row for (name, clusters, ratings, items), row in gpu.items()
             if name == "estep" and ratings == 200_000_000}
    fit = next(row for (name, *_), row in gpu.items() if name == "fit")
    place = next(row for (name, *_), row in gpu.items() if name == "place")
    copy = next(row for (name, *_), row in gpu.items() if name == "copy")
    phase = next(row for (name, clusters, ratings, items), row in gpu.items()
                 if name == "phases" and (clusters, items) == (16, 100_000))
    lists, alone, pooled, check, learned = (
        next(row for (name, *_), row in gpu.items() if name in wanted)
        for wanted in (("top-10 of all items",), *((name.replace("factors", "a personal view"), name) for name in (
            "top-10 with factors", "top-10 with factors, pooled")), ("check of the personal view", "check of factors"),
            ("personal view", "factors")))                       # by the names of version 0.1, or by ours
    by_cpu, by_gpu, large = sorted((row for (name, *_), row in gpu.items() if name.startswith("default fit")),
                                   key=lambda row: (row["ratings"], row["name"]))
    lines = ["| C | items | ratings x views a second, G | milliseconds |", "|---|---|---|---|"]
    lines += [f"| {c} | {items:,} | {row['updates_per_s'] / 1e9:.1f} | {row['seconds'] * 1e3:.2f} |"
              for (c, items), row in sorted(steps.items(), key=lambda pair: (pair[0][1], pair[0][0]))]
    return f"""## GPU

One {fit["device"]}, PyTorch {fit["torch"]}, Triton {fit["triton"]}; 200 million ratings, one view.

![Speed on the GPU](img/gpu.svg)

{chr(10).join(lines)}

{fit["ratings"] / 1e9:.0f} billion ratings, two domains, {fit["users"] / 1e6:.0f} million users, {fit["items"]:,} items,
K = 20, T = 10, L = 15: {fit["iterations"]} iterations in {fit["seconds"]:.1f} s, after {place["seconds"]:.1f} s for the
index; {place["peak_bytes"] / 2**30:.0f} GiB of the card at the peak.

Top-10 lists among {lists["items"]:,} items: {lists["users_per_s"]:,.0f} users a second by the mixture alone,
{alone["users_per_s"]:,.0f} by factors, where each pair has a distribution of its own, and {pooled["users_per_s"]:,.0f} by
both.

The model as it comes, which tries its weights on a sample first and has factors, from `Ratings` to a fitted model,
after a small fit that compiles: {by_gpu["ratings"] / 1e6:.1f} million ratings in {by_gpu["seconds"]:.1f} s, and in {by_cpu["seconds"]:.0f} s on the {by_cpu["threads"]} cores
beside the card ({by_cpu["seconds"] / by_gpu["seconds"]:.0f} times as long); {large["ratings"] / 1e6:.0f} million in {large["seconds"]:.1f} s. The factors of
{learned["ratings"] / 1e9:.0f} billion ratings take {learned["seconds"]:.0f} s, {learned["sweeps"]} sweeps and everything around them, {learned["peak_bytes"] / 2**30:.0f} GiB of the card. What
factors expect of a rating differs from the CPU's by at most {check["worst_distance"]:.0e}.

The bound there: a rating is read twice, in the order of users and in the order of items, 68 bytes each time at C up to
16 (a row and its index). At C = 16 that takes {phase["by_user"] * 1e3:.1f} and {phase["by_item"] * 1e3:.1f} ms of
{steps[16, 100_000]["seconds"] * 1e3:.1f}, {phase["by_user_bytes_per_s"] / 1e12:.1f} and
{phase["by_item_bytes_per_s"] / 1e12:.1f} TB/s. A copy in the card's memory runs at {copy["bytes_per_s"] / 1e12:.1f} TB/s: the
gathers are faster than that because the rows are kept in the second-level cache, which is why the items' pass is cut
into blocks of users that fit there."""


AGAIN = """## Again

```sh
pclf bench --quick                                       # the main figures, here, in under 90 seconds
pclf bench --out benchmarks/results                      # and growth up to 100 million ratings
python benchmarks/peers_speed.py --peers peers/bin/python --lists
python benchmarks/gpu.py --out benchmarks/results/gpu-h200.jsonl
python benchmarks/performance_page.py                    # this page
```

What each row and ratio means is said in `pclf.bench`; how to set the peers up, in `benchmarks/peers_speed.py`."""


def _ours_and_best(fits: list[Row]) -> tuple[Row, Row]:
    ours = next(row for row in fits if row["name"] == "PCLF")
    return ours, next(row for row in fits if not _is_ours(row))


def _is_ours(row: Row) -> bool:
    return row["name"].startswith("PCLF")


def _figure(title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8.2, 4.0), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, figure.subplots()


def _save(figure: Figure, name: str, title: str) -> None:
    figure.savefig(DOCS / "img" / name, metadata={"Date": None, "Title": title})


if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        main()
