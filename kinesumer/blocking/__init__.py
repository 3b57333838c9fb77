"""Kinesumer for code without asyncio: ``for record in client.consume(...)``."""

from kinesumer.blocking.client import Kinesumer
from kinesumer.blocking.delivery import Records

__all__ = ["Kinesumer", "Records"]
