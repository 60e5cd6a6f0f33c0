"""The class matrix and the batch that ``runner.check`` takes."""

import pytest

from runner.check.cases import random_layer, random_query
from runner.heads.output_layer import OutputLayer
from runner.samplers import Query


@pytest.fixture
def layer() -> OutputLayer:
    return random_layer()


@pytest.fixture
def query() -> Query:
    return random_query()
