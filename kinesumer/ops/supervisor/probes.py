"""Serve an application's health to probes, and its metrics to Prometheus."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple

from kinesumer.errors import ConfigurationError
from kinesumer.ops.supervisor.metrics import CONTENT_TYPE, render
from kinesumer.ops.supervisor.reports import Report, is_alive, is_ready

# Without a time-out, a dead peer would occupy its connection's thread forever.
IDLE_TIMEOUT_SECONDS = 10.0

ReadReports = Callable[[], list[Report]]


class Answer(NamedTuple):
    """An HTTP response."""

    status: int
    content_type: str
    body: bytes


Answers = Mapping[str, Callable[[], Answer]]


def health_answers(read: ReadReports) -> Answers:
    """Return what is served for probes: 200 if all is well, else 503."""

    def answer(is_well: Callable[[list[Report]], bool]) -> Answer:
        reports = read()
        body = {
            "alive": is_alive(reports),
            "ready": is_ready(reports),
            "processes": [
                {"client_id": report.client_id, **report.health._asdict()}
                for report in reports
            ],
        }
        status = 200 if is_well(reports) else 503
        return Answer(status, "application/json", json.dumps(body).encode())

    return {"/live": lambda: answer(is_alive), "/ready": lambda: answer(is_ready)}


def metrics_answers(read: ReadReports) -> Answers:
    """Return what is served for Prometheus."""

    def answer() -> Answer:
        text = render((report.process, report.metrics) for report in read())
        return Answer(200, CONTENT_TYPE, text)

    return {"/metrics": answer}


@contextmanager
def serving(host: str, port: int, option: str, answers: Answers) -> Iterator[str]:
    """Serve answers by their paths while the block runs, and yield the server's URL.

    Requests have threads of their own, so user code doesn't delay them. ``option``
    gave the port. Raises ConfigurationError if the port can't be used.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_TIMEOUT_SECONDS
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            find = answers.get(self.path.partition("?")[0])
            if find is None:
                paths = " ".join(answers)
                answer = Answer(404, "text/plain", f"there is {paths}\n".encode())
            else:
                answer = find()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def handle(self) -> None:
            with suppress(TimeoutError, ConnectionError):
                super().handle()

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    try:
        server = _Server((host, port), Handler)
    except OSError as error:
        raise ConfigurationError(
            f"can't listen on {host}:{port}: {error.strerror or error}; pass another "
            f"{option} or --host"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="kinesumer-probes")
    thread.start()
    try:
        # A URL has an IPv6 address in brackets.
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingTCPServer):
    # Unlike HTTPServer, it doesn't ask DNS for its name.
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[Any]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)
