"""Name what makes texts a family of data."""

from runner.data.shared.family import Family
from runner.data.text.card import TextCard
from runner.data.text.convert import convert, derive
from runner.data.text.dataset import TextDataset, TextManifest

FAMILY = Family(
    card=TextCard, manifest=TextManifest, dataset=TextDataset, convert=convert, derive=derive, holds_out="no"
)
