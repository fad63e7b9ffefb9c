"""Coming to a turn by the recorded answers: nothing is asked of the model before it, and the files are made again."""

import json

from flightlog.lab.replay.branch import ReplayOptions, prepare_branch
from flightlog.lab.runner.run import continue_run
from support.labs import lay_out, tree
from support.replays import fingerprint


def make_branch(ground, name, turn, **asked):
    source = ground.source(1)
    where = (ground.root / "runs" / name, 1)
    book = prepare_branch(
        source.run,
        source.build_cursor_point(turn),
        ReplayOptions(uses_cursor=True, **asked),
        where,
        ground.setting,
    )
    return continue_run(book, ground.setting, again=False)


def test_recorded_answers_are_served_tools_run_again_and_the_turn_is_live(ground):
    before, asked = fingerprint(ground.work), ground.count()

    book = make_branch(ground, "cursor", 3)

    last = book.state.last_attempt("session_01")
    assert (last.certificate.verdict, last.certificate.first_difference) == ("exact", "")
    assert "recorded answers served" in last.certificate.method
    recorded = ground.list_requests(ground.source(1).read.attempt.session_id)
    requests = ground.list_requests(last.session_id)
    assert requests[0] == recorded[2]
    assert ground.count() - asked == len(requests) + 2  # the subagent that comes later asks twice
    then = ground.source(1).build_branch_point(3).tree
    assert tree(lay_out(book, last.snapshots[2].tree, ground.root / "cursor-files")) == tree(
        lay_out(ground.source(1).run, then, ground.root / "recorded-files")
    )
    assert fingerprint(ground.work) == before
    steps = json.loads((book.path / "session_01/trajectory.json").read_bytes())["steps"]
    assert steps[0]["source"] == "agent"
    assert sum(step["source"] == "agent" for step in steps) == len(requests)


def test_a_prompt_is_in_every_request_from_its_turn_on(ground):
    book = make_branch(ground, "cursor_prompt", 2, prompt="mind the licence")

    last = book.state.last_attempt("session_01")
    requests = ground.list_requests(last.session_id)
    assert last.certificate.verdict == "exact+prompt"
    assert len(requests) > 1
    assert [json.dumps(request["messages"]).count("mind the licence") for request in requests] == [
        1
    ] * len(requests)


def test_a_branch_that_cannot_match_is_refused_before_any_request(ground):
    asked = ground.count()

    book = make_branch(ground, "cursor_drift", 4)

    last = book.state.last_attempt("session_01")
    assert last.certificate.verdict == "differs"
    assert last.certificate.first_difference.startswith("messages[")
    assert last.certificate.is_refused
    assert ground.count() == asked
