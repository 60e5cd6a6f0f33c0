"""Every command line of README.md, CONTRIBUTING.md and docs/ works, on tiny settings where it would take long.

Each line has a rule here, and a line without one fails. The output of ``make --dry-run`` for a ``make`` line is checked
by the same rules. Bench lines are only parsed, because every subcommand runs in tests/smoke.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_lines import ROOT, CommandLine, command_lines, is_command
from hydra.core.override_parser.overrides_parser import OverridesParser

from runner import diagnose, generate
from runner.bench.settings import settings_of
from runner.config import check_model_reads_dataset, compose
from runner.data.shared.cards import card_names
from runner.errors import RunnerError
from runner.prepare import __main__ as prepare
from runner.runs.__main__ import main as runs_main
from runner.training.run import run
from runner.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("registrations_stay_here")
LINES = command_lines()
TINY = {
    "mlp": ["model.hidden=8"],
    "linear": ["model.hidden=8"],
    "lstm": ["model.hidden=8", "model.embedding=8", "model.layers=1"],
    "transformer": ["model.embedding=8", "model.heads=2", "model.feed_forward=8", "model.layers=1"],
    "bert": ["model.max_length=40"],
    "regression": [],
    "sasrec": ["model.embedding=8", "model.feed_forward=8", "model.layers=1"],
    "gru4rec": ["model.embedding=8", "model.hidden=8"],
    "item_knn": [],
}
COUNTS = ("item_knn",)  # models that take one step, whatever max_steps says
SHORT = ["batch_size=4", "epochs=1", "evaluation.every_epochs=1", "evaluation.rows=10", "hardware.threads=1"]
Rule = Callable[["Workplace", list[str]], None]


class Workplace:
    """A workplace has tiny data and finished runs in place of those that the documents mention."""

    def __init__(
        self, folder: Path, rows: Path, text: Path, pairs: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.data = {
            "rows": ["dataset=xmc", f"dataset.path={rows}"],
            "text": ["dataset=text", f"dataset.path={text}"],
            "regression": ["dataset=diabetes"],
            "pairs": ["dataset=pairs", f"dataset.path={pairs}", f"model.checkpoint={bert}"],
            "sequences": ["dataset=synthetic_log", "dataset.num_users=30", "dataset.num_items=40"],
        }

    def run(self, *overrides: str) -> RunFolder:
        """Run two steps with the overrides, on a small network and data set of the same family."""
        asked = compose(overrides)
        check_model_reads_dataset(asked)
        kept = [word for word in overrides if not word.startswith(("dataset", "epochs="))]
        data = self.data[asked.dataset.family]
        model = [*TINY[asked.model.name], *SHORT]
        return RunFolder(run(compose([*kept, *data, *model, "max_steps=2", f"results_dir={self.folder}"])))

    def main(self, script: ModuleType, *arguments: object) -> None:
        """Call the command in this process."""
        self.monkeypatch.setattr(sys, "argv", [str(script.__name__), *map(str, arguments)])
        assert script.main() == 0


@pytest.fixture
def workplace(
    tmp_path: Path, toy_folder: Path, text_folder: Path, pairs_file: Path, tiny_bert: Path, own_data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Workplace:  # fmt: skip
    return Workplace(tmp_path, toy_folder, text_folder, pairs_file, tiny_bert, monkeypatch)


def script_named(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- rules


def runs(at: Workplace, words: list[str]) -> None:
    """``python -m runner``: of every swept list the first and the last value compose; the first trains two steps.

    What a reader is to fill in (``<name>``) is left as it is by default. Launchers (``hydra...``) have their own tests.
    Completion (``-sc``) is tried in the shell by tests/install.
    """
    if words[:1] == ["-sc"]:
        asked = subprocess.run([sys.executable, "-m", "runner", *words[:2]], cwd=ROOT, capture_output=True, check=True)
        assert b"complete " in asked.stdout
        return
    words = [word for word in words if "<" not in word and not word.startswith("hydra")]
    if words == ["--help"]:
        helped = subprocess.run([sys.executable, "-m", "runner", "--help"], cwd=ROOT, capture_output=True, check=True)
        assert b"sampler" in helped.stdout
        return
    parsed = OverridesParser.create().parse_overrides([word for word in words if word != "-m"])
    values = [list(each.sweep_string_iterator()) if each.is_sweep_override() else [each.get_value_element_as_str()]
              for each in parsed]  # fmt: skip
    keys = [each.get_key_element() for each in parsed]
    first, last = ([f"{key}={of_key[which]}" for key, of_key in zip(keys, values, strict=True)] for which in (0, -1))
    check_model_reads_dataset(compose(last))
    folder = at.run(*first)
    assert folder.is_finished()
    summary = folder.summary() or {}
    assert summary["steps"] == (1 if summary["config"]["model"]["name"] in COUNTS else 2)


def diagnoses(at: Workplace, words: list[str]) -> None:
    assert words[0] == "results/runs/RUN"
    trained = at.run("sampler=full", "dataset=wordnet_hypernym")
    at.main(diagnose, trained.path, *words[1:], "--rows", 6, "--draws", 2)
    assert (trained.path / "diagnostics" / "diagnostics.md").is_file()


def generates(at: Workplace, words: list[str]) -> None:
    assert words[0] == "results/runs/RUN"
    trained = at.run("preset=midx_lm", "dataset=ptb")
    at.main(generate, trained.path, *words[1:], "--words", 5)


def keeps_runs(at: Workplace, words: list[str]) -> None:
    """``python -m runner.runs``: a tiny run stands in for those of the reader."""
    trained = at.run()
    words = [trained.path.name if word == "RUN" else word for word in words]
    assert runs_main([*words, "--results-dir", str(at.folder)]) == 0


def renders(at: Workplace, words: list[str]) -> None:
    """Render ``--sweep results``, where two runs that differ in K and in L stand in for ``results``."""
    assert words[:2] == ["--sweep", "results"]
    for K, L in ((3, 4), (4, 5)):
        at.run("sampler=lsh_embedding", "dataset=wordnet_hypernym", f"sampler.K={K}", f"sampler.L={L}")
    at.main(script_named("render_tables"), "--sweep", at.folder, *words[2:])
    (table,) = (at.folder / "out" / "sweep").glob("*.md")
    assert "| K" in table.read_text() or "sampler.K" in table.read_text()


def reproduces(at: Workplace, words: list[str]) -> None:
    """Make the real plan, which checks profiles and names."""
    words = ["lns_table2" if word == "<name>" else word for word in words]
    dry = [] if "--dry-run" in words else ["--dry-run"]
    at.main(script_named("reproduce"), *words, *dry, "--results-dir", at.folder)


def prepares(at: Workplace, words: list[str]) -> None:
    """Check that every word is understood and every name has a card, without downloading."""
    asked = []
    words = ["ptb" if word == "<name>" else word for word in words]

    class Manifest:
        variant = "toy"

        def in_words(self) -> str:
            return "nothing"

    def prepare_card(name: str, *, given: Path | None, force: bool) -> Manifest:
        assert name in card_names()
        assert (given is not None) == ("--from" in words)
        asked.append(name)
        return Manifest()

    at.monkeypatch.setattr(prepare, "prepare_card", prepare_card)
    at.monkeypatch.delenv("DATA_MIRROR", raising=False)
    at.main(prepare, *words)
    assert script_named("prepare_dataset").main is prepare.main
    assert asked or "--list" in words


def measures(at: Workplace, words: list[str]) -> None:
    script = script_named("bench")
    if not words:  # the script is named, no command given
        return
    arguments = script.parser().parse_intermixed_args(words)
    settings_of(arguments.kind, arguments.settings)


def makes(at: Workplace, words: list[str]) -> None:
    """Check that ``make help`` lists the target, and check what it would run by its own rules."""
    target = next(word for word in words if "=" not in word)
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), flags=re.M)
    # The environment is there already, as if with every extra: this test runs in it.
    command = ["make", "--dry-run", "--no-print-directory", "--old-file", ".venv/.installed",
               "--old-file", ".venv/.docs", "--old-file", ".venv/.audit", *words]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("make:", "make["))]
    assert lines or target == "setup"
    for line in lines:
        check(at, shlex.split(line))


def finds_its_tests(at: Workplace, words: list[str]) -> None:
    for word in words:
        if "/" in word:
            assert (ROOT / word.partition("::")[0]).exists()


def is_installed(at: Workplace, words: list[str]) -> None:
    """Check that the program comes with the development dependencies or those of the documentation."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.split(r"\W*>=", requirement)[0] for name in ("dev", "docs") for requirement in extras[name]}
    assert words[0] in wanted or f"{words[0]}-material" in wanted


