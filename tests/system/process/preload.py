"""Imports the library in the process that workers are forked from.

Replaces the wall clock first, before an imported module can refer to the real one.
"""

from __future__ import annotations

from tests.system.process import machine

machine.install()

# Import the adapters of AWS too, since a client imports them only when it opens them.
from kinesumer.aws import dynamodb, kinesis, session  # noqa: E402, F401
from kinesumer.ops.cli import main  # noqa: E402, F401
from tests.system.process import worker  # noqa: E402, F401
