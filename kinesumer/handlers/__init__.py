"""The parts of ``client.run()``, which calls a function with records or batches."""

from kinesumer.handlers.handler import Handler
from kinesumer.handlers.handler_function import Middleware
from kinesumer.handlers.retry_policy import RetryPolicy

__all__ = ["Handler", "Middleware", "RetryPolicy"]
