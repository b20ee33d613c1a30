"""Words for SIMD vectors, which numba has none for: each writes LLVM instructions into a compiled function.

They work for any number of lanes on any processor. The compiler knows that number because it is the *length*
of a tuple, `lanes`. Rows of arrays go through four at a time: a *tile* is four vectors, `w` four weights, as a vector
or, fresh from memory, as a tuple. Nothing is checked.
"""

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

REAL, WHOLE, INDEX = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
ELEMENTS = {types.float32: ir.FloatType(), types.float64: REAL, types.int64: WHOLE}
FLOOR = {4: -100, 8: -664}   # the exponent of the least d that counts, by bytes of a number


class Vector(types.Type):                                                              # type: ignore[misc]
    def __init__(self, dtype: Any, n: int) -> None:
        self.dtype, self.n = dtype, n
        super().__init__(name=f"Vector({dtype}, {n})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):                                             # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, ir.VectorType(ELEMENTS[kind.dtype], kind.n))


PRODUCT = types.Tuple((Vector(types.float64, 4), Vector(types.int64, 4)))   # mantissas, exponents


class Memory(NamedTuple):
    """An array as LLVM sees it."""

    dtype: Any
    data: Any          # the address of the first number
    columns: Any       # how many numbers a row has


class Writer:
    """Instructions that several words share."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.b = context, builder

    def open(self, kind: Any, value: Any) -> Any:
        """An argument in a handy form: Memory, the number of lanes, a list of vectors, or as it is."""
        if isinstance(kind, types.Array):
            box = self.context.make_array(kind)(self.context, self.b, value)
            return Memory(kind.dtype, box.data, self.b.extract_value(box.shape, kind.ndim - 1))
        if isinstance(kind, types.BaseTuple):
            lanes = isinstance(kind[0], types.Integer)
            return len(kind) if lanes else cgutils.unpack_tuple(self.b, value)
        return value

    def address(self, memory: Memory, row: Any, n: int) -> Any:
        return self.b.gep(memory.data, [self.b.mul(row, WHOLE(n))])

    def load(self, memory: Memory, row: Any, n: int) -> Any:
        pointer = ir.VectorType(ELEMENTS[memory.dtype], n).as_pointer()
        return self.b.load(self.b.bitcast(self.address(memory, row, n), pointer), align=4)

    def store(self, memory: Memory, row: Any, x: Any) -> None:
        address = self.address(memory, row, x.type.count)
        self.b.store(x, self.b.bitcast(address, x.type.as_pointer()), align=4)

    def four(self, index: Memory, j: Any, offset: Any = WHOLE(0)) -> list[Any]:
        """offset + index[j], ..., offset + index[j + 3]"""
        widen = self.b.sext if index.dtype.signed else self.b.zext
        loads = [self.b.load(self.b.gep(index.data, [self.b.add(j, WHOLE(i))])) for i in range(4)]
        return [self.b.add(offset, widen(x, WHOLE)) for x in loads]

    def fma(self, x: Any, w: Any, lane: int, y: Any) -> Any:
        """w[lane] * x + y"""
        weight = self.spread(w[lane], x) if isinstance(w, list) else self.pick(w, [lane] * x.type.count)
        return self.product_sum(x, weight, y)

    def product_sum(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z"""
        return self.b.fadd(self.b.fmul(x, y, flags=("contract",)), z, flags=("contract",))

    def number(self, memory: Memory, row: Any, k: Any) -> Any:
        """The address of number k of a row."""
        return self.b.gep(memory.data, [self.b.add(self.b.mul(row, memory.columns), k)])

    def spread(self, number: Any, x: Any) -> Any:
        """A number in all lanes that x has."""
        return self.pick(self.b.insert_element(splat(x.type, 0), number, INDEX(0)), [0] * x.type.count)

    def pick(self, x: Any, lanes: list[int], y: Any = None) -> Any:
        """Some lanes of x, and of y (or zeros) behind it."""
        mask = ir.Constant(ir.VectorType(INDEX, len(lanes)), lanes)
        return self.b.shuffle_vector(x, splat(x.type, 0) if y is None else y, mask)

    def fold(self, x: Any, n: int) -> Any:
        """The sum of the pieces of n lanes that x has."""
        pieces = [self.pick(x, list(range(i, i + n))) for i in range(0, x.type.count, n)]
        return reduce(self.b.fadd, pieces)

    def merge(self, x: Any, y: Any, left: list[int], right: list[int]) -> Any:
        """left + right: lanes 0-3 of a group of four of x, and 4-7 of y; for all groups."""
        n = x.type.count
        left, right = ([lane % 4 + (n if lane > 3 else 0) + group for group in range(0, n, 4) for lane in lanes]
                       for lanes in (left, right))
        return self.b.fadd(self.pick(x, left, y), self.pick(x, right, y))


def splat(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def emitted(result: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """A word for kernels: `result` gives its type from the types of the arguments, the function its code."""
    def decorate(write: Callable[..., Any]) -> Any:
        def define(_: Any, *kinds: Any) -> Any:
            kind = result(*kinds)

            def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                writer = Writer(context, builder)
                out = write(writer, *map(writer.open, kinds, values))
                if out is None:
                    return context.get_dummy_value()
                return context.make_tuple(builder, kind, out) if isinstance(out, list) else out
            return kind(*kinds), code
        define.__signature__ = inspect.signature(write)      # type: ignore[attr-defined]
        return intrinsic(define)
    return decorate


def _row(array: Any, *rest: Any) -> Any:
    return Vector(array.dtype, rest[-1].count)


def _tile(array: Any, *rest: Any) -> Any:
    return types.UniTuple(_row(array, *rest), 4)


def _none(*kinds: Any) -> Any:
    return types.void


@emitted(_row)
def zeros(e: Writer, array: Memory, lanes: int) -> Any:
    return splat(ir.VectorType(ELEMENTS[array.dtype], lanes), 0)


@emitted(_row)
def load(e: Writer, array: Memory, row: Any, lanes: int) -> Any:
    return e.load(array, row, lanes)


@emitted(_none)
def store(e: Writer, array: Memory, row: Any, x: Any) -> None:
    e.store(array, row, x)


@emitted(_tile)
def gather(e: Writer, array: Memory, index: Memory, j: Any, offset: Any, lanes: int) -> Any:
    """The rows offset + index[j], ..., offset + index[j + 3], as a tile."""
    return [e.load(array, row, lanes) for row in e.four(index, j, offset)]


@emitted(_none)
def scatter(e: Writer, array: Memory, index: Memory, j: Any, offset: Any, tile: list[Any]) -> None:
    """A tile to the rows that `gather` reads."""
    for row, x in zip(e.four(index, j, offset), tile, strict=True):
        e.store(array, row, x)


@emitted(_none)
def scatter_add(e: Writer, array: Memory, index: Memory, j: Any, x: Any, w: Any) -> None:
    """array[index[j + i]] += w[i] * x, one after the other: an index may come twice."""
    for lane, row in enumerate(e.four(index, j)):
        e.store(array, row, e.fma(x, w, lane, e.load(array, row, x.type.count)))


@emitted(_none)
def prefetch(e: Writer, array: Memory, index: Memory, j: Any, offset: Any, lanes: int) -> None:
    """Ask for the rows that `gather` reads, ahead of it."""
    byte = ir.IntType(8).as_pointer()
    fetch = e.b.module.declare_intrinsic(
        "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), [byte, INDEX, INDEX, INDEX]))
    for row in e.four(index, j, offset):
        for line in range(0, lanes, 512 // array.dtype.bitwidth):
            address = e.b.gep(e.address(array, row, lanes), [WHOLE(line)])
            e.b.call(fetch, [e.b.bitcast(address, byte), INDEX(0), INDEX(3), INDEX(1)])


@emitted(lambda array, *rest: types.UniTuple(array.dtype, 4))
def column(e: Writer, array: Memory, index: Memory, j: Any, k: Any) -> Any:
    """array[index[j + i], k] for i = 0, ..., 3, as weights."""
    return [e.b.load(e.number(array, row, k)) for row in e.four(index, j)]


@emitted(lambda array, *rest: types.UniTuple(array.dtype, 4))
def pick(e: Writer, array: Memory, index: Memory, j: Any, k: Any) -> Any:
    """The numbers index[j + i] + k of an array, for i = 0, ..., 3, as weights."""
    return [e.b.load(e.b.gep(array.data, [start])) for start in e.four(index, j, k)]


@emitted(lambda array, *rest: types.UniTuple(Vector(array.dtype, 16), 4))
def repeat(e: Writer, array: Memory, index: Memory, j: Any, k: Any, group: int) -> Any:
    """The numbers k, k + 1, ... of the rows index[j + i], a group of them again and again in 16 lanes. A tile."""
    pointer = ir.VectorType(ELEMENTS[array.dtype], group).as_pointer()
    few = [e.b.load(e.b.bitcast(e.number(array, row, k), pointer), align=4) for row in e.four(index, j)]
    return [e.pick(x, [lane % group for lane in range(16)]) for x in few]


@emitted(lambda x, tile, total: total)
def weave(e: Writer, x: Any, tile: list[Any], total: list[Any]) -> Any:
    """total[i] + x * tile[i], lane by lane, a tile."""
    return [e.product_sum(x, y, z) for y, z in zip(tile, total, strict=True)]


@emitted(lambda x, w, tile: tile)
def spread(e: Writer, x: Any, w: Any, tile: list[Any]) -> Any:
    """tile[i] + w[i] * x, a tile."""
    return [e.fma(x, w, i, y) for i, y in enumerate(tile)]


@emitted(lambda x, y: x)
def plus(e: Writer, x: Any, y: Any) -> Any:
    return e.b.fadd(x, y)


@emitted(lambda y, a, x: y)
def minus(e: Writer, y: Any, a: Any, x: Any) -> Any:
    """y - a * x for a number a."""
    return e.b.fsub(y, e.b.fmul(x, e.spread(a, x), flags=("contract",)), flags=("contract",))


@emitted(lambda tile, w, total: total)
def blend(e: Writer, tile: list[Any], w: Any, total: Any) -> Any:
    """total + w[0] * tile[0] + ... + w[3] * tile[3], a vector."""
    for i, x in enumerate(tile):
        total = e.fma(x, w, i, total)
    return total


@emitted(lambda x, tile: Vector(x.dtype, 4))
def dots(e: Writer, x: Any, tile: list[Any]) -> Any:
    """The inner products of x with the vectors of a tile: in each group of four lanes first, all at once."""
    register = 16 if x.type.element == ir.FloatType() else 8
    a, b, c, d = (e.fold(e.b.fmul(x, y), register) for y in tile)
    ab, cd = (e.merge(y, z, [0, 4, 1, 5], [2, 6, 3, 7]) for y, z in ((a, b), (c, d)))
    return e.fold(e.fold(e.merge(ab, cd, [0, 1, 4, 5], [2, 3, 6, 7]), min(8, x.type.count)), 4)


@emitted(lambda d: types.UniTuple(d, 2))
def weigh(e: Writer, d: Any) -> Any:
    """(1 / d, d). A d next to zero counts nothing: (0, 2**FLOOR)."""
    floor = splat(d.type, 2.0 ** FLOOR[8 if d.type.element == REAL else 4])
    enough = e.b.fcmp_ordered(">", d, floor)
    d = e.b.select(enough, d, floor)
    return [e.b.select(enough, e.b.fdiv(splat(d.type, 1), d), splat(d.type, 0)), d]


@emitted(lambda: PRODUCT)
def empty_product(e: Writer) -> Any:
    """1, four times, as mantissas and exponents: then a sum of many logarithms takes one."""
    return [splat(ir.VectorType(REAL, 4), 1), splat(ir.VectorType(WHOLE, 4), 0)]


@emitted(lambda product, d: product)
def multiply(e: Writer, product: list[Any], d: Any) -> Any:
    """product * d, lane by lane. `renew` it before mantissas can leave the range of a double."""
    mantissa, exponent = product
    wide = d if d.type == mantissa.type else e.b.fpext(d, mantissa.type)
    return [e.b.fmul(mantissa, wide), exponent]


@emitted(lambda product: product)
def renew(e: Writer, product: list[Any]) -> Any:
    """The same product, with mantissas from 1 to 2."""
    mantissa, exponent = product
    bits = e.b.bitcast(mantissa, exponent.type)
    shift, bias, fraction = (splat(bits.type, x) for x in (52, 1023, (1 << 52) - 1))
    exponent = e.b.add(exponent, e.b.sub(e.b.lshr(bits, shift), bias))
    bits = e.b.or_(e.b.and_(bits, fraction), e.b.shl(bias, shift))
    return [e.b.bitcast(bits, mantissa.type), exponent]


@emitted(lambda product: types.Tuple((types.float64, types.int64)))
def total_product(e: Writer, product: list[Any]) -> Any:
    """The four products as one mantissa and one exponent."""
    mantissas, exponents = ([e.b.extract_element(x, INDEX(i)) for i in range(4)] for x in product)
    return [reduce(e.b.fmul, mantissas), reduce(e.b.add, exponents)]
