"""Positions of a query in its streams, as values and as JSON."""
