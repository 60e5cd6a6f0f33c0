"""Fixtures return the class matrix and the batch that ``runner.check`` uses."""

import pytest

from runner.check.cases import random_layer, random_query
from runner.contracts import Query
from runner.heads.output_layer import OutputLayer


@pytest.fixture
def layer() -> OutputLayer:
    return random_layer()


@pytest.fixture
def query() -> Query:
    return random_query()
