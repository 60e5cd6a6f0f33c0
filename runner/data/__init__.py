"""Data sets for huge output layers: cards, preparation, and memory-mapped sparse rows.

Importing this package costs NumPy only; compilers, YAML and progress bars load when a set is prepared.
"""

from runner.data.configs import KINDS, CardConfig, XmcFilesConfig
from runner.data.rows import LabelledRows, XmcDataset
from runner.data.synthetic_xc import SyntheticXcConfig

__all__ = ["KINDS", "CardConfig", "LabelledRows", "SyntheticXcConfig", "XmcDataset", "XmcFilesConfig"]
