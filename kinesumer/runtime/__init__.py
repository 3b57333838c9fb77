"""Helpers for clocks, tasks, time-outs and files, and the context of a client."""
