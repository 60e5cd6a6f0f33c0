"""List the runs of a results folder, show one of them, and delete what is not wanted: ``python -m runner.runs``."""
