"""Each mutant finds its node in the code; the runner tells life from death."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.mutants import catalogue, survey
from tests.system.mutants.catalogue import MUTANTS
from tests.system.mutants.mutant import ROOT, Module, Mutant, mutate
from tests.system.mutants.operators import always, drop, move, never, replace
from tests.system.mutants.runner import Effort, judge

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.mutants.operators import Edits

QUICK = Effort(seeds=3)
READER = "class Reader:\n\n    def read(self):\n        "


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_changes_one_node_and_is_a_program(name: str) -> None:
    for code in mutate(MUTANTS[name].edits, ROOT / "kinesumer").values():
        compile(code, name, "exec")


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_names_tests_that_exist(name: str) -> None:
    for path, _, function in (test.partition("::") for test in MUTANTS[name].tests):
        code = (ROOT / path).read_text()
        assert not function or f"def {function}(" in code, f"{path}::{function}"


def test_no_two_mutants_have_the_same_name() -> None:
    assert len(MUTANTS) == sum(len(module.MUTANTS) for module in catalogue.LISTS)


@pytest.mark.parametrize(
    ("edits", "old", "new"),
    [
        (drop("a()"), "a()\nb()", "b()"),
        (drop("a(...)"), "a(1, x=2)", "pass"),
        (drop("if x: ..."), "if x:\n    a()\nelse:\n    b()", "b()"),
        (drop("x"), "return x and y", "return y"),
        (drop("x"), "a((x, y))", "a((y,))"),
        (drop("p.ok"), "a = [p for p in x if p.ok]", "a = [p for p in x]"),
        (replace("x + ...", "0"), "y = x + 1", "y = 0"),
        (replace("x", "f(...)"), "x = x", "x = f(x)"),
        (replace("a(); ...", "c()"), "a()\nb()", "c()"),
        (replace("b()", "a(); ..."), "b()", "a()\nb()"),
        (always("x"), "if x:\n    a(x)", "if True:\n    a(x)"),
        (never("x > ..."), "while x > 1:\n    a()", "while False:\n    a()"),
        (move("b()", before="a()"), "a()\nb()", "b()\na()"),
        (drop("a()") + drop("c()"), "a()\nb()\nc()", "b()"),
    ],
)
def test_an_edit_changes_the_node_that_its_pattern_names(
    edits: Edits, old: str, new: str, tmp_path: Path
) -> None:
    assert edited(edits, old, tmp_path) == READER + new.replace("\n", "\n        ")


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (drop("b()"), r"page:Reader.read: 0 nodes match 'b\(\)', not 1"),
        (drop("a(...)"), r"page:Reader.read: 2 nodes match 'a\(\.\.\.\)', not 1"),
        (always("x"), "0 nodes match 'x', not 1"),
        (replace("a(x)", "a( x )"), r"'a\(x\)' is replaced by itself"),
        (replace("a(1", "b"), r"'a\(1' is not Python"),
        (drop("x + 1"), r"'x \+ 1' can't be dropped"),
        (drop("x", "page:Reader.find"), "page:Reader.find: kinesumer has no such"),
        (drop("x", "book:Reader"), "book:Reader: there is no file book.py"),
    ],
)
def test_an_edit_that_does_not_apply_is_an_error(
    edits: Edits, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        edited(edits, "a(1)\na(x)\ny = x + 1", tmp_path)


def edited(edits: Edits, body: str, directory: Path) -> str:
    """Return the code of ``Reader`` whose method has this body, after the edits."""
    code = READER + body.replace("\n", "\n        ")
    (directory / "page.py").write_text(code)
    made = Module("page")("name", "rule", "Reader.read", edits)
    return mutate(made.edits, directory)["page.py"]


def test_a_broken_rule_is_noticed_by_the_simulator() -> None:
    verdict = judge(MUTANTS["a failed record is passed over"], QUICK)
    assert (verdict.killed_by, verdict.seeds) == ("I2", 1)


def test_a_broken_rule_is_noticed_by_a_test_where_no_seed_does() -> None:
    made = MUTANTS["a lease shorter than three heartbeats is taken"]
    assert judge(made, QUICK).killed_by.startswith(f"{made.tests[0]}::test_")


def test_a_change_that_breaks_nothing_lives() -> None:
    harmless = replace("MAX_CONNECTIONS = ...", "pass; ...", "config")
    made = Mutant("harmless", "", harmless, ("tests/unit/test_errors.py",))
    assert not judge(made, Effort(seeds=1, minutes=0.2)).killed_by


def test_every_module_of_core_and_wire_is_surveyed() -> None:
    assert survey.TESTS.keys() <= {*survey.MODULES}
    for path in {path for name in survey.MODULES for path in survey.tests_of(name)}:
        assert (ROOT / path).is_file()
