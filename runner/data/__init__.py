"""Prepare and open data sets: sparse rows with labels for huge output layers, texts, and sentence pairs.

Prepared data are memory-mapped. Importing this package imports only NumPy; compilers, YAML and progress bars are
imported when a set is prepared.
"""

from runner.data.configs import KINDS, CardConfig, PairsFileConfig, TextFilesConfig, XmcFilesConfig
from runner.data.pairs import Pairs, PairsDataset
from runner.data.python_topics import PythonTopicsConfig
from runner.data.rows import LabelledRows, XmcDataset
from runner.data.synthetic_xc import SyntheticXcConfig
from runner.data.text import TextDataset

__all__ = [
    "KINDS",
    "CardConfig",
    "LabelledRows",
    "Pairs",
    "PairsDataset",
    "PairsFileConfig",
    "PythonTopicsConfig",
    "SyntheticXcConfig",
    "TextDataset",
    "TextFilesConfig",
    "XmcDataset",
    "XmcFilesConfig",
]
