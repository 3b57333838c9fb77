"""Test how an application is found by its name, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinesumer import App, ConfigurationError, Kinesumer, blocking
from kinesumer.kclpy import ProcessorApp
from kinesumer.ops.supervisor.target import (
    ClientOptions,
    load_processor,
    load_target,
)

MODULE = """
from kinesumer import App, Record

class parts:
    app = App("inner")

app = App("billing", table="states", region="eu-west-1")
number = 5

async def main(client): ...
def plain(client): ...
async def two(client, other): ...
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a working directory whose modules can be imported; forget them later."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    (tmp_path / "shop_app.py").write_text(MODULE)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(("name", "app"), [("app", "billing"), ("parts.app", "inner")])
def test_an_app_is_found_in_a_module_of_the_working_directory(
    here: Path, name: str, app: str
) -> None:
    target = load_target(f"shop_app:{name}")
    assert isinstance(target.found, App)
    assert target.client(ClientOptions()).app == app


def test_options_take_precedence_over_those_of_the_app(here: Path) -> None:
    options = ClientOptions("audit", "other", "us-west-2", "one")
    client = load_target("shop_app:app").client(options)
    assert isinstance(client, Kinesumer)
    assert (client.app, client.table, client.client_id) == ("audit", "other", "one")


def test_a_function_gets_the_client_of_its_kind(here: Path) -> None:
    options = ClientOptions("billing", client_id="one")
    client = load_target("shop_app:main").client(options)
    assert isinstance(client, Kinesumer)
    assert (client.app, client.client_id) == ("billing", "one")
    other = load_target("shop_app:plain").client(options)
    assert isinstance(other, blocking.Kinesumer)
    assert (other.app, other.client_id) == ("billing", "one")


def test_a_function_needs_the_name_of_the_group(here: Path) -> None:
    with pytest.raises(ConfigurationError, match="pass --app, or set KINESUMER_APP"):
        load_target("shop_app:main").client(ClientOptions())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop_app", "doesn't name an application: pass MODULE:ATTRIBUTE"),
        (":app", "pass MODULE:ATTRIBUTE"),
        ("shop_app:", "pass MODULE:ATTRIBUTE"),
        (
            "missing_app:app",
            "module missing_app isn.t in this.*start the command where",
        ),
        ("missing_app.inner:app", "module missing_app isn.t in this"),
        ("shop_app:ap", r"module shop_app has no attribute ap \(its apps: app\)"),
        ("shop_app:number", "shop_app:number has the type int: it must be a kinesumer"),
        ("shop_app:parts", "shop_app:parts has the type type"),
        ("shop_app:two", "missing a required argument: 'other'.*take one argument"),
        ("needs:app", "module needs can't be imported: No module named 'no_such_one'"),
        ("wrong:app", r"module wrong can't be imported:.*wrong\.py, line 1.*correct"),
    ],
)
def test_what_is_no_application_is_refused(here: Path, name: str, said: str) -> None:
    (here / "needs.py").write_text("import no_such_one")
    (here / "wrong.py").write_text("def (")
    with pytest.raises(ConfigurationError, match=said):
        load_target(name)


def test_an_error_of_the_modules_code_is_raised_as_it_is(here: Path) -> None:
    (here / "failing.py").write_text("raise OSError('no disk')")
    with pytest.raises(OSError, match="no disk"):
        load_target("failing:app")


# --- record processors of amazon_kclpy ------------------------------------------------

PROCESSOR = """
from amazon_kclpy import kcl

class Processor(kcl.RecordProcessorBase):
    def __init__(self, shop="shop"):
        self.shop = shop

def make():
    return Processor("other")

number = 5

if __name__ == "__main__":
    kcl.KCLProcess(Processor()).run()
"""


@pytest.fixture
def properties(here: Path) -> Path:
    """Write a module with a record processor, and the properties of its daemon."""
    (here / "shop_kcl.py").write_text(PROCESSOR)
    path = here / "shop.properties"
    path.write_text(
        "applicationName = billing\nstreamName = orders\nworkerId = w\n"
        "regionName = eu-west-1\n"
    )
    return path


@pytest.mark.parametrize("name", ["Processor", "make"])
def test_a_record_processor_is_found_without_its_package(
    properties: Path, name: str
) -> None:
    target = load_processor(f"shop_kcl:{name}", properties)
    assert isinstance(target.found, ProcessorApp)
    client = target.client(ClientOptions())
    assert isinstance(client, Kinesumer)
    assert (client.app, client.client_id) == ("billing", "w")
    assert client.config.commit == "manual"


def test_options_take_precedence_over_the_properties(properties: Path) -> None:
    options = ClientOptions("audit", "other", "us-west-2", "one")
    client = load_processor("shop_kcl:Processor", properties).client(options)
    assert (client.app, client.client_id) == ("audit", "one")


def test_the_group_needs_a_name_in_the_properties(properties: Path) -> None:
    properties.write_text("streamName = orders")
    target = load_processor("shop_kcl:Processor", properties)
    with pytest.raises(ConfigurationError, match="the property applicationName"):
        target.client(ClientOptions())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop_kcl:number", "5 can't be called: name the record processor's class"),
        ("shop_kcl:Nothing", "module shop_kcl has no attribute Nothing"),
    ],
)
def test_what_is_no_record_processor_is_refused(
    properties: Path, name: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_processor(name, properties)


def test_the_option_for_record_processors_is_named(properties: Path) -> None:
    with pytest.raises(ConfigurationError, match="pass --kclpy, which stands for"):
        load_target("shop_kcl:Processor")
