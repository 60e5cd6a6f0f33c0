"""Logs of events, as sequences of items for recommendation."""
