"""Present the parameters of somebody's model as a row table, for layers and samplers that read a class matrix.

Legend: R rows, D columns, U distinct rows.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from runner.optimizers.configs import SgdConfig
from runner.output.torch.row_table import TorchRowTable


class ParameterTable(TorchRowTable):
    """Show an ``nn.Embedding`` (R, D) and one of biases (R, 1), or none, as they stand; it takes no steps.

    ``reader``: what brings rows (None: all) up to date, if an optimizer lets them lag. ``settling``: after how many
    steps an untouched row stands still.
    """

    def __init__(self, rows: nn.Embedding, biases: nn.Embedding | None) -> None:
        self._rows, self._biases = rows, biases
        self.config = SgdConfig()
        self.num_rows, self.num_columns = rows.weight.shape
        self.reader: Callable[[Tensor | None], None] | None = None
        self.settling = 0

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Return where the rows lie; a module may be moved."""
        return self._rows.weight.device

    @property
    def weights(self) -> Tensor:  # type: ignore[override]
        """Return all rows, (R, D), as a view."""
        return self._rows.weight.detach()

    @property
    def bias(self) -> Tensor:  # type: ignore[override]
        """Return all biases, (R,), as a view; zeros without biases."""
        if self._biases is None:
            return self.weights.new_zeros(1).expand(self.num_rows)
        return self._biases.weight.detach()[:, 0]

    @property
    def biases_with_gradient(self) -> Tensor:
        """Return all biases, (R,), as autograd knows them; zeros without biases."""
        return self.bias if self._biases is None else self._biases.weight[:, 0]

    @property
    def tensor(self) -> Tensor:
        return self.weights

    @property
    def settling_steps(self) -> int:
        return self.settling

    def read(self, rows_U: object, step: int) -> None:
        """Bring rows (None: all) up to date, whatever the step."""
        if self.reader is not None:
            self.reader(None if rows_U is None else torch.as_tensor(rows_U, dtype=torch.int64, device=self.device))
