"""Check arrays and numbers; what is wrong with them is raised as ``Wrong``.

Legend: R rows, N ids of all rows.
"""

import math
import sys
from typing import Any

import numpy as np
from numba import njit

_PLAIN = (np.ndarray, np.memmap)  # others, such as masked arrays, hide entries from kernels


class Wrong(Exception):
    """Say what is wrong with something that was handed over, without who handed it over."""


def demand(holds: bool | np.bool_, message: str) -> None:
    """Raise Wrong(message) unless the condition holds."""
    if not holds:
        raise Wrong(message)


def shown(value: object) -> str:
    """Return a value in a few words: a number, a text or None as it is, anything else by its type."""
    if value is None or isinstance(value, bool | int | float | np.number):
        return str(value)
    return f"'{value[:40]}'" if isinstance(value, str) else f"a {type(value).__name__}"


def as_array(value: Any) -> Any:
    """Return a tensor as an array, and anything else as it is; the torch engine passes tensors on."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    return value.detach().cpu().numpy()


def check_array(value: Any, name: str, dtype: str, *shape: int | None) -> None:
    """Raise Wrong unless the value is an array of this type and shape; None is any length."""
    if type(value) not in _PLAIN:
        raise Wrong(f"{name} must be an array of {dtype}, not {shown(value)}")
    if value.dtype != dtype:
        raise Wrong(f"{name} must be {dtype}, not {value.dtype}")
    if value.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, value.shape, strict=True)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise Wrong(f"{name} must have shape ({wanted}{',' * (len(shape) == 1)}), not {value.shape}")


def check_ids(ids_N: np.ndarray, what: str, below: int) -> None:
    """Raise Wrong unless all ids lie in [0, below - 1]."""
    if len(ids_N) and (ids_N.min() < 0 or ids_N.max() >= below):
        raise Wrong(f"{what} must lie in [0, {below - 1}], not in [{ids_N.min()}, {ids_N.max()}]")


def check_finite(numbers: np.ndarray, what: str) -> None:
    """Raise Wrong unless all numbers are finite; the message has the first one that is not."""
    if not is_finite(numbers):
        place = np.argmin(np.isfinite(numbers))
        where = ", ".join(str(int(at)) for at in np.unravel_index(place, numbers.shape))
        raise Wrong(f"{what} must be finite, but number {where} of {numbers.shape} is {numbers.ravel()[place]}")


def is_finite(numbers: np.ndarray) -> bool:
    """Tell whether all numbers are finite, without a copy."""
    return numbers.size == 0 or bool(np.isfinite(numbers.min()) and np.isfinite(numbers.max()))


def check_offsets(indptr: Any, name: str, rows: int | None, last: int) -> None:
    """Raise Wrong unless these are int64 offsets of ``rows`` rows (None: at least one) that ascend from 0 to last."""
    check_array(indptr, name, "int64", None if rows is None else rows + 1)
    demand(len(indptr) > 1 or rows == 0, f"{name} must have an entry more than there are rows, but has {len(indptr)}")
    if indptr[0] != 0 or indptr[-1] != last:
        raise Wrong(f"{name} must go from 0 to {last}, not from {indptr[0]} to {indptr[-1]}")
    if (indptr[1:] < indptr[:-1]).any():
        raise Wrong(f"{name} must ascend, but falls after entry {int(np.argmax(indptr[1:] < indptr[:-1]))}")


def check_count(value: Any, name: str, low: int = 1) -> None:
    """Raise Wrong unless the value is an integer of at least ``low``."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    demand(is_integer and value >= low, f"{name} must be an integer of at least {low}, not {shown(value)}")


def check_arrays(state: Any, name: str) -> None:
    """Raise Wrong unless this is a dict of arrays by name, as checkpoints keep it."""
    demand(isinstance(state, dict), f"{name} must be a dict of arrays by name, not {shown(state)}")
    for key, array in state.items():
        demand(isinstance(key, str) and key.isprintable(), f"{name} has the name {shown(key)}, which is no text")
        kept = type(array) in _PLAIN and not array.dtype.hasobject
        demand(kept, f"{name}['{key}'] must be an array of numbers, not {shown(array)}")


def check_plain(value: Any, name: str) -> None:
    """Raise Wrong unless the value can be written as JSON: dicts by text, lists, texts, numbers, true, false, None."""
    if isinstance(value, dict):
        for key, inner in value.items():
            demand(isinstance(key, str), f"{name} has the key {shown(key)}, which is no text")
            check_plain(inner, f"{name}['{key}']")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            check_plain(inner, f"{name}[{place}]")
    else:
        is_plain = value is None or isinstance(value, str | bool | int | float)
        demand(is_plain, f"{name} must be a number or a text of Python's own, not a {type(value).__name__}")


def is_number(value: Any) -> bool:
    """Tell whether the value is a finite number."""
    is_real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


@njit(cache=True)
def row_with_repeats(ids_N, indptr_R1):
    """Return the first row that lists an id twice, -1 if there is none. Ids must lie in [0, 2^31 - 1].

    Rows that ascend need one comparison an id; others go into a small hash table, whose cells hold a row and an id.
    """
    longest = 1
    for row in range(len(indptr_R1) - 1):
        longest = max(longest, indptr_R1[row + 1] - indptr_R1[row])
    bits = 2
    while 1 << bits < 2 * longest:
        bits += 1
    cells = np.zeros((0, 2), dtype=np.int64)  # row + 1, id
    for row in range(len(indptr_R1) - 1):
        begin, end = indptr_R1[row], indptr_R1[row + 1]
        ascends = True
        for place in range(begin + 1, end):
            ascends &= ids_N[place - 1] < ids_N[place]
        if ascends:
            continue
        if len(cells) == 0:
            cells = np.zeros((1 << bits, 2), dtype=np.int64)
        for place in range(begin, end):
            number = np.int64(ids_N[place])
            cell = (number * 2654435769 & 0xFFFFFFFF) >> (32 - bits)
            while cells[cell, 0] == row + 1:
                if cells[cell, 1] == number:
                    return row
                cell = (cell + 1) & ((1 << bits) - 1)
            cells[cell, 0] = row + 1
            cells[cell, 1] = number
    return -1


@njit(cache=True)
def row_out_of_order(ids_N, indptr_R1):
    """Return the first row whose ids do not ascend, or repeat; -1 if there is none."""
    for row in range(len(indptr_R1) - 1):
        for place in range(indptr_R1[row] + 1, indptr_R1[row + 1]):
            if ids_N[place - 1] >= ids_N[place]:
                return row
    return -1
