"""PostgreSQL's own server, from the binaries that a wheel brings."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.integration.examples.crowd import until

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "postgres"


def binaries() -> Path:
    """Return the folder of initdb and postgres, or skip the test."""
    found = find_spec("pgserver")
    if found is None or found.origin is None:
        pytest.skip(
            "there are no wheels of pgserver, which brings PostgreSQL, for this"
        )
    return Path(found.origin).parent / "pginstall" / "bin"


def _unprivileged() -> dict[str, Any]:
    """Return what runs a process as nobody: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """Run a server on a socket; yield the environment in which libpq finds it."""
    where, who = binaries(), _unprivileged()
    # Not pytest's folder: only its owner can look into that one.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if who:
        shutil.chown(folder, who["user"], who["group"])
    data = folder / "data"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": folder, **who}
    try:
        subprocess.run(
            [where / "initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync"],
            check=True,
            **quiet,
        )
        options = {"listen_addresses": "", "unix_socket_directories": folder}
        process = subprocess.Popen(
            [
                *(where / "postgres", "-D", data, "-F"),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            stderr=subprocess.DEVNULL,
            **quiet,
        )
        try:
            environment = {"PGHOST": str(folder), "PGUSER": USER, "PGDATABASE": USER}
            until(lambda: _answers(str(folder)), "PostgreSQL answers")
            yield environment
        finally:
            process.send_signal(signal.SIGINT)  # at once, whoever is connected
            process.wait()
    finally:
        shutil.rmtree(folder)


def _answers(socket: str) -> bool:
    try:
        psycopg.connect(host=socket, user=USER, dbname=USER).close()
    except psycopg.OperationalError:
        return False
    return True
