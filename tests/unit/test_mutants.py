"""The table of guards fits the code as it is: what it would take out is there, and its tests are too."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.guards import GUARDS, Edit, Guard, NotFoundError

ROOT = Path(__file__).parents[2]

OF_THE_PROTOCOL = {
    *("epoch check", "read-back wait", "adoption by report", "repair", "kept debts"),
    *("repair under the lock", "delivery lock", "fresh view", "OWNER again"),
    *("acknowledgement per assignment", "stale triggers' follow-up", "dead-letter fence"),
    *("redrive's letter id", "contiguous commit", "read_committed"),
}


def by_name(guard: Guard) -> str:
    return guard.name


def test_every_guard_that_the_issue_names_has_its_mutant():
    """Issue 4: removing any single one makes at least one named test fail."""
    assert OF_THE_PROTOCOL <= {guard.name for guard in GUARDS}
    assert len(GUARDS) == len({guard.name for guard in GUARDS})


@pytest.mark.parametrize("guard", GUARDS, ids=by_name)
def test_a_guard_can_be_taken_out_of_the_code_as_it_is(guard: Guard):
    """A pattern that fits nothing any more would prove nothing: who changes a guard changes its entry."""
    for edit in guard.edits:
        file, without = edit.place(ROOT)

        assert file.read_text() != without
        ast.parse(without)


@pytest.mark.parametrize("guard", GUARDS, ids=by_name)
def test_who_must_miss_a_guard_exists(guard: Guard):
    """pytest would say so too, after minutes, and only where somebody runs all mutants."""
    assert guard.tests
    for test in guard.tests:
        file, _, rest = test.partition("::")
        name, _, case = rest.partition("[")
        text = (ROOT / file).read_text()

        assert re.search(rf"^(async )?def {name or 'test_'}", text, re.MULTILINE)
        assert f'id="{case.removesuffix("]")}"' in text or not case


@pytest.mark.parametrize(
    ("text", "times"),
    [("", 0), ("def other():\n    x = 1\n", 0), ("def it():\n    x = 1\n    x = 1\n", 2)],
    ids=["gone", "elsewhere", "twice"],
)
def test_a_text_that_is_not_there_once_is_an_error(tmp_path: Path, text: str, times: int):
    """Taking out the wrong thing, or nothing, must not pass for a guard that is missed."""
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "a.py").write_text(text)

    with pytest.raises(NotFoundError, match=f"stands {times} times"):
        Edit("it", "x = 1", "x = 2").place(tmp_path)


def test_a_guard_is_found_in_whatever_file_its_function_lies(tmp_path: Path):
    """The engine is split and moved; what a function is called is what a guard is known by."""
    folder = tmp_path / "streams" / "deep"
    folder.mkdir(parents=True)
    (folder / "b.py").write_text("class A:\n    def it(self):\n        x = 1\n\n\nx = 1\n")

    file, without = Edit("A.it", "x = 1", "x = 2").place(tmp_path)

    assert folder / "b.py" == file
    assert "class A:\n    def it(self):\n        x = 2\n\n\nx = 1\n" == without
