"""Name the methods that are compared. This module imports nothing heavy, as the command line lists the names."""

# 3,351 shared negatives are half a percent of Amazon-670K's classes, a size published comparisons use.
NUM_SAMPLES = 3351

# The best few classes of each row; every row of the batch is scored against all of them.
_SHARED = ["sampler.shared=true", "sampler.max_retrieved=4"]

# Name -> Hydra overrides. A new method of the runner is one line here.
METHODS: dict[str, list[str]] = {
    "full": ["sampler=full"],
    "full_stored": ["sampler=full", "sampler.stored_logits=bf16"],
    "full_bf16": ["sampler=full", "sampler.products=bf16"],
    "full_bf16_stored": ["sampler=full", "sampler.products=bf16", "sampler.stored_logits=bf16"],
    "topk": ["sampler=topk"],
    "uniform": ["sampler=uniform", f"sampler.num_samples={NUM_SAMPLES}"],
    "log_uniform": ["sampler=log_uniform", f"sampler.num_samples={NUM_SAMPLES}"],
    "unigram": ["sampler=unigram", f"sampler.num_samples={NUM_SAMPLES}"],
    "nce": ["sampler=log_uniform", f"sampler.num_samples={NUM_SAMPLES}", "loss=nce"],
    "lsh_label": ["sampler=lsh_label"],
    "lsh_embedding": ["sampler=lsh_embedding"],
    "sce": ["sampler=sce"],
    "lsh_label_shared": ["sampler=lsh_label", *_SHARED],
    "lsh_embedding_shared": ["sampler=lsh_embedding", *_SHARED],
}
LIBRARY_METHODS = ("torch_full", "torch_sampled", "tensorflow_full")  # what users of these libraries could have instead
ALL_METHODS = (*METHODS, *LIBRARY_METHODS)
# All methods are compared with the fastest of these.
FULL_METHODS = ("full", "full_stored", "full_bf16", "full_bf16_stored", "torch_full", "tensorflow_full")

# Name -> Hydra overrides, for the time that drawing takes. {draws}: draws of each row.
_EACH = ["sampler.num_samples={draws}"]
_EACH_ROW = [*_EACH, "sampler.shared=false", "sampler.unique=false"]
SAMPLERS: dict[str, list[str]] = {
    "uniform": ["sampler=uniform", *_EACH_ROW],
    "log_uniform": ["sampler=log_uniform", *_EACH_ROW],
    "unigram": ["sampler=unigram", *_EACH_ROW],
    "lsh": ["sampler=lsh", *_EACH],
    "lsh_topk": ["sampler=lsh_topk"],
    "sphere": ["sampler=quadratic", *_EACH],
    "quadratic_tree": ["sampler=quadratic_tree", *_EACH],
    "rff": ["sampler=rff", *_EACH],
    "rff_D50": ["sampler=rff", "sampler.D=50", *_EACH],
    "rff_D200": ["sampler=rff", "sampler.D=200", *_EACH],
    "rff_D500": ["sampler=rff", "sampler.D=500", *_EACH],
    "rff_D1000": ["sampler=rff", "sampler.D=1000", *_EACH],
    "midx_pq": ["sampler=midx_pq", "sampler.codewords=64", *_EACH],
    "midx_rq": ["sampler=midx_rq", "sampler.codewords=64", *_EACH],
    "exact": ["sampler=exact", *_EACH],
}
# The default is the MIDX paper's figure. RF-softmax Table 2 has rff_D50 ... rff_D1000, exact and both quadratic ones.
DEFAULT_SAMPLERS = tuple(name for name in SAMPLERS if not name.startswith("rff_D"))

# MIDX by its number of codewords: the paper's 8 to 128, and two beyond that say where the time begins to grow.
CODEWORDS = (8, 16, 32, 64, 128, 256, 512)
BY_CODEWORDS = {f"{name}_C{count}": (name, count) for count in CODEWORDS for name in ("midx_pq", "midx_rq")}
SAMPLERS |= {
    variant: [f"sampler={name}", f"sampler.codewords={count}", *_EACH]
    for variant, (name, count) in BY_CODEWORDS.items()
}

# Name -> Hydra overrides, for whole steps of a language model. {draws}: draws of each token; {nearest_and_tail}:
# lsh_topk's number of candidates.
_CORRECTED = ["loss.correct_target=true"]
_EACH_TOKEN = [*_EACH, *_CORRECTED]
LANGUAGE_METHODS: dict[str, list[str]] = {
    "full": ["sampler=full"],
    "full_bf16": ["sampler=full", "sampler.products=bf16"],
    "uniform": ["sampler=uniform", *_EACH_ROW, *_CORRECTED],
    "uniform_shared": ["sampler=uniform", "sampler.num_samples=1000", *_CORRECTED],
    "unigram": ["sampler=unigram", *_EACH_ROW, *_CORRECTED],
    "lsh": ["sampler=lsh", "sampler.K=4", "sampler.L=16", *_EACH_TOKEN],
    "sphere": ["sampler=quadratic", "sampler.alpha=100", *_EACH_TOKEN],
    "rff": ["sampler=rff", "sampler.D=32", "sampler.nu=4", "sampler.refresh_every_steps=10", *_EACH_TOKEN],
    "midx_pq": ["sampler=midx_pq", "sampler.codewords=32", *_EACH_TOKEN],
    "midx_rq": ["sampler=midx_rq", "sampler.codewords=32", *_EACH_TOKEN],
    "exact": ["sampler=exact", *_EACH],  # draws avoid a row's targets, whose expected count is 0
    "ns": ["sampler=uniform", "sampler.num_samples={nearest_and_tail}", "sampler.shared=false", "sampler.unique=false"],
    "lsh_topk": ["sampler=lsh_topk", "sampler.refresh_every_steps=1", "sampler.refresh_growth=1.0"],
    "lsh_topk_lazy": ["sampler=lsh_topk"],
    "torch_full": ["sampler=full"],
}
# Names in pictures of methods that conf/table/methods.yaml does not have.
LABELS = {
    "torch_full": "PyTorch full softmax",
    "uniform_shared": "Uniform, shared",
    "ns": "Uniform (NS)",
    "lsh_topk_lazy": "LSH Softmax, seldom refreshed",
}
# The default is the methods of the MIDX paper's language models; the others belong to LSH Softmax Table 2.
LSH_SOFTMAX_METHODS = ("full", "torch_full", "ns", "lsh_topk", "lsh_topk_lazy")
DEFAULT_LANGUAGE_METHODS = tuple(
    name for name in LANGUAGE_METHODS if name in FULL_METHODS or name not in LSH_SOFTMAX_METHODS
)
