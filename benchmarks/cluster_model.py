"""A cluster on paper: bytes and seconds of an EM iteration and of a sweep of the factors on Spark, and of an iteration of
ALS, for sizes nobody has here.

    python benchmarks/cluster_model.py --ratings 10e9 --users 100e6 --items 10e6 --nodes 10,50,200

Nothing is run. Rates of a core come from benchmarks/results/disk.jsonl, speeds of network and shared folder are stated.
What ALS sends is counted from its design: each user's factors go to every block of items that they have ratings in, and
each item's to every block of users. Compute, network and driver are added up as if none overlapped with another. The rate
was measured with 25,000 items, whose rows stay in the cache of a core; those of 10 M items do not, so compute is a lower bound.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "disk.jsonl"
NUMBER = 4                   # bytes
BLOCK, OF_ITEM = 4e6, 10     # ratings of a block, as pclf.spark cuts them: at least so many, and so many for each item
ID = 4                       # bytes that ALS sends with a row of factors


@dataclass(frozen=True)
class Setting:
    ratings: float
    users: float
    items: float
    clusters: int            # of an item, in all its views
    rank: int                # of ALS
    cores: int               # of a node
    gbit: float              # of its network
    shared_gbyte: float      # a second that the shared folder gives to all nodes together
    em_rate: float           # ratings a second and core
    sweep_rate: float        # the same of a sweep of the factors
    row: int                 # numbers of a row of factors
    als_times: float         # CPU of an ALS iteration over one of ours


def em(given, nodes):
    """An iteration of ours."""
    answer = given.items * given.clusters * NUMBER                  # of a block, and of the parameters too
    return of_blocks(given, nodes, given.em_rate, answer, answer)


def sweep(given, nodes):
    """A sweep of the factors: rows and the squares of factors go out, gradients and half Hessians come back."""
    half = given.row * (given.row + 1) // 2
    return of_blocks(given, nodes, given.sweep_rate, given.items * (2 * NUMBER * given.row + NUMBER * half),
                     given.items * 2 * NUMBER * (given.row + half))


def of_blocks(given, nodes, rate, parameters, answer):
    """What blocks of people take: parameters go to every node, an answer comes from every block."""
    blocks = max(1, given.ratings // max(BLOCK, OF_ITEM * given.items))
    cores = min(nodes * given.cores, blocks * given.cores)          # a task may have a node, and no more
    out, back = nodes * parameters, blocks * answer
    return {"blocks": blocks, "bytes": out + back, "compute": given.ratings / rate / cores,
            "network": out / (given.shared_gbyte * 1e9) + back / nodes / (given.gbit / 8 * 1e9),
            "driver": (parameters + answer) / (given.gbit / 8 * 1e9)}          # the sums come to it, and parameters leave it


def als(given, nodes):
    """An iteration of MLlib's ALS, in as many blocks as there are cores."""
    blocks, row = nodes * given.cores, given.rank * NUMBER + ID

    def copies(n, each):
        return n * blocks * (1 - (1 - 1 / blocks) ** each)

    total = row * (copies(given.users, given.ratings / given.users) + copies(given.items, given.ratings / given.items))
    return {"blocks": blocks, "bytes": total, "compute": given.als_times * given.ratings / given.em_rate / blocks,
            "network": total / nodes / (given.gbit / 8 * 1e9), "driver": 0.0}


def measured_rate(what):
    """Ratings a second that one core does in an iteration, or a sweep, at the largest size that was measured."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    best = max((row for row in rows if row["threads"] == 1 and what in row), key=lambda row: row["ratings"])
    return best["ratings"] / best[what]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("ratings", 10e9), ("users", 100e6), ("items", 10e6)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--nodes", default="10,50,200")
    parser.add_argument("--clusters", type=int, default=25, help="of an item: common and specific")
    parser.add_argument("--rank", type=int, default=10, help="of ALS")
    parser.add_argument("--row", type=int, default=16, help="numbers of a row of factors: 12 factors and 4 of a shape")
    parser.add_argument("--cores", type=int, default=16, help="of a node")
    parser.add_argument("--gbit", type=float, default=10.0, help="of a node's network")
    parser.add_argument("--shared-gbyte", type=float, default=5.0, help="a second, of the shared folder, for all nodes")
    parser.add_argument("--em-rate", type=float, default=None, help="ratings a second and core; measured by default")
    parser.add_argument("--als-times", type=float, default=4.6, help="CPU of an ALS iteration over one of ours")
    words = vars(parser.parse_args())
    nodes, rate = map(int, words.pop("nodes").split(",")), words.pop("em_rate") or measured_rate("cpu_iteration")
    given = Setting(**words, em_rate=rate, sweep_rate=measured_rate("cpu_sweep"))
    print(f"{given.ratings:,.0f} ratings, {given.users:,.0f} users, {given.items:,.0f} items; nodes of {given.cores} cores "
          f"and {given.gbit:g} Gbit/s, a shared folder of {given.shared_gbyte:g} GB/s; {given.em_rate / 1e6:.0f} M ratings "
          f"a second and core in an iteration and {given.sweep_rate / 1e6:.0f} M in a sweep (measured); ALS {given.als_times:g} times that CPU\n")
    print("| nodes | iteration of | blocks | GB over the cluster | compute, s | network, s | driver, s | in all, s |")
    print("|--:|---|--:|--:|--:|--:|--:|--:|")
    for n in nodes:
        for name, found in (("EM", em(given, n)), ("factors", sweep(given, n)), (f"ALS, rank {given.rank}", als(given, n))):
            seconds = [found[part] for part in ("compute", "network", "driver")]
            print(f"| {n} | {name} | {found['blocks']:,.0f} | {found['bytes'] / 1e9:,.0f} | "
                  + " | ".join(f"{x:.1f}" for x in [*seconds, sum(seconds)]) + " |")


if __name__ == "__main__":
    main()
