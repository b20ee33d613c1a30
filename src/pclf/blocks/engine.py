"""EM over blocks of users: start values, E-step and P(k | u), a block at a time, added up in the order of the blocks.

`pclf.clusters.loop` does not know: it is given counts of users as sums. Rows of users are kept beside their block, in
two slots, of which an iteration reads the one and writes the other. So whatever happens in an iteration, the one before
is still there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.block import Block
from pclf.blocks.catalogue import Catalogue
from pclf.clusters.loop import counts_of_users, memberships_of_items, posteriors_from, seeds_of_posteriors, spread
from pclf.clusters.mstep import joint, log_density, memberships
from pclf.clusters.state import Params, SpreadCounts, SpreadUsers, Stats
from pclf.engines.cpu import CpuEngine
from pclf.problem import Layout, Problem

T = TypeVar("T")
Over = Callable[[Callable[[int], T], Iterable[int]], Iterable[T]]      # like map, and in the same order
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Part:
    """What a block says."""

    sums: NDArray[np.float64]     # (G, K)  of its users' counts
    items: tuple[Floats, ...]     # (V, C)  a view
    tables: tuple[Floats, ...]    # (R, K, C)
    objective: float
    log_density: float            # of the prior of its users


class BlockEngine:
    """Blocks in a folder, for `clusters.loop.run`. over: how a function is called for every block."""

    name = "disk"

    def __init__(self, catalogue: Catalogue, blocks: Path, layout: Layout, rows: Path, cpu: CpuEngine,
                 over: Over[Any] = map) -> None:
        self.catalogue, self.blocks, self.layout, self.rows, self.cpu, self.over = (
            catalogue, blocks, layout, rows, cpu, over)
        self.n_threads = cpu.n_threads
        self.tied = catalogue.ratings.shared_users and not layout.separate_users
        n_groups = 1 if self.tied and catalogue.overlap else len(catalogue.ratings.domains)
        whole = Problem.of(catalogue.ratings, layout, keyed=True)
        self.problem = replace(whole, user_groups=((0, 0),) * n_groups)          # of nobody, for items
        self.to_levels = [d.scale.to_levels(whole.n_levels) for d in catalogue.ratings.domains.values()]
        rows.mkdir(parents=True, exist_ok=True)

    def place(self, problem: Problem) -> Problem:
        return problem

    def put(self, array: Any) -> Any:
        return array if isinstance(array, SpreadCounts) else self.cpu.put(array)

    def get(self, array: Any) -> Any:
        return array if isinstance(array, SpreadUsers) else self.cpu.get(array)

    def start(self, name: str, rng: np.random.Generator) -> Stats:
        """Start counts by hash of the ids: the same as those of `name` by id in memory."""
        if name == "posteriors":
            seeds = seeds_of_posteriors(self.problem, rng)

            def drawn(b: int) -> Part:
                problem = self._problem(b, keyed=True)
                found = posteriors_from(seeds, problem, self.n_threads)
                return self._kept(b, 0, problem, found, 0.0)

            return self._sum(drawn, 0)
        domains = list(self.catalogue.ratings.domains.values())
        of_level = [np.bincount(levels, d.value_counts, self.problem.n_levels)
                    for levels, d in zip(self.to_levels, domains, strict=True)]
        items, tables = memberships_of_items(self.problem, [d.item_counts for d in domains], of_level, rng)
        seed = rng.integers(2**64, dtype=np.uint64)

        def spread_out(b: int) -> Part:
            problem = self._problem(b, keyed=True)
            users = np.zeros((problem.n_users, self.layout.n_user_clusters))
            assert problem.user_keys is not None
            spread(users, counts_of_users(problem), problem.user_keys, seed)
            return self._kept(b, 0, problem, Stats(users, (), (), 0.0), 0.0)

        counts = self._sum(spread_out, 0).users
        return Stats(counts, items, tables, 0.0)

    def estep(self, data: Problem, params: Params, beta: float) -> Stats:
        users: SpreadUsers = params.users
        slot = 1 - int(users.counts.at)

        def expected(b: int) -> Part:
            problem = self._problem(b)
            rows = self._joint(users, b, problem)
            placed = self.cpu.placed(problem, self._block(b).indices(problem))
            found = self.cpu.estep(placed, Params(rows, params.items, params.tables), beta)
            density = log_density(rows, problem.user_groups, users.mean) if users.strength else 0.0
            return self._kept(b, slot, problem, found, density)

        out = self._sum(expected, slot)
        users.log_density = self._density
        return out

    def memberships(self, users: SpreadUsers, b: int) -> Floats:
        """P(k | u) of the rows of a block."""
        problem = self._problem(b)
        out: Floats = memberships(self._joint(users, b, problem), problem.user_groups, users.mean)
        return out

    def user_rows(self, b: int) -> tuple[NDArray[np.int32], ...]:
        """For each domain, user -> row in a block."""
        return self._problem(b).user_rows

    def _sum(self, task: Callable[[int], Part], slot: int) -> Stats:
        parts: Iterator[Part] = iter(self.over(task, range(self.catalogue.n_blocks)))
        first = next(parts)
        sums, items, tables = first.sums, list(first.items), list(first.tables)
        objective, self._density = first.objective, first.log_density
        for part in parts:
            sums = sums + part.sums
            for total, own in (*zip(items, part.items, strict=True), *zip(tables, part.tables, strict=True)):
                total += own
            objective, self._density = objective + part.objective, self._density + part.log_density
        return Stats(SpreadCounts(sums, slot), tuple(items), tuple(tables), objective)

    def _kept(self, b: int, slot: int, problem: Problem, found: Stats, density: float) -> Part:
        """With the counts of users written beside the block."""
        counts = np.ascontiguousarray(found.users, self.cpu.dtype)
        counts.tofile(self._rows(b, slot))
        sums = np.stack([counts[start:stop].sum(axis=0, dtype=np.float64) for start, stop in problem.user_groups])
        return Part(sums, found.items, found.tables, found.objective, density)

    def _joint(self, users: SpreadUsers, b: int, problem: Problem) -> Floats:
        counts = np.fromfile(self._rows(b, int(users.counts.at)), self.cpu.dtype).reshape(problem.n_users, -1)
        total = float(users.counts.sums.sum())
        out: Floats = joint(counts, users.strength, users.mean, problem.user_groups, total)
        return out.astype(self.cpu.dtype, copy=False)

    def _problem(self, b: int, keyed: bool = False) -> Problem:
        return self._block(b).problem(self.problem, self.to_levels, self.tied, self.catalogue.overlap, keyed)

    def _block(self, b: int) -> Block:
        return block_of(self.catalogue, self.blocks, b)

    def _rows(self, b: int, slot: int) -> Path:
        return self.rows / f"{b:05d}.{slot}"


def block_of(catalogue: Catalogue, folder: Path, b: int) -> Block:
    """A block of those in a folder."""
    parts = catalogue.parts(b)
    n_users, n_ratings = (numbers[parts.start:parts.stop].sum(axis=0).tolist()
                          for numbers in (catalogue.part_users, catalogue.part_ratings))
    return Block(folder / f"{b:05d}", tuple(n_users), tuple(n_ratings), int(catalogue.block_rows[b]))
