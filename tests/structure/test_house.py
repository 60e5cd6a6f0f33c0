"""The package keeps its structure: no imports in a circle, no file too long, few files at its top level."""

import ast
import functools
import re
from collections.abc import Mapping
from pathlib import Path

from runner import REPOSITORY

FILES = sorted((REPOSITORY / "runner").rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def imports_of(path: Path) -> set[str]:
    """Return the runner's modules that a file imports anywhere, also in functions and for type checkers."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name.startswith("runner"):
                found.add(name)
    return found - {module_of(path)}


def assert_without_circles(graph: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name in done:
            return
        for other in sorted(graph[name]):
            visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


@functools.cache
def graph() -> dict[str, set[str]]:
    return {module: imports_of(path) for module, path in MODULES.items()}


def test_no_file_imports_in_a_circle() -> None:
    assert sum(map(len, graph().values())) > 300, "the imports were read"
    assert_without_circles(graph())


def test_no_package_imports_in_a_circle() -> None:
    """A package is a folder of runner/, or a module on its top floor."""

    def package_of(module: str) -> str:
        return ".".join(module.split(".")[:2])

    packages: dict[str, set[str]] = {package_of(module): set() for module in graph()}
    for module, others in graph().items():
        packages[package_of(module)] |= {package_of(other) for other in others} - {package_of(module)}
    assert len(packages) > 30
    assert_without_circles(packages)


def test_contracts_import_nothing_that_runs() -> None:
    tree = ast.parse(MODULES["runner.contracts"].read_text())
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    assert not {name for name in imported if name.startswith("runner")}


def test_no_file_has_more_than_500_lines() -> None:
    tests = sorted((REPOSITORY / "tests").rglob("*.py"))
    assert len(tests) > 50
    assert {path.name: n for path in (*FILES, *tests) if (n := len(path.read_text().splitlines())) > 500} == {}


def test_rooms_of_the_report_import_in_one_direction() -> None:
    rooms = ["spec", "numbers", "plan", "figures", "pages", "diagnoses", "render"]
    for module, path in MODULES.items():
        if module.startswith("runner.report."):
            mine = rooms.index(module.split(".")[2])
            others = {other.split(".")[2] for other in imports_of(path) if other.startswith("runner.report.")}
            assert others <= {*rooms[: mine + 1]}, module


def test_few_modules_lie_on_the_top_floor() -> None:
    top = {path.name for path in (REPOSITORY / "runner").glob("*.py")}
    assert len(top) <= 16, sorted(top)


def test_only_the_output_layer_reads_its_weights() -> None:
    """All others ask for rows: elsewhere the class matrix may lie on a device, or in several processes."""
    outside = [path for path in FILES if "output" not in path.relative_to(REPOSITORY / "runner").parts]
    found = [
        f"{path.relative_to(REPOSITORY)}: {line.strip()}"
        for path in outside
        for line in path.read_text().splitlines()
        if re.search(r"\b(table|words|layer)\.(weights|bias)\b", line)
    ]
    assert found == []
