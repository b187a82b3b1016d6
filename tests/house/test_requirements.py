from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import OPEN, PROMISES

TESTS = Path(__file__).parent.parent


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "covers":
            yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))  # type: ignore[misc]


def _covered() -> set[str]:
    files = TESTS.rglob("test_*.py")
    return {name for file in files for name in _named(ast.parse(file.read_text(encoding="utf-8")))}


def test_every_promise_outside_open_has_a_test() -> None:
    assert {promise.id for promise in PROMISES} - OPEN - _covered() == set()


def test_no_promise_with_a_test_stands_open() -> None:
    assert OPEN & _covered() == set()


def test_tests_name_only_promises_that_were_made() -> None:
    assert _covered() - {promise.id for promise in PROMISES} == set()
    assert OPEN - {promise.id for promise in PROMISES} == set()


def test_no_promise_is_listed_twice() -> None:
    ids = [promise.id for promise in PROMISES]

    assert len(ids) == len(set(ids)) == 218
