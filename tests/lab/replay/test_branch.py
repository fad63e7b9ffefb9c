"""Real branches: the model is asked what it was asked then, the files are what they were, and nothing else moves."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.archive.trajectories import lint_path
from flightlog.lab.replay.recorded_context import canonical_value
from flightlog.lab.store import RunStore
from support.labs import lay_out, tree
from support.replays import fingerprint

EVERY = [(1, turn) for turn in range(1, 8)] + [(3, turn) for turn in range(1, 6)]
SOME = [(1, 1), (1, 4), (3, 2)]
PROMPT = "mind the licence"


@pytest.fixture(scope="module")
def prompted_branch(ground):
    """A branch at turn 5 with a prompt."""
    return ground.branch("prompted_1_5", 1, 5, prompt=PROMPT)


def make_branches(ground, places, **asked):
    """Branch at each place, some at once."""
    word = "_".join(asked) or "plain"
    with ThreadPoolExecutor(3) as pool:
        return list(
            pool.map(
                lambda place: ground.branch(f"{word}_{place[0]}_{place[1]}", *place, **asked),
                places,
            )
        )


def source_tree(ground, tree_name, name):
    """Files of the source run, laid out by git from a copy of its repository."""
    copy = ground.root / "copies" / name
    shutil.copytree(ground.root / "runs" / "run", copy, symlinks=True)
    book = RunStore(copy, now=lambda: "t", new_id=lambda: "i")
    return tree(lay_out(book, tree_name, ground.root / "then" / name))


def meta(book):
    return json.loads((book.path / "replay_meta.json").read_bytes())


def prove(ground, places, word):
    before = fingerprint(ground.work), fingerprint(ground.root / "runs" / "run")

    books = make_branches(ground, places)

    for (session, turn), book in zip(places, books, strict=True):
        source = ground.source(session)
        last = book.state.last_attempt("session_01")
        assert (last.stop_reason, meta(book)["certificate"]["verdict"]) == ("completed", "exact"), (
            session,
            turn,
        )
        assert (
            ground.list_requests(last.session_id)
            == ground.list_requests(source.read.attempt.session_id)[turn - 1 :]
        )
        name = f"{word}_{session}_{turn}"
        begins = tree(lay_out(book, "baseline", ground.root / "begins" / name))
        assert begins == source_tree(ground, source.build_branch_point(turn).tree, name)
        ends = tree(lay_out(book, last.end.tree, ground.root / "ends" / f"{name}_end"))
        assert ends == source_tree(ground, source.read.attempt.end.tree, f"{name}_end")
        shutil.rmtree(book.path)
    assert (fingerprint(ground.work), fingerprint(ground.root / "runs" / "run")) == before
    assert not list((ground.root / "runs").glob(".work-*"))


def test_branch_sends_the_recorded_request_with_the_recorded_files(ground):
    prove(ground, SOME, "some")


@pytest.mark.soak
def test_branch_at_every_turn_is_exact(ground):
    prove(ground, EVERY, "every")


@pytest.mark.soak
def test_branch_at_every_turn_takes_a_prompt(ground):
    for (session, turn), book in zip(
        EVERY, make_branches(ground, EVERY, prompt="and mind the gap"), strict=True
    ):
        recorded = ground.list_requests(ground.source(session).read.attempt.session_id)[turn - 1]
        first = ground.list_requests(book.state.last_attempt("session_01").session_id)[0]
        assert meta(book)["certificate"]["verdict"] == "exact+prompt", (session, turn)
        whole = json.dumps(canonical_value(first["messages"]))
        assert whole.count("and mind the gap") == 1
        messages = canonical_value(first["messages"])
        assert (
            messages[: len(recorded["messages"]) - 1] == canonical_value(recorded["messages"])[:-1]
        )
        last = canonical_value(recorded["messages"])[-1]
        at = messages[len(recorded["messages"]) - 1]
        assert at["content"][: len(last["content"])] == last["content"]
        assert {key: first[key] for key in first if key != "messages"} == {
            key: recorded[key] for key in recorded if key != "messages"
        }


def test_a_prompt_follows_the_recorded_context_in_every_later_request(ground, prompted_branch):
    book = prompted_branch
    recorded = ground.list_requests(ground.source(1).read.attempt.session_id)[4]
    asked = ground.list_requests(book.state.last_attempt("session_01").session_id)
    contexts = [request["messages"][: len(recorded["messages"])] for request in asked]
    assert meta(book)["certificate"]["verdict"] == "exact+prompt"
    assert all(one[:-1] == recorded["messages"][:-1] for one in contexts)
    for one in contexts:
        results, prompt = one[-1]["content"][:-1], one[-1]["content"][-1]
        assert prompt["text"] == PROMPT
        assert [block["tool_use_id"] for block in results] == ["toolu_first30"]
    assert "flightlog" not in json.dumps(asked)
    assert {key: asked[0][key] for key in asked[0] if key != "messages"} == {
        key: recorded[key] for key in recorded if key != "messages"
    }


def test_branch_documents_hold_only_new_steps_and_their_source(ground, prompted_branch):
    book = prompted_branch
    steps = json.loads((book.path / "session_01/trajectory.json").read_bytes())["steps"]
    document = meta(book)
    run_meta = json.loads((book.path / "run_meta.json").read_bytes())
    assert [step["source"] for step in steps if step["source"] != "system"] == [
        "user",
        *["agent"] * 3,
    ]
    assert [step["message"] for step in steps if step["source"] == "user"] == [PROMPT]
    assert "flightlog branch point" not in json.dumps(steps)
    assert [
        report.findings for report in lint_path(open_runtime(), book.path) if report.findings
    ] == []
    assert (
        document["source_run"],
        document["source_session_index"],
        document["replay_turn_index"],
    ) == (
        "run",
        1,
        5,
    )
    assert document["shadow_git_reset_tag"].startswith("_step_01")
    assert str(ground.root) not in json.dumps({**document, "side_effects_not_restored": []})
    assert run_meta["replay_source"] == "run"
    assert "replay" in run_meta["tags"]
    transcript = (book.path / "session_01/source_transcript_truncated.jsonl").read_bytes()
    assert transcript
    assert (
        (ground.root / "runs/run/session_01/transcript.jsonl").read_bytes().startswith(transcript)
    )


@pytest.mark.soak
def test_sessions_that_followed_go_on_from_the_branch_without_its_mark(ground):
    book = ground.branch("onward", 1, 6, continue_sessions=True)

    last = [book.state.last_attempt(f"session_0{at}") for at in (1, 2, 3)]
    assert [attempt.stop_reason for attempt in last] == ["completed"] * 3
    for at in (2, 3):
        recorded = ground.list_requests(ground.source(at).read.attempt.session_id)
        asked = ground.list_requests(last[at - 1].session_id)
        assert "flightlog" not in json.dumps(asked)
        assert len(asked) == len(recorded)
        own = (
            1 if at == 3 else 0
        )  # The summary of a compaction says where the transcript is, which is the session's own.
        assert canonical_value(asked[0]["messages"][own:]) == canonical_value(
            recorded[0]["messages"][own:]
        )
    assert not list((ground.root / "runs").glob(".work-*"))