def installs(at: Workplace, words: list[str]) -> None:
    """Check that extras of this package exist, and that other packages are ones that an error message names."""
    assert words[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = (ROOT / "runner" / "lgd" / "pairs" / "bert.py").read_text()
    for word in words[1:]:
        if found := re.fullmatch(r"\.(?:\[(\w+)\])?", word):
            assert found[1] is None or found[1] in project["optional-dependencies"]
        elif not word.startswith("--"):
            assert f"pip install --no-deps {word}" in source


def knows_its_options(at: Workplace, words: list[str]) -> None:
    """Check that ``--help`` of any other script (by path) or module of the runner (by name) lists every option used."""
    program, *rest = words
    how = [program] if program.endswith(".py") else ["-m", program]
    helped = subprocess.run([sys.executable, *how, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for option in (word for word in rest if word.startswith("-")):
        assert re.search(rf"{option}\b", helped.stdout), f"{program} has no {option}"


MODULES: dict[str, Rule] = {"runner": runs, "runner.diagnose": diagnoses, "runner.generate": generates,
                            "runner.runs": keeps_runs, "runner.prepare": prepares, "pytest": finds_its_tests,
                            "pip": installs}  # fmt: skip
SCRIPTS: dict[str, Rule] = {"render_tables": renders, "reproduce": reproduces, "prepare_dataset": prepares,
                            "bench": measures}  # fmt: skip


def rule_for(words: Sequence[str]) -> tuple[Rule, list[str]] | None:
    """Return the rule for a line and the words that it takes, or None if there is no rule."""
    program, *rest = words
    if program == "make":
        return makes, rest
    if program.startswith("scripts/"):
        return rule_for(["python", *words])
    if program == "torchrun":  # which starts what follows; tests/distributed runs it
        return rule_for(["python", *rest[rest.index("-m") :]])
    if program in ("runner", ".venv/bin/runner"):
        return runs, rest
    if program == "eval" and (inside := re.fullmatch(r"\$\((.*)\)", rest[0])):
        return rule_for(shlex.split(inside[1]))
    if program == "echo" and "|" in rest:  # what it prints is typed into the command after it
        return rule_for(rest[rest.index("|") + 1 :])
    if program.rpartition("/")[2].startswith("python") and rest:
        if rest[0] == "-m" and len(rest) > 1:
            name, arguments = rest[1], rest[2:]
            if name in MODULES:
                return MODULES[name], arguments
            return (knows_its_options, rest[1:]) if name.startswith("runner.") else None
        name = Path(rest[0]).stem
        if rest[0].startswith("tests/"):
            return finds_its_tests, rest
        if rest[0] == f"scripts/{name}.py":
            return (SCRIPTS[name], rest[1:]) if name in SCRIPTS else (knows_its_options, rest)
    if program.startswith(".venv/bin/"):
        return is_installed, [program.removeprefix(".venv/bin/"), *rest]
    return None


def check(at: Workplace, words: Sequence[str]) -> None:
    found = rule_for(words)
    assert found is not None, f"no rule covers: {shlex.join(words)}"
    rule, arguments = found
    rule(at, arguments)


# ---------------------------------------------------------------- lines


def param(line: CommandLine) -> Any:
    """Lines of README.md and CONTRIBUTING.md that plan and compile little are fast tests; all others are slow ones."""
    is_slow = line.page not in ("README.md", "CONTRIBUTING.md")
    is_slow |= any(word in str(line) for word in ("PROFILE=", "lgd_regression", "=tuning", "publish", "--sampler all"))
    is_slow |= any(word in str(line) for word in ("preset=midx_lm", "model=sasrec"))  # kernels of their own
    is_slow |= line.words == ("make", "reproduce")
    marks = [pytest.mark.slow] if is_slow else []
    if is_slow and line.words[:2] == ("make", "reproduce"):
        marks.append(pytest.mark.plans)
    return pytest.param(line, marks=marks, id=str(line))


@pytest.mark.parametrize("line", [param(line) for line in LINES])
def test_a_command_line_of_the_documents(line: CommandLine, workplace: Workplace) -> None:
    check(workplace, line.words)


def test_lines_are_found() -> None:
    """Lines are found in blocks, within the text and across line ends; names and formulas are not commands."""
    found = {line.words for line in LINES}
    assert ("make", "test") in found
    assert len([line for line in LINES if line.words[:3] == (".venv/bin/python", "-m", "runner")]) >= 8
    assert len([line for line in LINES if line.page == "CONTRIBUTING.md"]) >= 5
    assert is_command("make reproduce TABLE=x")
    assert is_command("scripts/bench.py rows")
    assert not any(is_command(code) for code in ("make", "python_topics", "sampler.K", "tests/contract", "alpha o^2"))


@pytest.mark.parametrize("words", [
    "pip install something", "python -m http.server", "python -c 1", "python other/tool.py", "rm -rf results",
])  # fmt: skip
def test_an_unknown_line_has_no_rule(words: str, workplace: Workplace) -> None:
    with pytest.raises(AssertionError, match="no rule covers"):
        check(workplace, words.split())


@pytest.mark.parametrize(("words", "says"), [
    ("make nothing", "nothing"),
    ("make reproduce TABLE=lns_table9", "lns_table9"),
    ("make reproduce PROFILE=huge", "unknown profile 'huge'"),
    ("make data NAME=amazon670kk", "amazon670kk"),
    (".venv/bin/python -m runner sampler=unifrom", "unknown option 'sampler=unifrom'"),
    (".venv/bin/python -m runner -m sampler.K=4,x", "sampler.K: expected int or null, got 'x'"),
    (".venv/bin/python -m runner model=lstm", "models that read rows"),
    (".venv/bin/python -m runner.diagnose results/runs/RUN --smapler all", "unrecognized arguments: --smapler"),
    (".venv/bin/python -m runner.diagnose results/runs/RUN --sampler unifrom", "unknown sampler 'unifrom'"),
    (".venv/bin/python -m runner.generate results/runs/RUN --by magic", "invalid choice: 'magic'"),
    (".venv/bin/python scripts/render_tables.py --sweep results --keys sampler.Kk", "sampler.Kk"),
    ("scripts/bench.py rows classes=many", "classes: expected tuple, got ['many']"),
    ("scripts/bench.py language_step text=ptb", "unknown key 'text'; did you mean 'texts'?"),
    ("scripts/plot.py --fronteer x", "has no --fronteer"),
    (".venv/bin/python -m pytest tests/contracts/none.py", "assert"),
    (".venv/bin/black .", "black"),
    (".venv/bin/python -m pip install '.[nothing]'", "nothing"),
    (".venv/bin/python -m pip install --no-deps something", "something"),
    ("scripts/nothing.py --help", "nothing.py"),
], ids=lambda text: text if " " in text else "")  # fmt: skip
def test_a_wrong_line_is_noticed(
    words: str, says: str, workplace: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((AssertionError, RunnerError, SystemExit, subprocess.CalledProcessError)) as caught:
        check(workplace, shlex.split(words))
    assert says in str(caught.value) + capfd.readouterr().err
