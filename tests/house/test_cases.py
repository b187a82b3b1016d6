from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import CASES, OPEN
from tests.proof.fooled.attacks import ATTACKS

TESTS = Path(__file__).parent.parent
NAMED = re.compile(r"\b(?:(?:DLV|QUE|SEC|VOX|INJ|EXE|SBX|NET)-\d+|R-(?:[1-4]?\d|5[0-7]))\b")


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from NAMED.findall(ast.get_docstring(node) or "")


def _tested() -> set[str]:
    files = TESTS.rglob("test_*.py")
    told = {case for file in files for case in _named(ast.parse(file.read_text(encoding="utf-8")))}
    return told | {case for attack in ATTACKS for case in attack.cases}


def test_every_case_outside_open_has_a_test() -> None:
    assert set(CASES) - set(OPEN) - _tested() == set()


def test_no_case_with_a_test_stands_open() -> None:
    assert set(OPEN) & _tested() == set()


def test_tests_name_only_cases_that_are_known() -> None:
    assert _tested() - set(CASES) == set()
    assert set(OPEN) - set(CASES) == set()
