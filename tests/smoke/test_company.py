"""A run counts what others took of the machine while it trained, from its first start to its end."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.machine import company
from runner.machine.company import Company, Taken
from runner.training.progress import Progress

_TAKEN = Company.taken  # before any fixture of the session feigns it


@pytest.fixture(autouse=True)
def _true_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is feigned here."""
    monkeypatch.setattr(Company, "taken", _TAKEN)


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets what the system shows: ticks of a hundredth of a second on a machine of two cores."""
    path = tmp_path / "stat"
    monkeypatch.setattr(company, "_STAT", path)
    monkeypatch.setattr(company, "_TICK", 0.01)

    def show(*, wall: float, user: int = 0, idle: int = 0, steal: int = 0, own: float = 0.0) -> None:
        path.write_text(f"cpu {user} 0 0 {idle} 9 0 0 {steal} 0 0\ncpu0 1\ncpu1 1\nintr 5 cpu\n")
        monkeypatch.setattr(company.time, "perf_counter", lambda: wall)
        monkeypatch.setattr(company.time, "process_time", lambda: own)

    return show


def test_others_are_what_is_busy_but_not_our_own(counters: Callable[..., None]) -> None:
    """Of twenty core-seconds, four were ours, three were others' and one was stolen; two ticks may be rounding."""
    counters(wall=100, user=1000, steal=50)
    watch = Company()
    counters(wall=110, user=1700, idle=999, steal=150, own=4.0)
    assert watch.cores() == pytest.approx(0.4)
    taken = watch.taken()
    assert (taken.machine, taken.others, taken.stolen) == pytest.approx((20, 3.98, 1))
    counters(wall=111, user=1800, steal=150, own=5.0)
    assert watch.taken() == Taken(machine=2, others=0, stolen=0), "counted from the last time on"


def test_where_the_system_does_not_say_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(company, "_STAT", tmp_path / "none")
    watch, progress = Company(), Progress()
    assert watch.cores() is None
    progress.note(watch.taken())
    assert progress.company == {}


def test_checkpoints_add_up_and_those_of_earlier_versions_counted_nothing() -> None:
    progress = Progress(step=3)
    progress.note(Taken(machine=10, others=1, stolen=0))
    again = Progress.of(json.loads(json.dumps(progress.state())), "run")
    again.note(Taken(machine=10, others=3, stolen=1))
    assert again.company == {"others_share": 0.2, "stolen_share": 0.05}
    new = {"machine_seconds", "others_seconds", "stolen_seconds"}
    earlier = {key: value for key, value in progress.state().items() if key not in new}
    assert Progress.of(earlier, "run").company == {}
