"""Prepare and open data sets for huge output layers: sparse rows with labels, and texts.

Prepared data are memory-mapped. Importing this package imports only NumPy; compilers, YAML and progress bars are
imported when a set is prepared.
"""

from runner.data.configs import KINDS, CardConfig, TextFilesConfig, XmcFilesConfig
from runner.data.python_topics import PythonTopicsConfig
from runner.data.rows import LabelledRows, XmcDataset
from runner.data.synthetic_xc import SyntheticXcConfig
from runner.data.text import TextDataset

__all__ = [
    "KINDS",
    "CardConfig",
    "LabelledRows",
    "PythonTopicsConfig",
    "SyntheticXcConfig",
    "TextDataset",
    "TextFilesConfig",
    "XmcDataset",
    "XmcFilesConfig",
]
