"""Apply Adam, AdaGrad or SGD to a matrix of which a step touches few rows.

Adam has three named policies for the rows that a step does not touch (their gradient is zero):

- ``dense``: every row takes every step, as in ``torch.optim.Adam``; a step costs O(rows).
- ``touched``: untouched rows do not move, as in ``torch.optim.SparseAdam``. A step is cheap, but the moments of rare
  rows never decay and their momentum is lost, so trajectories deviate from dense Adam's.
- ``catch_up``: untouched rows do not change in memory. When such a row is next read, the zero-gradient steps that it
  missed are applied in closed form. This gives dense Adam's trajectory at the cost of ``touched``.

Adam's moments may take less memory (``AdamConfig``): one second moment a row, and first moments of bfloat16
(``kernels.moments``). All policies hold for them. The second moment of a row without a gradient decays by beta2 a step
whether it is one number or many, so ``Drift`` holds as it is; that of bfloat16 moments is of the moment as stored.

SGD here has no momentum, so a row without a gradient does not move. Nor does it under AdaGrad (Duchi, Hazan & Singer
2011), which divides each step by the root of the sum of all squared gradients of an element.

There are two ways to take a step. ``update_groups`` and ``update_all`` compute gradients and apply Adam in one pass
over each row. ``gradients_of_groups`` and ``gradients_of_all`` return a ``RowGradient`` instead, for callers that add
to it or need its norm before ``RowGradient.apply``.

@inproceedings{kingma2015adam, title={Adam: A Method for Stochastic Optimization},
author={Kingma, Diederik P. and Ba, Jimmy}, booktitle={ICLR}, year={2015}}
"""

from runner.optimizers.configs import OPTIMIZERS, AdaGradConfig, AdamConfig, OptimizerConfig, SgdConfig, of_parameters
from runner.optimizers.dense import dense_adam, dense_step
from runner.optimizers.drift import Drift

__all__ = [
    "OPTIMIZERS",
    "AdaGradConfig",
    "AdamConfig",
    "Drift",
    "OptimizerConfig",
    "SgdConfig",
    "dense_adam",
    "dense_step",
    "of_parameters",
]
