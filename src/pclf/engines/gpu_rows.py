"""Row steps of the factors on a GPU: what `cpu_rows` does on cores, in the same words.

Two Triton kernels go through the ratings, `meet` for what each says about its row and `blend` for E[f f'] of those that
a row met; then every row has a Hessian of its own, and PyTorch solves many at a time, in float64. Lists of ratings are
those of `gpu`, cut where they are long, and every sum has a fixed order.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.engines.cpu_rows import precisions
from pclf.engines.gpu import (
    CHUNK,
    GpuEngine,
    Segments,
    Side,
    Tensor,
    check_codes,
    constexpr,
    lists_of,
    tl,
    torch,
    triton,
)
from pclf.problem import IntArray

MEET, BLEND = 8, 32       # ratings that a program of each kernel takes at a time
PIECE = 16                # columns that a program of `blend` takes
WARPS = 1
ROOM = 1 << 30            # bytes for the Hessians of rows that are solved at a time


def _meet(codes, row, start, length, target, mine, f, logits, factors, steps, v, out,  # type: ignore[no-untyped-def]
          first, COLUMNS: constexpr, LEVELS: constexpr, L: constexpr, F: constexpr, WIDTH: constexpr, LOOP: constexpr):
    """Sums over the ratings of a list, a row of `out`: of the change of P(r) times f' (L, F), with the gradient of f in
    the place of the first level; of P(r) P(s) (L, L); of P(r), and of ratings r (L each). v: the variance of the step
    of each rating. See cpu_rows._levels. A program takes one list, WIDTH ratings at a time.
    """
    segment = first + tl.program_id(0)
    begin, count = tl.load(start + segment), tl.load(length + segment)
    me, to = tl.load(row + segment).to(tl.int64), tl.load(target + segment).to(tl.int64)
    k, c, place = tl.arange(0, L), tl.arange(0, F), tl.arange(0, WIDTH)
    step = tl.load(steps + k, mask=k < LEVELS, other=0.0)[None, :]
    own = tl.load(mine + me * LEVELS + k, mask=k < LEVELS, other=float("-inf"))[None, :]
    own_f = tl.load(f + me * F + c)[None, :]
    sums, pairs = tl.zeros((WIDTH, L, F), tl.float32), tl.zeros((WIDTH, L, L), tl.float32)
    total, counts = tl.zeros((WIDTH, L), tl.float32), tl.zeros((WIDTH, L), tl.float32)
    for j in range(0, count if LOOP else WIDTH, WIDTH):
        inside = j + place < count
        code = tl.load(codes + begin + j + place, mask=inside, other=0)
        other = (code // LEVELS).to(tl.int64)[:, None]
        theirs = tl.load(factors + other * F + c[None, :])
        met = tl.sum(theirs * own_f, 1)
        x = tl.load(logits + other * LEVELS + k[None, :], mask=k[None, :] < LEVELS, other=0.0)
        x += own + step * met[:, None]
        x = tl.exp(x - tl.max(x, 1)[:, None])
        p = tl.where(inside[:, None], x / tl.sum(x, 1)[:, None], 0.0)
        mean = tl.sum(p * step, 1)
        change = p * (step - mean[:, None])
        spread = tl.sum(change * step, 1)
        hit = (k[None, :] == (code % LEVELS)[:, None]) & inside[:, None]
        surprise = tl.sum(tl.where(hit, step, 0.0), 1) - mean + spread * met
        tl.store(v + begin + j + place, spread, mask=inside)
        change = tl.where(k[None, :] == 0, surprise[:, None], change)
        sums += change[:, :, None] * theirs[:, None, :]
        pairs += p[:, :, None] * p[:, None, :]
        total += p
        counts += hit.to(tl.float32)
    out += to * COLUMNS
    tl.store(out + k[:, None] * F + c[None, :], tl.sum(sums, 0))
    tl.store(out + L * F + k[:, None] * L + k[None, :], tl.sum(pairs, 0))
    tl.store(out + L * (F + L) + k, tl.sum(total, 0))
    tl.store(out + L * (F + L + 1) + k, tl.sum(counts, 0))


def _blend(codes, weights, table, start, length, target, out, first,                   # type: ignore[no-untyped-def]
           COLUMNS: constexpr, LEVELS: constexpr, LEAST: constexpr, MET: constexpr, WEIGHTED: constexpr,
           WIDTH: constexpr, LOOP: constexpr):
    """Sums of rows of `table`, sixteen columns a program.

    Which: those that a list MET, WEIGHTED, or met at a level of at LEAST so much; otherwise those that follow each
    other, the parts of a list that was too long for one program.
    """
    pieces: constexpr = COLUMNS // 16
    segment = first + tl.program_id(0) // pieces
    column = (tl.program_id(0) % pieces) * 16 + tl.arange(0, 16)[None, :]
    begin, count = tl.load(start + segment), tl.load(length + segment)
    to = tl.load(target + segment).to(tl.int64)
    place = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH, 16), tl.float32)
    for j in range(0, count if LOOP else WIDTH, WIDTH):
        inside = j + place < count
        at = begin + j + place
        if MET:
            code = tl.load(codes + at, mask=inside, other=0)
            if WEIGHTED:
                weight = tl.load(weights + at, mask=inside, other=0.0)
            else:
                inside = inside & (code % LEVELS >= LEAST)
            at = (code // LEVELS).to(tl.int64)
        x = tl.load(table + at[:, None] * COLUMNS + column, mask=inside[:, None], other=0.0)
        if WEIGHTED:
            x *= weight[:, None]
        total += x
    tl.store(out + to * COLUMNS + column, tl.sum(total, 0)[None, :])


_meet_kernel: Any = triton.jit(_meet, do_not_specialize=["first"])
_blend_kernel: Any = triton.jit(_blend, do_not_specialize=["first"])


@dataclass(frozen=True)
class Lists:
    """Ratings of a domain by row. A neighbour's code has the level in it: other * R + level."""

    side: Side
    n_levels: int
    least: int
    rated: NDArray[np.bool_]    # rows with ratings
    n_chosen: NDArray[Any]      # choices of each row

    def sums(self, x: Tensor) -> Tensor:
        """Of the rows of x that each row chose."""
        more = -x.shape[1] % PIECE
        table = torch.nn.functional.pad(x.float(), (0, more)).contiguous()
        return self.blend(table, None)[:, : x.shape[1]]

    def blend(self, table: Tensor, weights: Tensor | None) -> Tensor:
        """Sums of the rows of `table` that each row met, by weights, or of those that it chose."""
        out = table.new_zeros(self.side.n_rows + self.side.n_parts, table.shape[1])
        self._launch(self.side.segments, table, weights, out, met=True)
        return self._with_parts(out)

    def meet(self, tilt: Tensor, mine: Tensor, f: Tensor, logits: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """What the kernel of this name makes, and the variances of the ratings."""
        width, levels, columns = f.shape[1], _padded(self.n_levels), _columns(self.n_levels, f.shape[1])
        side, v = self.side, f.new_empty(len(self.side.neighbours))
        out = f.new_zeros(side.n_rows + side.n_parts, columns)
        for first, last, n, loop in side.segments.launches(MEET):
            s = side.segments
            _meet_kernel[(last - first,)](
                side.neighbours, s.row, s.start, s.length, s.target, mine, f, logits, factors, tilt[0].float(), v, out,
                first, COLUMNS=columns, LEVELS=self.n_levels, L=levels, F=width, WIDTH=n, LOOP=loop, num_warps=WARPS,
                enable_fp_fusion=True)
        return self._with_parts(out), v

    def _with_parts(self, out: Tensor) -> Tensor:
        """Whole rows, those of long lists from their parts."""
        self._launch(self.side.parts, out, None, out, met=False)
        return out[: self.side.n_rows]

    def _launch(self, s: Segments, table: Tensor, weights: Tensor | None, out: Tensor, met: bool) -> None:
        columns = table.shape[1]
        for first, last, width, loop in s.launches(BLEND):
            _blend_kernel[((last - first) * (columns // PIECE),)](
                self.side.neighbours, table if weights is None else weights, table, s.start, s.length, s.target, out,
                first, COLUMNS=columns, LEVELS=self.n_levels, LEAST=self.least, MET=met,
                WEIGHTED=weights is not None, WIDTH=width, LOOP=loop, num_warps=WARPS,
                enable_fp_fusion=True)


class Card:
    """Where factors are learned: on the GPU of an engine. Arrays that are put there stay."""

    most = 2_000_000_000     # ratings, see cpu_rows.Cores: half a minute

    def __init__(self, engine: GpuEngine) -> None:
        self.engine = engine

    def here(self) -> AbstractContextManager[None]:
        return self.engine.here()

    def check_room(self, n_ratings: int, n_rows: int, n_levels: int, size: int) -> None:
        """About: the lists and their sorting (see gpu.bytes_needed), the sums of a step, the rows and their priors."""
        check_codes(n_rows, n_levels)
        needed = 30 * n_ratings + 60 * min(n_ratings, CHUNK) + ROOM
        needed += n_rows * (4 * _columns(n_levels, size) + 8 * size**2 + 150 * size)
        self.engine.check_room(needed, f"the factors of {n_ratings:,} ratings need")

    def put(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self.engine.device)

    def get(self, array: Tensor) -> NDArray[Any]:
        out: NDArray[Any] = array.cpu().numpy()
        return out

    def lists(self, user: IntArray, item: IntArray, level: NDArray[np.uint8], n_users: int, n_items: int,
              n_levels: int, least: int) -> tuple[Lists, Lists]:
        """Ratings by user and by item. least: the level from which a rating is a choice."""
        return (self.side(user, item, level, n_users, n_items, n_levels, least),
                self.side(item, user, level, n_items, n_users, n_levels, least))

    def side(self, row: IntArray, other: IntArray, level: NDArray[np.uint8], n_rows: int, n_others: int, n_levels: int,
             least: int = 0) -> Lists:
        """Ratings by row."""
        rows, others, levels = self.put(row), self.put(other), self.put(level)
        counts = [torch.bincount(some, minlength=n_rows) for some in (rows, rows[levels >= least])]
        side = lists_of(rows, others * n_levels + levels, n_rows, n_others * n_levels)
        return Lists(side, n_levels, least, *map(self.get, (counts[0] > 0, counts[1])))

    def collect(self, lists: Lists, rows: Tensor, other_rows: Tensor, other_square: Tensor, base: NDArray[Any],
                tilt: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """cpu_rows.collect for all rows: gradients, Hessians, and the gradient and Hessian of `base`, in NumPy."""
        tilt, base = self.put(tilt), self.put(base)
        mine, f = _as_met(rows, tilt, base)
        sums, v = lists.meet(tilt, mine, f, *_as_met(other_rows, tilt, torch.zeros_like(base)))
        doubt = lists.blend(other_square, v) if other_square.shape[1] else other_square.new_zeros(len(rows), 0)
        gradient, hessian, excess, levels, _ = _collected(sums, doubt, rows, tilt, f.shape[1])
        return self.get(gradient), self.get(hessian), self.get(excess.sum(0)), self.get(levels.sum(0))

    def step(self, lists: Lists, rows: Tensor, square: Tensor, trust: Tensor, other_rows: Tensor, other_square: Tensor,
             prior: NDArray[Any], mean: Tensor, freedom: float, base: NDArray[Any],
             tilt: NDArray[Any]) -> list[NDArray[Any]]:
        """cpu_rows.newton for all rows, in place; what it adds up."""
        n, precision = len(tilt), [self.put(x) for x in precisions(prior, len(tilt))]
        tilt, base = self.put(tilt), self.put(base)
        mine, f = _as_met(rows, tilt, base)
        sums, v = lists.meet(tilt, mine, f, *_as_met(other_rows, tilt, torch.zeros_like(base)))
        doubt = lists.blend(other_square, v) if square.shape[1] else square
        added = [rows.new_zeros(*size) for size in ((len(base),), (len(base),) * 2, (n, n), precision[1].shape)]
        for some in _slices(len(rows), rows.shape[1]):
            parts = _newton(sums[some], doubt[some], rows[some], square[some], trust[some], mean[some], precision,
                            freedom, tilt, f.shape[1])
            for total, part in zip(added, parts, strict=True):
                total += part
        return [self.get(total) for total in added]


def _newton(sums: Tensor, doubt: Tensor, rows: Tensor, square: Tensor, trust: Tensor, mean: Tensor,
            prior: list[Tensor], freedom: float, tilt: Tensor, width: int) -> list[Tensor]:
    """Steps of some rows, in place. prior: its precisions."""
    shape_precision, precision = prior
    n, size = len(tilt), rows.shape[1]
    gradient, hessian, excess, levels, seen = _collected(sums, doubt, rows, tilt, width)
    gap = rows - mean
    hessian += precision
    hessian[:, :n, :n] += trust[:, None, None] * shape_precision
    gradient -= gap @ precision
    gradient[:, :n] -= trust[:, None] * (gap[:, :n] @ shape_precision)
    cov = torch.linalg.inv(hessian)

    rows += torch.where(seen[:, None], (cov @ gradient[:, :, None]).squeeze(2).clamp(-1, 1), 0.0)
    gap, known = rows - mean, seen.double()[:, None, None]
    shapes = cov[:, :n, :n]
    added = [excess.sum(0), levels.sum(0), (known * trust[:, None, None] * shapes).sum(0), (known * cov).sum(0)]
    i, j = n + torch.tril_indices(size - n, size - n, device=rows.device)
    square[:, : len(i)] = torch.where(seen[:, None], cov[:, i, j] + rows[:, i] * rows[:, j], square[:, : len(i)])
    if freedom > 0:
        distance = ((gap[:, :n, None] * gap[:, None, :n] + shapes) * shape_precision).sum((1, 2))
        trust[seen] = (freedom + n) / (freedom + distance[seen])
    return added


def _collected(sums: Tensor, doubt: Tensor, rows: Tensor, tilt: Tensor,
               width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What ratings say about some rows, without any prior: gradients, Hessians, gradients and Hessians of `base`, and
    who has ratings. See cpu_rows._assemble."""
    (n, n_levels), size = tilt.shape, rows.shape[1]
    padded = _padded(n_levels)
    sums, doubt, lower = sums.double(), doubt.double(), torch.tril_indices(size - n, size - n, device=rows.device)
    by_level = sums[:, : padded * width].unflatten(1, (padded, width))[:, :n_levels, : size - n]
    pairs = sums[:, padded * width :][:, : padded**2].unflatten(1, (padded, padded))[:, :n_levels, :n_levels]
    total, counts = sums[:, padded * (width + padded) :][:, : 2 * padded].unflatten(1, (2, padded)).unbind(1)
    total, counts = total[:, :n_levels], counts[:, :n_levels]
    excess, seen = counts - total, counts.sum(1) > 0
    place = torch.zeros(size - n, size - n, dtype=torch.int64, device=rows.device)
    place[lower[0], lower[1]] = torch.arange(lower.shape[1], device=rows.device)
    squares = doubt[:, torch.maximum(place, place.T)]                                 # symmetric matrices

    levels = torch.diag_embed(total) - pairs
    cross = by_level[:, 1:].mT @ (tilt[:, 1:] - tilt[:, :1]).T
    hessian = rows.new_zeros(len(rows), size, size)
    hessian[:, :n, :n] += tilt @ levels @ tilt.T
    hessian[:, n:, :n] += cross
    hessian[:, :n, n:] += cross.mT
    hessian[:, n:, n:] += squares
    gradient = torch.zeros_like(rows)
    gradient[:, :n] += excess @ tilt.T
    gradient[:, n:] += by_level[:, 0] - (squares @ rows[:, n:, None]).squeeze(2)
    return gradient, hessian, excess, levels, seen


def _as_met(rows: Tensor, tilt: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """What the shapes of rows make of each level, beginning with `base`, and their factors. (n, R), (n, W)"""
    n = len(tilt)
    more = max(PIECE, _padded(rows.shape[1] - n)) - (rows.shape[1] - n)
    return (base + rows[:, :n] @ tilt).float(), torch.nn.functional.pad(rows[:, n:].float(), (0, more)).contiguous()


def _padded(n: int) -> int:
    """A power of two, as Triton wants, from 2 on."""
    return 1 << max(1, (n - 1).bit_length())


def _columns(n_levels: int, width: int) -> int:
    """Numbers in a row of sums."""
    levels = _padded(n_levels)
    return -(-levels * (width + levels + 2) // PIECE) * PIECE


def _slices(n_rows: int, size: int) -> Iterator[slice]:
    """Rows whose Hessians, with what is made of them, are ROOM."""
    step = max(1, ROOM // (8 * 8 * size**2))
    return (slice(start, start + step) for start in range(0, n_rows, step))

