"""Every field case has its row in README.md, and every test that a row names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NUMBERS = {
    "A": "01 02 04 05 07 09 11 13",
    "B": "01 02 03 04 05 06 07 10 11 12 13 17 18 19 26",
    "C": "01 02 04 05 06 08 12 13 14",
    "D": "01 03 04 06 08 09 12 13 14",
    "E": "01 02 03 04 05 06 08 12",
    "F": "01 02 04 06 07 08 09 10 11 13 16 18",
    "G": "01 03 04 05 08 09 11 13 15 16 19 20",
    "H": "01 02 04 06 08 10 12 13 15",
    "I": "01 03 04 05 06 07 09 11 13 16 17",
    "J": "01 02 03 06 09",
}
CASES = [f"{part}{number}" for part, numbers in NUMBERS.items() for number in numbers.split()]
NOT_BUILT = {"not built yet: issue 7", "not built yet: broadcasts"}


def rows() -> list[tuple[str, list[str], str]]:
    """Case, tests and remark of each row."""
    lines = (TESTS / "field" / "README.md").read_text().splitlines()
    cells = [line.split("|")[1:-1] for line in lines if re.match(r"\| [A-J]\d\d \|", line)]
    return [
        (case.strip(), re.findall(r"`([^`]+)`", tests), remark.strip())
        for case, _, tests, remark in cells
    ]


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((TESTS / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


def test_there_are_98_cases_and_each_has_one_row():
    """Issue 5, "Field cases": none is passed over, none is listed twice."""
    assert len(CASES) == 98
    assert [case for case, _, _ in rows()] == CASES


def test_every_test_that_a_row_names_exists():
    """A test that was renamed or dropped must be missed here."""
    named = {test for _, tests, _ in rows() for test in tests}

    missing = [
        test for test in named if test.split("::")[1] not in functions_of(test.split("::")[0])
    ]

    assert [] == missing


@pytest.mark.parametrize(("case", "tests", "remark"), rows())
def test_a_case_is_proved_or_not_built_yet(case, tests, remark):
    """Only what is not there can have no test."""
    assert bool(tests) != (remark in NOT_BUILT)
