"""``client.run()``: user code as a function that is called with records or batches."""

from kinesumer.handlers.middleware import Middleware
from kinesumer.handlers.retry import RetryPolicy

__all__ = ["Middleware", "RetryPolicy"]
