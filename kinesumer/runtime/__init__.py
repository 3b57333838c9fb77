"""Clocks, tasks, time-outs, files and the client's context."""
