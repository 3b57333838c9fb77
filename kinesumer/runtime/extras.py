"""Check that the packages of the extra ``cli`` are installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

# What the extra installs, and only commands import.
PACKAGES = ("click", "prometheus_client", "rich")


def require_cli() -> None:
    """Exit with status 1 and one line if a package of the extra is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        sys.exit(
            f"error: this command needs packages that are not installed "
            f"({', '.join(missing)}); run: pip install 'kinesumer[cli]'"
        )
