"""Loss curves that must not change unless somebody means them to.

``python tests/golden/regenerate.py`` writes them anew; review the difference like code. The tolerance of 1e-4
allows for linear algebra that differs between machines.
"""

import json
from pathlib import Path

import pytest
from regenerate import CURVES, SAMPLERS, curve


def test_every_curve_is_recorded() -> None:
    assert set(json.loads(CURVES.read_text())) == set(SAMPLERS)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_loss_curve(name: str, own_data_dir: Path) -> None:
    expected = json.loads(CURVES.read_text())[name]
    assert curve(name) == pytest.approx(expected, rel=1e-4)
    assert expected[-1] < expected[0]
