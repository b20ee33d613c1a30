"""Machine code for the CPU, made by numba: start values, the E-step, the order it reads ratings in, folding in, the
best n, hashes of ids.

Nothing here checks its input.
"""

import math
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit

from pclf.engines.simd import (
    blend,
    column,
    dots,
    empty_product,
    gather,
    load,
    multiply,
    pick,
    plus,
    prefetch,
    renew,
    repeat,
    scatter,
    scatter_add,
    spread,
    store,
    total_product,
    weave,
    weigh,
    zeros,
)
from pclf.errors import EngineError

Array = Any
F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 64          # users worked on together: their rows stay in the first-level cache
FLUSH = 4           # blocks whose tables are summed in the engine's precision before float64 takes over
AHEAD = 32          # ratings between asking for an item and using it
SIXTEEN = (0,) * 16   # the lanes in which user clusters are handled
GROUP = 8           # columns of which the best is found first, for lists
LOWEST = np.float32(np.finfo(np.float32).min)   # above -inf
STRIP = 512         # columns of a product worked on together
SLACK = 1e-3        # how much an accelerated step may lose of the objective
TINY = 1e-30        # memberships that are zero
SOURCES = "_" + sha256(b"".join(f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:8]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)   # the step of SplitMix64 (Steele, Lea & Flood 2014)


def compiled(function: F, fastmath: bool | set[str] = {"reassoc", "contract"}) -> F:  # noqa: B006
    """Native code that runs without Python's lock and is kept on disk between runs, where there is a place for it."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    function.__qualname__ += SOURCES              # numba's cache looks at a function's own file alone
    if config.DISABLE_JIT:                        # Python cannot run SIMD words, and numba compiles nothing then
        return cast(F, _switched_off)
    try:
        return cast(F, njit(cache=True, **options)(function))
    except RuntimeError:                          # neither the package nor the user's folder can be written to
        return cast(F, njit(**options)(function))


def _switched_off(*_: Any, **__: Any) -> None:
    raise EngineError("the kernels of pclf must be compiled, and NUMBA_DISABLE_JIT=1 switches numba's compiler off. "
                      "Unset it.")


@compiled
def add_random_posteriors(
    user: Array, item: Array, level: Array, key: Array, weight: float, seed: Any,    # ratings, as rows of the counts
    users: Array, items: Array, table: Array,                                        # counts to add to
) -> None:
    """A posterior for each rating, uniform numbers that sum to `weight`, and what it adds to the counts.

    The numbers of a rating depend on the seed and the rating's key alone: the second level of SplitMix64.
    """
    n_clusters, n_columns = table.shape[1:]
    cells = table.reshape(len(table), n_clusters * n_columns)
    posterior, rows, columns = np.empty(cells.shape[1]), np.empty(n_clusters), np.empty(n_columns)
    for j in range(len(user)):
        stream = _mixed(seed + GOLDEN * key[j])
        for i in range(len(posterior)):                                  # never 0, so that a sum is not
            posterior[i] = np.int64(_mixed(stream + GOLDEN * np.uint64(i)) >> np.uint64(11)) + 0.5
        columns[:], total = 0, 0.0
        for k in range(n_clusters):
            row = 0.0
            for c in range(n_columns):
                row += posterior[k * n_columns + c]
                columns[c] += posterior[k * n_columns + c]
            rows[k], total = row, total + row
        u, v, cell, scale = user[j], item[j], cells[level[j]], weight / total
        for i in range(len(posterior)):
            cell[i] += scale * posterior[i]
        for k in range(n_clusters):
            users[u, k] += scale * rows[k]
        for c in range(n_columns):
            items[v, c] += scale * columns[c]


@compiled
def fill_exponential(key: Array, seed: Any, out: Array) -> None:
    """Rows of exponential numbers, each from the seed and the row's key alone."""
    for i in range(len(out)):
        stream = _mixed(seed + GOLDEN * key[i])
        for k in range(out.shape[1]):                                    # between 0 and 1, neither of them
            uniform = np.int64(_mixed(stream + GOLDEN * np.uint64(k)) >> np.uint64(11)) + 0.5
            out[i, k] = -math.log(uniform * 2.0**-53)


