"""Report a process's health and metrics to the supervisor of an application.

A process writes its reports, as lines of JSON, into a socket of the supervisor. When
the supervisor is gone, the socket ends, and the process leaves the group.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable

import msgspec

from kinesumer.ops.group.observation import ClientHealth
from kinesumer.ops.supervisor.metrics import Family

# The seconds between two reports: half of a heartbeat's interval by default, so that
# probes know soon. A report takes some milliseconds.
REPORT_SECONDS = 1.0
# A process without reports for so long hangs: its threads don't run.
SILENT_SECONDS = 15.0


class Report(msgspec.Struct, frozen=True):
    """The health and the metrics of one process."""

    process: int  # the index
    client_id: str
    health: ClientHealth
    metrics: list[Family] = []


_decoder = msgspec.json.Decoder(Report)


def read_report(line: bytes) -> Report:
    """Return the report of a line."""
    return _decoder.decode(line)


def is_alive(reports: list[Report]) -> bool:
    """Return whether no process is known to be dead."""
    return all(report.health.alive is not False for report in reports)


def is_ready(reports: list[Report]) -> bool:
    """Return whether all processes are ready."""
    return all(report.health.ready for report in reports)


def start_to_report(descriptor: int, read: Callable[[], Report]) -> None:
    """Report to the supervisor's socket from now on, in a thread.

    When the supervisor is gone, send SIGTERM to this process.
    """
    os.set_inheritable(descriptor, False)
    peer = socket.socket(fileno=descriptor)
    thread = threading.Thread(target=_report, args=(peer, read), daemon=True)
    thread.name = "kinesumer-report"
    thread.start()


def _report(peer: socket.socket, read: Callable[[], Report]) -> None:
    try:
        while True:
            peer.sendall(msgspec.json.encode(read()) + b"\n")
            # The supervisor writes nothing. So the socket is readable at its end.
            if select.select([peer], [], [], REPORT_SECONDS)[0]:
                break
    except OSError:  # the supervisor is gone
        pass
    os.kill(os.getpid(), signal.SIGTERM)
