"""Name what makes sparse rows a family of data."""

from runner.data.rows.card import RowsCard
from runner.data.rows.convert import convert, derive
from runner.data.rows.dataset import RowsManifest, XmcDataset
from runner.data.shared.family import Family

FAMILY = Family(
    card=RowsCard, manifest=RowsManifest, dataset=XmcDataset, convert=convert, derive=derive, holds_out="maybe"
)
