"""Read, tabulate and draw what was measured of samplers on the weights of runs."""
