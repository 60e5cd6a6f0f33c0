"""Prepare and open data sets: sparse rows with labels, texts, tables for regression, sentence pairs, logs of events.

Prepared data are memory-mapped. Importing this package imports only NumPy; compilers, YAML and progress bars are
imported when a set is prepared.
"""

from runner.data.configs import (
    KINDS,
    CardConfig,
    InteractionsConfig,
    PairsFileConfig,
    TableFileConfig,
    TextFilesConfig,
    XmcFilesConfig,
)
from runner.data.pairs.dataset import Pairs, PairsDataset
from runner.data.regression.bundled import SklearnConfig
from runner.data.regression.dataset import DenseRows, RegressionDataset
from runner.data.regression.synthetic import SyntheticRegressionConfig
from runner.data.rows.dataset import LabelledRows, XmcDataset
from runner.data.rows.synthetic import SyntheticXcConfig
from runner.data.sequences.dataset import SequencesDataset
from runner.data.sequences.synthetic import SyntheticLogConfig
from runner.data.text.dataset import TextDataset
from runner.data.text.python_topics import PythonTopicsConfig

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
