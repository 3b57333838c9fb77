"""Tools for tests of consumers."""

from kinesumer.testing.values import batch, record

__all__ = ["batch", "record"]
