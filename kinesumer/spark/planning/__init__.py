"""Runs on the driver. Decides which records of each shard a batch reads."""
