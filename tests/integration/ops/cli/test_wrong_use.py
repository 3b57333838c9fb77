"""Test that wrong use is refused in one line that says what to give."""

from __future__ import annotations

import pytest

from kinesumer.ops.cli.main import with_options
from tests.support.cli import Run, error_text


def test_the_help_lists_every_command(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in ("init", "consume", "status", "local", "demo"):
        assert f"\n  {name} " in result.output
        assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("cosume", "No such command 'cosume'"),
        ("consume orders", "Missing option '--app' (env var: 'KINESUMER_APP')"),
        ("health --app=a", "Missing option '--client-id'"),
        ("demo --seconds=5", "Invalid value for '--seconds'"),
        ("demo --clients=0", "Invalid value for '--clients'"),
        ("demo --shards=0", "Invalid value for '--shards'"),
        ("demo --rate=0", "Invalid value for '--rate'"),
        ("consume --app=a", "no stream to consume: name at least one"),
        ("consume s --app=a#b", "--app='a#b' contains '#'"),
        ("consume s --app=a --client-id=\n", "--client-id='\\n' is empty"),
        ("consume s --app=a --label=\n", "--label='\\n' must be text"),
        ("consume s --app=a --region=\n", "--region='\\n' is empty"),
        ("consume s --app=a --role=arn:aws:iam::1:role/r --external-id=", "--external"),
        ("consume s --app=a --start=1969-12-31T00:00Z", "use TRIM_HORIZON to begin"),
        ("consume s --app=a --external-id=x", "give --role too"),
        ("consume s --app=a --role=t=arn:aws:iam::1:role/r", "'t' isn't named in this"),
        ("consume s --app=a --fan-out=t=b", "stream 't' isn't named in this"),
        ("consume s --app=a --fan-out=b --fan-out=c", "already has a consumer"),
        ("consume s --app=a --fan-out=s=", "--fan-out='' must be the name"),
        ("consume s --app=a --fan-out-fallback", "needs --fan-out: give both"),
        ("fan-out register s a/b", "'a/b' isn't the name of a stream consumer"),
        ("consume s --app=a --start=soon", "a time like 2026"),
        ("consume arn:aws:s3:::b --app=a", "isn't the ARN of a stream"),
        ("consume  --app=a", "a stream's name is empty: give a name, an ARN"),
        ("pause --app=b", "pass either --stream or --all"),
        ("pause --app=b --all --stream=s", "pass either --stream or --all"),
        ("resume --app=b --all --shard=s", "--shard needs --stream; remove --all"),
        ("seek --app=b --all --to=soon", "give LATEST, TRIM_HORIZON, a time"),
        ("seek --app=b --all --to=2026-01-31T12:00:00", "has no time zone"),
        ("seek --app=b --stream=s --to=495:1", "name its shard by --shard"),
        ("metrics --app=a --listen=9466", "--listen 9466 isn't an address; pass host"),
        ("metrics --app=a --listen=127.0.0.1:x", "isn't an address; pass host"),
        ("metrics --app=a --listen=127.0.0.1:65536", "isn't an address; pass host"),
        ("metrics --app=a --listen=:1", "isn't an address; pass host"),
        ("dashboard --app=a --dead-letters=file:x", "give --browse-records, too"),
        (
            "dashboard --app=a --dead-letters=x --browse-records",
            "isn't a dead-letter target",
        ),
        ("produce s --generate=fast", "--generate fast: give the records per second"),
        (
            "produce s --generate=1/s --rate=1",
            "--generate replaces FILE, --input and --rate",
        ),
        (
            "produce s --generate=1/s file",
            "--generate replaces FILE, --input and --rate",
        ),
        ("produce s --limit=3", "--limit needs --generate"),
        ("doctor s --probe=fan-out", "tries an app's consumers: give --app"),
        ("distribution", "pass either --app APP or --kcl TABLE"),
        ("distribution --app=a --by=colour", "give label, zone or prefix"),
    ],
)
def test_wrong_use(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: str, problem: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    result = run(*arguments.split(" "))
    assert result.exit_code == 2, result.stderr
    assert problem in result.stderr
    if "Usage:" not in result.stderr:
        error_text(result)


def test_app_and_table_may_come_from_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINESUMER_APP", "a#b")
    assert "--app='a#b' contains '#'" in error_text(run("consume", "orders"))
    monkeypatch.setenv("KINESUMER_APP", "a")
    monkeypatch.setenv("KINESUMER_TABLE", "t#b")
    assert "--table='t#b' contains '#'" in error_text(run("consume", "orders"))


def test_the_traceback_is_shown_only_for_debugging(run: Run) -> None:
    arguments = ["consume", "s", "--app=a#b"]
    assert "Traceback" not in run(*arguments).stderr
    result = run("--debug", *arguments)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "ConfigurationError: app='a#b'" in result.stderr


def test_only_arguments_become_options() -> None:
    options = {"app": "--app", "client_id": "--client-id", "streams": "--stream"}
    for text, expected in [
        ("app='a' and --app='a'", "--app='a' and --app='a'"),
        ("give client_id", "give --client-id"),
        ("an app of streams", "an app of streams"),
        ("table='t' of my_app", "table 't' of my_app"),
        ("--stream a=3: give app=5", "--stream a=3: give --app=5"),
    ]:
        assert with_options(text, options) == expected
