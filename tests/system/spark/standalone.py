"""Start a Spark standalone cluster on this machine, from the PySpark package alone."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.system.spark.processes import SPARK_HOME, Program

HOST = "127.0.0.1"
START_SECONDS = 60.0
WORKERS, WORKER_CORES, WORKER_MEMORY = 2, 1, "700m"
EXECUTOR_MEMORY = "600m"


class Cluster:
    """One master and two workers. A worker's executors are in its process session."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        # Spark's daemons read the size of their heap from SPARK_DAEMON_MEMORY.
        self._environment = {**environment, "SPARK_DAEMON_MEMORY": "256m"}
        self._stack = ExitStack()
        self._port, self._web_port = free_port(), free_port()
        self.workers: list[Program] = []

    @property
    def url(self) -> str:
        """The value of ``spark.master`` for drivers."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add_worker(self) -> None:
        name = f"worker-{len(self.workers)}"
        place = ["--work-dir", str(self._directory / name), "--webui-port", "0"]
        size = ["--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY]
        # Spark runs a speculative copy of a task only on another host.
        host = f"127.0.0.{len(self.workers) + 2}"
        worker = self._daemon(name, "worker.Worker", [*place, *size, self.url], host)
        self.workers.append(worker)

    def _alive(self) -> int:
        url = f"http://{HOST}:{self._web_port}/json/"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                workers = json.load(answer)["workers"]
        except OSError:
            return 0
        return sum(worker["state"] == "ALIVE" for worker in workers)

    def _start(self) -> None:
        place = ["--port", str(self._port), "--webui-port", str(self._web_port)]
        master = self._daemon("master", "master.Master", place)
        for _ in range(WORKERS):
            self._add_worker()
        master.wait_until(
            lambda: self._alive() == WORKERS, "registered workers", START_SECONDS
        )

    def _daemon(
        self, name: str, class_: str, arguments: list[str], host: str = HOST
    ) -> Program:
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{class_}",
            "--host",
            host,
            *arguments,
        ]
        log = self._directory / f"{name}.log"
        return self._stack.enter_context(Program(command, self._environment, log))
