"""Pairs of sentences with a class for each pair."""
