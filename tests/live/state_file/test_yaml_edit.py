import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.live.state_file.yaml_document import parse_chunks
from flightlog.live.state_file.yaml_edit import (
    apply_values,
    drop_absent,
    new_item,
    to_yaml_scalar,
)

words = st.text(
    st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff"), max_size=20
)
scalars = st.one_of(st.booleans(), st.integers(-(10**12), 10**12), words,
                    st.floats(allow_nan=False, allow_infinity=False, width=32))  # fmt: skip
leaves = st.one_of(scalars, st.lists(st.one_of(st.none(), scalars), max_size=3))
names = st.sampled_from(["status", "issues", "cost", "git", "branch", "note"])
mappings = st.recursive(
    leaves, lambda inner: st.dictionaries(names, inner, min_size=1, max_size=4), max_leaves=8
)
items = st.dictionaries(names, mappings, min_size=1, max_size=5)


def reread(chunk):
    (again,) = (
        other for other in parse_chunks("sessions:\n" + chunk.text) if other.key == chunk.key
    )
    return again


def places(node, text):
    """Every value as written, and every mapping's end."""
    return {
        key: text[child.start : child.end]
        if child.keys is None or child.is_flow
        else (places(child, text), child.end)
        for key, child in node.keys.items()
    }


@given(item=items)
def test_rendered_item_reads_back_with_the_positions_a_parser_finds(item):
    chunk = new_item("sessions:x", {"sessionId": "x", **item}, 2, {"sessionId": "# the id"})

    again = reread(chunk)

    assert again.node.to_python() == {"sessionId": "x", **item}
    assert places(chunk.node, chunk.text) == places(again.node, again.text)


@given(first=items, second=items, third=items)
def test_changes_read_back_and_places_stay_true_without_a_parser(first, second, third):
    chunk = new_item("sessions:x", {"sessionId": "x", **first}, 2, {})

    for new in (second, third):
        chunk = apply_values(chunk, copy.deepcopy(new), {})
        again = reread(chunk)
        assert places(chunk.node, chunk.text) == places(again.node, again.text)
        values = again.node.to_python()
        assert all(_holds(values.get(key), value) for key, value in new.items())


def _holds(actual, value):
    if isinstance(value, dict) and isinstance(actual, dict):
        return all(_holds(actual.get(key), part) for key, part in value.items())
    return actual == value


def test_quotes_comments_and_flow_mappings_stay_as_they_are_written():
    text = (
        "sessions:\n"
        "  - sessionId: 'x'   # mine\n"
        "    label: 'It''s'  # keep\n"
        "    git: {branch: main, dirty: 0}  # flow\n"
        "    issues:\n"
        "    - one  # a block of items\n"
        "    empty:\n"
        "    big: |\n"
        "      two\n"
        "      lines\n"
        "    shared: *anchor\n"
        "    last: 1\n"
    )
    (chunk,) = (
        chunk
        for chunk in parse_chunks(text.replace("*anchor", "plain"))
        if chunk.key == "sessions:x"
    )

    new = {
        "label": "o'k",
        "git": {"dirty": 3, "ahead": 1},
        "issues": ["two"],
        "empty": 5,
        "last": 2,
    }
    done = apply_values(chunk, new, {})

    assert done.text == (
        "  - sessionId: 'x'   # mine\n"
        "    label: 'o''k'  # keep\n"
        "    git: {branch: main, dirty: 3, ahead: 1}  # flow\n"
        '    issues: ["two"]  # a block of items\n'
        "    empty: 5\n"
        "    big: |\n"
        "      two\n"
        "      lines\n"
        "    shared: plain\n"
        "    last: 2\n"
    )


@pytest.mark.parametrize(
    "value", ["1", '{pane: "%1"}', "\n      pane: 1", "{pane: 1,\n      a: 2}"]
)
def test_a_value_dropped_from_the_line_of_the_dash_becomes_null(value):
    text = f"sessions:\n  - tmux: {value}  # mine\n    sessionId: x\n    last: 1\n"
    (chunk,) = (candidate for candidate in parse_chunks(text) if candidate.key == "sessions:x")

    done = drop_absent(chunk, {"tmux": {"pane": {}}}, {"sessionId": "x"})

    again = reread(done)
    assert again.node.to_python() == {"tmux": None, "sessionId": "x", "last": 1}
    assert "# mine\n" in done.text
    assert places(done.node, done.text) == places(again.node, again.text)


@pytest.mark.parametrize(
    "item",
    [
        "billing: {a: 1,\n      b: {c: 2}}\n    sessionId: x\n    tmux: {p: 1}",
        "billing: {}\n    sessionId: x",
        "{billing: {a: 1}, sessionId: x}",
        "billing:\n      b:\n        c: 2  # mine\n    sessionId: x\n    tmux:\n      p: 1",
        "sessionId: x\n    billing:\n      b: {c: 2}\n      a: 1\n    tmux: {p: 1}",
    ],
)
def test_values_change_and_leave_in_any_notation_of_a_person(item):
    (chunk,) = (
        candidate
        for candidate in parse_chunks(f"sessions:\n  - {item}\n")
        if candidate.key == "sessions:x"
    )
    fields = {"billing": {"a": {}, "b": {"c": {}, "d": {}}, "e": {}}, "k": {}, "tmux": {"p": {}}}

    for new in (
        {"billing": {"a": 2.5, "b": {"c": 3}}},
        {"billing": {"b": {"d": 4}, "e": "two words"}, "k": 1},
        {"tmux": {"p": 2}, "k": 0.5},
        {"billing": {"b": {"c": 1}, "e": "x"}, "k": 2},
    ):
        chunk = drop_absent(apply_values(chunk, copy.deepcopy(new), {}), fields, new)
        again = reread(chunk)
        assert _holds(again.node.to_python(), {"sessionId": "x", **new})
        assert places(chunk.node, chunk.text) == places(again.node, again.text)


def test_text_that_means_something_else_is_quoted():
    words = ("plain words", "13:00", "no", "12", "a: b", "- x", "", "x # y", "é\n")

    assert [to_yaml_scalar(word) for word in words] == [
        "plain words", "13:00", '"no"', '"12"', '"a: b"', '"- x"', '""', '"x # y"', '"é\\n"',
    ]  # fmt: skip
