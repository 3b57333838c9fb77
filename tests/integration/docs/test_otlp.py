"""Test that the set-up in the guide sends metrics and spans by OTLP over HTTP."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from kinesumer.telemetry import conventions
from tests.support.doc_pages import ROOT, snippet

REPORTS = """
from kinesumer.model.streams import ShardKey
from kinesumer.runtime.clock import SystemClock
from kinesumer.telemetry.otel import OpenTelemetry

arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
telemetry = OpenTelemetry("billing", SystemClock())
with telemetry.trace_batch(ShardKey(arn, "shardId-0"), 3):
    telemetry.count("consumed_messages", arn, 3)
metrics.get_meter_provider().shutdown()
tracers.shutdown()
"""


@contextmanager
def receiver() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Receive exports on a free port. Yield the URL and the bodies by path."""
    bodies: dict[str, bytes] = {}
    headers: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            bodies[self.path] = body
            headers.append(self.headers.get("x-honeycomb-team"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", bodies
        finally:
            server.shutdown()
            thread.join()
    assert headers
    assert set(headers) == {"KEY"}


def test_the_set_up_exports_metrics_and_spans() -> None:
    program = snippet("docs/monitoring.md", "OTLPMetricExporter") + REPORTS
    with receiver() as (url, bodies):
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-honeycomb-team=KEY",
            "OTEL_SERVICE_NAME": "billing",
        }
        command = [sys.executable, "-c", program]
        subprocess.run(command, env=environment, check=True)
    spans = ExportTraceServiceRequest.FromString(bodies["/v1/traces"])
    [resource] = spans.resource_spans
    names = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert names["service.name"] == "billing"
    [span] = resource.scope_spans[0].spans
    assert span.name == "process orders"
    exported = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"])
    metrics = {
        metric.name
        for resource_metrics in exported.resource_metrics
        for scope in resource_metrics.scope_metrics
        for metric in scope.metrics
    }
    assert {
        "messaging.process.duration",
        "messaging.client.consumed.messages",
    } <= metrics


NAMES = {
    value
    for value in vars(conventions).values()
    if isinstance(value, str) and value.startswith("messaging.")
}
# What Prometheus makes of a counter of messages and of a histogram of seconds.
SUFFIXES = ("", "_total", "_seconds_bucket")


def test_queries_name_only_what_is_exported() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    section = text.partition("## OTLP")[2]
    prometheus = set(re.findall(r"\bmessaging_\w+", section))
    others = set(re.findall(r"\bmessaging\.[\w.]+\w", section))
    assert len(prometheus) >= 4
    assert len(others) >= 4
    known = {name.replace(".", "_") + end for name in NAMES for end in SUFFIXES}
    assert prometheus <= known
    assert others <= NAMES
