"""Find out the vector width and bfloat16 support of the processor that Numba compiles for.

NUMBA_CPU_NAME and NUMBA_CPU_FEATURES may name another processor than the host. Therefore the module does not ask the
host: LLVM compiles a few instructions for the same target, and the module inspects the assembly.
"""

import ctypes
import platform
import sys
from dataclasses import dataclass, replace
from functools import cache

import llvmlite.binding as llvm

# A multiply-add of 16 floats stays one instruction only where registers hold 16 floats. A conversion to bfloat16 stays
# one only where the processor has AVX512_BF16, or, with registers of 8 floats, AVX_NE_CONVERT, which has no products.
_PROBE = """
define <16 x float> @multiply_add(<16 x float> %a, <16 x float> %b, <16 x float> %c) {
  %r = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %a, <16 x float> %b, <16 x float> %c)
  ret <16 x float> %r
}
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
define <16 x bfloat> @to_bf16(<16 x float> %a) {
  %r = fptrunc <16 x float> %a to <16 x bfloat>
  ret <16 x bfloat> %r
}
"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What kernels need to know of a processor.

    ``cpu`` is LLVM's name of the processor, ``lanes`` the number of float32 in a vector register; ``has_bf16`` is true
    if the processor has AVX512_BF16, and ``has_amx`` if it also has tiles of bfloat16 that this process may use.
    """

    cpu: str
    lanes: int
    has_bf16: bool
    has_amx: bool = False

    @property
    def bf16_pays(self) -> bool:
        """True if products of bfloat16 are faster than those of float32.

        AVX512_BF16's were faster on AMD's Zen 4 and Zen 5. On an Intel Xeon they had 0.6 of float32's rate, and only
        AMX's were faster there (docs/log.md).
        """
        return self.has_amx or (self.has_bf16 and self.cpu.startswith("znver"))

    @property
    def description(self) -> str:
        """The processor as reports print it, for example ``znver4, 16 lanes, AVX512_BF16``."""
        extensions = f"{', AVX512_BF16' if self.has_bf16 else ''}{', AMX' if self.has_amx else ''}"
        return f"{self.cpu}, {self.lanes} lanes{extensions}"


@cache
def target() -> Target:
    """Return the processor that the kernels of this process are compiled for."""
    from numba.core.registry import cpu_target

    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()  # Numba keys its kernel cache by these
    found = target_of(triple, cpu, features)
    return replace(found, has_amx=found.has_amx and _system_gives_tiles())


def _system_gives_tiles() -> bool:
    """Ask Linux for AMX's registers, which a process may use only after it has asked; return whether it gives them."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    call, ask_for, tiles = 158, 0x1023, 18  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of asm/prctl.h
    return ctypes.CDLL(None).syscall(*map(ctypes.c_long, (call, ask_for, tiles))) == 0


def target_of(triple: str, cpu: str, features: str) -> Target:
    """Return the capabilities of an LLVM target.

    ``features`` is a list such as ``+avx2,-fma``; empty means those that come with ``cpu``. AMX counts only where the
    list has it, because LLVM ends the process when it meets a tile and the processor has none.
    """
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    assembly = machine.emit_assembly(llvm.parse_assembly(_PROBE))
    lanes = 16 if "%zmm" in assembly else 8 if "%ymm" in assembly else 4
    has_bf16 = lanes == 16 and "vcvtneps2bf16" in assembly
    return Target(cpu=cpu, lanes=lanes, has_bf16=has_bf16, has_amx=has_bf16 and "+amx-bf16" in features.split(","))
