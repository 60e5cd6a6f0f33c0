"""Call commands as a user does, in this process."""

import sys
from collections.abc import Callable

import pytest

from runner import predict


@pytest.fixture
def ranked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[list[str]], str]]:
    """Call ``runner.predict`` with words; return its exit status, the cells of its lines, and standard error."""

    def call(*words: object) -> tuple[int, list[list[str]], str]:
        monkeypatch.setattr(sys, "argv", ["predict", *map(str, words)])
        status = predict.main()
        out, err = capsys.readouterr()
        return status, [line.split("\t") for line in out.splitlines()], err

    return call
