"""Measure the time of ``import kinesumer``, and of the start of a Lambda function.

python -m benchmarks.import_time
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.report import Report

RUNS = 7
AIM_SECONDS = 0.15
HEAVY = (
    *("aiobotocore.session", "aiohttp", "boto3", "asyncio"),
    "opentelemetry.metrics, opentelemetry.trace",
)


def main() -> None:
    """Print the import time of the package, and of heavy libraries to compare."""
    report = Report(f"import: CPU time, best of {RUNS}")
    report.at_most("import kinesumer", seconds("kinesumer"), AIM_SECONDS, " s")
    for name in ("kinesumer.aws_lambda", "kinesumer.kpl"):
        report.at_most(f"import {name}", seconds(name), AIM_SECONDS, " s")
    for module in HEAVY:
        report.note(f"for comparison: {module}", f"{seconds(module):.3f} s")
    report.print()


def seconds(modules: str) -> float:
    """Return the least CPU time of several imports, each in a new interpreter."""
    code = (
        "import time; began = time.process_time(); "
        f"import {modules}; print(time.process_time() - began)"
    )
    return min(
        float(subprocess.check_output([sys.executable, "-c", code], text=True))
        for _ in range(RUNS)
    )


if __name__ == "__main__":
    main()
