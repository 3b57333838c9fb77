"""The offsets of a query (its positions in all shards), as objects and as JSON."""
