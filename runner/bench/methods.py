"""The methods that are compared, by name. Nothing heavy is imported here: the command line lists them."""

# 3,351 shared negatives are half a percent of Amazon-670K's classes, a size published comparisons use.
NUM_SAMPLES = 3351

# Each row's best few, and every row gets them all.
_SHARED = ["sampler.shared=true", "sampler.max_hits=4"]

# Name -> Hydra overrides. A new method of the runner is one line here.
METHODS: dict[str, list[str]] = {
    "full": ["sampler=full"],
    "full_bf16": ["sampler=full", "sampler.products=bf16"],
    "topk": ["sampler=topk"],
    "uniform": ["sampler=uniform", f"sampler.num_samples={NUM_SAMPLES}"],
    "log_uniform": ["sampler=log_uniform", f"sampler.num_samples={NUM_SAMPLES}"],
    "unigram": ["sampler=unigram", f"sampler.num_samples={NUM_SAMPLES}"],
    "nce": ["sampler=log_uniform", f"sampler.num_samples={NUM_SAMPLES}", "loss=nce"],
    "lsh_label": ["sampler=lsh_label"],
    "lsh_embedding": ["sampler=lsh_embedding"],
    "lsh_label_shared": ["sampler=lsh_label", *_SHARED],
    "lsh_embedding_shared": ["sampler=lsh_embedding", *_SHARED],
}
TORCH_METHODS = ("torch_full", "torch_sampled")  # what a user of PyTorch could have instead
ALL_METHODS = (*METHODS, *TORCH_METHODS)
FULL_METHODS = ("full", "full_bf16", "torch_full")  # the fastest of these is what all others are compared with

# Name -> Hydra overrides, for how long drawing takes. {draws}: draws of each row.
_EACH = ["sampler.num_samples={draws}"]
_EACH_ROW = [*_EACH, "sampler.shared=false", "sampler.unique=false"]
SAMPLERS: dict[str, list[str]] = {
    "uniform": ["sampler=uniform", *_EACH_ROW],
    "log_uniform": ["sampler=log_uniform", *_EACH_ROW],
    "unigram": ["sampler=unigram", *_EACH_ROW],
    "lsh": ["sampler=lsh", *_EACH],
    "lsh_topk": ["sampler=lsh_topk"],
    "sphere": ["sampler=sphere", *_EACH],
    "rff": ["sampler=rff", *_EACH],
    "rff_D50": ["sampler=rff", "sampler.D=50", *_EACH],
    "rff_D200": ["sampler=rff", "sampler.D=200", *_EACH],
    "rff_D500": ["sampler=rff", "sampler.D=500", *_EACH],
    "rff_D1000": ["sampler=rff", "sampler.D=1000", *_EACH],
    "midx_pq": ["sampler=midx_pq", "sampler.codewords=64", *_EACH],
    "midx_rq": ["sampler=midx_rq", "sampler.codewords=64", *_EACH],
    "exact": ["sampler=exact", *_EACH],
}
# By default the MIDX paper's figure; the names of RF-softmax Table 2 are rff_D50 ... rff_D1000, exact and sphere.
DEFAULT_SAMPLERS = tuple(name for name in SAMPLERS if not name.startswith("rff_D"))
