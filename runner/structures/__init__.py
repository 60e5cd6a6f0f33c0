"""Index any set of vectors, by hash functions and tables, codebooks, random features or sum trees."""
