"""Ask the processor to load memory before it is used."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_CACHE_LINE = 64


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Emit LLVM's prefetch of the cache line at an address, for reading, into the first-level cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        hints = [ir.Constant(number, value) for value in (0, 3, 1)]  # read, keep in all levels, data
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *hints])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@njit(cache=True, inline="always")
def prefetch_row(matrix, row):
    """Ask for a row of a C-contiguous matrix.

    This is only a hint: it never faults and changes no result.
    """
    size = matrix.shape[1] * matrix.itemsize
    address = matrix.ctypes.data + row * size
    for offset in range(0, size, _CACHE_LINE):
        _prefetch(address + offset)


@njit(cache=True, inline="always")
def prefetch_element(matrix, row, column):
    """Ask for the cache line of one element of a C-contiguous matrix of 4-byte elements. This is only a hint."""
    _prefetch(matrix.ctypes.data + 4 * (row * matrix.shape[1] + column))
