"""Assign each shard to a client, through the state store."""
