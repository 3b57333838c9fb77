"""Test that each mutant finds its node in the code, and that survivors are detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.mutants import survey
from tests.system.mutants.catalogue import (
    FILES,
    MUTANTS,
    ROOT,
    Mutant,
    mutate,
    read_mutants,
)
from tests.system.mutants.operators import Edit
from tests.system.mutants.runner import Effort, judge

HARDLY_ANY = Effort(seeds=1, minutes=0.1)
READER = "class Reader:\n\n    def read(self):\n        "


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_changes_one_node_and_is_a_program(name: str) -> None:
    for code in mutate(MUTANTS[name].edits, ROOT / "kinesumer").values():
        compile(code, name, "exec")


def test_each_mutant_names_tests_that_exist() -> None:
    for test in {test for made in MUTANTS.values() for test in made.tests}:
        path, _, function = test.partition("::")
        file = ROOT / path
        assert file.exists(), test
        assert not function or f"def {function}(" in file.read_text(), test


def test_no_two_mutants_have_the_same_name() -> None:
    assert len(MUTANTS) == sum(len([*read_mutants(f.read_text())]) for f in FILES)


def test_a_mutant_without_tests_has_those_of_its_module() -> None:
    first, second = read_mutants(
        'simulated = false\n[tests]\npage = ["unit/test_page.py"]\n'
        '[one]\nrule = "1"\nwhere = "page:read"\ndrop = "a()"\n'
        '[two]\nrule = "2"\nwhere = "page:read"\nsimulated = true\ntests = []\n'
        'edits = [{ replace = ["a", "b"] }, { never = "c", where = "book:find" }]\n'
    )
    tests = ("tests/unit/test_page.py",)
    assert first == ("one", "1", (Edit("drop", "page:read", "a()"),), tests, False)
    edits = Edit("replace", "page:read", "a", "b"), Edit("never", "book:find", "c")
    assert second == ("two", "2", edits, (), True)


WHERE = "page:Reader.read"


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (Edit("drop", WHERE, "a()"), "a()\nb()", "b()"),
        (Edit("drop", WHERE, "a(...)"), "a(1, x=2)", "pass"),
        (Edit("drop", WHERE, "if x: ..."), "if x:\n    a()\nelse:\n    b()", "b()"),
        (Edit("drop", WHERE, "x"), "return x and y", "return y"),
        (Edit("drop", WHERE, "x"), "a((x, y))", "a((y,))"),
        (Edit("drop", WHERE, "p.ok"), "[p for p in x if p.ok]", "[p for p in x]"),
        (Edit("replace", WHERE, "x + ...", "0"), "y = x + 1", "y = 0"),
        (Edit("replace", WHERE, "x", "f(...)"), "x = x", "x = f(x)"),
        (Edit("replace", WHERE, "a(); ...", "c()"), "a()\nb()", "c()"),
        (Edit("replace", WHERE, "b()", "a(); ..."), "b()", "a()\nb()"),
        (Edit("always", WHERE, "x"), "if x:\n    a(x)", "if True:\n    a(x)"),
        (Edit("never", WHERE, "x > ..."), "while x > 1: a()", "while False:\n    a()"),
        (Edit("move", WHERE, "b()", "a()"), "a()\nb()", "b()\na()"),
    ],
)
def test_an_edit_changes_the_node_that_its_pattern_names(
    edit: Edit, old: str, new: str, tmp_path: Path
) -> None:
    assert edited([edit], old, tmp_path) == READER + new.replace("\n", "\n        ")


def test_edits_are_applied_one_after_the_other(tmp_path: Path) -> None:
    edits = [Edit("drop", WHERE, "a()"), Edit("replace", WHERE, "b()", "c()")]
    assert edited(edits, "a()\nb()", tmp_path) == f"{READER}c()"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("drop", WHERE, "b()"), r"Reader.read: 0 nodes match 'b\(\)', not 1"),
        (Edit("drop", WHERE, "a(...)"), r"Reader.read: 2 nodes match 'a\(\.{3}\)'"),
        (Edit("always", WHERE, "x"), "0 nodes match 'x', not 1"),
        (Edit("replace", WHERE, "a(x)", "a( x )"), r"'a\(x\)' is replaced by itself"),
        (Edit("replace", WHERE, "a(1", "b"), r"'a\(1' is not Python"),
        (Edit("drop", WHERE, "x + 1"), r"'x \+ 1' can't be dropped"),
        (Edit("drop", "page:Reader.find", "x"), "find: kinesumer has no such function"),
        (Edit("drop", "book:Reader", "x"), "book:Reader: there is no file book.py"),
    ],
)
def test_an_edit_that_does_not_apply_is_an_error(
    edit: Edit, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        edited([edit], "a(1)\na(x)\ny = x + 1", tmp_path)


def edited(edits: list[Edit], body: str, directory: Path) -> str:
    """Return the edited code of a class ``Reader`` whose method has this body."""
    code = READER + body.replace("\n", "\n        ")
    (directory / "page.py").write_text(code)
    return mutate(edits, directory)["page.py"]


def test_a_broken_rule_is_noticed_by_the_simulator() -> None:
    verdict = judge(MUTANTS["a failed record is passed over"], Effort(seeds=2))
    assert verdict.killed_by == "I2"


def test_a_broken_rule_is_noticed_by_a_test_where_no_seed_does() -> None:
    made = MUTANTS["a lease shorter than three heartbeats is taken"]
    assert judge(made, HARDLY_ANY).killed_by.startswith(f"{made.tests[0]}::test_")


def test_a_change_that_breaks_nothing_lives() -> None:
    harmless = Edit("replace", "config:", "MAX_CONNECTIONS = ...", "pass; ...")
    made = Mutant("harmless", "", (harmless,), ("tests/unit/test_errors.py",))
    assert not judge(made, HARDLY_ANY).killed_by


def test_every_module_of_core_and_wire_is_surveyed() -> None:
    assert survey.TESTS.keys() <= {*survey.MODULES}
    for path in {path for name in survey.MODULES for path in survey.tests_of(name)}:
        assert (ROOT / path).is_file()
