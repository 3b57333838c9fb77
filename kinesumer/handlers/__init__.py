"""The parts of ``client.run()``, which calls a function with records or batches."""

from kinesumer.handlers.handler import Handler
from kinesumer.handlers.middleware import Middleware
from kinesumer.handlers.retry import RetryPolicy

__all__ = ["Handler", "Middleware", "RetryPolicy"]
