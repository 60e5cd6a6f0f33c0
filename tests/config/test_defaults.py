"""No default changes unnoticed: an id, and the folder of a run older than the option, would mean another run."""

import json

import write_defaults

from runner import NUMBERS


def test_recorded_defaults_are_those_of_now() -> None:
    recorded = json.loads(write_defaults.FILE.read_text())
    assert write_defaults.changed(recorded) == [], "raise NUMBERS in runner/__init__.py, or take them back"
    assert recorded == {"numbers": NUMBERS, "defaults": write_defaults.defaults_now()}, (
        "run python tests/config/write_defaults.py"
    )


def test_a_default_that_changes_is_told() -> None:
    recorded = json.loads(write_defaults.FILE.read_text())
    assert {"epochs", "training.clip", "sampler=lsh_label.K"} <= recorded["defaults"].keys()
    recorded["defaults"] |= {"epochs": 5, "an option of before": 3}
    assert write_defaults.changed(recorded) == ["epochs: 5 -> 4"]
    assert write_defaults.changed({**recorded, "numbers": NUMBERS + 1}) == []
