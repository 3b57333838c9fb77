"""Inspect and control a group of clients through the state store and Kinesis."""
