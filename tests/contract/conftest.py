"""Fixtures return the class matrix and the batch that ``runner.check`` uses."""

import pytest

from runner.check.cases import random_layer, random_query
from runner.contracts import Query
from runner.output.numba.layer import NumbaLayer


@pytest.fixture
def layer() -> NumbaLayer:
    return random_layer()


@pytest.fixture
def query() -> Query:
    return random_query()
