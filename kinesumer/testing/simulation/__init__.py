"""Simulate a group of clients in virtual time, with faults."""
