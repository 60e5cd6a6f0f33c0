"""Handle what depends on the machine: clocks, memory, threads, devices, compiled kernels."""
