import pytest

from flightlog.lab.file_changes import PATCH, WORDS, iter_reported_changes
from flightlog.model.entries import Text
from flightlog.model.session import Step, ToolCall
from flightlog.model.usage import CostSource
from support.labs import apply


def step(*calls):
    return Step(1, "m1", 0, "model", (), calls, cost_usd=None, cost_source=CostSource.UNKNOWN)


def make_call(name, given, detail=None, **more):
    return ToolCall("t1", name, given, (Text("ok"),), detail=detail, **more)


@pytest.mark.parametrize("content", ["one\n", "a\nb\n", "no end", "", "ü\n"])
def test_a_created_file_can_be_made_again(tmp_path, content):
    detail = {"type": "create", "content": content, "structuredPatch": []}
    (entry,) = iter_reported_changes(
        "",
        step(make_call("Write", {"file_path": "/w/new.txt", "content": content}, detail)),
        3,
        "/w",
    )

    if content:
        apply(tmp_path, entry["diff"].encode(), "-p0")
        assert (tmp_path / "new.txt").read_text() == content
    assert (entry["file_path"], entry["kind"], entry["rebuilt_from"]) == ("new.txt", "added", PATCH)
    assert (entry["attribution"], entry["step_id"]) == (None, 3)


def test_the_clients_own_patch_can_be_applied(tmp_path):
    hunk = {
        "oldStart": 1,
        "oldLines": 2,
        "newStart": 1,
        "newLines": 2,
        "lines": [" keep", "-old", "+new"],
    }
    given = {"file_path": "/w/a.txt", "old_string": "old", "new_string": "new"}
    (tmp_path / "a.txt").write_text("keep\nold\n")

    (entry,) = iter_reported_changes(
        "", step(make_call("Edit", given, {"structuredPatch": [hunk]})), 1, "/w"
    )
    apply(tmp_path, entry["diff"].encode(), "-p0")

    assert (tmp_path / "a.txt").read_text() == "keep\nnew\n"


def test_edit_without_a_patch_gives_lines_without_numbers():
    given = {"file_path": "/elsewhere/a.txt", "old_string": "old", "new_string": "new"}

    (entry,) = iter_reported_changes("x", step(make_call("Edit", given)), 1, "/w")

    assert (entry["rebuilt_from"], entry["subagent"]) == (WORDS, "x")
    assert entry["diff"].splitlines()[2:] == ["-old", "+new"]
    assert entry["file_path"] == "/elsewhere/a.txt"


def test_failed_denied_and_unanswered_calls_change_nothing():
    given = {"file_path": "/w/a", "content": "x"}
    failed = make_call("Write", given, is_error=True)
    denied = make_call("Write", given, denial_reason="rule")
    open_call = ToolCall("t1", "Write", given)
    shell = make_call("Bash", {"command": "rm -rf x"})

    assert list(iter_reported_changes("", step(failed, denied, open_call, shell), 1, "/w")) == []
