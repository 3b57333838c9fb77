"""Provide an embedded AWS with a stream, and a fleet of record processors."""

from tests.support.kclpy_fleet import aws, fleet, quick

__all__ = ["aws", "fleet", "quick"]
