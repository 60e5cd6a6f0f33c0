"""Prepare and open data sets: sparse rows with labels, texts, tables for regression, sentence pairs, logs of events.

Prepared data are memory-mapped. Importing this package imports only NumPy; compilers, YAML and progress bars are
imported when a set is prepared.
"""

from runner.data.bundled import SklearnConfig
from runner.data.configs import (
    KINDS,
    CardConfig,
    InteractionsConfig,
    PairsFileConfig,
    TableFileConfig,
    TextFilesConfig,
    XmcFilesConfig,
)
from runner.data.dense import DenseRows, RegressionDataset
from runner.data.pairs import Pairs, PairsDataset
from runner.data.python_topics import PythonTopicsConfig
from runner.data.rows import LabelledRows, XmcDataset
from runner.data.sequences import SequencesDataset
from runner.data.synthetic_log import SyntheticLogConfig
from runner.data.synthetic_regression import SyntheticRegressionConfig
from runner.data.synthetic_xc import SyntheticXcConfig
from runner.data.text import TextDataset

__all__ = [
    "KINDS",
    "CardConfig",
    "DenseRows",
    "InteractionsConfig",
    "LabelledRows",
    "Pairs",
    "PairsDataset",
    "PairsFileConfig",
    "PythonTopicsConfig",
    "RegressionDataset",
    "SequencesDataset",
    "SklearnConfig",
    "SyntheticLogConfig",
    "SyntheticRegressionConfig",
    "SyntheticXcConfig",
    "TableFileConfig",
    "TextDataset",
    "TextFilesConfig",
    "XmcDataset",
    "XmcFilesConfig",
]
