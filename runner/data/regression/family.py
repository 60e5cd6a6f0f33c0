"""Name what makes tables for regression a family of data."""

from runner.data.regression.card import RegressionCard
from runner.data.regression.convert import convert
from runner.data.regression.dataset import RegressionManifest
from runner.data.shared.family import Family

FAMILY = Family(card=RegressionCard, manifest=RegressionManifest, convert=convert, holds_out="always")
