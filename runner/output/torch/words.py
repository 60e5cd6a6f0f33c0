"""Draw the random words of ``runner.rng`` in tensors, bit by bit the same.

A word has 64 bits, which a tensor holds as int64: sums and products wrap as those of unsigned numbers do, and shifts to
the right are followed by a mask. Seeds, steps and rows may be numbers or tensors.
"""

import torch
from torch import Tensor

from runner import rng

AnyInt = int | Tensor


def _signed(word: int) -> int:
    """Return the signed number with the bits of an unsigned one."""
    return word - 2**64 if word >= 2**63 else word


_GOLDEN, _MIX_1, _MIX_2 = (_signed(int(word)) for word in (rng._GOLDEN, rng._MIX_1, rng._MIX_2))
_LOW_32 = 2**32 - 1


def _shifted(words: Tensor, places: int) -> Tensor:
    """Shift to the right, and fill with zeros."""
    return (words >> places) & (2 ** (64 - places) - 1)


def mix(state: Tensor) -> Tensor:
    """Apply SplitMix64's finaliser (``rng.mix``)."""
    z = state + _GOLDEN
    z = (z ^ _shifted(z, 30)) * _MIX_1
    z = (z ^ _shifted(z, 27)) * _MIX_2
    return z ^ _shifted(z, 31)


def stream(seed: int, purpose: int, step: AnyInt, row: AnyInt, device: torch.device) -> Tensor:
    """Return the keys of the streams of rows of a step (``rng.stream``), in the shape of ``row``."""
    key = torch.full((), seed, dtype=torch.int64, device=device)
    for part in (purpose, step, row):
        key = mix(key) ^ part
    return mix(key)


def multiples(counter: Tensor) -> Tensor:
    """Return what counters add to a key before its bits are mixed into a word."""
    return counter * _GOLDEN


def word(key: Tensor, counter: AnyInt) -> Tensor:
    """Return words of streams (``rng.word``)."""
    step = multiples(counter) if isinstance(counter, Tensor) else _signed(counter * _GOLDEN % 2**64)
    return mix(key + step)


def below(bits: Tensor, bound: AnyInt) -> Tensor:
    """Map words to 0..bound-1 (``rng.below``)."""
    product = _shifted(bits, 32) * bound
    rest = _shifted((bits & _LOW_32) * bound, 32)
    if isinstance(bound, Tensor):
        return _shifted(product + torch.where(bound >= rng._MANY, rest, 0), 32)
    return _shifted(product + rest if bound >= rng._MANY else product, 32)


def unit(bits: Tensor) -> Tensor:
    """Map words to doubles in [0, 1) (``rng.unit``)."""
    return _shifted(bits, 11).double() * (1.0 / 9007199254740992.0)
