"""List all samplers by name. A new sampler needs one module and its entry here; ``make generated`` writes the rest."""

from runner.samplers.base import Sampler, SamplerConfig
from runner.samplers.full import FullConfig
from runner.samplers.in_batch import InBatchConfig
from runner.samplers.log_uniform import LogUniformConfig
from runner.samplers.lsh import LshEmbeddingConfig, LshLabelConfig
from runner.samplers.lsh_bucket import LshBucketConfig
from runner.samplers.lsh_topk import LshTopKConfig
from runner.samplers.midx import MidxPqConfig, MidxRqConfig
from runner.samplers.midx_exact import MidxExactConfig
from runner.samplers.midx_learn import MidxLearnPqConfig, MidxLearnRqConfig
from runner.samplers.quadratic_tree import QuadraticTreeConfig
from runner.samplers.rff import RffConfig
from runner.samplers.sce import SceConfig
from runner.samplers.scored import ExactConfig, QuadraticConfig
from runner.samplers.static import UniformConfig, UnigramConfig
from runner.samplers.topk import TopKConfig

SAMPLERS: dict[str, type[SamplerConfig]] = {
    "full": FullConfig,
    "exact": ExactConfig,
    "uniform": UniformConfig,
    "log_uniform": LogUniformConfig,
    "unigram": UnigramConfig,
    "in_batch": InBatchConfig,
    "topk": TopKConfig,
    "lsh_label": LshLabelConfig,
    "lsh_embedding": LshEmbeddingConfig,
    "lsh": LshBucketConfig,
    "lsh_topk": LshTopKConfig,
    "sce": SceConfig,
    "quadratic": QuadraticConfig,
    "quadratic_tree": QuadraticTreeConfig,
    "rff": RffConfig,
    "midx_pq": MidxPqConfig,
    "midx_rq": MidxRqConfig,
    "midx_exact": MidxExactConfig,
    "midx_learn_pq": MidxLearnPqConfig,
    "midx_learn_rq": MidxLearnRqConfig,
}

__all__ = ["SAMPLERS", "Sampler", "SamplerConfig"]
