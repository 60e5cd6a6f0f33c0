"""This package measures how far a sampler is from the softmax that it approximates, and makes tables and figures."""
