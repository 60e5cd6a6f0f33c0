"""Lay numbers out as printed tables and pages, and publish these."""
