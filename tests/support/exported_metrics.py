"""Read the metrics that the exporter makes of an observation."""

from __future__ import annotations

from typing import Any

from kinesumer.ops.exporter.metrics import (
    PREFIX,
    AppMetrics,
    AppReading,
    Scale,
    build_metrics,
)
from kinesumer.ops.group.observation import Observation
from kinesumer.ops.group.status import report

STREAM = {
    "app": "a",
    "stream": "orders",
    "region": "us-east-1",
    "account": "000000000000",
}


def reading(observed: Observation, has_lags: bool, scale: Scale) -> AppReading:
    found = report("a", "table", observed)
    return AppReading(found, has_lags, 1e9, 0.1, scale)


def samples(*accounts: AppMetrics) -> dict[str, dict[Any, float]]:
    metrics: dict[str, dict[Any, float]] = {}
    for family in build_metrics(accounts):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            name = sample.name.removeprefix(PREFIX)
            metrics.setdefault(name, {})[labels] = sample.value
    return metrics
