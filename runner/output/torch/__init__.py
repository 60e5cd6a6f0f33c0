"""Hold the class matrix in tensors of PyTorch: on a GPU, or on a CPU for tests and for people's own models."""
