"""The bias of gradients is drawn against d2 / m, which bounds it, as far as both are known."""

import math

import pandas as pd
import pytest

from runner import REPOSITORY
from runner.report.diagnoses.bias import bias_against_divergence, bias_points

ROW = {"dataset": "d", "run": "trained", "run_id": "r", "candidates": 100.0, "classes_bias_net": "below noise"}
FRAME = pd.DataFrame(
    [
        {**ROW, "sampler": "uniform", "renyi2": math.log(50.0), "hidden_bias_net": 0.2},
        {**ROW, "sampler": "unigram", "renyi2": 1.0, "hidden_bias_net": "below noise"},
        {**ROW, "sampler": "topk", "renyi2": "inf", "hidden_bias_net": 0.3},
        {**ROW, "sampler": "full", "renyi2": math.nan, "hidden_bias_net": 0.0},
    ]
)


def test_a_point_has_a_finite_divergence_and_a_bias_above_its_noise() -> None:
    (point,) = bias_points(FRAME).to_dict("records")
    assert (point["sampler"], point["side"], point["bias"]) == ("uniform", "hidden", 0.2)
    assert point["divergence"] == pytest.approx(0.5)


def test_without_points_there_is_no_figure() -> None:
    assert bias_against_divergence(FRAME[FRAME["sampler"] != "uniform"]) is None
    assert bias_against_divergence(FRAME) is not None


def test_measured_biases_are_below_the_root_of_d2_by_m_and_grow_with_it() -> None:
    points = bias_points(pd.read_csv(REPOSITORY / "results" / "tables" / "small" / "diagnosis.csv"))
    assert (points["bias"] <= points["divergence"] ** 0.5).all()
    ranks = points[points["run"] == "trained"].groupby("side")[["divergence", "bias"]].rank()
    assert ranks.corr().loc["divergence", "bias"] > 0.8
