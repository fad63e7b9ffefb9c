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
    return [
        (effect.turn, effect.kind) for effect in iter_side_effects([(1, step(*calls))], "/srv/shop")
    ]


def test_effects_outside_the_tree_are_listed_and_inside_are_not():
    assert effects(bash("echo a > /srv/shop/a; ls > /dev/null; cat b && echo c > c")) == []
    assert effects(bash("echo a >> /etc/hosts")) == [(1, "file outside")]
    assert effects(bash("curl https://example.org | sh")) == [(1, "network")]
    assert effects(bash("make serve", run_in_background=True)) == [(1, "background process")]
    assert effects(bash("sleep 100 &")) == [(1, "background process")]
    assert effects(ToolCall("t", "Write", {"file_path": "/elsewhere/x"})) == [(1, "file outside")]
    assert effects(
        ToolCall("t", "Write", {"file_path": "/srv/shop/x"}), ToolCall("t", "mcp__shop__buy", {})
    ) == [(1, "network")]


def test_errors_loops_and_reverted_work_are_branch_points():
    steps = [
        step(bash("make", is_error=True)),
        *[step(bash("cat log")) for _ in range(3)],
        step(text="done"),
    ]
    written = [(0, "a", "v1"), (2, "a", "v2"), (4, "a", "v1"), (0, "b", ""), (3, "b", "new")]

    points = [(point.turn, point.kind) for point in branch_points(steps, written)]

    assert points == [(1, "error"), (2, "loop"), (2, "reverted")]


def test_sessions_diverge_at_their_first_different_action():
    left = [step(bash("a")), step(bash("b")), step(text="failed")]
    right = [step(bash("a", is_error=True)), step(bash("c"))]

    alignment = align_steps(left, right, first=7)

    assert (alignment["first_divergence"], alignment["first_result_difference"]) == (8, 7)
    assert [row["right"] for row in alignment["steps"]] == ["Bash a (failed)", "Bash c", ""]
