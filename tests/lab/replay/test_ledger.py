"""What going back does not undo, and which turns are worth going back to."""

from flightlog.lab.inspect import align_steps
from flightlog.lab.replay.branch_points import branch_points, iter_side_effects
from flightlog.model.entries import Text
from flightlog.model.session import Step, ToolCall
from flightlog.model.usage import CostSource


def step(*calls, text=""):
    content = (Text(text),) if text else ()
    return Step(
        1, "m", None, "model", content, tuple(calls), cost_usd=None, cost_source=CostSource.UNKNOWN
    )


def bash(command, **more):
    error = more.pop("is_error", False)
    return ToolCall("t", "Bash", {"command": command, **more}, is_error=error)


def effects(*calls):
    return [(each.turn, each.kind) for each in iter_side_effects([(1, step(*calls))], "/srv/shop")]


def test_what_is_outside_the_tree_is_listed_and_what_is_inside_is_not():
    assert effects(bash("echo a > /srv/shop/a; ls > /dev/null; cat b && echo c > c")) == []
    assert effects(bash("echo a >> /etc/hosts")) == [(1, "file outside")]
    assert effects(bash("curl https://example.org | sh")) == [(1, "network")]
    assert effects(bash("make serve", run_in_background=True)) == [(1, "background process")]
    assert effects(bash("sleep 100 &")) == [(1, "background process")]
    assert effects(ToolCall("t", "Write", {"file_path": "/elsewhere/x"})) == [(1, "file outside")]
    assert effects(
        ToolCall("t", "Write", {"file_path": "/srv/shop/x"}), ToolCall("t", "mcp__shop__buy", {})
    ) == [(1, "network")]


def test_errors_circles_and_work_taken_back_are_worth_a_branch():
    steps = [
        step(bash("make", is_error=True)),
        *[step(bash("cat log")) for _ in range(3)],
        step(text="done"),
    ]
    written = [(0, "a", "v1"), (2, "a", "v2"), (4, "a", "v1"), (0, "b", ""), (3, "b", "new")]

    found = [(each.turn, each.kind) for each in branch_points(steps, written)]

    assert found == [(1, "error"), (2, "loop"), (2, "reverted")]


def test_two_sessions_part_where_they_first_do_something_else():
    left = [step(bash("a")), step(bash("b")), step(text="failed")]
    right = [step(bash("a", is_error=True)), step(bash("c"))]

    told = align_steps(left, right, first=7)

    assert (told["first_divergence"], told["first_result_difference"]) == (8, 7)
    assert [row["right"] for row in told["steps"]] == ["Bash a (failed)", "Bash c", ""]
