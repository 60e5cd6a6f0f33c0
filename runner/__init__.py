"""Experiment runner for networks with huge output layers."""

import os

__version__ = "0.1.0"

# torch and Numba each keep a pool of OpenMP threads, and by default an idle pool spins: on a busy machine the two
# take turns starving each other (matrix products at 35 instead of 85 GFLOP/s beside one other process). Read when
# the pools start, so it is set before either library is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
