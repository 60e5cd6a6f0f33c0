"""Cached kernels belong to the state of everything that they are compiled from, and to nothing else."""

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from numba.core import caching

from runner import REPOSITORY, rng
from runner.kernels.target import target
from runner.machine import kernel_files
from runner.machine.kernel_files import kernel_sources

PACKAGE = REPOSITORY / "runner"
_IMPORTS_NJIT = re.compile(r"^from numba import .*\bnjit\b", re.MULTILINE)
WITH_KERNELS = [file for file in sorted(PACKAGE.rglob("*.py")) if _IMPORTS_NJIT.search(file.read_text())]


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def imported_files(tree: ast.Module) -> dict[str, Path]:
    """Return the file of this package that each imported name comes from: the module's own, if it is a module."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("runner"):
            for alias in node.names:
                place = REPOSITORY.joinpath(*f"{node.module}".split("."))
                choices = [place / f"{alias.name}.py", place.with_suffix(".py"), place / "__init__.py"]
                found[alias.asname or alias.name] = next(choice for choice in choices if choice.is_file())
    return found


def names_of_kernels(tree: ast.Module) -> set[str]:
    """Return the names that compiled functions of a file use, decorators and the file's own constants followed."""
    constants: dict[str, set[str]] = {}
    for node in [each for top in tree.body for each in (ast.walk(top) if isinstance(top, ast.If) else [top])]:
        if isinstance(node, ast.Assign):
            for name in {name for each in node.targets for name in names_in(each)}:
                constants.setdefault(name, set()).update(names_in(node.value))
    found, left = set[str](), list[str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "njit" in {n for each in node.decorator_list for n in names_in(each)}:
            left += names_in(node)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += constants.get(name, ())
    return found


@pytest.mark.parametrize("file", WITH_KERNELS, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_all_that_a_kernel_uses_is_among_its_sources(file: Path) -> None:
    tree = ast.parse(file.read_text())
    used, sources = names_of_kernels(tree), kernel_sources(file)
    missing = {name: str(origin) for name, origin in imported_files(tree).items()
               if name in used and origin not in sources}  # fmt: skip
    assert missing == {}


def test_kernels_are_found() -> None:
    assert len(WITH_KERNELS) > 30
    assert PACKAGE / "kernels" / "rows.py" in WITH_KERNELS


def test_sources_are_followed_from_file_to_file() -> None:
    sources = {str(file.relative_to(PACKAGE)) for file in kernel_sources(PACKAGE / "samplers" / "lsh_bucket.py")}
    assert {"samplers/lsh_bucket.py", "samplers/hashed.py", "structures/tables.py", "rng.py"} <= sources
    assert PACKAGE / "kernels" / "amx.py" in kernel_sources(PACKAGE / "kernels" / "full_softmax_bf16.py")
    assert not {"contracts.py", "output/numba/layer.py", "kernels/topk.py", "samplers/lsh.py"} & sources


A = "from runner.b import (\n    helper,  # inlined\n)\n@njit(cache=True)\ndef kernel(x): return helper(x)\n"
B = "from runner import c\n@njit\ndef helper(x): return c.constant * x\n"
C = "constant = 1\n# njit\n"


@pytest.fixture
def state_of_a(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that gives the state of a.py in a package of these files."""
    count = iter(range(100))

    def state(**files: str) -> str:
        package = tmp_path / str(next(count)) / "runner"
        package.mkdir(parents=True)
        for name, text in {"a": A, "b": B, "c": C, "other": B, **files}.items():
            (package / f"{name}.py").write_text(text)
        monkeypatch.setattr(kernel_files, "_PACKAGE", package)
        return kernel_files._state_of(package / "a.py")

    return state


@pytest.mark.parametrize(("changed", "differs"), [
    ({}, False),
    ({"a": f"{A}#"}, True),
    ({"b": f"{B}#"}, True),
    ({"c": f"{C}#"}, True),
    ({"other": f"{B}#"}, False),
], ids=["nothing", "own file", "imported", "imported by that", "not imported"])  # fmt: skip
def test_a_change_reaches_what_is_compiled_from_it(
    changed: dict[str, str], differs: bool, state_of_a: Callable[..., str]
) -> None:
    assert (state_of_a(**changed) != state_of_a()) == differs


def test_numba_keeps_kernels_where_the_sources_say() -> None:
    place = Path(rng.mix._cache.cache_path)
    assert place.name == kernel_files._folder_of(PACKAGE / "rng.py")
    assert place.name.startswith(f"rng-{kernel_files._state_of(PACKAGE / 'rng.py')}")
    assert place.is_dir()


def test_kernels_with_tiles_of_amx_have_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    places = set()
    for has_amx in (False, True):
        other = replace(target(), has_amx=has_amx)
        monkeypatch.setattr(kernel_files, "target", lambda other=other: other)
        places.add(kernel_files._folder_of(PACKAGE / "rng.py"))
    assert len(places) == 2


def test_a_function_without_a_file_has_a_place_of_numbas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So has every function where the folder of compiled kernels cannot be made."""

    def function() -> None: ...

    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").touch()
    found = kernel_files.BySources.from_function(function, __file__)
    assert isinstance(found, caching.InTreeCacheLocator)
    assert kernel_files.BySources.from_function(function, "<nowhere>") is None


def test_two_writers_take_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lock both would read the index before either writes it, and take the same name."""
    both_read = threading.Barrier(2)
    load = caching.IndexDataCacheFile._load_index

    def slow_load(self: object) -> object:
        index = load(self)
        with suppress(threading.BrokenBarrierError):
            both_read.wait(0.3)
        return index

    files = [caching.IndexDataCacheFile(str(tmp_path), "kernel", "stamp") for _ in range(2)]
    monkeypatch.setattr(caching.IndexDataCacheFile, "_load_index", slow_load)
    writers = [threading.Thread(target=file.save, args=(key, key)) for file, key in zip(files, "ab", strict=True)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    monkeypatch.undo()
    assert [files[0].load(key) for key in "ab"] == ["a", "b"]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "a byte": lambda content: content[:1],
    "half": lambda content: content[: len(content) // 2],
    "all but a byte": lambda content: content[:-1],
    "text": lambda content: b"hello\n",
    "zeros": lambda content: bytes(len(content)),
    "a changed byte": lambda content: content.replace(b"machine code", b"machine cose"),
}


@pytest.mark.parametrize("name", ["kernel.nbi", "kernel.1.nbc"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_the_cache_is_compiled_again(
    name: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    file = caching.IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    file.save("machine code key", ("machine code", 7))
    assert file.load("machine code key") == ("machine code", 7)
    (tmp_path / "compiled-0123").touch()
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(DAMAGE[damage](whole))
    found = file.load("machine code key")
    if damage != "all but a byte":  # which is a part of the checksum alone
        assert found is None
        assert not (tmp_path / name).exists()
        assert not (tmp_path / "compiled-0123").exists(), "the next run compiles in another process"
    file.save("machine code key", ("machine code", 8))
    assert file.load("machine code key") == ("machine code", 8)


def test_files_of_the_cache_without_a_checksum_are_read(tmp_path: Path) -> None:
    """Earlier versions wrote none."""
    file = caching.IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    file.save("key", 7)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[: -kernel_files._TRAILER])
    assert file.load("key") == 7


KERNEL = """
import sys
import runner
from runner.machine import kernel_files
from numba import njit

@njit(cache=True)
def add(a, b):
    return a + 2 * b

assert add(1, 3) == 7
print(sum(add.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_process_with_a_damaged_cache_goes_on(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)

    def hits() -> str:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "kernel.py")], capture_output=True, text=True, check=False,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert [hits(), hits()] == ["0", "1"]
    files = [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert len(files) == 2
    for file in files:
        file.write_bytes(b"")
        assert [hits(), hits()] == ["0", "1"]
