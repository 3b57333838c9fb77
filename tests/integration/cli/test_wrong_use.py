"""Wrong use of the command is refused with status 2."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.cli import options
from tests.integration.cli.conftest import error_text

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Run


def test_the_help_lists_every_command(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in ("init", "consume", "status", "local", "demo"):
        assert f"\n  {name} " in result.output
        assert run(name, "--help").exit_code == 0


def test_an_unknown_command_is_named(run: Run) -> None:
    result = run("cosume")
    assert result.exit_code == 2
    assert "No such command 'cosume'" in result.stderr


def test_the_app_is_required(run: Run) -> None:
    result = run("consume", "orders")
    assert result.exit_code == 2
    assert "Missing option '--app' (env var: 'KINESUMER_APP')" in result.stderr


def test_app_and_table_may_come_from_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINESUMER_APP", "a#b")
    assert "app='a#b' contains '#'" in error_text(run("consume", "orders"))
    monkeypatch.setenv("KINESUMER_APP", "a")
    monkeypatch.setenv("KINESUMER_TABLE", "t#b")
    assert "table='t#b' contains '#'" in error_text(run("consume", "orders"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["consume", "--app=a"], "no stream to consume: name at least one"),
        (["consume", "s", "--app=a#b"], "app='a#b' contains '#'"),
        (["consume", "s", "--app="], "app='' is empty"),
        (["consume", "s", "--app=a", "--client-id=\n"], "is empty"),
        (["consume", "s", "--app=a", "--external-id=x"], "give --role too"),
        (["consume", "s", "--app=a", "--start=soon"], "a time like 2026"),
        (
            ["consume", "s", "--app=a", "--start=2026-01-31T12:00:00"],
            "has no time zone: add Z for UTC",
        ),
        (["consume", "arn:aws:s3:::b", "--app=a"], "isn't the ARN of a stream"),
        (["consume", "", "--app=a"], "must be a stream"),
    ],
)
def test_wrong_use(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    result = run(*arguments)
    assert result.exit_code == 2, result.stderr
    assert problem in error_text(result)


def test_the_traceback_is_shown_only_for_debugging(run: Run) -> None:
    arguments = ["consume", "s", "--app=a#b"]
    assert "Traceback" not in run(*arguments).stderr
    result = run("--debug", *arguments)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "ConfigurationError: app='a#b'" in result.stderr


def test_an_unexpected_error_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("kinesumer.cli.consume._streams", broken)
    result = run("consume", "s", "--app=a")
    assert result.exit_code == 1
    assert error_text(result).startswith(
        "error: unexpected RuntimeError: two lines; run"
    )


def test_telemetry_without_its_extra_names_the_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "opentelemetry.sdk")
    result = run("consume", "s", "--app=a", "--metrics-console")
    assert result.exit_code == 2
    assert "pip install 'kinesumer[otel]'" in error_text(result)


@pytest.mark.parametrize("command", ["local", "demo"])
def test_the_embedded_aws_without_its_extra_names_the_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for module in ("kinesumer.local.server", "kinesumer.demo.command"):
        monkeypatch.setattr(f"{module}.find_spec", lambda _: None)
    result = run(command)
    assert result.exit_code == 2
    assert "pip install 'kinesumer[local]'" in error_text(result)


@pytest.mark.parametrize(
    "arguments", [["--seconds=5"], ["--clients=0"], ["--shards=0"], ["--rate=0"]]
)
def test_impossible_demo_options_are_wrong_use(run: Run, arguments: list[str]) -> None:
    assert run("demo", *arguments).exit_code == 2


def test_the_default_table_is_that_of_the_schema() -> None:
    from kinesumer.wire.table_definition import STATE_STORE

    assert options.DEFAULT_TABLE == STATE_STORE


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make imports of a package fail."""
    real = builtins.__import__

    def missing(module: str, *arguments: Any, **named: Any) -> Any:
        if module.startswith(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(module, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
