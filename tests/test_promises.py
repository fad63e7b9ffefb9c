"""Every promise names tests that exist, are not skipped, and are seen to fail when the promise is broken."""

import ast
import itertools
import re
from pathlib import Path

import pytest
from tools.promises.breaks import BREAKS
from tools.promises.trial import PACKAGE, break_text, copy_project, is_noticed, run_tests

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def find_tests(path):
    """The tests of a file, each with whether something keeps it from running."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def rows():
    page = (ROOT / "docs/explanation/promises.md").read_text("utf-8")
    return dict(re.findall(r"^\| (R\d+) \| (.*)$", page, re.MULTILINE))


def test_every_promise_from_1_to_18_names_a_test_that_runs():
    promises = rows()

    assert list(promises) == [f"R{number}" for number in range(1, 19)]
    for promise, row in promises.items():
        named = NAMED.findall(row)
        assert named, promise
        for path, name in named:
            tests = find_tests(path)
            assert name in tests, f"{promise} names {path}::{name}, which is not there"
            marks = [ast.unparse(mark) for mark in tests[name].decorator_list]
            assert not any("skip" in mark or "xfail" in mark for mark in marks), (
                f"{promise}: {name} is skipped"
            )


def quick(row):
    """The tests of a row that `make test` runs."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(row)
        if not any("soak" in ast.unparse(mark) for mark in find_tests(path)[name].decorator_list)
    ]


def test_every_promise_is_shown_without_a_soak():
    for promise, row in rows().items():
        assert quick(row), promise


def test_there_is_a_way_to_break_what_every_named_test_shows():
    named = {(promise, test) for promise, row in rows().items() for test in quick(row)}

    assert {(broken.promise, broken.test) for broken in BREAKS} == named


def test_every_promise_is_broken_in_at_least_three_places():
    for promise in rows():
        places = []
        for broken in (candidate for candidate in BREAKS if candidate.promise == promise):
            start = (ROOT / PACKAGE / broken.file).read_text("utf-8").index(broken.old)
            places.append((broken.file, start, start + len(broken.old)))
        ordered = sorted(places)
        overlap = [
            pair
            for pair in itertools.pairwise(ordered)
            if pair[0][0] == pair[1][0] and pair[0][2] > pair[1][1]
        ]

        assert len(places) >= 3, promise
        assert overlap == [], promise


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: f"{broken.promise} {broken.file}")
def test_a_break_still_fits_the_source(broken):
    """The text stands there once, and what is put in its place is Python too."""
    after = break_text((ROOT / PACKAGE / broken.file).read_text("utf-8"), broken)

    ast.parse(after)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """See every named test pass once, with nothing broken."""
    tests = sorted({broken.test for broken in BREAKS})
    assert run_tests(copy_project(tmp_path_factory.mktemp("sound")), tests) == 0, (
        "with nothing broken a test fails already"
    )


@pytest.mark.soak
@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    "broken",
    BREAKS,
    ids=lambda broken: f"{broken.promise} {broken.file} {broken.test.rpartition('::')[2]}",
)
def test_a_broken_promise_is_noticed(tmp_path, broken):
    assert is_noticed(broken, tmp_path), f"{broken.test} passes although the promise is broken"
