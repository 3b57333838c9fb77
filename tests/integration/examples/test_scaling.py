"""Test the definitions of autoscalers. test_live_fleet.py runs their queries."""

from __future__ import annotations

import re
from pathlib import Path

import botocore.session
import jsonschema
import pytest
import yaml
from botocore.validate import ParamValidator

from kinesumer.ops.cli.main import cli
from kinesumer.ops.cli.serve import LISTEN, metrics
from kinesumer.ops.exporter.metrics import GAUGES, GOALS, PREFIX
from tests.support.promql import named
from tests.support.recipes import (
    ecs_dimensions,
    ecs_metrics,
    ecs_queries,
    scaling_file,
    scaling_query,
)

SCHEMA = yaml.safe_load(Path(__file__).with_name("autoscalers.yaml").read_text())
METRIC = f"{PREFIX}clients_wanted"
LABELS = set(GAUGES["clients_wanted"].labels)
# A restart of all clients, one after the other, changes the number for less than this.
SHORTEST_SCALE_IN_SECONDS = 300


@pytest.mark.parametrize("name", ["scaledobject", "hpa"])
def test_an_autoscaler_of_kubernetes_has_valid_fields(name: str) -> None:
    jsonschema.validate(scaling_file(f"{name}.yaml"), SCHEMA)


@pytest.mark.parametrize("name", ["scaledobject", "hpa"])
def test_an_autoscaler_asks_for_metrics_and_labels_that_exist(name: str) -> None:
    ((metric, matchers),) = named(scaling_query(name)).selectors
    assert metric == METRIC
    assert matchers == (("app", "billing"),)


def test_the_adapters_rule_finds_the_metric() -> None:
    (rule,) = scaling_file("prometheus-adapter.yaml")["externalRules"]
    assert rule["seriesQuery"] == f'{{__name__="{METRIC}"}}'
    assert rule["resources"] == {"namespaced": False}


@pytest.mark.parametrize("name", ["scaledobject", "hpa"])
def test_autoscalers_scale_the_deployment_of_the_guide(name: str) -> None:
    target = scaling_file(f"{name}.yaml")["spec"]["scaleTargetRef"]
    deployment = scaling_file("../deploying/deployment.yaml")
    assert target["name"] == deployment["metadata"]["name"]
    assert target["kind"] == deployment["kind"]


def test_both_autoscalers_of_kubernetes_wait_equally_long() -> None:
    keda, hpa = (scaling_file(f"{n}.yaml")["spec"] for n in ("scaledobject", "hpa"))
    behavior = keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == hpa["behavior"]
    down = behavior["scaleDown"]["stabilizationWindowSeconds"]
    assert down >= SHORTEST_SCALE_IN_SECONDS


@pytest.mark.parametrize(
    ("service", "operation", "name"),
    [
        ("application-autoscaling", "RegisterScalableTarget", "ecs-target"),
        ("application-autoscaling", "PutScalingPolicy", "ecs-policy"),
        ("ecs", "RegisterTaskDefinition", "ecs-exporter-task"),
    ],
)
def test_a_request_to_aws_is_valid(service: str, operation: str, name: str) -> None:
    model = botocore.session.get_session().get_service_model(service)
    shape = model.operation_model(operation).input_shape
    report = ParamValidator().validate(scaling_file(f"{name}.json"), shape)
    assert not report.has_errors(), report.generate_report()


def test_the_policy_of_ecs_is_for_the_registered_target() -> None:
    target, policy = scaling_file("ecs-target.json"), scaling_file("ecs-policy.json")
    for name in ("ServiceNamespace", "ResourceId", "ScalableDimension"):
        assert target[name] == policy[name]
    configuration = policy["TargetTrackingScalingPolicyConfiguration"]
    assert configuration["ScaleInCooldown"] >= SHORTEST_SCALE_IN_SECONDS


def test_the_expressions_of_ecs_use_its_metrics_and_return_one() -> None:
    queries = ecs_queries()
    ids = [each["Id"] for each in queries]
    assert len(set(ids)) == len(ids)
    used = set()
    for each in queries:
        words = re.findall(r"[a-z]\w*", each.get("Expression", ""))
        assert set(words) <= set(ids)
        used.update(words)
    (returned,) = [each["Id"] for each in queries if each["ReturnData"]]
    assert used | {returned} == set(ids)


def test_ecs_uses_each_goal_of_the_exported_metric() -> None:
    assert {each["MetricName"] for each in ecs_metrics()} == {METRIC}
    found = ecs_dimensions()
    assert all(each.keys() == LABELS for each in found)
    assert {each["goal"] for each in found} == set(GOALS)


def test_the_collector_scrapes_the_exporter_and_sends_what_the_policy_reads() -> None:
    collector = scaling_file("ecs-collector.yaml")
    (scrape,) = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": [LISTEN]}]
    (kept,) = scrape["metric_relabel_configs"]
    assert kept == {"source_labels": ["__name__"], "regex": METRIC, "action": "keep"}
    emf = collector["exporters"]["awsemf"]
    assert emf["namespace"] == "kinesumer"
    (declared,) = emf["metric_declarations"]
    assert [set(each) for each in declared["dimensions"]] == [LABELS]
    (selector,) = declared["metric_name_selectors"]
    assert [name for name in GAUGES if re.search(selector, PREFIX + name)] == [
        "clients_wanted"
    ]
    pipeline = collector["service"]["pipelines"]["metrics"]
    assert pipeline == {"receivers": ["prometheus"], "exporters": ["awsemf"]}


def exporter_commands() -> list[list[str]]:
    pod = scaling_file("exporter.yaml")["spec"]["template"]["spec"]
    task = scaling_file("ecs-exporter-task.json")
    containers = [*pod["containers"], *task["containerDefinitions"]]
    return [
        [*each["command"], *each.get("args", ())]
        for each in containers
        if each["name"] == "exporter"
    ]


@pytest.mark.parametrize("command", exporter_commands(), ids=["kubernetes", "ecs"])
def test_the_exporters_command_is_valid(command: list[str]) -> None:
    assert command[:2] == ["kinesumer", "metrics"]
    parent = cli.make_context("kinesumer", ["metrics"])
    context = metrics.make_context("metrics", command[2:], parent)
    assert context.params["apps"] == ("billing",)
    options = {"address": LISTEN, "target_utilization": 0.7, "catch_up_seconds": 600.0}
    assert {
        name: str(context.params[name]).replace("0.0.0.0", "127.0.0.1")
        for name in options
    } == {name: str(value) for name, value in options.items()}
