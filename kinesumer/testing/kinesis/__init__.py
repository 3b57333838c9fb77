"""Kinesis without I/O: each function gets the time as ``now``.

The embedded AWS serves this model over HTTP. The simulator gives it a virtual clock.
"""
