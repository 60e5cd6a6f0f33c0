"""Name the methods that are compared: those of the catalogue (conf/method), with sizes that suit a comparison.

This module imports nothing heavy, as the command line lists the names.
"""

# 3,351 shared negatives are half a percent of Amazon-670K's classes, a size published comparisons use.
NUM_SAMPLES = 3351
_DRAWS = f"sampler.num_samples={NUM_SAMPLES}"

# The best few classes of each row; every row of the batch is scored against all of them.
_FEW = "sampler.max_retrieved=4"

# Name -> Hydra overrides. A new method of the runner is one line here.
METHODS: dict[str, list[str]] = {
    "full": ["method=full"],
    "full_stored": ["method=full", "sampler.stored_logits=bf16"],
    "full_bf16": ["method=full_bf16"],
    "full_bf16_stored": ["method=full_bf16", "sampler.stored_logits=bf16"],
    "topk": ["method=topk"],
    "uniform": ["method=uniform", _DRAWS],
    "log_uniform": ["method=log_uniform", _DRAWS],
    "unigram": ["method=unigram", _DRAWS],
    "nce": ["method=nce", _DRAWS, "sampler.unique=true"],
    "lsh_label": ["method=lsh_label"],
    "lsh_embedding": ["method=lsh_embedding"],
    "sce": ["method=sce"],
    "lsh_label_shared": ["method=lsh_label_shared", _FEW],
    "lsh_embedding_shared": ["method=lsh_embedding_shared", _FEW],
    "lsh_lean": ["method=lsh_lean"],
    # As the LNS paper prints its tables for Amazon-670K.
    "lsh_label_printed": ["method=lsh_label_printed", "sampler.K=6", "sampler.L=400"],
    "lsh_embedding_printed": ["method=lsh_embedding_printed", "sampler.K=6", "sampler.L=400"],
}
# What users of these libraries could have instead; torch_module is ours, for models of PyTorch.
LIBRARY_METHODS = (
    "torch_full",
    "torch_adaptive",
    "torch_sampled",
    "torch_module",
    "tensorflow_full",
    "tensorflow_sampled",
)
# Full softmax of PyTorch on a GPU: with all logits at once, and by two packages of fused kernels.
GPU_METHODS = ("torch_naive", "cce", "liger")
ALL_METHODS = (*METHODS, *LIBRARY_METHODS)
DEFAULT_METHODS = tuple(name for name in ALL_METHODS if not name.endswith("_printed"))
# All methods are compared with the fastest of these.
FULL_METHODS = ("full", "full_stored", "full_bf16", "full_bf16_stored", "torch_full", "tensorflow_full", *GPU_METHODS)

# Name -> Hydra overrides, for the time that drawing takes. {draws}: draws of each row.
_EACH = ["sampler.num_samples={draws}"]
_EACH_ROW = [*_EACH, "sampler.shared=false", "sampler.unique=false"]
SAMPLERS: dict[str, list[str]] = {
    "uniform": ["method=uniform", *_EACH_ROW],
    "log_uniform": ["method=log_uniform", *_EACH_ROW],
    "unigram": ["method=unigram", *_EACH_ROW],
    "lsh": ["method=lsh", *_EACH],
    "lsh_topk": ["method=lsh_topk"],
    "sphere": ["method=sphere", *_EACH],
    "quadratic_tree": ["method=quadratic_tree", *_EACH],
    "rff": ["method=rff", *_EACH],
    "rff_D50": ["method=rff", "sampler.D=50", *_EACH],
    "rff_D200": ["method=rff", "sampler.D=200", *_EACH],
    "rff_D500": ["method=rff", "sampler.D=500", *_EACH],
    "rff_D1000": ["method=rff", "sampler.D=1000", *_EACH],
    "midx_pq": ["method=midx_pq", "sampler.codewords=64", *_EACH],
    "midx_rq": ["method=midx_rq", "sampler.codewords=64", *_EACH],
    "exact": ["method=exact", *_EACH],
}
# The default is the MIDX paper's figure. RF-softmax Table 2 has rff_D50 ... rff_D1000, exact and both quadratic ones.
DEFAULT_SAMPLERS = tuple(name for name in SAMPLERS if not name.startswith("rff_D"))

# MIDX by its number of codewords: the paper's 8 to 128, and two beyond that say where the time begins to grow.
CODEWORDS = (8, 16, 32, 64, 128, 256, 512)
BY_CODEWORDS = {f"{name}_C{count}": (name, count) for count in CODEWORDS for name in ("midx_pq", "midx_rq")}
SAMPLERS |= {
    variant: [f"method={name}", f"sampler.codewords={count}", *_EACH] for variant, (name, count) in BY_CODEWORDS.items()
}

# Name -> Hydra overrides, for whole steps of a language model. {draws}: draws of each token; {nearest_and_tail}:
# lsh_topk's number of candidates.
_CORRECTED = ["loss.correct_target=true"]
_EACH_TOKEN = [*_EACH, *_CORRECTED]
LANGUAGE_METHODS: dict[str, list[str]] = {
    "full": ["method=full"],
    "full_bf16": ["method=full_bf16"],
    "uniform": ["method=uniform", *_EACH_ROW, *_CORRECTED],
    "uniform_shared": ["method=uniform", "sampler.num_samples=1000", *_CORRECTED],
    "unigram": ["method=unigram", *_EACH_ROW, *_CORRECTED],
    "lsh": ["method=lsh", *_EACH_TOKEN],
    "sphere": ["method=sphere", *_EACH_TOKEN],
    "rff": ["method=rff", "sampler.D=32", "sampler.refresh_every_steps=10", *_EACH_TOKEN],
    "midx_pq": ["method=midx_pq", "sampler.codewords=32", *_EACH_TOKEN],
    "midx_rq": ["method=midx_rq", "sampler.codewords=32", *_EACH_TOKEN],
    "exact": ["method=exact", *_EACH],  # draws avoid a row's targets, whose expected count is 0
    "ns": ["method=uniform", "sampler.num_samples={nearest_and_tail}", "sampler.shared=false", "sampler.unique=false"],
    "lsh_topk": ["method=lsh_topk", "sampler.refresh_every_steps=1", "sampler.refresh_growth=1.0"],
    "lsh_topk_uncentred": [
        "method=lsh_topk",
        "sampler.center=false",
        "sampler.refresh_every_steps=1",
        "sampler.refresh_growth=1.0",
    ],
    "lsh_topk_lazy": ["method=lsh_topk"],
    "torch_full": ["method=full"],
}
# Labels of methods that are this comparison's alone.
LABELS = {
    "torch_full": "PyTorch full softmax",
    "uniform_shared": "Uniform, shared",
    "ns": "Uniform (NS)",
    "lsh_topk_uncentred": "LSH Softmax, vectors hashed as they are",
    "lsh_topk_lazy": "LSH Softmax, seldom refreshed",
}
# The default is the methods of the MIDX paper's language models; the others belong to LSH Softmax Table 2.
DEFAULT_LANGUAGE_METHODS = tuple(name for name in LANGUAGE_METHODS if name != "ns" and not name.startswith("lsh_topk"))
