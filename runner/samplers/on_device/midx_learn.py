"""Train MIDX's codewords on a device, by the steps of ``structures.codeword_learning``, and draw as ``TorchMidx``.

Once a period the classes are assigned anew.

Legend: C codewords of a codebook, D hidden size, S classes to learn from; a leading 2 is the two codebooks.
"""

from collections.abc import Mapping

import numpy as np
import torch

from runner import rng
from runner.contracts import Query
from runner.errors import Diverged
from runner.optimizers import AdamConfig
from runner.output.torch.adam import AdamStep
from runner.output.torch.arrays import array_of, ids_of
from runner.output.torch.batches import hidden_on
from runner.output.torch.layer import TorchLayer
from runner.samplers.midx_learn import LearntMidx, MidxLearnConfig
from runner.samplers.on_device.midx import TorchMidx
from runner.structures.codeword_learning import LARGEST, gradient_of


class TorchLearntMidx(TorchMidx, LearntMidx):
    """Draw as ``TorchMidx`` does, by codewords that learn after every training step.

    Whether they diverged is known once they are copied to the CPU.
    """

    config: MidxLearnConfig

    def __init__(
        self, config: MidxLearnConfig, layer: TorchLayer, period: int, seed: int, weight_N: np.ndarray | None
    ) -> None:
        super().__init__(config, layer, period, seed, weight_N)
        device = layer.device
        self._first, self._second = (torch.zeros_like(self._codewords_KD) for _ in range(2))
        self._is_part = torch.zeros((2, 1, layer.dim), dtype=torch.bool, device=device)
        for book, part in enumerate(self.quantizer.parts(layer.dim)):
            self._is_part[book, :, part] = True

    def follows(self, step: int) -> bool:
        """Return True: codewords learn after every step."""
        return True

    def _learn(self, query: Query, step: int, steps: int) -> None:
        """Move the codewords; classes keep their codes."""
        layer, config, shape = self.on_device, self.config, (2, self.config.codewords, self.on_device.dim)
        device, size = layer.device, min(config.learn_classes, layer.num_classes)
        generator = rng.generator(self.seed, rng.QUANTIZE, step)
        hidden_BD = layer.queries(hidden_on(query, device).detach())
        for _ in range(steps):
            rows = np.sort(generator.choice(layer.num_classes, size, replace=False, shuffle=False))
            rows_S = ids_of(rows, device)
            layer.read(rows_S, step + 1)
            values_SD = layer.of_classes(rows, lambda held_U: layer.part.vectors(ids_of(held_U, device)))
            bias_S = layer.of_classes(rows, lambda held_U: layer.part.biases_of(ids_of(held_U, device)))
            grad_2CD = gradient_of(
                self._codewords_KD.reshape(shape), config.learn_assignment, values_SD,
                self._codes_2N[:, rows_S], hidden_BD, bias_S,
                self._weights_N[rows_S].float() if len(self._weights_N) else None,
            )  # fmt: skip
            grad_KD = torch.where(self._is_part, grad_2CD, 0).flatten(0, 1)
            self.learner.steps += 1
            adam = AdamStep(
                AdamConfig(lr=config.learn_lr), config.learn_lr, slice(None), self.learner.steps, None, None
            )
            adam.take(self._codewords_KD, self._first, self._second, grad_KD)

    def _copy_back(self) -> None:
        """Bring the learnt codebooks and their moments to the CPU. Raise Diverged on overflow."""
        if self.codebooks_2CD is None:
            return
        shape = self.codebooks_2CD.shape
        self.codebooks_2CD, first, second = (
            array_of(tensor).reshape(shape).copy() for tensor in (self._codewords_KD, self._first, self._second)
        )
        self.learner.moments = {"first": first, "second": second}
        if not (np.abs(self.codebooks_2CD) < LARGEST).all():  # false for NaN too
            raise Diverged("learning the codebooks diverged; try a smaller sampler.learn_lr")

    def rebuild(self, step: int) -> None:
        self._copy_back()
        super().rebuild(step)

    def state_dict(self) -> dict[str, np.ndarray]:
        self._copy_back()
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state_dict(state)
        moments = self.learner.moments
        self._first, self._second = (
            torch.tensor(moments[name]).flatten(0, 1).to(self.on_device.device) for name in ("first", "second")
        )
