"""Brings the records of owned shards to user code, and stores positions."""
