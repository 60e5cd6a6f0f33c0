"""What LLVM says of processors, told from their vendors' manuals; nothing is run."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from runner.kernels.target import Target, target, target_of

X86 = "x86_64-unknown-linux-gnu"
ON_X86 = pytest.mark.skipif(not llvm.get_default_triple().startswith("x86_64"), reason="needs LLVM's x86 back end")


@ON_X86
@pytest.mark.parametrize(
    ("cpu", "features", "lanes", "has_bf16"),
    [
        ("generic", "", 4, False),
        ("nehalem", "", 4, False),
        ("sandybridge", "", 8, False),
        ("haswell", "", 8, False),
        ("znver3", "", 8, False),
        ("skylake-avx512", "", 16, False),
        ("znver4", "", 16, True),
        ("sapphirerapids", "", 16, True),
        ("sierraforest", "", 8, False),  # converts to bfloat16, but has no products of it
        ("haswell", "+avx512f,+avx512vl", 16, False),
        ("znver4", "-avx512f", 8, False),
    ],
)
def test_what_processors_can_do(cpu: str, features: str, lanes: int, has_bf16: bool) -> None:
    target()  # has LLVM's back end started
    assert target_of(X86, cpu, features) == Target(cpu=cpu, lanes=lanes, has_bf16=has_bf16)


@ON_X86
@pytest.mark.parametrize(
    ("cpu", "features", "has_amx", "bf16_pays"),
    [
        ("znver4", "", False, True),
        ("sapphirerapids", "", False, False),  # not asked for
        ("sapphirerapids", "+amx-tile,+amx-bf16", True, True),
        ("sapphirerapids", "+amx-tile,-amx-bf16", False, False),
        ("znver4", "-avx512f,+amx-bf16", False, False),
        ("haswell", "", False, False),
    ],
)
def test_where_bf16_is_faster(cpu: str, features: str, has_amx: bool, bf16_pays: bool) -> None:
    target()
    found = target_of(X86, cpu, features)
    assert (found.has_amx, found.bf16_pays) == (has_amx, bf16_pays)
    assert ("AMX" in found.description) == has_amx


def test_a_system_that_gives_no_tiles_leaves_the_vector_units(monkeypatch: pytest.MonkeyPatch) -> None:
    able = Target(cpu="sapphirerapids", lanes=16, has_bf16=True, has_amx=True)
    monkeypatch.setattr("runner.kernels.target.target_of", lambda *_: able)
    for gives in (True, False):
        monkeypatch.setattr("runner.kernels.target._system_gives_tiles", lambda gives=gives: gives)
        assert target.__wrapped__() == replace(able, has_amx=gives)


@ON_X86
@pytest.mark.parametrize("first", ["runner", "numba"])
def test_a_named_processor_is_compiled_for_without_the_hosts_features(first: str) -> None:
    code = (
        f"import {first}, runner; from runner.kernels.products import COLUMNS, ROWS; "
        "from runner.kernels.target import target; print(target().description, ROWS, COLUMNS)"
    )
    root = Path(__file__).resolve().parents[2]
    without = {key: value for key, value in os.environ.items() if key != "NUMBA_CPU_FEATURES"}
    environment = {**without, "NUMBA_CPU_NAME": "haswell", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "haswell, 8 lanes 6 16"


def test_kernels_follow_the_target() -> None:
    from runner.kernels.products import COLUMNS, HAS_BF16, ROWS, WHOLE

    assert COLUMNS % target().lanes == 0
    assert WHOLE % ROWS == WHOLE % COLUMNS == 0
    assert target().has_bf16 == HAS_BF16
