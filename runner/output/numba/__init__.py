"""Compute the output layer by Numba, on a CPU."""
