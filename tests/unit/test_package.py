"""Test the package's names, the modules that it loads, and the names of their tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kinesumer
from kinesumer.testing import EmbeddedAws

TESTS = Path(__file__).parents[1]
SUPPORT = Path("tests", "support")
# What takes 0.3 s of CPU time to import.
LIBRARIES = ("aiobotocore", "aiohttp", "botocore.session", "httpx", "urllib3")


def run(program: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=env
    ).stdout


def test_slow_modules_are_loaded_when_they_are_used() -> None:
    modules = "opentelemetry botocore aiobotocore aiohttp moto".split()
    subpackages = tuple("aws_lambda blocking dead_letters kpl schemas testing".split())
    modules += [f"kinesumer.{name}" for name in subpackages]
    program = (
        "import sys, kinesumer;"
        f"assert sys.modules.keys().isdisjoint({modules}), sorted(sys.modules);"
        f"print(*(getattr(kinesumer, name).__name__ for name in {subpackages}))"
    )
    assert run(program).split() == modules[-6:]


def test_the_clients_load_what_they_start_when_they_start_it() -> None:
    modules = ["aiohappyeyeballs", "botocore", "importlib.metadata", "opentelemetry"]
    modules += [f"kinesumer.{name}" for name in ("aws", "coordination.group")]
    modules += ["kinesumer.handlers.runner", "kinesumer.telemetry.otel"]
    program = (
        "import sys; from kinesumer import Handler, Kinesumer, Producer, blocking;"
        "blocking.Kinesumer;"
        f"print(*({set(modules)} & sys.modules.keys()))"
    )
    assert run(program).split() == []


def test_the_pytest_plugin_loads_nothing_that_pytest_has_not_loaded() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules);"
        "import kinesumer.testing.plugin; print(*sorted(set(sys.modules) - before))"
    )
    assert run(program).split() == [
        "kinesumer",
        "kinesumer.testing",
        "kinesumer.testing.plugin",
    ]


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kinesumer.nothing  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kinesumer.testing.nothing  # type: ignore[attr-defined]


def test_all_public_names_are_there_when_they_are_named() -> None:
    assert set(kinesumer.__all__) <= set(dir(kinesumer))
    for name in kinesumer.__all__:
        assert getattr(kinesumer, name).__name__ == name


@pytest.mark.parametrize(
    "package", ["core", "wire", "consuming", "coordination", "spark"]
)
def test_each_module_has_tests_of_its_name(package: str) -> None:
    """``test_NAME.py`` has the tests of the module NAME, also with ``_WORDS`` added."""
    found = (Path(kinesumer.__file__).parent / package).rglob("[!_]*.py")
    modules = {path.stem for path in found}
    tests = {path.stem[5:] for path in (Path(__file__).parent / package).glob("test_*")}
    assert modules - tests == set()
    assert [name for name in tests if not _is_of(name, modules)] == []


def _is_of(test: str, modules: set[str]) -> bool:
    return any(f"{test}_".startswith(f"{module}_") for module in modules)


def test_what_spark_starts_for_planning_imports_little() -> None:
    """Spark starts several processes for a query; only one of them plans batches."""
    pytest.importorskip("pyspark")
    program = (
        "import sys, kinesumer.spark.source, kinesumer.spark.readers;"
        "print(*sorted({'aiobotocore', 'aiohttp', 'botocore', 'kinesumer.client',"
        " 'kinesumer.coordination.group', 'kinesumer.spark.planning.driver'}"
        " & set(sys.modules)))"
    )
    assert run(program) == "\n"


PLANS_AND_READS = f"""
import pickle, sys
from pathlib import Path
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_kinesumer import DefaultSource
options = {{"streams": "orders", "startingPosition": "TRIM_HORIZON"}}
source = DefaultSource(options)
reader = source.streamReader(StructType([StructField("data", BinaryType())]))
path = Path(sys.argv[1])
if path.exists():
    [task] = pickle.loads(path.read_bytes())
    assert sum(batch.num_rows for batch in reader.read(task)) == 1
else:
    end = reader.latestOffset({{}}, reader.getDefaultReadLimit())
    path.write_bytes(pickle.dumps(reader.partitions({{}}, end)))
print(*sorted(set({LIBRARIES}) & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_query_with_keys_in_the_environment_never_loads_the_aws_client(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    """The process that plans batches, and each task, would need 0.3 s more."""
    pytest.importorskip("pyspark")
    kinesumer_aws.create_stream("orders", 1)
    kinesumer_aws.put("orders", b"x", "key")
    hidden = ("AWS_", "PROXY")
    usual = {
        name: value
        for name, value in os.environ.items()
        if not any(part in name.upper() for part in hidden)
    }
    env = usual | kinesumer_aws.environment() | {"HOME": str(tmp_path)}
    for _ in ("plan", "task"):
        assert run(PLANS_AND_READS, str(tmp_path / "tasks"), env=env) == "\n"


def is_module(root: Path, name: str) -> bool:
    return (root / Path(*name.split("."))).with_suffix(".py").exists()


def is_shared_as_it_should_be(importer: Path, imported: str) -> bool:
    """Return whether a test module may import another one.

    The programs of tests/system use parts of each other.
    """
    folder = Path(*imported.split(".")).parent
    is_program = "system" in folder.parts and "system" in importer.parts
    return folder in (SUPPORT, importer.parent) or is_program


def test_only_what_is_in_support_is_shared_between_folders() -> None:
    root = TESTS.parent
    found = [
        f"{path.relative_to(root)} imports {node.module}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        for name in [f"{node.module}.{node.names[0].name}"]
        for module in [name if is_module(root, name) else str(node.module)]
        if not is_shared_as_it_should_be(path.relative_to(root), module)
    ]
    assert found == []
