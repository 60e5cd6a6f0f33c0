"""Runs to damage, made once in a session, and the commands that read them, in this process."""

import importlib.util
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_runs import RATE, Call, Runs, settings

from runner import diagnose, generate
from runner.config import CONF, explain
from runner.errors import RunnerError
from runner.tasks import LanguageModelling
from runner.training import loop
from runner.training.run import run


@pytest.fixture(scope="session")
def runs(text_folder: Path, prepared_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    place = tmp_path_factory.mktemp("runs")
    real = LanguageModelling.evaluate_subset

    def interrupted(*arguments: Any) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    def stop() -> Path:
        config = settings(text_folder, place / "stopped", RATE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LanguageModelling, "evaluate_subset", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(config)
        return config.run_dir

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(prepared_root))
        finished, other, _ = (run(settings(text_folder, place / "finished", rate)) for rate in (RATE, 0.03, 0.04))
        patch.setattr(loop, "warm_up", lambda config: None)
        earlier = Path(shutil.copytree(stop(), place / "earlier" / finished.name))
        return Runs(finished=finished, other=other, stopped=stop(), earlier=earlier, data=text_folder)


@pytest.fixture
def commands(
    runs: Runs, own_data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Call]:
    """Each command takes a run folder and returns its exit code and what it printed to standard error."""
    monkeypatch.setattr(loop, "warm_up", lambda config: None)

    def same(folder: Path) -> int:
        try:
            run(settings(runs.data, folder.parents[1], RATE))
        except (RunnerError, OSError) as error:
            print(f"error: {explain(error)}", file=sys.stderr)
            return 2
        return 0

    def by_main(main: Callable[[], int], arguments: Callable[[Path], list[str]]) -> Callable[[Path], int]:
        def call(folder: Path) -> int:
            monkeypatch.setattr(sys, "argv", ["program", *arguments(folder)])
            return main()

        return call

    calls = {
        "same": same,
        "generate": by_main(generate.main, lambda folder: [str(folder), "--words", "2"]),
        "diagnose": by_main(diagnose.main, lambda folder: [str(folder), "--rows", "4", "--draws", "2"]),
        "sweep": by_main(script("render_tables").main, lambda folder: ["--sweep", str(folder.parents[1])]),
        "frontier": by_main(
            script("plot").main,
            lambda folder: ["--frontier", "--where", "dataset=text", "--results-dir", str(folder.parents[1])],
        ),
    }

    def caught(call: Callable[[Path], int]) -> Call:
        def caught_call(folder: Path) -> tuple[int, str]:
            capsys.readouterr()
            code = call(folder)
            return code, capsys.readouterr().err

        return caught_call

    return {name: caught(call) for name, call in calls.items()}


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, CONF.parent / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
