"""Kinesumer for code without asyncio: ``for record in client.consume(...)``."""

from kinesumer.blocking.client import Kinesumer, create_table
from kinesumer.blocking.delivery import Records
from kinesumer.blocking.producer import Producer, PutFuture

__all__ = ["Kinesumer", "Producer", "PutFuture", "Records", "create_table"]
