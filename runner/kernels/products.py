"""Provide one register tile of a matrix product, in float32 and bfloat16: the inner loop of full softmax.

Libraries multiply whole matrices. Full softmax needs products of cache-sized blocks, with exponentials and Adam
between them, on the same threads and in a fixed order. The tile is written in LLVM's vector types, which any processor
can run. Only its size depends on the target processor: it has enough accumulators to hide the latency of multiply-add,
and few enough to fit the vector registers.

Legend: ROWS x COLUMNS is the size of the tile, K the summed dimension.
"""

from collections.abc import Callable
from math import lcm
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from runner.kernels.target import target

# Rows of a tile, by lanes of a vector. The sums must stay in registers, beside two vectors of B and one element of A.
# AVX-512 has 32 registers, and 16 sums hide the latency. AVX2 has 16 registers (12 + 2 + 1 are used). SSE has 16 too,
# but needs some of them for products, because it has no fused multiply-add.
_ROWS = {16: 8, 8: 6, 4: 4}
_VECTORS = 2
_LANES = target().lanes
ROWS = _ROWS[_LANES]
COLUMNS = _LANES * _VECTORS
WHOLE = lcm(ROWS, COLUMNS)  # a multiple of the tile's height and width
HAS_BF16 = target().has_bf16

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, _LANES)
_WORD = ir.IntType(32)  # a pair of bfloat16
_WORDS = ir.VectorType(_WORD, _LANES)


def _multiply_add(builder: Any, a: Any, b: Any, accumulator: Any) -> Any:
    """Emit accumulator + a * b, fused where the processor can do that."""
    name = f"llvm.fmuladd.v{_LANES}f32"
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [a, b, accumulator])


class _BFloat(ir.Type):
    """LLVM's type ``bfloat``, for which llvmlite has no class."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _dot_pairs(builder: Any, a: Any, b: Any, accumulator: Any) -> Any:
    """Emit accumulator + a[0] * b[0] + a[1] * b[1] for pairs of bfloat16 (AVX512_BF16)."""
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * _LANES}"
    pairs = ir.VectorType(_BFloat(), 2 * _LANES)
    kind = ir.FunctionType(_VECTOR, [_VECTOR, pairs, pairs])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [accumulator, builder.bitcast(a, pairs), builder.bitcast(b, pairs)])


def _tile(element: ir.Type, vector: ir.Type, combine: Callable[..., Any]) -> Any:
    """Return the intrinsic C[m, :COLUMNS] (+)= sum_k A[m * a_row + k * a_step] * B[k * b_step + :COLUMNS], m < ROWS.

    Its arguments are: address of A, a_row, a_step, address of B, b_step, K >= 1, address of C, c_row, and a boolean:
    true adds to C, false overwrites it. Strides count elements.
    """

    @intrinsic
    def tile(context: Any, a: Any, a_row: Any, a_step: Any, b: Any, b_step: Any, k: Any, c: Any, c_row: Any, add: Any):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, a_row, a_step, b, b_step, depth, c, c_row, add = arguments
            cells = [(m, v) for m in range(ROWS) for v in range(_VECTORS)]
            a = builder.inttoptr(a, element.as_pointer())
            b = builder.inttoptr(b, element.as_pointer())
            c = builder.inttoptr(c, _FLOAT.as_pointer())

            def at(base: Any, *offsets: Any) -> Any:
                for offset in offsets:
                    base = builder.gep(base, [offset])
                return base

            def constant(value: int) -> Any:
                return ir.Constant(_INDEX, value)

            def place(m: int, v: int) -> Any:
                place = at(c, builder.mul(c_row, constant(m)), constant(v * _LANES))
                return builder.bitcast(place, _VECTOR.as_pointer())

            start = builder.append_basic_block("tile.start")
            load = builder.append_basic_block("tile.load")
            loop = builder.append_basic_block("tile.loop")
            done = builder.append_basic_block("tile.done")
            builder.branch(start)
            builder.position_at_end(start)
            builder.cbranch(add, load, loop)
            builder.position_at_end(load)
            loaded = [builder.load(place(m, v), align=4) for m, v in cells]
            builder.branch(loop)

            builder.position_at_end(loop)
            k = builder.phi(_INDEX)
            sums = [builder.phi(_VECTOR) for _ in cells]
            k.add_incoming(constant(0), start)
            k.add_incoming(constant(0), load)
            for total, before in zip(sums, loaded, strict=True):
                total.add_incoming(ir.Constant(_VECTOR, [0.0] * _LANES), start)
                total.add_incoming(before, load)
            row = at(b, builder.mul(k, b_step))
            pointer = vector.as_pointer()
            columns = [
                builder.load(builder.bitcast(at(row, constant(v * _LANES)), pointer), align=4) for v in range(_VECTORS)
            ]
            column = at(a, builder.mul(k, a_step))
            new = []
            for m in range(ROWS):
                scalar = builder.load(at(column, builder.mul(a_row, constant(m))), align=4)
                undefined = ir.Constant(vector, ir.Undefined)
                first = builder.insert_element(undefined, scalar, ir.Constant(_WORD, 0))
                spread = builder.shuffle_vector(first, undefined, ir.Constant(_WORDS, [0] * _LANES))
                new += [combine(builder, spread, columns[v], sums[m * _VECTORS + v]) for v in range(_VECTORS)]
            following = builder.add(k, constant(1))
            k.add_incoming(following, loop)
            for total, after in zip(sums, new, strict=True):
                total.add_incoming(after, loop)
            builder.cbranch(builder.icmp_signed("<", following, depth), loop, done)

            builder.position_at_end(done)
            for (m, v), after in zip(cells, new, strict=True):
                builder.store(after, place(m, v), align=4)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8, types.boolean), generate

    return tile


tile_float32 = _tile(_FLOAT, _VECTOR, _multiply_add)
tile_bf16 = _tile(_WORD, _WORDS, _dot_pairs)  # an element is a pair of bfloat16 along k


@njit(cache=True, inline="always")
def to_bf16(value):
    """Return the nearest bfloat16 of a finite float32, in the low 16 bits of a uint32 (ties to even)."""
    bits = np.float32(value).view(np.uint32)
    # Numba adds and shifts in 64 bits. Cut back to 32 at once, otherwise a vector holds half as many elements.
    odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    return np.uint32(np.uint32(bits + np.uint32(odd + np.uint32(0x7FFF))) >> np.uint32(16))


@njit(cache=True, inline="always")
def from_bf16(bits):
    """Return the float32 value of a bfloat16 given in the low 16 bits of an integer."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


def round_up(size: int, multiple: int) -> int:
    """Return the smallest multiple of ``multiple`` that is at least ``size``."""
    return -(-size // multiple) * multiple
