"""Train the codewords of two codebooks as parameters, by gradient descent (MIDX-Learn).

The objective (section 6.2.3 of the paper) is

    mean over classes of |w - w_hat|^2  +  mean over queries of KL(p || q_hat).

p is the softmax of the true logits (biases included), and q_hat that of the logits h . w_hat, plus the log popularity
of the class if the sampler draws by it.

@article{chen2025adaptive, title={Adaptive Sampled Softmax with Inverted Multi-Index: Methods, Theory and
Applications}, author={Chen, Jin and Zhang, Jin and Huang, Xu and Yang, Yi and Lian, Defu and Chen, Enhong},
journal={arXiv:2501.08563}, year={2025}}

Legend: S classes to learn from, D columns, C codewords of a codebook, B queries; a leading 2 is the two codebooks.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from runner.errors import Diverged
from runner.optimizers import AdamConfig, dense_adam

_QUERIES = 256  # hidden states that a step learns from; more take longer and change little
LARGEST = 1e15  # larger numbers overflow when they are squared and summed


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Hold what one step learns from.

    values_SD: the classes' vectors.
    codes_2S: the codewords that the sampler has assigned to them, (2, S).
    hidden_BD: queries, whose products with the vectors are the logits without biases.
    bias_S, log_weight_S: biases of the true logits and log popularity of the classes; None: 0.
    """

    values_SD: np.ndarray
    codes_2S: np.ndarray
    hidden_BD: np.ndarray
    bias_S: np.ndarray | None = None
    log_weight_S: np.ndarray | None = None


class Learner:
    """Take steps of Adam at ``lr`` on codebooks of a ``shape`` (2, C, D), whose moments it keeps.

    ``parts``: the coordinates of each codebook (``Quantizer.parts``); the others stay 0.
    ``assignment``: how w_hat is made. ``hard`` adds the two codewords that the sampler has assigned to the class, so
    that q_hat is the sampler's own distribution. ``soft`` is the paper's way: each codebook's codewords are averaged by
    the softmax of their inner products with the vector (with its residual, for the second codebook under rq). It learns
    a q_hat that no sampler draws from.
    """

    def __init__(
        self, *, assignment: Literal["hard", "soft"], lr: float, shape: tuple[int, ...], parts: list[slice]
    ) -> None:
        self.assignment = assignment
        self.config = AdamConfig(lr=lr)
        self.parts = parts
        self.steps = 0
        self.moments: dict[str, Any] = {name: np.zeros(shape, dtype=np.float32) for name in ("first", "second")}

    def step(self, codebooks_2CD: np.ndarray, lesson: Lesson) -> None:
        """Take one step in place. Raise Diverged on overflow."""
        grad_2CD = self._gradient(codebooks_2CD, lesson)
        for grad_CD, part in zip(grad_2CD, self.parts, strict=True):
            inside = np.zeros(grad_CD.shape[1], dtype=bool)
            inside[part] = True
            grad_CD[:, ~inside] = 0
        self.steps += 1
        dense_adam(self.config, self.moments, codebooks_2CD, grad_2CD, self.steps)
        if not (np.abs(codebooks_2CD) < LARGEST).all():  # false for NaN too
            raise Diverged("learning the codebooks diverged; try a smaller sampler.learn_lr")

    def _gradient(self, codebooks_2CD: np.ndarray, lesson: Lesson) -> np.ndarray:
        import torch

        given = (lesson.values_SD, lesson.codes_2S.astype(np.int64), lesson.hidden_BD, lesson.bias_S)
        log_weight_S = None if lesson.log_weight_S is None else lesson.log_weight_S.astype(np.float32)
        tensors = (None if array is None else torch.from_numpy(array) for array in (*given, log_weight_S))
        with _one_torch_thread():
            return gradient_of(torch.from_numpy(codebooks_2CD), self.assignment, *tensors).numpy()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the moments and the number of steps taken."""
        return {"steps": np.array(self.steps, dtype=np.int64), **self.moments}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self.steps = int(state["steps"])
        self.moments = {name: np.array(value) for name, value in state.items() if name != "steps"}


def gradient_of(
    codebooks_2CD: Any,
    assignment: Literal["hard", "soft"],
    values_SD: Any,
    codes_2S: Any,
    hidden_BD: Any,
    bias_S: Any = None,
    log_weight_S: Any = None,
) -> Any:
    """Return the gradient of the objective for the codebooks, (2, C, D), from what a ``Lesson`` holds, in tensors."""
    import torch

    hidden_BD = hidden_BD[:_QUERIES]
    with torch.enable_grad():
        parameter = codebooks_2CD.detach().requires_grad_()
        if assignment == "soft":
            approximation = _soft(values_SD, *parameter)
        else:
            first, second = codes_2S
            approximation = parameter[0].index_select(0, first) + parameter[1].index_select(0, second)
        reconstruction = (values_SD - approximation).square().sum(dim=1).mean()
        log_p = _log_softmax(hidden_BD @ values_SD.T, bias_S)
        log_q = _log_softmax(hidden_BD @ approximation.T, log_weight_S)
        divergence = (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()
        return torch.autograd.grad(reconstruction + divergence, parameter)[0]


def _log_softmax(logits: Any, added_S: Any) -> Any:
    return (logits if added_S is None else logits + added_S).log_softmax(dim=1)


def _soft(values_SD: Any, first_CD: Any, second_CD: Any) -> Any:
    """Average each codebook's codewords by the softmax of inner products, with the value and then the residual; sum.

    Under pq, in the second codebook's half of the coordinates the residual is the value itself.
    """
    average = (values_SD @ first_CD.T).softmax(dim=1) @ first_CD
    return average + ((values_SD - average) @ second_CD.T).softmax(dim=1) @ second_CD


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Run torch on one thread, because bits of its sums (over a codeword's classes above all) depend on threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
