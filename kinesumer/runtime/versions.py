"""Find the versions of installed packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version(package: str) -> str:
    """Return a package's version, or "unknown" if its metadata isn't installed.

    A zipapp or a frozen program usually has no metadata of packages.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
