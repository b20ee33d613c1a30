"""EM over blocks of users: start values, E-step and P(k | u), a block at a time, added up in the order of the blocks.

`pclf.clusters.loop` does not know: it is given counts of users as sums. Rows of users are kept beside their block, in a
file for each iteration, of which the last two are there. So whatever happens in an iteration, the one before is still
there, and a block that is asked twice writes the same file twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.blocks import choices
from pclf.blocks.block import Block, block_of
from pclf.blocks.catalogue import Catalogue
from pclf.blocks.groups import Finish, Given, Plan, answer, finished
from pclf.blocks.groups import Question as FactorQuestion
from pclf.choice.sums import Question
from pclf.clusters.loop import counts_of_users, memberships_of_items, posteriors_from, seeds_of_posteriors, spread
from pclf.clusters.mstep import joint, log_density, memberships
from pclf.clusters.state import Params, SpreadCounts, SpreadUsers, Stats
from pclf.engines.cpu import CpuEngine
from pclf.problem import Layout, Problem

Floats = NDArray[np.floating[Any]]
Arrays = Sequence[NDArray[Any]]


class BlockEngine:
    """Blocks in a folder, for `clusters.loop.run`.

    A block answers a question, `drawn`, `spread`, `expected`, `choices` or `factors`, with arrays that add up over
    blocks; `asked` puts it to all of them.
    """

    name = "disk"

    def __init__(self, catalogue: Catalogue, blocks: Path, layout: Layout, rows: Path, cpu: CpuEngine) -> None:
        self.catalogue, self.blocks, self.layout, self.rows, self.cpu = catalogue, blocks, layout, rows, cpu
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
            return self._sum(0, np.float64, "drawn", seeds_of_posteriors(self.problem, rng))
        domains = self.catalogue.domains
        of_level = [np.bincount(levels, d.learned_values, self.problem.n_levels)
                    for levels, d in zip(self.to_levels, domains, strict=True)]
        items, tables = memberships_of_items(self.problem, [d.learned_items for d in domains], of_level, rng)
        counts = self._sum(0, np.float64, "spread", rng.integers(2**64, dtype=np.uint64)).users
        return Stats(counts, items, tables, 0.0)

    def estep(self, data: Problem, params: Params, beta: float) -> Stats:
        users: SpreadUsers = params.users
        out = self._sum(int(users.counts.at) + 1, self.cpu.dtype, "expected", params, beta)
        users.log_density = self._density
        return out

    def asked(self, question: str, like: Arrays, *arguments: Any) -> Iterable[Arrays]:
        """The answers of all blocks, in their order, or what they add up to. like: arrays of their shapes."""
        return (getattr(self, question)(b, *arguments) for b in range(self.catalogue.n_blocks))

    def drawn(self, b: int, seeds: NDArray[np.uint64]) -> Arrays:
        problem = self._problem(b, keyed=True, rated=True)
        return self._kept(b, 0, problem, posteriors_from(seeds, problem, self.n_threads))

    def spread(self, b: int, seed: np.uint64) -> Arrays:
        problem = self._problem(b, keyed=True, rated=True)
        users = np.zeros((problem.n_users, self.layout.n_user_clusters))
        assert problem.user_keys is not None
        spread(users, counts_of_users(problem), problem.user_keys, seed)
        return self._kept(b, 0, problem, Stats(users, (), (), 0.0))

    def expected(self, b: int, params: Params, beta: float) -> Arrays:
        problem, users = self._problem(b), params.users
        rows = self._joint(users, b, problem)
        placed = self.cpu.placed(problem, self._block(b).indices(problem))
        found = self.cpu.estep(placed, Params(rows, params.items, params.tables), beta)
        density = log_density(rows, problem.user_groups, users.mean) if users.strength else 0.0
        return self._kept(b, int(users.counts.at) + 1, problem, found, density)

    def choices(self, b: int, question: Question, *arguments: Any) -> Arrays:
        """What a question of `pclf.choice.sums` finds."""
        return choices.answer(self.catalogue, self.blocks, b, self.n_threads, question, *arguments)

    def factors(self, b: int, question: FactorQuestion, plan: Plan, given: Given, rows: Path) -> Arrays:
        """What a question of `pclf.blocks.groups` finds. rows: where people's rows are."""
        return answer(self.catalogue, self.blocks, b, self.n_threads, rows, question, plan, given)

    def finished(self, b: int, finish: Finish) -> list[Floats]:
        """What is kept of the users of a block, of each domain that has these factors."""
        return finished(self.catalogue, self.blocks, b, self.n_threads, finish)

    def memberships(self, b: int, users: SpreadUsers) -> Floats:
        """P(k | u) of the rows of a block."""
        problem = self._problem(b)
        out: Floats = memberships(self._joint(users, b, problem), problem.user_groups, users.mean)
        return out

    def user_rows(self, b: int) -> tuple[NDArray[np.int32], ...]:
        """For each domain, user -> row in a block."""
        return self._problem(b).user_rows

    def _sum(self, at: int, dtype: Any, question: str, *arguments: Any) -> Stats:
        """at: the iteration whose counts of users the blocks keep."""
        k, views = self.layout.n_user_clusters, self.layout.views
        sums, numbers = np.zeros((len(self.problem.user_groups), k)), np.zeros(2)
        items = [np.zeros((n, view.n_clusters), dtype) for n, view in zip(self.problem.n_items, views, strict=True)]
        tables = [np.zeros((self.problem.n_levels, k, view.n_clusters)) for view in views]
        total = [sums, numbers, *items, *tables]
        for told in self.asked(question, total, *arguments):
            for whole, own in zip(total, told, strict=False):      # some have neither items nor tables
                whole += own
        self._density = float(numbers[1])
        return Stats(SpreadCounts(sums, at), tuple(items), tuple(tables), float(numbers[0]))

    def _kept(self, b: int, at: int, problem: Problem, found: Stats, density: float = 0.0) -> Arrays:
        """What adds up, with the counts of users written beside the block."""
        counts = np.ascontiguousarray(found.users, self.cpu.dtype)
        self._rows(b, at - 2).unlink(missing_ok=True)
        part = self._rows(b, at).with_suffix(f".{token_hex(8)}")      # of this attempt, if there are several
        counts.tofile(part)
        part.replace(self._rows(b, at))
        sums = np.stack([counts[start:stop].sum(axis=0, dtype=np.float64) for start, stop in problem.user_groups])
        return [sums, np.array([found.objective, density]), *found.items, *found.tables]

    def _joint(self, users: SpreadUsers, b: int, problem: Problem) -> Floats:
        counts = np.fromfile(self._rows(b, int(users.counts.at)), self.cpu.dtype).reshape(problem.n_users, -1)
        total = float(users.counts.sums.sum())
        out: Floats = joint(counts, users.strength, users.mean, problem.user_groups, total)
        return out.astype(self.cpu.dtype, copy=False)

    def _problem(self, b: int, keyed: bool = False, rated: bool = False) -> Problem:
        return self._block(b).problem(self.problem, self.to_levels, self.tied, self.catalogue.overlap, keyed, rated)

    def _block(self, b: int) -> Block:
        return block_of(self.catalogue, self.blocks, b)

    def _rows(self, b: int, at: int) -> Path:
        return self.rows / f"{b:05d}.{at}"
