"""Check that this system can run the commands."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

# What the extra installs, and only commands import.
PACKAGES = ("click", "prometheus_client", "rich")


def is_posix() -> bool:
    """Return whether file locks and signals of POSIX exist, unlike on Windows."""
    return find_spec("fcntl") is not None


def require_cli() -> None:
    """Exit with status 1 and one line if commands cannot run here.

    They need a POSIX system and the packages of the extra ``cli``.
    """
    if not is_posix():
        sys.exit(
            "error: this command needs Linux, macOS or another POSIX system; on "
            "Windows run it in WSL, or use the library, which works without it"
        )
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        sys.exit(
            f"error: this command needs packages that are not installed "
            f"({', '.join(missing)}); run: pip install 'kinesumer[cli]'"
        )


def package_version(package: str) -> str:
    """Return a package's version, or "unknown" if its metadata isn't installed.

    A zipapp or a frozen program usually has no metadata of packages.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
