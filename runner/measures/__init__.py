"""Measure a sampler against the softmax: divergence, gradients, and draws by rank."""
