"""A query's positions in the state store."""
