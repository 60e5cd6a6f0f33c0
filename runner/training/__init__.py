"""Train a network: the loop of a run, its state and its folder."""
