"""Multiply matrices of bfloat16 by AMX, the tile unit of Intel's server processors since 2023.

A tile register holds 16 rows of 64 bytes, and one instruction multiplies two of them. Here four registers hold the
sums, a square of 32 x 32, and four the operands, so that each operand is loaded once for two products. Operands are
pairs of bfloat16 along the summed dimension in 32-bit words, packed as for ``products.tile_bf16``. Only where
``target().has_amx`` may these functions be compiled or called.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_EDGE = 16  # rows of a tile register, and words in a row
_ROW_BYTES = 64
ROWS = COLUMNS = 2 * _EDGE
DEPTH = _EDGE  # words: the summed dimension is a multiple of it

_BYTE, _INDEX = ir.IntType(8), ir.IntType(64)
_ADDRESS = _BYTE.as_pointer()
_SUMS, _LEFT, _RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)  # tile registers


def _palette() -> np.ndarray:
    """Return the 64 bytes that tell the unit the sizes of its registers: all eight of them are whole."""
    palette = np.zeros(64, dtype=np.uint8)
    palette[0] = 1
    palette[16:32].view(np.uint16)[:] = _ROW_BYTES
    palette[48:56] = _EDGE
    return palette


_PALETTE = _palette()


def _emit(builder: Any, name: str, kinds: list[ir.Type], arguments: list[Any]) -> None:
    """Emit a call of one of LLVM's instructions for tiles."""
    name = f"llvm.x86.{name}"
    kind = ir.FunctionType(ir.VoidType(), kinds)
    builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), arguments)


def _register(number: int) -> Any:
    return ir.Constant(_BYTE, number)


@intrinsic
def _configure(context: Any, palette: Any) -> Any:
    """Give the calling thread tile registers of the sizes at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit(builder, "ldtilecfg", [_ADDRESS], [builder.inttoptr(arguments[0], _ADDRESS)])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@intrinsic
def end_tiles(context: Any) -> Any:
    """Give the calling thread's tile registers back, so that a change of threads need not save their 8 KiB."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit(builder, "tilerelease", [], [])
        return context.get_dummy_value()

    return types.void(), generate


@njit(cache=True)
def begin_tiles():
    """Give the calling thread tile registers. ``tile_amx`` needs them, until ``end_tiles``."""
    _configure(_PALETTE.ctypes.data)


@intrinsic
def tile_amx(context: Any, a: Any, a_row: Any, a_step: Any, b: Any, b_step: Any, k: Any, c: Any, c_row: Any, add: Any):  # type: ignore[no-untyped-def]
    """C[m, :COLUMNS] (+)= sum_k A[m * a_row + k] . B[k * b_step + :COLUMNS] for m < ROWS, k counting pairs.

    Arguments are those of ``products.tile_bf16``: addresses, strides in elements, and whether to add to C. ``a_step``
    must be 1, and ``k`` a multiple of DEPTH. Sums are float32. The unit may sum the products of the pairs' first and of
    their second numbers separately, so bits differ from those of ``tile_bf16``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_row, _, b, b_step, depth, c, c_row, add = arguments

        def constant(value: int) -> Any:
            return ir.Constant(_INDEX, value)

        def times(value: Any, factor: int) -> Any:
            return builder.mul(value, constant(factor))

        def move(action: str, register: int, address: Any, stride: Any) -> None:
            pointer = builder.inttoptr(address, _ADDRESS)
            _emit(builder, action, [_BYTE, _ADDRESS, _INDEX], [_register(register), pointer, stride])

        a_bytes, b_bytes, c_bytes = (times(stride, 4) for stride in (a_row, b_step, c_row))
        corners = [
            builder.add(builder.add(c, times(c_bytes, _EDGE * i)), constant(_ROW_BYTES * j))
            for i in range(2)
            for j in range(2)
        ]
        load = builder.append_basic_block("amx.load")
        clear = builder.append_basic_block("amx.clear")
        loop = builder.append_basic_block("amx.loop")
        done = builder.append_basic_block("amx.done")
        builder.cbranch(add, load, clear)
        builder.position_at_end(load)
        for register, corner in zip(_SUMS, corners, strict=True):
            move("tileloadd64", register, corner, c_bytes)
        builder.branch(loop)
        builder.position_at_end(clear)
        for register in _SUMS:
            _emit(builder, "tilezero", [_BYTE], [_register(register)])
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(_INDEX)
        k.add_incoming(constant(0), load)
        k.add_incoming(constant(0), clear)
        left = builder.add(a, times(k, 4))
        right = builder.add(b, builder.mul(k, b_bytes))
        for i in range(2):
            move("tileloadd64", _LEFT[i], builder.add(left, times(a_bytes, _EDGE * i)), a_bytes)
            move("tileloadd64", _RIGHT[i], builder.add(right, constant(_ROW_BYTES * i)), b_bytes)
        for i in range(2):
            for j in range(2):
                operands = [_register(_SUMS[2 * i + j]), _register(_LEFT[i]), _register(_RIGHT[j])]
                _emit(builder, "tdpbf16ps", [_BYTE] * 3, operands)
        following = builder.add(k, constant(DEPTH))
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, done)

        builder.position_at_end(done)
        for register, corner in zip(_SUMS, corners, strict=True):
            move("tilestored64", register, corner, c_bytes)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8, types.boolean), generate
