"""Index structures over any set of vectors: hash functions and tables, codebooks, random features, sum trees."""
