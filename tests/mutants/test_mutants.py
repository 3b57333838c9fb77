"""Each mutant has its place in the code; the harness tells life from death."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.killing import Effort, judge
from tests.mutants.mutant import ROOT, Mutant, Patch
from tests.mutants.survey import TESTS

QUICK = Effort(seeds=3)


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutants_place_is_found_once_and_the_result_is_a_program(
    name: str,
) -> None:
    for patch in MUTANTS[name].patches:
        text = (ROOT / "kinesumer" / patch.path).read_text()
        ast.parse(patch.applied(text))


def test_a_broken_rule_is_noticed_by_the_simulator() -> None:
    verdict = judge(MUTANTS["a failed record is passed over"], QUICK)
    assert (verdict.killed_by, verdict.seeds) == ("I2", 1)


def test_a_broken_rule_is_noticed_by_a_test_where_no_seed_does() -> None:
    made = MUTANTS["a lease shorter than three heartbeats is taken"]
    assert judge(made, QUICK).killed_by.startswith("tests/test_config.py::test_")


def test_a_change_that_breaks_nothing_lives() -> None:
    harmless = Patch("config.py", "One frozen configuration", "A frozen configuration")
    made = Mutant("harmless", "", (harmless,), ("tests/test_errors.py",))
    assert not judge(made, Effort(seeds=1, minutes=0.2)).killed_by


def test_a_place_that_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"config\.py has 0 places like 'gone', not 1"):
        Patch("config.py", "gone", "").applied("nothing")


def test_every_module_of_core_and_wire_is_surveyed() -> None:
    found = [*ROOT.glob("kinesumer/core/*.py"), *ROOT.glob("kinesumer/wire/*.py")]
    modules = {f"{path.parent.name}/{path.stem}" for path in found}
    assert modules - {"core/__init__", "wire/__init__"} == set(TESTS)
    for name in {name for names in TESTS.values() for name in names}:
        assert (ROOT / f"tests/{name}.py").is_file()
