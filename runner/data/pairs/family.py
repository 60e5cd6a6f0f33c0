"""Name what makes sentence pairs a family of data."""

from runner.data.pairs.card import PairsCard
from runner.data.pairs.convert import convert
from runner.data.pairs.dataset import PairsManifest
from runner.data.shared.family import Family

FAMILY = Family(card=PairsCard, manifest=PairsManifest, convert=convert, holds_out="always")
