"""Decides through the state store which client owns which shard."""