@compiled
def draw(key: Array, n: Array, seed: Any, order: Array, ends: Array, out: Array) -> None:
    """Draws n[i] of some items for each user i, each from the seed, the user's key and the number of the draw alone.

    Item order[j] is drawn as often as ends[j] is above ends[j - 1]. What is drawn is the user times the number of
    items, and the item.
    """
    at, n_items = 0, len(order)
    for i in range(len(key)):
        stream = _mixed(seed + GOLDEN * key[i])
        for k in range(n[i]):
            uniform = (np.int64(_mixed(stream + GOLDEN * np.uint64(k)) >> np.uint64(11)) + 0.5) * 2.0**-53
            j = min(np.searchsorted(ends, uniform * ends[-1], "right"), n_items - 1)
            out[at] = i * n_items + order[j]
            at += 1


@compiled
def hash_texts(start: Array, text: Array, out: Array) -> None:
    """A hash of each text, which is text[start[i]:start[i + 1]] in UTF-8: eight bytes at a time."""
    for i in range(len(out)):
        found = GOLDEN * np.uint64(start[i + 1] - start[i])
        for j in range(start[i], start[i + 1], 8):
            word = np.uint64(0)
            for b in range(min(j + 8, start[i + 1]) - 1, j - 1, -1):
                word = (word << np.uint64(8)) | np.uint64(text[b])
            found = _mixed((found ^ word) + GOLDEN)
        out[i] = _mixed(found)


