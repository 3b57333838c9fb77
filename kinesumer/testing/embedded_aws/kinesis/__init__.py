"""A small, strict model of Kinesis. It does no I/O and gets the time as ``now``."""
