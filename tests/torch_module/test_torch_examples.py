"""The examples for PyTorch are short, and each learns."""

import importlib.util

import pytest
import torch

from runner import REPOSITORY

FOLDER = REPOSITORY / "examples" / "torch"
FILES = sorted(file.stem for file in FOLDER.glob("*.py"))
# The chance level is that of the numbers before training; these are far from what is reached after it.
REACHED = {"language_model": (lambda before, after: after < 0.75 * before),
           "two_towers": (lambda before, after: before < 0.02 and after > 0.3),
           "extreme_classifier": (lambda before, after: before < 0.1 and after > 0.8)}  # fmt: skip


def test_all_are_run() -> None:
    assert set(FILES) == set(REACHED)


@pytest.mark.parametrize("name", FILES)
def test_example(name: str) -> None:
    file = FOLDER / f"{name}.py"
    assert len(file.read_text().splitlines()) <= 40
    spec = importlib.util.spec_from_file_location(f"example_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    state = torch.random.get_rng_state()
    before, after = module.main()
    torch.random.set_rng_state(state)
    assert REACHED[name](before, after), (before, after)


def test_the_page_trains_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    _, code, *_ = (REPOSITORY / "docs" / "torch.md").read_text().split("```")
    lines = code.removeprefix("python").replace("100_000", "10_000")
    exec(compile(lines, "docs/torch.md", "exec"), {})
    assert "tensor([[" in capsys.readouterr().out
