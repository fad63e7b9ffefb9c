import pytest

from flightlog.model.addresses import parse_address, relation_between
from flightlog.model.entries import Text
from flightlog.model.session import Step, ToolCall
from flightlog.model.usage import CostSource
from flightlog.views.session.edits import (
    LINES_MAX,
    LineEdit,
    changed_files,
    count_matching_lines,
    diffs_of_call,
    fingerprint_lines,
)


def call(name, given, **more):
    return ToolCall("t1", name, given, result=(Text("ok"),), **more)


def diff_of_call(call):
    (diff,) = diffs_of_call(call)
    return diff


def sign_lines(change):
    return [f"{line.sign.value}{line.text}" for line in change.lines]


def test_the_clients_own_patch_is_taken_where_there_is_one():
    patch = {"structuredPatch": [{"newStart": 3, "lines": [" same", "-old", "+new"]}]}

    change = diff_of_call(
        call("Edit", {"file_path": "/a", "old_string": "x", "new_string": "y"}, detail=patch)
    )

    assert sign_lines(change) == ["@line 3", " same", "-old", "+new"]
    assert (change.path, change.added, change.removed) == ("/a", 1, 1)


def test_without_a_patch_old_and_new_words_are_compared():
    change = diff_of_call(
        call("Edit", {"file_path": "/a", "old_string": "a\nb\n", "new_string": "a\nc\n"})
    )

    assert sign_lines(change) == [" a", "-b", "+c"]


def test_several_edits_and_whole_files_are_changes_too():
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": ""}, "odd"]

    assert sign_lines(diff_of_call(call("MultiEdit", {"file_path": "/a", "edits": edits}))) == [
        "-a",
        "+b",
        "-c",
    ]
    assert sign_lines(diff_of_call(call("Write", {"file_path": "/a", "content": "x\ny"}))) == [
        "+x",
        "+y",
    ]


def test_input_that_a_hook_rewrote_counts():
    ran = {"file_path": "/b", "content": "z"}

    assert (
        diff_of_call(call("Write", {"file_path": "/a", "content": "x"}, executed_input=ran)).path
        == "/b"
    )


@pytest.mark.parametrize("given", [{}, {"file_path": 5}, {"command": "rm"}])
def test_call_without_a_file_changes_none(given):
    assert diffs_of_call(call("Write", given)) == []
    assert diffs_of_call(call("Bash", {"file_path": "/a"})) == []


def test_a_long_change_says_how_much_is_left_out():
    change = diff_of_call(call("Write", {"file_path": "/a", "content": "line\n" * 1_000}))

    assert (len(change.lines), change.added, change.omitted_lines) == (LINES_MAX, 1_000, 600)


def test_a_very_long_edit_is_not_compared_line_by_line():
    change = diff_of_call(
        call(
            "Edit", {"file_path": "/a", "old_string": "o\n" * 40_000, "new_string": "n\n" * 40_000}
        )
    )

    assert (change.added, change.removed) == (40_000, 40_000)


def test_odd_patches_are_no_patches():
    for detail in (
        "text",
        {"structuredPatch": 5},
        {"structuredPatch": [5, {"lines": 5}]},
        {"structuredPatch": []},
    ):
        given = {"file_path": "/a", "content": "x"}
        assert sign_lines(diff_of_call(call("Write", given, detail=detail))) == ["+x"]


def test_a_steps_files_are_those_that_were_really_written():
    calls = (
        call("Write", {"file_path": "/a"}),
        call("Edit", {"file_path": "/a"}),
        call("Edit", {"file_path": "/failed"}, is_error=True),
        call("Edit", {"file_path": "/denied"}, denial_reason="by a person"),
    )
    step = Step(1, "m", None, "x", (), calls, cost_usd=None, cost_source=CostSource.UNKNOWN)

    assert changed_files(step) == ("/a",)


LINES = fingerprint_lines(["def a():", "    return 1", "", "def b():", "    return 1", "}"])


def edit(*lines):
    return LineEdit("s#1.1", 1, "a.py", 1, fingerprint_lines(lines))


