"""Which PySpark works: 4.2 brought what a source needs to know of a batch."""

from __future__ import annotations

import re

OLDEST = (4, 2)
NEXT_MAJOR = (5, 0)


def require_pyspark() -> None:
    """Raise ImportError unless a PySpark is installed that works."""
    try:
        from pyspark import __version__ as version
    except ModuleNotFoundError as error:
        raise ImportError(
            "PySpark isn't installed: pip install 'kinesumer[spark]'"
        ) from error
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= release < NEXT_MAJOR:
        raise ImportError(
            f"kinesumer needs PySpark 4.2 or later, below 5, but {version} is "
            "installed: pip install 'kinesumer[spark]'"
        )
