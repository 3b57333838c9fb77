"""Tools for tests of consumers."""
