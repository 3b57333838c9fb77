"""Writes a Spark query's positions to the state store."""
