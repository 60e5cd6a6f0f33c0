"""Draw figures from numbers."""
