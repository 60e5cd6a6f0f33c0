"""Data sets for huge output layers: cards, preparation, memory-mapped sparse rows and token streams.

Importing this package costs NumPy only; compilers, YAML and progress bars load when a set is prepared.
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
