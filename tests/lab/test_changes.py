"""Whose step a change is: decided from requests and tools, held here against made-up timelines."""

from flightlog.lab.events import SnapshotSaved
from flightlog.lab.file_changes import iter_intervals
from flightlog.lab.run_session import SIDE, ApiCall
from flightlog.model.entries import PromptKind
from flightlog.model.exchange import ApiRequest, BodyRef, Exchange, RequestOrigin
from flightlog.model.session import Session, Step, Subagent, ToolCall, Turn
from flightlog.model.usage import CostSource


def step(name, *calls):
    made = tuple(ToolCall(f"{name}-{at}", tool, given) for at, (tool, given) in enumerate(calls))
    return Step(1, name, 0, "m", (), made, cost_usd=None, cost_source=CostSource.UNKNOWN)


def session(main, **subagents):
    def turns(steps):
        return (Turn(1, PromptKind.HUMAN, (), 0, tuple(steps)),)

    threads = tuple(
        Subagent(name, "general", "", "", turns(steps)) for name, steps in subagents.items()
    )
    return Session("s", "a", "", "/w", "", "", "", 0, 1, turns(main), threads, None)


def call(index, subagent, message):
    asked = ApiRequest(
        index, RequestOrigin.MAIN, "POST", "/v1/messages", {}, BodyRef("", 0), agent_id=subagent
    )
    return ApiCall(Exchange("t", asked), subagent, message)


def make_snapshots(*requests, subagents=()):
    subagents = dict(subagents)
    return [
        SnapshotSaved("s", 1, f"t{request}", request, subagents.get(request, ""))
        for request in requests
    ]


def list_attributions(main, calls, trees, **subagents):
    intervals = iter_intervals("t0", trees, calls, session(main, **subagents))
    return [
        (interval.owner.step.message_id if interval.owner else None, interval.attribution)
        for interval in intervals
    ]


BASH = ("Bash", {"command": "x"})
LEFT = ("Bash", {"command": "x", "run_in_background": True})
READ = ("Read", {"file_path": "/w/a"})
AGENT = ("Agent", {"prompt": "x"})


def test_change_between_two_requests_belongs_to_the_step_between():
    main = [step("a", BASH), step("b", BASH), step("c")]
    calls = [call(1, "", "a"), call(2, "", "b"), call(3, "", "c")]

    assert list_attributions(main, calls, make_snapshots(1, 2, 3, 0)) == [
        (None, "background"),  # before the first answer nobody worked
        ("a", "exact"),
        ("b", "exact"),
        ("c", "background"),  # words write nothing
    ]


def test_a_request_that_was_tried_again_shifts_nothing():
    main = [step("a", BASH), step("b")]
    calls = [call(1, "", "a"), call(2, "", ""), call(3, "", "b"), call(4, SIDE, "title")]

    assert list_attributions(main, calls, make_snapshots(1, 2, 3, 4, 0))[1] == ("a", "exact")
    assert list_attributions(main, calls, make_snapshots(1, 2, 3, 4, 0))[2][1] == "background"


def test_a_lone_subagents_steps_are_its_own_while_the_main_thread_waits():
    main = [step("a", AGENT), step("b")]
    calls = [call(1, "", "a"), call(2, "x", "x1"), call(3, "x", "x2"), call(4, "", "b")]
    trees = make_snapshots(1, 2, 3, 4, 0, subagents={2: "x", 3: "x"})

    assert list_attributions(main, calls, trees, x=[step("x1", BASH), step("x2")])[2] == (
        "x1",
        "exact",
    )


def test_concurrent_subagents_and_tools_share_their_changes():
    main = [step("a", AGENT, AGENT), step("b")]
    calls = [
        call(1, "", "a"),
        call(2, "x", "x1"),
        call(3, "y", "y1"),
        call(4, "x", "x2"),
        call(5, "y", "y2"),
    ]
    trees = make_snapshots(1, 2, 3, 4, 5, subagents={2: "x", 3: "y", 4: "x", 5: "y"})
    both = {"x": [step("x1", BASH), step("x2")], "y": [step("y1", BASH), step("y2")]}

    assert list_attributions(main, calls, trees, **both)[3] == ("x1", "shared")

    beside = [step("a", AGENT, BASH), step("b")]
    assert list_attributions(
        beside, calls[:3], make_snapshots(1, 2, 3), x=[step("x1", BASH)], y=[step("y1")]
    )[2] == (
        "a",
        "shared",
    )


def test_beside_a_background_shell_only_a_named_file_is_shared():
    write = ("Write", {"file_path": "/w/named.txt"})
    main = [step("a", LEFT), step("b", write), step("c")]
    calls = [call(1, "", "a"), call(2, "", "b"), call(3, "", "c")]

    intervals = list(iter_intervals("t0", make_snapshots(1, 2, 3), calls, session(main)))

    assert intervals[1].attribution_of("any") == "exact", (
        "the step that left it running ran it in the open"
    )
    assert (intervals[2].attribution_of("late.txt"), intervals[2].attribution_of("named.txt")) == (
        "background",
        "shared",
    )


def test_a_step_that_only_read_changed_nothing():
    calls = [call(1, "", "a"), call(2, "", "b")]

    assert list_attributions([step("a", READ), step("b")], calls, make_snapshots(1, 2))[1] == (
        "a",
        "background",
    )


def test_without_captured_requests_a_session_is_one_piece():
    assert list_attributions([step("a", BASH), step("b", BASH)], [], make_snapshots(0)) == [
        ("b", "shared")
    ]
