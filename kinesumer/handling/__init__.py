"""``client.run()``: user code as a function that is called with records or batches."""

from kinesumer.handling.middleware import Middleware
from kinesumer.handling.retries import Retries

__all__ = ["Middleware", "Retries"]
