"""Provide a browser, and a served dashboard."""

from tests.support.served_page import (
    actions,
    at,
    browser,
    fleet,
    http,
)

__all__ = [
    "actions",
    "at",
    "browser",
    "fleet",
    "http",
]
