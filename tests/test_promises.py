"""Every promise names tests that exist and are not skipped."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def named_tests(path):
    """The tests of a file, each with whether something keeps it from running."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def rows():
    page = (ROOT / "docs/explanation/promises.md").read_text("utf-8")
    return dict(re.findall(r"^\| (R\d+) \| (.*)$", page, re.MULTILINE))


def test_every_promise_from_1_to_18_names_a_test_that_runs():
    told = rows()

    assert list(told) == [f"R{number}" for number in range(1, 19)]
    for promise, row in told.items():
        named = NAMED.findall(row)
        assert named, promise
        for path, name in named:
            found = named_tests(path)
            assert name in found, f"{promise} names {path}::{name}, which is not there"
            marks = [ast.unparse(mark) for mark in found[name].decorator_list]
            assert not any("skip" in mark or "xfail" in mark for mark in marks), f"{promise}: {name} is skipped"


def test_every_promise_is_shown_without_a_soak():
    for promise, row in rows().items():
        quick = [
            name
            for path, name in NAMED.findall(row)
            if not any("soak" in ast.unparse(mark) for mark in named_tests(path)[name].decorator_list)
        ]
        assert quick, promise
