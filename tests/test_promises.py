"""Every promise names tests that exist, are not skipped, and are seen to fail when the promise is broken."""

import ast
import itertools
import re
from pathlib import Path

import pytest
from tools.promises.breaks import BREAKS
from tools.promises.trial import PACKAGE, break_text, copied, noticed, tried

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
            assert not any("skip" in mark or "xfail" in mark for mark in marks), (
                f"{promise}: {name} is skipped"
            )


def quick(row):
    """The tests of a row that `make test` runs."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(row)
        if not any("soak" in ast.unparse(mark) for mark in named_tests(path)[name].decorator_list)
    ]


def test_every_promise_is_shown_without_a_soak():
    for promise, row in rows().items():
        assert quick(row), promise


def test_there_is_a_way_to_break_what_every_named_test_shows():
    named = {(promise, test) for promise, row in rows().items() for test in quick(row)}

    assert {(each.promise, each.test) for each in BREAKS} == named


def test_every_promise_is_broken_in_at_least_three_places():
    for promise in rows():
        places = []
        for each in (each for each in BREAKS if each.promise == promise):
            start = (ROOT / PACKAGE / each.file).read_text("utf-8").index(each.old)
            places.append((each.file, start, start + len(each.old)))
        ordered = sorted(places)
        overlap = [
            pair
            for pair in itertools.pairwise(ordered)
            if pair[0][0] == pair[1][0] and pair[0][2] > pair[1][1]
        ]

        assert len(places) >= 3, promise
        assert overlap == [], promise


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: f"{each.promise} {each.file}")
def test_a_break_still_fits_the_source(each):
    """The text stands there once, and what is put in its place is Python too."""
    after = break_text((ROOT / PACKAGE / each.file).read_text("utf-8"), each)

    ast.parse(after)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """See every named test pass once, with nothing broken."""
    tests = sorted({each.test for each in BREAKS})
    assert tried(copied(tmp_path_factory.mktemp("sound")), tests) == 0, (
        "with nothing broken a test fails already"
    )


@pytest.mark.soak
@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    "each", BREAKS, ids=lambda each: f"{each.promise} {each.file} {each.test.rpartition('::')[2]}"
)
def test_a_broken_promise_is_noticed(tmp_path, each):
    assert noticed(each, tmp_path), f"{each.test} passes although the promise is broken"
