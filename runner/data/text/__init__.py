"""Texts for language models."""
