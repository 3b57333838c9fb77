"""The properties of state stores, streams and stream consumers that we rely on.

Each check is a function whose name says what is true. The test suite runs the same
checks on every backend.
"""
