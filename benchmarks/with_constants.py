"""Run a benchmark, the simulator or tests with other constants.

    python -m benchmarks.with_constants NAME=VALUE… -- MODULE [ARGUMENT…]

For example, this measures handlers whose workers get one key at a time:

    python -m benchmarks.with_constants core.work_queue.MAX_AT_ONCE=1
        -- benchmarks.handlers 100B

NAME is a module of ``kinesumer`` that uses the constant, and the constant. VALUE is a
literal of Python. A tuple becomes the named tuple that it replaces. Processes that the
benchmark starts keep their own constants.
"""

from __future__ import annotations

import argparse
import ast
import runpy
import sys
from importlib import import_module


def set_constant(assignment: str) -> None:
    """Set a constant, such as ``core.load.AVERAGE_SECONDS=60``."""
    name, _, text = assignment.partition("=")
    module_name, _, constant = name.rpartition(".")
    module = import_module(f"kinesumer.{module_name}")
    kind, value = type(getattr(module, constant)), ast.literal_eval(text)
    setattr(module, constant, kind(*value) if hasattr(kind, "_fields") else value)


def main() -> None:
    """Set the constants, then run the module as a program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.with_constants")
    parser.add_argument("constants", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- MODULE …")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given = parser.parse_args(sys.argv[1:split])
    if not sys.argv[split + 1 :]:
        parser.error("name a module after --")
    for assignment in given.constants:
        set_constant(assignment)
    sys.argv = sys.argv[split + 1 :]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
