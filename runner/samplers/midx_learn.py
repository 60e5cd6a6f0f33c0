"""Draw classes through an inverted multi-index whose codewords are trained with the model (MIDX-Learn).

The sampler is MIDX (``runner.samplers.midx``) with other codebooks. k-means makes the first ones. From then on
codewords are parameters: after every training step they take a step of Adam towards the softmax of the present weights,
over the batch's hidden states and some classes (``runner.structures.codeword_learning``). Once a period, each class is
assigned anew to the nearest pair of codewords; k-means does not start again, so that learning accumulates.

Legend: N classes, C codewords of a codebook, D hidden size; a leading 2 is the two codebooks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from runner import rng
from runner.contracts import Query, TrainingFacts
from runner.kernels.codewords import panels_of, squared_norms
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler
from runner.samplers.midx import FEW_CODEWORDS, Midx, MidxConfig, MidxPqConfig, MidxRqConfig
from runner.structures.codeword_learning import Learner, Lesson
from runner.structures.quantizers import check_usable

_STEPS_OF_A_FRESH_INDEX = 500  # an index that no training went with learns so long from one batch


@dataclass(frozen=True, kw_only=True)
class MidxLearnConfig(MidxConfig):
    """Learn the codewords by gradient descent (MIDX-Learn)."""

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "hard": {**FEW_CODEWORDS, "learn_classes": 60, "learn_steps": 3},
        "soft": {**FEW_CODEWORDS, "learn_assignment": "soft", "within": "popularity"},
    }
    learn_assignment: Literal["hard", "soft"] = option(
        "hard",
        "",
        choices={"hard": "the pair of codewords that the sampler uses", "soft": "softmax averages, as in the paper"},
    )
    learn_classes: int = option(4096, "number of classes to learn from, drawn anew at each step of learning", low=1)
    learn_steps: int = option(1, "steps of Adam after each training step", low=1)
    learn_lr: float = option(0.001, "learning rate of these steps", above=0)

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return LearntMidx(self, layer, self.period(training), seed, self.weights(training))


@dataclass(frozen=True, kw_only=True)
class MidxLearnPqConfig(MidxLearnConfig, MidxPqConfig):
    """Learn the codewords of MIDX-pq by gradient descent."""


@dataclass(frozen=True, kw_only=True)
class MidxLearnRqConfig(MidxLearnConfig, MidxRqConfig):
    """Learn the codewords of MIDX-rq by gradient descent."""


class LearntMidx(Midx):
    """Draw as ``Midx`` does, by codewords that learn after every training step."""

    config: MidxLearnConfig

    def __init__(
        self, config: MidxLearnConfig, layer: Layer, period: int, seed: int, weight_N: np.ndarray | None
    ) -> None:
        super().__init__(config, layer, period, seed, weight_N)
        self.learner = Learner(
            assignment=config.learn_assignment, lr=config.learn_lr, shape=(2, config.codewords, layer.dim),
            parts=self.quantizer.parts(layer.dim),
        )  # fmt: skip

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        """Learn from the step's hidden states, and assign the classes anew when the period is over."""
        self._learn(query, step, self.config.learn_steps)
        super().refresh(query, step, touched_U)
        return True

    def learn(self, query: Query, step: int) -> bool:
        self._learn(query, step, _STEPS_OF_A_FRESH_INDEX)
        self.rebuild(step)
        return True

    def new_codebooks(self, step: int) -> np.ndarray:
        """Return the learnt codebooks (2, C, D); at the start, those of k-means."""
        return super().new_codebooks(step) if self.codebooks_2CD is None else self.codebooks_2CD

    def _learn(self, query: Query, step: int, steps: int) -> None:
        """Move the codewords; classes keep their codes. Raise Diverged if weights or codewords are not finite."""
        assert self.codebooks_2CD is not None
        num_classes = self.layer.num_classes
        size = min(self.config.learn_classes, num_classes)
        generator = rng.generator(self.seed, rng.QUANTIZE, step)
        hidden_BD = self.layer.query_vectors(query.hidden_BD)
        for _ in range(steps):
            rows_S = np.sort(generator.choice(num_classes, size, replace=False, shuffle=False)).astype(np.int32)
            self.layer.read(rows_S, step + 1)
            values_SD = self.layer.class_vectors(rows_S)
            check_usable(squared_norms(values_SD), f" after step {step}")
            bias_S = self.layer.biases(rows_S)
            lesson = Lesson(
                values_SD=values_SD,
                codes_2S=self.codes_2N[:, rows_S],
                hidden_BD=hidden_BD,
                bias_S=bias_S if len(bias_S) else None,
                log_weight_S=None if self._log_weight_N is None else self._log_weight_N[rows_S],
            )
            self.learner.step(self.codebooks_2CD, lesson)
        self._panels = panels_of(self.codebooks_2CD)

    def state_dict(self) -> dict[str, np.ndarray]:
        learnt = {f"learner_{name}": value for name, value in self.learner.state_dict().items()}
        return {**super().state_dict(), **learnt}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state_dict(state)
        prefix = "learner_"
        self.learner.load_state_dict(
            {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        )