@compiled
def _mixed(x: Any) -> Any:
    """All bits of a number depend on all bits of x; different for each x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def expect(
    groups: Array, member: Array, tiles: Array, item: Array,      # a domain, see cpu.Index
    first: int, last: int,                                        # these blocks of its users
    user_rows: Array, a: Array, b: Array, g: Array, gt: Array,    # parameters, see cpu.CpuEngine.estep
    users: Array, t: Array, table: Array,                         # results
    weight: float, lanes: Any, group: Any,                        # tuples as long as vectors, and see column_group
) -> float:
    """The E-step for some blocks of users: one sweep over their ratings. Returns the sum of log d.

        q = a[u] @ g[r]     d = <q, b[v]>     s += b[v] / d     t[v] += q / d        ratings v of a row (u, r)
        users[u] += a[u] * (g[r] @ s)         table[r] += outer(a[u], s)             the row as a whole

    A block's rows come level by level. Its user number BLOCK is nobody, and fills up tiles of rows; the last item is
    nothing, and fills up tiles of ratings.
    """
    n_clusters, n_pieces = a.shape[1], (a.shape[1] + 15) // 16
    last_piece = n_pieces - 1
    together = 8 if a.itemsize == 4 else 1                        # tiles whose d multiply to a number of float64
    n_levels = len(g) // n_clusters
    n_columns = len(gt) // (n_levels * n_pieces)
    q = np.zeros((BLOCK + 1, len(lanes)), a.dtype)
    s = np.zeros((BLOCK + 1, len(lanes)), a.dtype)
    h = np.zeros(((BLOCK + 1) * n_pieces, 16), a.dtype)           # sum over the levels of g[r] @ s
    recent = np.zeros(table.shape, a.dtype)
    who = np.empty(BLOCK + 4, np.int64)                           # users of the rows: of the block,
    at = np.zeros(BLOCK + 4, np.int64)                            # where they start in a (nobody: anywhere),
    to = np.empty(BLOCK + 4, np.int64)                            # and in h
    product = empty_product()
    t[:], table[:] = 0, 0
    for block in range(first, last):
        here = user_rows[block * BLOCK:(block + 1) * BLOCK]
        for level in range(n_levels):
            start = groups[block * n_levels + level]
            n_rows = groups[block * n_levels + level + 1] - start
            for i in range(n_rows):
                who[i] = member[start + i]
                at[i], to[i] = here[who[i]] * n_clusters, who[i] * n_pieces
            who[n_rows:n_rows + 4], to[n_rows:n_rows + 4] = BLOCK, BLOCK * n_pieces
            for i in range(0, n_rows, 4):
                zero = zeros(b, lanes)
                tile = (zero, zero, zero, zero)
                for k in range(n_clusters):
                    tile = spread(load(g, level * n_clusters + k, lanes), pick(a, at, i, k), tile)
                scatter(q, who, i, 0, tile)
            for i in range(n_rows):
                own, total = load(q, who[i], lanes), zeros(b, lanes)
                stop = tiles[start + i + 1]
                for some in range(tiles[start + i], stop, together):
                    for j in range(4 * some, 4 * min(some + together, stop), 4):
                        prefetch(b, item, j + AHEAD, 0, lanes)
                        prefetch(t, item, j + AHEAD, 0, lanes)
                        tile = gather(b, item, j, 0, lanes)
                        w, d = weigh(dots(own, tile))
                        total = blend(tile, w, total)
                        scatter_add(t, item, j, own, w)
                        product = multiply(product, d)
                    product = renew(product)
                store(s, who[i], total)
            for i in range(0, n_rows, 4):
                tile = gather(s, who, i, 0, lanes)
                for k in range(n_clusters):
                    row = level * n_clusters + k
                    store(recent, row, blend(tile, pick(a, at, i, k), load(recent, row, lanes)))
                for piece in range(last_piece):
                    out = gather(h, to, i, piece, SIXTEEN)
                    for c in range(n_columns):
                        row = (level * n_pieces + piece) * n_columns + c
                        out = spread(load(gt, row, SIXTEEN), column(s, who, i, c), out)
                    scatter(h, to, i, piece, out)
                out = gather(h, to, i, last_piece, SIXTEEN)
                row = (level * n_pieces + last_piece) * n_columns
                for c in range(0, n_columns, len(group)):
                    out = weave(load(gt, row + c // len(group), SIXTEEN), repeat(s, who, i, c, group), out)
                scatter(h, to, i, last_piece, out)
        sums = h.reshape(BLOCK + 1, n_pieces * 16)
        for i in range(len(here)):
            u = here[i]
            for k in range(16 * last_piece):
                users[u, k] += weight * a[u, k] * sums[i, k]
            for k in range(16 * last_piece, n_clusters):
                lane = 16 * last_piece + (k - 16 * last_piece) * len(group)
                mine = sums[i, lane]
                for j in range(1, len(group)):
                    mine += sums[i, lane + j]
                users[u, k] += weight * a[u, k] * mine
        h[:] = 0
        if block % FLUSH == 0 or block == last - 1:
            table += recent
            recent[:] = 0
    mantissa, exponent = total_product(product)
    return float(math.log(mantissa) + math.log(2.0) * exponent)


@compiled
def pad(items: Array, rows: Array, first: int, last: int, b: Array) -> None:
    """b[i] = items[rows[i]] for some i, with zeros behind."""
    for i in range(first, last):
        row = rows[i]
        for c in range(items.shape[1]):
            b[i, c] = items[row, c]
        for c in range(items.shape[1], b.shape[1]):
            b[i, c] = 0


@compiled
def collect(t: Array, b: Array, rows: Array, weight: float, first: int, last: int, items: Array, lanes: Any) -> None:
    """items[rows[i]] += weight * b[i] * (t[0, i] + t[1, i] + ..., in this order) for some i."""
    sums = np.empty((1, len(lanes)), b.dtype)
    for i in range(first, last):
        total = load(t, i, lanes)
        for p in range(1, len(t)):
            total = plus(total, load(t, p * len(b) + i, lanes))
        store(sums, 0, total)
        row = rows[i]
        for c in range(items.shape[1]):
            items[row, c] += weight * b[i, c] * sums[0, c]


@compiled
def tally(user: Array, shift: int, counts: Array) -> None:
    """How many ratings each bucket of 2**shift users has."""
    for j in range(len(user)):
        counts[user[j] >> shift] += 1


@compiled
def split(
    user: Array, item: Array, level: Array, n_levels: int, shift: int, place: Array, keys: Array, items: Array
) -> None:
    """Each rating to the next place of its bucket: its item, and its key, which sorts as cpu.Index does."""
    for j in range(len(user)):
        bucket, block = user[j] >> shift, np.int64(user[j] // BLOCK)
        to = place[bucket]
        place[bucket] = to + 1
        keys[to] = (block * n_levels + level[j]) * BLOCK + user[j] % BLOCK
        items[to] = item[j]


@compiled
def count(keys: Array, counts: Array) -> None:
    for j in range(len(keys)):
        counts[keys[j]] += 1


@compiled
def arrange(keys: Array, items: Array, place: Array, out: Array) -> None:
    """Each item to the next place of its key."""
    for j in range(len(keys)):
        to = place[keys[j]]
        place[keys[j]] = to + 1
        out[to] = items[j]


@compiled
def fold_in(
    likelihood: Array, weights: Array, start: Array, prior: Array, max_iter: int = 300, tol: float = 1e-8
) -> Array:
    """The membership theta of someone with n ratings: from `start`, the fixed point of

        theta[k]  ~  prior[k] + sum over j of weights[j] theta[k] likelihood[j, k] / <likelihood[j], theta>

    likelihood: (n, K); weights: (n,); start and prior, a pseudo-count: (K,). Ends when a step of EM moves no
    theta[k] by more than `tol`. A rating that no cluster explains is left out.

    EM creeps where memberships go to zero, so after each two steps comes a leap in their direction (SQUAREM,
    Varadhan & Roland 2008), taken back where the objective falls by more than SLACK of its value.
    """
    theta, first, second, safe = start / start.sum(), np.empty_like(start), np.empty_like(start), start / start.sum()
    best = -np.inf
    for _ in range(max_iter):
        if _em_step(likelihood, weights, prior, theta, first) < best - SLACK * abs(best):
            theta[:] = safe
            _em_step(likelihood, weights, prior, theta, first)
        best = _em_step(likelihood, weights, prior, first, second)
        change, along, bend = 0.0, 0.0, 0.0
        for k in range(len(theta)):
            change = max(change, abs(second[k] - first[k]))
            along += (first[k] - theta[k]) ** 2
            bend += (second[k] - 2 * first[k] + theta[k]) ** 2
        safe[:] = second
        if change <= tol:
            break
        leap = max(1.0, math.sqrt(along / bend)) if bend > 0 else 1.0    # 1 leads to `second`
        for k in range(len(theta)):
            ahead = theta[k] + 2 * leap * (first[k] - theta[k]) + leap**2 * (second[k] - 2 * first[k] + theta[k])
            theta[k] = max(ahead, 1e-3 * second[k]) if second[k] > TINY else 0.0
        theta /= theta.sum()
    return safe


@compiled
def _em_step(likelihood: Array, weights: Array, prior: Array, theta: Array, new: Array) -> float:
    """One step of EM for a membership, from theta to new. Returns the objective at theta."""
    objective = 0.0
    new[:] = 0
    for j in range(len(likelihood)):
        d = 0.0
        for k in range(len(theta)):
            d += likelihood[j, k] * theta[k]
        if d > 0:
            objective += weights[j] * math.log(d)
            for k in range(len(theta)):
                new[k] += weights[j] / d * likelihood[j, k]
    total = 0.0
    for k in range(len(theta)):
        new[k] = prior[k] + theta[k] * new[k]
        total += new[k]
        if prior[k] > 0:
            objective += prior[k] * math.log(theta[k])
    for k in range(len(theta)):
        new[k] = new[k] / total if total > 0 else theta[k]
    return objective


@compiled
def product(a: Array, b: Array) -> Array:
    """a @ b for an `a` of few columns, (n, D) and (D, V), without the threads of BLAS: the caller has its own."""
    out = np.zeros((len(a), b.shape[1]), a.dtype)
    for start in range(0, b.shape[1], STRIP):
        for i in range(len(a)):
            row = out[i, start:start + STRIP]
            for d in range(len(b)):
                x, y = a[i, d], b[d, start:start + STRIP]
                for v in range(len(row)):
                    row[v] += x * y[v]
    return out


@compiled
def top_n(scores: Array, seen_indptr: Array, seen_items: Array, n: int) -> tuple[Array, Array]:
    """The n best columns of each row and their scores, (B, n): descending, equal scores by column.

    Left out: what the row has seen, seen_items[seen_indptr[i]:seen_indptr[i + 1]], and scores of -inf. Rows
    with fewer than n end in -1 and -inf. Of each group of columns the best is found first: where there are n groups,
    all that is sought is as good as the n-th of these, so that few columns are left to sort.
    """
    codes = np.full((len(scores), n), -1, np.int32)
    values = np.full((len(scores), n), -np.inf, scores.dtype)
    n_items, n_groups = scores.shape[1], scores.shape[1] // GROUP
    row, tops, left = np.empty(n_items, scores.dtype), np.empty(n_groups, scores.dtype), np.empty(n_items, np.int32)
    for i in range(len(scores) if n else 0):
        row[:] = scores[i]
        for v in seen_items[seen_indptr[i]:seen_indptr[i + 1]]:
            row[v] = -np.inf
        least = LOWEST
        if n <= n_groups:
            for g in range(n_groups):
                top = row[g * GROUP]
                for v in range(g * GROUP + 1, (g + 1) * GROUP):
                    if row[v] > top:
                        top = row[v]
                tops[g] = top
            least = max(LOWEST, np.partition(tops, n_groups - n)[n_groups - n])
        size = 0
        for v in range(n_items):
            if row[v] >= least:
                left[size] = v
                size += 1
        order = np.argsort(-row[left[:size]], kind="mergesort")                  # which keeps equal ones in their order
        for place in range(min(n, size)):
            v = left[order[place]]
            codes[i, place], values[i, place] = v, row[v]
    return codes, values
