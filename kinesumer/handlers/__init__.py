"""The parts of ``client.run()``, which calls a function with records or batches."""

from kinesumer.handlers.handler import Handler, RetryPolicy
from kinesumer.handlers.handler_function import Middleware

__all__ = ["Handler", "Middleware", "RetryPolicy"]
