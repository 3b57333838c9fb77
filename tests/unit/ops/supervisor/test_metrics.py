"""Test which metrics of processes Prometheus gets, and under which names."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from kinesumer.ops.supervisor.metrics import (
    Family,
    OpenTelemetryCollector,
    metric_name,
    render,
)


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        ("kinesumer.records_processed", "{record}", "kinesumer_records_processed"),
        ("kinesumer.round.duration", "s", "kinesumer_round_duration_seconds"),
        ("kinesumer.buffered_bytes", "By", "kinesumer_buffered_bytes"),
        ("kinesumer.work", "s/s", "kinesumer_work_seconds_per_second"),
        ("a-b", "", "a_b"),
    ],
)
def test_names_follow_the_rules_of_opentelemetry(
    name: str, unit: str, expected: str
) -> None:
    assert metric_name(name, unit) == expected


def test_instruments_become_metrics_of_their_kinds() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    meter.create_counter("orders", "{order}").add(2, {"kinesumer.app": "billing"})
    meter.create_up_down_counter("open").add(3)
    durations = meter.create_histogram(
        "wait.duration", "s", explicit_bucket_boundaries_advisory=[1.0, 2.0]
    )
    for seconds in (0.5, 1.5, 1.6, 9.0):
        durations.record(seconds)
    found = {metric.name: metric for metric in OpenTelemetryCollector(reader).collect()}
    assert [(m.name, m.type) for m in found.values()] == [
        ("orders", "counter"),
        ("open", "gauge"),
        ("wait_duration_seconds", "histogram"),
    ]
    [sample] = found["orders"].samples
    assert (sample.name, sample.labels, sample.value) == (
        "orders_total",
        {"kinesumer_app": "billing"},
        2,
    )
    assert [s.value for s in found["open"].samples] == [3]
    waits = found["wait_duration_seconds"].samples
    assert [(s.labels.get("le"), s.value) for s in waits] == [
        ("1.0", 1),
        ("2.0", 3),
        ("+Inf", 4),
        (None, 4),
        (None, 12.6),
    ]


def test_a_reader_without_metrics_yields_none() -> None:
    assert [*OpenTelemetryCollector(InMemoryMetricReader()).collect()] == []


def test_each_sample_tells_its_process_and_families_appear_once() -> None:
    def done(count: float) -> list[Family]:
        return [
            Family("done", "counter", "Orders.", [("done_total", {"a": "b"}, count)])
        ]

    text = render([(0, done(1)), (1, done(2))]).decode()
    [family] = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == (
        "done",
        "counter",
        "Orders.",
    )
    assert [(s.labels, s.value) for s in family.samples] == [
        ({"a": "b", "process": "0"}, 1),
        ({"a": "b", "process": "1"}, 2),
    ]
