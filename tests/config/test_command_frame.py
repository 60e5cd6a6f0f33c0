"""Every command ends in the same way: mistakes are one line, and Ctrl-C and a closed pipe leave no traceback."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.commands.frame import carry_out
from runner.errors import DataError

COMMANDS = ("predict.py", "generate.py", "diagnose.py", "compare/__main__.py", "runs/__main__.py", "check/__main__.py")


def failing(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(("work", "status", "says"), [
    (lambda: None, 0, ""),
    (lambda: 1, 1, ""),
    (failing(KeyboardInterrupt()), 130, ""),
    (failing(DataError("x.txt, line 3:\n no number")), 2, "error: x.txt, line 3: no number\n"),
    (failing(FileNotFoundError(2, "No such file", "x.txt")), 2, "error: [Errno 2] No such file: 'x.txt'\n"),
    (failing(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")), 2,
     "error: the memory does not suffice ([enforce fail] DefaultCPUAllocator"),
    (failing(MemoryError("Unable to allocate")), 2, "error: the memory does not suffice (Unable to allocate)"),
])  # fmt: skip
def test_the_exit_status_and_the_line(
    work: Callable[[], int | None], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert carry_out(work) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(says)
    assert err.count("\n") == (says != "")


def test_an_error_of_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        carry_out(lambda: 1 // 0)


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_seen_enough_is_no_error(lines: int, tmp_path: Path) -> None:
    """A short output fails only when it is flushed, a long one in the middle."""
    script = tmp_path / "talk.py"
    script.write_text(
        "import sys, time\nfrom runner.commands.frame import carry_out\ntime.sleep(0.5)\n"
        f"sys.exit(carry_out(lambda: print('word\\n' * {lines})))\n"
    )
    child = subprocess.Popen(
        [sys.executable, str(script)], cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 0
    child.stderr.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_have_no_frame_of_their_own(name: str) -> None:
    text = (REPOSITORY / "runner" / name).read_text()
    assert "carry_out" in text
    for word in ("KeyboardInterrupt", "BrokenPipeError", "RawDescriptionHelpFormatter"):
        assert word not in text, f"{name} handles {word} itself"
