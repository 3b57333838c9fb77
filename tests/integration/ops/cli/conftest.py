"""Provide an embedded AWS and the command."""

from tests.support.cli import (
    aws,
    environment,
    orders,
    run,
    start,
    stopped_app,
)

__all__ = [
    "aws",
    "environment",
    "orders",
    "run",
    "start",
    "stopped_app",
]
