"""Ranks on machines that do not share the results folder end in one line, before anything is trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.errors import ConfigError
from runner.output.across import Alone
from runner.training import ranks_folder
from runner.training.ranks_folder import RanksFolder

WORD = 12345


class OneOfTwo(Alone):
    """Be rank 0 or 1 of two, where rank 0 wrote ``WORD`` and the other rank sees the folder or not."""

    size = 2

    def __init__(self, place: int, *, other_sees: bool) -> None:
        self.place, self.leads, self._other_sees = place, place == 0, other_sees

    def leaders(self, numbers: np.ndarray) -> np.ndarray:
        return numbers if self.leads else np.array([WORD])

    def gather(self, values_B: Any) -> Any:
        both = [values_B, np.array([self._other_sees])]
        return np.stack(both if self.leads else both[::-1])


def test_a_rank_sees_the_folder_that_rank_0_locked(tmp_path: Path) -> None:
    with RanksFolder(tmp_path / "run", OneOfTwo(0, other_sees=True)).locked():
        word = (tmp_path / "run" / ".lock").read_text()
    assert word.isdecimal()
    (tmp_path / "run" / ".lock").write_text(str(WORD))
    with RanksFolder(tmp_path / "run", OneOfTwo(1, other_sees=True)).locked():
        pass


@pytest.mark.parametrize("place", [0, 1])
def test_a_rank_with_a_folder_of_its_own_is_named(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_folder, "_SEEN_SECONDS", 0.1)
    folder = RanksFolder(tmp_path / "run", OneOfTwo(place, other_sees=place == 1))
    says = r"results_dir: rank 1 does not see the folder that rank 0 writes, .*/run;"
    with pytest.raises(ConfigError, match=says), folder.locked():
        raise AssertionError("it must not begin")
    assert not (tmp_path / "run").exists()
