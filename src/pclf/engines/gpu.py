"""The E-step on a GPU: PyTorch for memory and matrix products, one Triton kernel for the ratings; and scores of items,
with another one for factors.

With a = users**beta, b = items**beta, g = table**beta, the posterior is never written down. A domain's *rows*
are its pairs (u, r) of user and level:

    q[u, r] = a[u] @ g[r]                                            a matrix product
    s[u, r] = sum over v rated r by u:    b[v] / <q[u, r], b[v]>     the kernel
    t[v]    = sum over (u, r) rating v:   q[u, r] / <q[u, r], b[v]>  the kernel, on the transposed index
    users = a * sum_r s[., r] @ g[r].T       items = b * t       tables[r] = g[r] * (a.T @ s[., r])

A rating costs two int32 in memory and two reads of C numbers an iteration. Every sum has a fixed order (no
atomics), so a fit repeats bit for bit. Numbers are float32; tables and the objective are summed in float64.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.state import Params, Stats
from pclf.errors import EngineError
from pclf.problem import IntArray, Problem

try:
    torch: Any = import_module("torch")
    triton: Any = import_module("triton")
    tl: Any = import_module("triton.language")
except ImportError as missing:
    raise EngineError(f"engine 'gpu' needs PyTorch and Triton; {missing.name} is not installed. "
                      "pip install 'pclf[gpu]', or use engine='cpu'.") from missing

if TYPE_CHECKING:
    constexpr = int
else:
    constexpr = tl.constexpr   # Triton compiles one kernel for each value

Tensor = Any
Rows = Any                # a slice, or a tensor of row numbers

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SPLIT = 512               # ratings one program may sum alone; longer lists are summed in parts
WIDTHS = 4, 8, 16, SPLIT  # lists of up to so many ratings share a launch; short ones share programs
TILE = 512                # numbers a program holds at a time: 32 ratings of 16 clusters, for one warp
WARPS = 1
CACHE = 24 << 20          # bytes of gathered rows the L2 cache keeps while a block of them is worked on
FULL = 32                 # ratings a list must have for each block, or it is not cut into blocks
CHUNK = 1 << 27           # ratings sorted at a time
PAIRS = 1024              # of user and item that a program scores
BLOCK = 4096              # users whose share of a table is summed in float32


def _gather(own, table, neighbours, row, start, length, target, out, logs,          # type: ignore[no-untyped-def]
            first, last, C: constexpr, ROWS: constexpr, WIDTH: constexpr,
            LOOP: constexpr, WEIGH: constexpr, LOGS: constexpr):
    """out[target] = sum over the neighbours j of a segment of table[j] / <own[row], table[j]>.

    A program takes ROWS segments, WIDTH neighbours of each at a time. Without WEIGH it adds up rows of
    `table` that follow each other: the parts of a list that was too long for one program.
    """
    segment = first + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = segment < last
    cluster = tl.arange(0, C)
    step = tl.arange(0, WIDTH)
    begin = tl.load(start + segment, mask=live, other=0)[:, None]
    count = tl.load(length + segment, mask=live, other=0)[:, None]
    to = tl.load(target + segment, mask=live, other=0).to(tl.int64)[:, None]
    if WEIGH:
        me = tl.load(row + segment, mask=live, other=0).to(tl.int64)[:, None]
        mine = tl.load(own + me * C + cluster[None, :])[:, None, :]                           # (ROWS, 1, C)
        ahead = tl.load(neighbours + begin + step[None, :], mask=step[None, :] < count, other=0)
    total = tl.zeros((ROWS, WIDTH, C), tl.float32)
    product = tl.full((ROWS, WIDTH), 1.0, tl.float32)
    power = tl.zeros((ROWS, WIDTH), tl.int32)
    for j in range(0, tl.max(count) if LOOP else WIDTH, WIDTH):
        k = (j + step)[None, :]
        inside = k < count                                                                    # (ROWS, WIDTH)
        if WEIGH:
            at = ahead.to(tl.int64)
            if LOOP:     # the next neighbours are on their way while these are summed
                ahead = tl.load(neighbours + begin + k + WIDTH, mask=k + WIDTH < count, other=0)
        else:
            at = begin + k
        x = tl.load(table + (at * C)[:, :, None] + cluster[None, None, :], mask=inside[:, :, None], other=0.0)
        if WEIGH:
            d = tl.sum(x * mine, 2)
            d = tl.where(inside, tl.maximum(d, 1e-37), 1.0)     # float32 may underflow: no count, not NaN
            x = x * (1.0 / d)[:, :, None]
            if LOGS:     # one logarithm for a whole product: mantissas multiply, exponents add
                bits = d.to(tl.int32, bitcast=True)
                product *= ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
                power += (bits >> 23) - 127
        total += x
    tl.store(out + to * C + cluster[None, :], tl.sum(total, 1), mask=live[:, None])
    if LOGS:
        log = tl.log(product) + power * 0.6931471805599453
        tl.store(logs + tl.program_id(0), tl.sum(tl.sum(log, 1), 0))


_kernel: Any = triton.jit(_gather, do_not_specialize=["first", "last"])


def _logit(x, by_user, by_item, steps, level, u, v, n_users, n_items):               # type: ignore[no-untyped-def]
    """log P(level) of the factors up to a constant, for all pairs of some users and items that meet in x."""
    mine = tl.load(by_user + level * n_users + u, mask=u < n_users, other=0.0)
    theirs = tl.load(by_item + level * n_items + v, mask=v < n_items, other=0.0)
    return mine[:, None] + theirs[None, :] + tl.load(steps + level) * x


_logit_of: Any = triton.jit(_logit)


def _mean(met, by_user, by_item, steps, values, mixture, weights, floor,             # type: ignore[no-untyped-def]
          n_users, n_items, LEVELS: constexpr, MIXED: constexpr, USERS: constexpr, ITEMS: constexpr):
    """met[u, v], how their factors meet, becomes the mean of

        P(r)  ~  max(factors, floor) ** w * max(mixture, floor) ** (1 - w)

    Without MIXED there is no mixture, and w is 1. A program takes USERS x ITEMS pairs.
    """
    u = tl.program_id(0) * USERS + tl.arange(0, USERS)
    v = tl.program_id(1) * ITEMS + tl.arange(0, ITEMS)
    here = (u < n_users)[:, None] & (v < n_items)[None, :]
    at = u.to(tl.int64)[:, None] * n_items + v[None, :]
    x = tl.load(met + at, mask=here, other=0.0)
    top = tl.full((USERS, ITEMS), float("-inf"), tl.float32)
    for level in tl.static_range(LEVELS):
        top = tl.maximum(top, _logit_of(x, by_user, by_item, steps, level, u, v, n_users, n_items))
    whole = tl.zeros((USERS, ITEMS), tl.float32)
    for level in tl.static_range(LEVELS):
        whole += tl.exp(_logit_of(x, by_user, by_item, steps, level, u, v, n_users, n_items) - top)
    total, rating = tl.zeros((USERS, ITEMS), tl.float32), tl.zeros((USERS, ITEMS), tl.float32)
    for level in tl.static_range(LEVELS):
        p = tl.exp(_logit_of(x, by_user, by_item, steps, level, u, v, n_users, n_items) - top) / whole
        p = tl.maximum(p, floor)
        if MIXED:
            w = tl.load(weights + u, mask=u < n_users, other=0.0)[:, None]
            other = tl.load(mixture + level * n_users.to(tl.int64) * n_items + at, mask=here, other=1.0)
            p = tl.exp(w * tl.log(p) + (1 - w) * tl.log(tl.maximum(other, floor)))
        total += p
        rating += tl.load(values + level) * p
    tl.store(met + at, rating / total, mask=here)


_mean_of: Any = triton.jit(_mean, do_not_specialize=["n_users"])


@dataclass(frozen=True)
class Segments:
    """Pieces of lists, ordered by launch: `bounds` are the ends of each launch's share."""

    row: Tensor       # int32  whose list it is
    start: Tensor     # int64  the first entry
    length: Tensor    # int32
    target: Tensor    # int32  the row of the output
    bounds: tuple[int, ...]

    def launches(self, most: int) -> Iterator[tuple[int, int, int, bool]]:
        """First and last segment of each launch, how many ratings its programs take at a time, and whether they go on
        after these: the last launch takes lists of any length."""
        for longest, (first, last) in zip(WIDTHS, pairwise(self.bounds), strict=True):
            if first < last:
                yield first, last, min(longest, most), longest > most or longest == WIDTHS[-1]

    def sum(self, own: Tensor, table: Tensor, neighbours: Tensor, out: Tensor, *, weigh: bool,
            log: bool) -> Tensor:
        """Launches the kernel; the sum of the logarithms, if wanted, is a float64 tensor."""
        clusters = table.shape[1]
        total = torch.zeros((), dtype=torch.float64, device=out.device)
        for first, last, width, loop in self.launches(max(8, TILE // clusters)):   # SPLIT / 8 mantissas: finite
            rows = max(1, TILE // (width * clusters))
            programs = triton.cdiv(last - first, rows)
            logs = torch.empty(programs if log else 0, device=out.device)
            _kernel[(programs,)](
                own, table, neighbours, self.row, self.start, self.length, self.target, out, logs,
                first, last, C=clusters, ROWS=rows, WIDTH=width, LOOP=loop, WEIGH=weigh, LOGS=log,
                num_warps=WARPS, enable_fp_fusion=True)
            total += logs.sum(dtype=torch.float64)
        return total


@dataclass(frozen=True)
class Side:
    """One domain's ratings as lists: for each row of this side its neighbours on the other side."""

    n_rows: int
    n_parts: int            # rows of the output that hold parts of long lists
    neighbours: Tensor      # int32  one a rating
    segments: Segments
    parts: Segments         # which parts make a row

    def gather(self, own: Tensor, table: Tensor, log: bool = False) -> tuple[Tensor, Tensor]:
        """out[i] = sum over its neighbours j of table[j] / d, d = <own[i], table[j]>; the sum of log d."""
        out = own.new_zeros(self.n_rows + self.n_parts, own.shape[1])
        logs = self.segments.sum(own, table, self.neighbours, out, weigh=True, log=log)
        self.parts.sum(own, out, self.neighbours, out, weigh=False, log=False)
        return out[: self.n_rows], logs


@dataclass(frozen=True)
class Domain:
    users: Rows
    by_user: Side           # rows (u, r), user after user
    by_item: Side


@dataclass(frozen=True)
class Placed:
    problem: Problem
    domains: dict[int, Domain]
    items: tuple[tuple[Rows, ...], ...]   # as Problem.item_rows


class GpuEngine:
    """The engine for one NVIDIA GPU. The ratings stay on it between iterations, and so do the parameters."""

    name = "gpu"

    def __init__(self, device: str = "cuda") -> None:
        self.device = torch.device(device)
        if self.device.type == "cpu" and not INTERPRETED:
            raise EngineError("engine 'gpu' takes device 'cpu' in Triton's interpreter alone, for tests: set "
                              "TRITON_INTERPRET=1 before Python starts, or use engine='cpu'.")
        if self.device.type != "cpu" and not torch.cuda.is_available():
            why = "finds none" if torch.version.cuda else "was built without CUDA"
            raise EngineError(f"engine 'gpu' needs an NVIDIA GPU; PyTorch {torch.__version__} {why}. "
                              "Where there is one: pip install 'pclf[gpu]'. Here: engine='cpu'.")

    def place(self, problem: Problem) -> Placed:
        """Index the ratings on the device. The codes are NumPy arrays, or tensors already there."""
        check_codes(max(map(len, problem.user_rows)), problem.n_levels)
        self.check_room(bytes_needed(problem), f"{problem.n_ratings:,} ratings of {problem.n_users:,} users need")
        views = problem.layout.views
        block = CACHE // (4 * max(_padded(view.n_clusters) for view in views))
        with self.here():
            return Placed(
                problem,
                {z: self._index(problem, z, block) for z in sorted({z for v in views for z in v.domains})},
                tuple(tuple(self._rows(rows) for rows in view) for view in problem.item_rows),
            )

    def estep(self, data: Placed, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posterior, as the reference engine defines them."""
        users = torch.zeros_like(params.users)
        items = tuple(torch.zeros_like(x) for x in params.items)
        tables = []
        with self.here():
            objective = torch.zeros((), dtype=torch.float64, device=self.device)
            a = params.users**beta
            for i, view in enumerate(data.problem.layout.views):
                b, g = _side_by_side(params.items[i]**beta, params.tables[i]**beta)
                table = torch.zeros(g.shape, dtype=torch.float64, device=self.device)
                for z, rows in zip(view.domains, data.items[i], strict=True):
                    domain = data.domains[z]
                    n_users, n_items, n_table, logs = _count(domain, a[domain.users], b[rows], g)
                    _add(users, domain.users, n_users, view.weight)
                    _add(items[i], rows, n_items[:, : view.n_clusters], view.weight)
                    table += view.weight * n_table
                    objective += view.weight * logs
                table = table.view(len(table), -1, b.shape[1])[:, :, : view.n_clusters]
                tables.append(table.transpose(0, 1).contiguous())
        return Stats(users, items, tuple(tables), float(objective) / beta)

    def put(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, dtype=torch.float32, device=self.device)

    def get(self, array: Tensor) -> NDArray[Any]:
        out: NDArray[Any] = array.cpu().numpy()
        return out

    def _index(self, problem: Problem, z: int, block: int) -> Domain:
        levels, n_users = problem.n_levels, len(problem.user_rows[z])
        n_rows = n_users * levels
        n_items = next(len(rows[view.domains.index(z)]) for view, rows in
                       zip(problem.layout.views, problem.item_rows, strict=True) if z in view.domains)
        row = self._codes(problem.user[z]) * levels + self._codes(problem.level[z])
        item = self._codes(problem.item[z])
        return Domain(
            self._rows(problem.user_rows[z]),
            lists_of(row, item, n_rows, n_items, block),
            lists_of(item, row, n_items, n_rows, block),
        )

    def _codes(self, codes: Any) -> Tensor:
        return codes if isinstance(codes, torch.Tensor) else torch.tensor(codes, device=self.device)

    def _rows(self, rows: IntArray) -> Rows:
        """Rows that follow each other as a slice, which copies nothing."""
        start = int(rows[0]) if len(rows) else 0
        if np.array_equal(rows, np.arange(start, start + len(rows))):
            return slice(start, start + len(rows))
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    def check_room(self, needed: int, what: str) -> None:
        """An error, before memory runs out, if the device has less. what: "... need"."""
        if needed > (free := self._free()):
            raise EngineError(f"{what} {needed / 2**30:.2f} GiB on the GPU; {self.device} has {free / 2**30:.2f} GiB "
                              f"free. Fit fewer, or use engine='cpu'.")

    def _free(self) -> float:
        if self.device.type == "cpu":
            return float("inf")
        held = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return float(torch.cuda.mem_get_info(self.device)[0] + held)

    @contextmanager
    def here(self) -> Iterator[None]:
        """This device, and float32 products in full precision whatever the caller's program prefers."""
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.cuda.device(self.device) if self.device.type != "cpu" else nullcontext():
                yield
        finally:
            torch.set_float32_matmul_precision(precision)


def check_codes(n_rows: int, n_levels: int) -> None:
    """Rows with levels are numbered in int32."""
    if n_rows * n_levels >= 2**31:
        raise EngineError(f"engine 'gpu' takes up to {2**31 // n_levels:,} users or items at {n_levels} levels; got "
                          f"{n_rows:,}. Use fewer levels, or engine='cpu'.")


def bytes_needed(problem: Problem) -> int:
    """Device memory of a fit, rounded up. What stays:

        8 a rating                                  the two lists of neighbours
        20 a segment                                at most one a rating, or a row (u, r), and one for FULL ratings

    and the larger of two that do not meet. Indexing the largest domain:

        17 a rating, 60 a rating of a CHUNK         its codes, and sorting them
        60 a list                                   finding the segments

    or an iteration:

        12 * levels * (padded C) a user             q and s of the largest domain in the widest view
        4 * 10 a number of P(u, k) and P(v, c)      parameters, counts, the M-step
    """
    levels, views = problem.n_levels, problem.layout.views
    ratings, largest = problem.n_ratings, max(map(len, problem.level))
    users, n_items = max(map(len, problem.user_rows)), sum(problem.n_items)
    widths = [_padded(view.n_clusters) for view in views]
    rows = levels * sum(map(len, problem.user_rows))
    numbers = problem.n_users * problem.layout.n_user_clusters + int(np.dot(problem.n_items, widths))
    kept = 8 * ratings + 20 * (min(rows, ratings) + ratings // FULL + n_items)
    indexing = 17 * largest + 60 * min(largest, CHUNK) + 60 * (levels * users + largest // FULL + n_items)
    iteration = 12 * levels * max(widths) * users + 40 * numbers
    return kept + max(indexing, iteration)


class Own(NamedTuple):
    """The factors of some users and items, which are pooled with the clusters (see models.weights)."""

    users: Any     # (B, T + F)
    items: Any     # (V, T + F)
    base: Any      # (R,)
    tilt: Any      # (T, R)
    values: Any    # (R,) ratings of the levels
    weight: Any    # (B,)
    floor: float   # least probability that is pooled


class Met(NamedTuple):
    """The same on the device, as the kernel wants it."""

    users: Tensor      # (B, F)
    items: Tensor      # (F, V)
    by_user: Tensor    # (R, B) what users, and `base`, add to each level
    by_item: Tensor    # (R, V)
    steps: Tensor      # (R,)
    values: Tensor     # (R,)
    weight: Tensor     # (B,)
    floor: float

    @classmethod
    def of(cls, own: Own, device: str) -> "Met":
        users, items, base, tilt, values, weight = _on(device, *own[:-1])
        n = len(tilt)
        return cls(users[:, n:], items[:, n:].T, (users[:, :n] @ tilt + base).T, (items[:, :n] @ tilt).T, tilt[0],
                   values, weight, own.floor)

    def means(self, met: Tensor, by_user: Tensor, by_item: Tensor, mixture: Tensor | None, weight: Tensor) -> Tensor:
        """`met` (b, V), as the factors meet, becomes the mean rating of all pairs; mixture: (R, b, V)."""
        n_users, n_items = met.shape
        width = min(PAIRS, triton.next_power_of_2(n_items))
        grid = triton.cdiv(n_users, PAIRS // width), triton.cdiv(n_items, width)
        _mean_of[grid](met, by_user.contiguous(), by_item.contiguous(), self.steps, self.values,
                       met if mixture is None else mixture, weight, self.floor, n_users, n_items,
                       LEVELS=len(by_user), MIXED=mixture is not None, USERS=PAIRS // width, ITEMS=width,
                       enable_fp_fusion=True)
        return met


def score_pairs(users: Any, items: Any, user: Any, item: Any, device: str = "cuda",
                own: Own | None = None) -> NDArray[Any]:
    """<users[user[j]], items[item[j]]> for each pair j, users (B, D), items (V, D); or, with factors, the mean
    of the pooled distribution, users (R, B, D): one array a level, D = 0 where factors have all the weight."""
    users, items, user, item = _on(device, users, items, user, item)
    view = own and Met.of(own, device)
    user, item = user.long(), item.long()
    out = torch.empty(len(user), dtype=users.dtype, device=device)
    for part in torch.arange(len(user), device=device).split(1 << 22):
        u, v = user[part], item[part]
        products = (users[..., u, :] * items[v]).sum(-1) if users.shape[-1] else None
        if view is not None:
            met = (view.users[u] * view.items.T[v]).sum(1)
            both = view.by_user[:, u] + view.by_item[:, v]
            nothing = both.new_zeros(len(both), 1)
            mixture = None if products is None else products.contiguous()
            products = view.means(met[:, None], both, nothing, mixture, view.weight[u])[:, 0]
        out[part] = products
    return np.asarray(out.cpu())


def score_top_n(users: Any, items: Any, seen_indptr: Any, seen_items: Any, n: int, device: str = "cuda",
                own: Own | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The n items with the highest score for each row of users, best first, unseen ones alone.

    Scores are those of `score_pairs`; row i has seen seen_items[seen_indptr[i]:seen_indptr[i + 1]]. Returns items
    and scores, (B, n): -1 and -inf where fewer than n are left. Only a block of B x V is held at a time.
    """
    users, items, seen_indptr, seen_items = _on(device, users, items, seen_indptr, seen_items)
    view = own and Met.of(own, device)
    seen_items, n_users, n_top = seen_items.long(), users.shape[-2], min(n, len(items))
    best = torch.full((n_users, n), -1, dtype=torch.int64, device=device)
    scores = torch.full((n_users, n), -torch.inf, dtype=users.dtype, device=device)
    step = max(1, (1 << 28) // max(1, len(items) * (1 if view is None else 1 + len(view.steps))))
    for start in range(0, n_users, step):
        rows = slice(start, start + step)
        block: Tensor = users[..., rows, :] @ items.T if users.shape[-1] else None
        if view is not None:
            met = view.users[rows] @ view.items
            block = view.means(met, view.by_user[:, rows], view.by_item, block, view.weight[rows])
        ptr = seen_indptr[start : start + len(block) + 1]
        who = torch.repeat_interleave(torch.arange(len(block), device=device), ptr.diff())
        block[who, seen_items[ptr[0] : ptr[-1]]] = -torch.inf
        top = block.topk(n_top, dim=1)
        scores[rows, :n_top] = top.values
        best[rows, :n_top] = top.indices.masked_fill(top.values == -torch.inf, -1)
    return np.asarray(best.cpu()), np.asarray(scores.cpu())


def _count(domain: Domain, a: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Expected counts of a domain in a view: users (U, K), items (V, C), table (K, R * C); sum of logs."""
    q = (a @ g).view(-1, b.shape[1])                                                  # (U * R, C)
    t, logs = domain.by_item.gather(b, q, log=True)
    s, _ = domain.by_user.gather(q, b)
    s = s.view(len(a), g.shape[1])                                                         # (U, R * C)
    blocks = len(a) // BLOCK, BLOCK
    n = blocks[0] * BLOCK
    table = a[:n].unflatten(0, blocks).transpose(1, 2) @ s[:n].unflatten(0, blocks)   # (blocks, K, R * C)
    table = table.sum(0, dtype=torch.float64) + (a[n:].T @ s[n:]).double()
    return (s @ g.T).mul_(a), t.mul_(b), table.mul_(g), logs


def _add(total: Tensor, rows: Rows, counts: Tensor, weight: float) -> None:
    if isinstance(rows, slice):
        total[rows].add_(counts, alpha=weight)
    else:
        total.index_add_(0, rows, counts, alpha=weight)   # a row comes once, so no two sums race


def _side_by_side(items: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Items and table as the products want them: clusters padded with zeros; g is (K, R * C)."""
    pad = torch.nn.functional.pad
    more = _padded(table.shape[2]) - table.shape[2]
    return pad(items, (0, more)).float(), pad(table, (0, more)).float().transpose(0, 1).flatten(1)


def _padded(clusters: int) -> int:
    """A power of two, as Triton wants, and rows of at least 16 bytes."""
    return max(4, 1 << (clusters - 1).bit_length())


def lists_of(major: Tensor, minor: Tensor, n_major: int, n_minor: int, block: int | None = None) -> Side:
    """Lists of minor codes, one for each major code.

    Where the rows to be gathered exceed the cache, long lists are cut at multiples of `block` and worked on
    block after block, so that a block's rows are read from memory once.
    """
    block = block or n_minor
    counts = torch.bincount(major, minlength=n_major)
    n_blocks = -(-n_minor // max(1, block))
    row, number = _numbered(1 + (n_blocks - 1) * (counts >= FULL * n_blocks))
    neighbours, starts = _grouped(major, minor, n_minor, counts.cumsum(0), row, number * block)
    length = starts.diff()
    cell, piece = _numbered((length + (SPLIT - 1)) // SPLIT)
    row, start, length = row[cell], starts[cell] + piece * SPLIT, length[cell] - piece * SPLIT
    pieces = torch.bincount(row, minlength=n_major)                 # of a row's list
    part = pieces[row] > 1
    target = torch.where(part, n_major - 1 + part.cumsum(0), row)   # whole lists go straight to their row
    split = pieces.gt(1).nonzero().squeeze(1)
    parts = pieces[split]
    return Side(
        n_major,
        int(parts.sum()),
        neighbours,
        _segments(row, start, length.clamp_(max=SPLIT), target, number[cell]),
        _segments(split, n_major + parts.cumsum(0) - parts, parts, split, split * 0),
    )


def _numbered(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Index i repeated counts[i] times, and which time it is: [2, 0, 1] gives [0, 0, 2] and [0, 1, 0]."""
    which = torch.repeat_interleave(counts)
    return which, torch.arange(len(which), device=counts.device) - (counts.cumsum(0) - counts)[which]


def _grouped(major: Tensor, minor: Tensor, n_minor: int, ends: Tensor, row: Tensor,
             first: Tensor) -> tuple[Tensor, Tensor]:
    """Minor codes in order of (major, minor), and where in them each cell starts: list `row` from `first` on."""
    device = major.device
    neighbours = torch.empty(len(major), dtype=torch.int32, device=device)
    starts = torch.full((len(row) + 1,), len(major), dtype=torch.int64, device=device)
    marks = torch.tensor([*range(CHUNK, len(major), CHUNK)], dtype=torch.int64, device=device)
    bounds = sorted({0, *(torch.searchsorted(ends, marks) + 1).tolist(), len(ends)})   # about CHUNK ratings each
    cells = torch.searchsorted(row, torch.tensor(bounds, device=device)).tolist()
    done = 0
    for (low, high), (left, right) in zip(pairwise(bounds), pairwise(cells), strict=True):
        inside = (major >= low) & (major < high)
        keys = (major[inside].long() * n_minor + minor[inside]).sort().values
        neighbours[done : done + len(keys)] = keys % n_minor
        wanted = row[left:right] * n_minor + first[left:right]
        starts[left:right] = done + torch.searchsorted(keys, wanted)
        done += len(keys)
    return neighbours, starts


def _segments(row: Tensor, start: Tensor, length: Tensor, target: Tensor, block: Tensor) -> Segments:
    """In order of launch, then of block, then as they come."""
    launch = torch.bucketize(length.clamp(max=WIDTHS[-1]), torch.tensor(WIDTHS, device=row.device))
    order = (launch * (1 + block.max() if len(block) else 1) + block).sort(stable=True).indices
    counts = torch.bincount(launch, minlength=len(WIDTHS)).cumsum(0).tolist()
    return Segments(row[order].int(), start[order], length[order].int(), target[order].int(), (0, *counts))


def _on(device: str, *arrays: Any) -> list[Tensor]:
    return [x.to(device) if isinstance(x, torch.Tensor) else torch.tensor(x, device=device) for x in arrays]
