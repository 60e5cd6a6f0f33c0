"""Prepare data sets at the command line: ``python -m runner.prepare``."""
