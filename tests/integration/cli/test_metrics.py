"""``kinesumer metrics`` beside a live fleet."""

from __future__ import annotations

import signal
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesumer.exporter.metrics import COUNTERS, GAUGES, PREFIX
from tests.integration.cli.conftest import error_text, finished, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

pytestmark = pytest.mark.process

CONSUME = ["consume", "orders", "--app=a", "--start=TRIM_HORIZON", "--client-id=one"]


def address(process: Process) -> str:
    return lines(process, 1)[0].decode().split()[-1]


def scrape(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def test_a_live_fleet_has_every_documented_metric_and_label(
    aws: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    """Other tests compare documents with metrics.py; this one compares reality."""
    aws.create_table()
    aws.create_stream("orders", 2)
    aws.put("orders", b"the first")
    lines(start(*CONSUME), 1)
    text = run("metrics", "--app", "a", "--once").output
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        **{PREFIX + name: set(about.labels) for name, about in GAUGES.items()},
        **{
            f"{PREFIX}{name}_total": set(about.labels)
            for name, about in COUNTERS.items()
        },
    }


def test_scrapes_are_served_from_one_read_until_a_signal(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    aws.create_table()
    process = start("metrics", "--app=a", "--listen=127.0.0.1:0", "--every=3600")
    url = address(process)
    for _ in range(20):
        text = scrape(url)
    assert 'kinesumer_group_reads_total{app="a"} 1.0' in text
    assert "# TYPE kinesumer_group_lag_seconds gauge" in text
    process.send_signal(signal.SIGTERM)
    assert finished(process)[1] == b""
    assert process.returncode == 0


def test_metrics_vanish_if_the_state_cannot_be_read(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    aws.create_table()
    process = start("metrics", "--app=a", "--listen=127.0.0.1:0", "--every=1")
    url = address(process)
    aws.outage(60.0)
    while 'kinesumer_group_up{app="a"} 0.0' not in (text := scrape(url)):
        time.sleep(0.1)
    assert "kinesumer_group_members{" not in text
    assert 'kinesumer_group_read_errors_total{app="a"} 1.0' in text
    process.send_signal(signal.SIGINT)
    _, errors = finished(process)
    assert b"app a couldn't be read: " in errors


def test_a_new_app_has_no_members(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    result = run("metrics", "--app", "new", "--app", "other", "--once")
    assert 'kinesumer_group_members{app="new",state="up"} 0.0' in result.output
    assert 'kinesumer_group_up{app="other"} 1.0' in result.output


@pytest.mark.parametrize("listen", ["9466", "127.0.0.1:x", "127.0.0.1:65536", ":1"])
def test_an_invalid_address_is_wrong_use(
    environment: None, run: Run, listen: str
) -> None:
    result = run("metrics", "--app", "a", "--listen", listen)
    assert result.exit_code == 2
    assert f"--listen {listen} isn't an address; pass host and port" in error_text(
        result
    )


def test_metrics_names_a_port_in_use(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    result = run("metrics", "--app=a", f"--listen=127.0.0.1:{aws.port}")
    assert result.exit_code == 2
    assert f"can't listen on --listen 127.0.0.1:{aws.port}" in error_text(result)


def test_metrics_fails_without_a_table(aws: EmbeddedAws, run: Run) -> None:
    result = run("metrics", "--app", "a", "--once")
    assert result.exit_code == 1
    assert "or create it with" in error_text(result)
