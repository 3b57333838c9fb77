"""Provide targets of dead letters."""

from tests.support.letters import (
    clients,
    target,
    url,
)

__all__ = [
    "clients",
    "target",
    "url",
]
