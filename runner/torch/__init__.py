"""Train anybody's PyTorch model with a sampled softmax: ``from runner.torch import SampledSoftmaxLoss``.

It needs neither a configuration nor a run folder. See docs/torch.md.
"""

from runner.errors import ConfigError
from runner.torch.inputs import InputError
from runner.torch.module import SampledSoftmaxLoss
from runner.torch.row_adam import RowAdam

__all__ = ["ConfigError", "InputError", "RowAdam", "SampledSoftmaxLoss"]