def test_a_line_belongs_to_the_edit_that_holds_most_of_its_neighbours():
    near_b = edit("def b():", "    return 1", "}")
    only = edit("    return 1")

    assert count_matching_lines(near_b, LINES, 4) == 3
    assert count_matching_lines(only, LINES, 4) == 1
    assert count_matching_lines(near_b, LINES, 0) == 0


def test_an_empty_line_has_no_author():
    assert count_matching_lines(edit("", "x"), LINES, 2) == 0


def test_line_fingerprint_ignores_indent_and_holds_no_text():
    (one, other) = fingerprint_lines(["  secret word", "secret word\t"])

    assert one == other
    assert "secret" not in one


def test_relation_of_two_addresses_names_the_nearest_common_part():
    step = parse_address("s#2.3")

    assert (
        relation_between(step, parse_address("s"))
        == relation_between(parse_address("s"), step)
        == "here"
    )
    assert relation_between(step, parse_address("s#2")) == "here"
    assert relation_between(step, parse_address("s#2.4")) == "same turn"
    assert (
        relation_between(step, parse_address("s#1.1"))
        == relation_between(step, parse_address("s@subagent#2.3"))
        == "same session"
    )
    assert relation_between(step, parse_address("t#2.3")) == ""


PATCH = """*** Begin Patch
*** Update File: cart.py
@@ def total():
 same
-old
+new
*** Add File: new.py
+one
+two
*** Update File: from.py
*** Move to: to.py
@@
+moved
*** Delete File: gone.py
*** End Patch"""


@pytest.mark.parametrize(
    ("name", "given", "signs"),
    [
        ("replace", {"file_path": "/a", "old_string": "x", "new_string": "y"}, ["-x", "+y"]),
        ("write_file", {"file_path": "/a", "content": "x\n"}, ["+x"]),
        ("edit", {"filePath": "/a", "oldString": "x", "newString": "y"}, ["-x", "+y"]),
        ("write", {"filePath": "/a", "content": "x"}, ["+x"]),
        ("edit", {"path": "/a", "old_str": "x", "new_str": "y"}, ["-x", "+y"]),
        ("create", {"path": "/a", "file_text": "x"}, ["+x"]),
        ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}, ["+x"]),
        ("str_replace_editor", {"command": "insert", "path": "/a", "new_str": "x"}, ["+x"]),
        ("edit", {"path": "/a", "oldText": "x", "newText": "y"}, ["-x", "+y"]),
        ("edit", {"path": "/a", "edits": [{"oldText": "x", "newText": "y"}]}, ["-x", "+y"]),
        ("write", {"path": "/a", "content": "x"}, ["+x"]),
    ],
)
def test_the_edit_tools_of_other_agents_are_edits(name, given, signs):
    change = diff_of_call(call(name, given))

    assert (change.path, sign_lines(change)) == ("/a", signs)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("apply_patch", {"input": PATCH}),
        ("patch", {"patchText": PATCH}),
        ("exec_command", {"cmd": f"cd /work && apply_patch <<'EOF'\n{PATCH}\nEOF"}),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"]}),
        ("shell", {"command": ["apply_patch", PATCH]}),
    ],
)
def test_a_patch_changes_each_file_that_it_names(name, given):
    changes = {change.path: sign_lines(change) for change in diffs_of_call(call(name, given))}

    assert changes == {
        "cart.py": ["@def total():", " same", "-old", "+new"],
        "new.py": ["+one", "+two"],
        "to.py": ["@", "+moved"],
        "gone.py": [],
    }


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("exec_command", {"cmd": f"cat > notes <<'EOF'\n{PATCH}\nEOF"}),
        ("view", {"path": "/a"}),
        ("str_replace_editor", {"command": "view", "path": "/a"}),
        ("grep", {"path": "/a", "pattern": "x"}),
        ("apply_patch", {"input": "no patch"}),
        ("shell", {"command": [1, None]}),
    ],
)
def test_call_that_only_looks_like_an_edit_is_none(name, given):
    assert diffs_of_call(call(name, given)) == []
