"""Sparse rows with label sets, as in extreme classification."""
