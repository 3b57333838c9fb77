"""Parses and checks the options of ``format("kinesumer")``."""
