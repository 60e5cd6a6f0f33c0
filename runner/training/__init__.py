"""The training run: its loop, its state and its folder."""
