"""Machine code for the CPU, made by numba: the E-step, the index it reads, folding in, the best n.

Nothing here checks its input. The E-step works on SIMD vectors, which numba has no word for: the functions
marked `emitted` write the LLVM instructions, for any number of lanes and any processor. The number of lanes is
a constant to the compiler because it is the *length* of the tuple `lanes`. Rows are handled four at a time; a
*tile* is four vectors, and `w` a vector of four weights.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

Array = Any
F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 32               # users worked on together: their rows fit the first-level cache
AHEAD = 32               # ratings between a prefetch and its use
SPARE = AHEAD + 4        # entries behind the last rating that may be read, not used
EIGHT = (0,) * 8         # lanes in which user clusters are handled
FUSE = ("contract",)     # a * b + c may round once


def compiled(function: F) -> F:
    """Native code that runs without Python's lock and is kept on disk between runs."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def emitted(function: Callable[..., Any]) -> Any:
    """A function of types that returns a signature and the writer of its LLVM code."""
    return intrinsic(function)


class Vector(types.Type):                                                              # type: ignore[misc]
    def __init__(self, dtype: Any, n: int) -> None:
        self.dtype, self.n = dtype, n
        super().__init__(name=f"Vector({dtype}, {n})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):                                             # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector) -> None:
        element = {"float32": ir.FloatType(), "float64": ir.DoubleType(), "int64": ir.IntType(64)}
        super().__init__(manager, kind, ir.VectorType(element[str(kind.dtype)], kind.n))


LOG = types.Tuple((Vector(types.float64, 4), Vector(types.int64, 4)))   # mantissas, exponents


@emitted
def load(_: Any, array: Any, row: Any, lanes: Any) -> Any:
    """A row of `array`."""
    vector = Vector(array.dtype, lanes.count)
    return vector(array, types.intp, lanes), lambda context, b, sig, args: _load(
        b, _address(context, b, sig, args[0], args[1], vector.n), context.get_value_type(vector))


@emitted
def store(_: Any, array: Any, row: Any, x: Any) -> Any:
    """array[row] = x"""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        _store(b, args[2], _address(context, b, sig, args[0], args[1], x.n))
        return context.get_dummy_value()
    return types.void(array, types.intp, x), write


@emitted
def zeros(_: Any, array: Any, lanes: Any) -> Any:
    """A vector of zeros of the kind that rows of `array` are."""
    vector = Vector(array.dtype, lanes.count)
    return vector(array, lanes), lambda context, b, sig, args: _splat(context.get_value_type(vector), 0.0)


@emitted
def gather(_: Any, array: Any, index: Any, j: Any, offset: Any, lanes: Any) -> Any:
    """The rows offset + index[j], ..., offset + index[j + 3] of `array`, as a tile."""
    vector = Vector(array.dtype, lanes.count)
    tile = types.UniTuple(vector, 4)

    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(vector)
        rows = [_load(b, _address(context, b, sig, args[0], b.add(i, args[3]), vector.n), kind)
                for i in _indices(context, b, sig, args[1], args[2])]
        return context.make_tuple(b, tile, rows)
    return tile(array, index, types.intp, types.intp, lanes), write


@emitted
def scatter(_: Any, array: Any, index: Any, j: Any, offset: Any, tile: Any) -> Any:
    """A tile to the rows that `gather` would read."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        rows = cgutils.unpack_tuple(b, args[4])
        for i, x in zip(_indices(context, b, sig, args[1], args[2], 1), rows, strict=True):
            _store(b, x, _address(context, b, sig, args[0], b.add(i, args[3]), tile.dtype.n))
        return context.get_dummy_value()
    return types.void(array, index, types.intp, types.intp, tile), write


@emitted
def scatter_add(_: Any, array: Any, index: Any, j: Any, x: Any, w: Any) -> Any:
    """array[index[j + i]] += w[i] * x, one after the other, since an index may come twice."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(x)
        for lane, i in enumerate(_indices(context, b, sig, args[1], args[2])):
            address = _address(context, b, sig, args[0], i, x.n)
            _store(b, _fma(b, args[3], args[4], lane, _load(b, address, kind)), address)
        return context.get_dummy_value()
    return types.void(array, index, types.intp, x, w), write


@emitted
def prefetch(_: Any, array: Any, index: Any, j: Any, lanes: Any) -> Any:
    """Start to fetch the rows index[j], ..., index[j + 3] of `array` from memory."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        fetch = b.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        for i in _indices(context, b, sig, args[1], args[2]):
            row = b.bitcast(_address(context, b, sig, args[0], i, lanes.count), byte)
            for line in range(0, lanes.count * array.dtype.bitwidth // 8, 64):
                b.call(fetch, [b.gep(row, [flag(line)]), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()
    return types.void(array, index, types.intp, lanes), write


@emitted
def column(_: Any, array: Any, index: Any, j: Any, k: Any) -> Any:
    """array[index[j + i], k] for i = 0, ..., 3, as weights."""
    vector = Vector(array.dtype, 4)

    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        box = context.make_array(array)(context, b, args[0])
        out = ir.Constant(context.get_value_type(vector), ir.Undefined)
        for lane, i in enumerate(_indices(context, b, sig, args[1], args[2])):
            address = cgutils.get_item_pointer(context, b, array, box, [i, args[3]])
            out = b.insert_element(out, b.load(address), ir.IntType(32)(lane))
        return out
    return vector(array, index, types.intp, types.intp), write


@emitted
def spread(_: Any, x: Any, w: Any, tile: Any) -> Any:
    """tile[i] + w[i] * x, a tile."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        rows = cgutils.unpack_tuple(b, args[2])
        return context.make_tuple(b, tile, [_fma(b, args[0], args[1], i, y) for i, y in enumerate(rows)])
    return tile(x, w, tile), write


@emitted
def blend(_: Any, tile: Any, w: Any, total: Any) -> Any:
    """total + w[0] * tile[0] + ... + w[3] * tile[3], a vector."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        out = args[2]
        for i, x in enumerate(cgutils.unpack_tuple(b, args[0])):
            out = _fma(b, x, args[1], i, out)
        return out
    return total(tile, w, total), write


@emitted
def dots(_: Any, x: Any, tile: Any) -> Any:
    """The inner products of x with the vectors of a tile: halves on halves, then a 4 x 4 transposition."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        parts = [b.fmul(args[0], y) for y in cgutils.unpack_tuple(b, args[1])]
        n = x.n
        while n > 4:
            half = (n + 4) // 8 * 4                                   # a multiple of 4, like n
            lower, upper = range(half), [*range(half, n), *[n] * (2 * half - n)]
            parts = [b.fadd(_pick(b, p, lower), _pick(b, p, upper)) for p in parts]
            n = half
        p, q = (b.fadd(_pick(b, y, [0, 1, 4, 5], z), _pick(b, y, [2, 3, 6, 7], z))
                for y, z in (parts[:2], parts[2:]))
        return b.fadd(_pick(b, p, [0, 2, 4, 6], q), _pick(b, p, [1, 3, 5, 7], q))
    return Vector(x.dtype, 4)(x, tile), write


@emitted
def weigh(_: Any, d: Any, n: Any) -> Any:
    """(1 / d, d) for the first n of four; (0, 1) for the rest; (0, tiny) where d is (almost) nothing."""
    pair = types.UniTuple(d, 2)

    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        kind, integers = context.get_value_type(d), ir.VectorType(ir.IntType(64), 4)
        tiny, one = (_splat(kind, x) for x in (1e-30 if d.dtype == types.float32 else 1e-200, 1.0))
        count = _pick(b, b.insert_element(_splat(integers, 0), args[1], ir.IntType(32)(0)), [0] * 4)
        live = b.icmp_signed("<", ir.Constant(integers, [0, 1, 2, 3]), count)
        enough = b.fcmp_ordered(">", args[0], tiny)
        safe = b.select(live, b.select(enough, args[0], tiny), one)
        w = b.select(b.and_(live, enough), b.fdiv(one, safe), _splat(kind, 0.0))
        return context.make_tuple(b, pair, [w, safe])
    return pair(d, types.intp), write


@emitted
def log_start(_: Any) -> Any:
    """log 1, as a product of which mantissas and exponents are kept apart: one logarithm at the end."""
    return LOG(), lambda context, b, sig, args: context.make_tuple(
        b, LOG, [_splat(context.get_value_type(kind), value) for kind, value in zip(LOG, (1.0, 0), strict=True)])


@emitted
def log_add(_: Any, log: Any, d: Any) -> Any:
    """log + log d, of the four numbers of d."""
    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        mantissa, exponent = cgutils.unpack_tuple(b, args[0])
        real, integer = mantissa.type, exponent.type
        wide = b.fpext(args[1], real) if d.dtype == types.float32 else args[1]
        bits = b.bitcast(b.fmul(mantissa, wide), integer)
        fraction = b.and_(bits, _splat(integer, (1 << 52) - 1))
        exponent = b.add(exponent, b.sub(b.lshr(bits, _splat(integer, 52)), _splat(integer, 1023)))
        mantissa = b.bitcast(b.or_(fraction, _splat(integer, 1023 << 52)), real)
        return context.make_tuple(b, LOG, [mantissa, exponent])
    return LOG(log, d), write


@emitted
def log_parts(_: Any, log: Any) -> Any:
    """The product of the mantissas and the sum of the exponents."""
    pair = types.Tuple((types.float64, types.int64))

    def write(context: Any, b: Any, sig: Any, args: Any) -> Any:
        m, e = ([b.extract_element(x, ir.IntType(32)(i)) for i in range(4)]
                for x in cgutils.unpack_tuple(b, args[0]))
        mantissa = b.fmul(b.fmul(m[0], m[1]), b.fmul(m[2], m[3]))
        return context.make_tuple(b, pair, [mantissa, b.add(b.add(e[0], e[1]), b.add(e[2], e[3]))])
    return pair(log), write


def _address(context: Any, b: Any, sig: Any, array: Any, row: Any, n: int) -> Any:
    data = context.make_array(sig.args[0])(context, b, array).data
    return b.gep(data, [b.mul(row, ir.Constant(row.type, n))])


def _load(b: Any, address: Any, kind: Any) -> Any:
    return b.load(b.bitcast(address, kind.as_pointer()), align=4)


def _store(b: Any, x: Any, address: Any) -> None:
    b.store(x, b.bitcast(address, x.type.as_pointer()), align=4)


def _indices(context: Any, b: Any, sig: Any, index: Any, j: Any, position: int = 1) -> list[Any]:
    kind = sig.args[position]
    data, wide = context.make_array(kind)(context, b, index).data, ir.IntType(64)
    extend = b.sext if kind.dtype.signed else b.zext
    return [extend(b.load(b.gep(data, [b.add(j, wide(i))])), wide) for i in range(4)]


def _fma(b: Any, x: Any, w: Any, lane: int, y: Any) -> Any:
    """w[lane] * x + y"""
    weight = _pick(b, w, [lane] * x.type.count)
    return b.fadd(b.fmul(x, weight, flags=FUSE), y, flags=FUSE)


def _pick(b: Any, x: Any, lanes: Any, y: Any = None) -> Any:
    """These lanes of x and behind it y, or zeros."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return b.shuffle_vector(x, _splat(x.type, 0.0) if y is None else y, mask)


def _splat(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * kind.count)


@compiled
def expect(
    groups: Array, row_ptr: Array, member: Array, item: Array,       # the index of a domain, see cpu.Index
    first: int, last: int,                                           # blocks of users
    user_rows: Array, a: Array, b: Array, g: Array, gt: Array,       # (U_z,), (U, K), (V, W), (R*K, W), see cpu
    users: Array, t: Array, table: Array,                            # results: (U, K), (V, W), (R*K, W)
    weight: float, lanes: Any,
) -> float:
    """The E-step for some blocks of users of a domain, in one sweep over their ratings. Returns sum log d.

        q = a[u] @ g[r];    d = <q, b[v]>;    s += b[v] / d;    t[v] += q / d           a row (u, r)
        users[u] += a[u] * (g[r] @ s);    table[r] += outer(a[u], s)

    The rows of a block come level by level. The block's own user BLOCK is nobody: it fills tiles up.
    """
    n_clusters, n_tiles = a.shape[1], (a.shape[1] + 7) // 8
    n_levels = len(g) // n_clusters
    width = len(gt) // (n_levels * n_tiles)
    mine = np.zeros((BLOCK + 1, n_clusters), a.dtype)
    q, s = np.zeros((BLOCK + 1, len(lanes)), a.dtype), np.zeros((BLOCK + 1, len(lanes)), a.dtype)
    h = np.zeros((n_tiles * (BLOCK + 1), 8), a.dtype)                # sum over levels of g[r] @ s
    part = np.zeros(g.shape, a.dtype)                                # of `table`, for a few blocks
    who = np.full(BLOCK + 4, BLOCK)
    log = log_start()
    t[:] = 0
    for block in range(first, last):
        n_users = min(BLOCK, len(user_rows) - block * BLOCK)
        for i in range(n_users):
            mine[i] = a[user_rows[block * BLOCK + i]]
        for level in range(n_levels):
            start, stop = groups[block * n_levels + level], groups[block * n_levels + level + 1]
            n = stop - start
            who[:n] = member[start:stop]
            who[n:n + 4] = BLOCK
            for i in range(0, n, 4):
                tile = gather(g, who, 0, 0, lanes)
                for k in range(n_clusters):
                    tile = spread(load(g, level * n_clusters + k, lanes), column(mine, who, i, k), tile)
                scatter(q, who, i, 0, tile)
            for i in range(n):
                own, total = load(q, who[i], lanes), zeros(b, lanes)
                end = row_ptr[start + i + 1]
                for j in range(row_ptr[start + i], end, 4):
                    prefetch(b, item, j + AHEAD, lanes)
                    prefetch(t, item, j + AHEAD, lanes)
                    tile = gather(b, item, j, 0, lanes)
                    w, d = weigh(dots(own, tile), end - j)
                    total = blend(tile, w, total)
                    scatter_add(t, item, j, own, w)
                    log = log_add(log, d)
                store(s, who[i], total)
