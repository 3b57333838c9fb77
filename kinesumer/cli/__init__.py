"""The command ``kinesumer``."""
