"""Name what makes logs of events a family of data."""

from runner.data.sequences.card import SequencesCard
from runner.data.sequences.convert import convert
from runner.data.sequences.dataset import SequencesDataset, SequencesManifest
from runner.data.shared.family import Family

FAMILY = Family(
    card=SequencesCard, manifest=SequencesManifest, dataset=SequencesDataset, convert=convert, holds_out="no"
)
