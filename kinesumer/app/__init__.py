"""Applications for ``kinesumer run``: handlers as decorators, with dependencies."""

from kinesumer.app.app import App
from kinesumer.app.dependencies import Depends

__all__ = ["App", "Depends"]
