"""Whole runs with the real agent: modes, parallel sessions, limits, and what is said about them."""

import json
import os
import shutil
import time

import pytest
from msgspec.structs import replace

from flightlog.agents.sandbox import IsolationMode
from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.inspect import RunAddress, inspect_address
from flightlog.lab.runner import agent_setup
from flightlog.lab.runner.run import start_run
from flightlog.model.errors import Conflict, Invalid, Unavailable
from support.labs import (
    again,
    bash,
    changelog,
    config,
    environment,
    lines,
    meta,
    proven,
    replies,
    run,
    script,
    tree,
)

CANARY = "sk-" + "canary-" + "7Qm2Zx9LwB4rVn8YcD3s"
WHO = {
    "rules": [
        {
            "when": {"prompt": f"make {n}"},
            "replies": replies([bash(f"echo {n} > who; pwd > where; sleep 0.6")], f"did {n}"),
        }
        for n in ("one", "two", "three", "four")
    ]
}
FOREVER = script([bash("echo again >> log")])


def request(book, session, index):
    return json.loads(
        (book.path / session / "raw_dumps" / f"request_{index:03d}.json").read_bytes()
    )


def test_chained_sessions_continue_and_copied_steps_are_marked(tmp_path):
    book = run(
        tmp_path,
        config(tmp_path, WHO, "make one", "make two", session_mode="chained", in_place="keep"),
    )

    messages = json.dumps(request(book, "session_02", 1)["messages"])
    assert "did one" in messages
    assert "make two" in messages
    steps = json.loads((book.path / "session_02" / "trajectory.json").read_bytes())["steps"]
    copies = [step for step in steps if step.get("is_copied_context")]
    assert any("did one" in str(step["message"]) for step in copies)
    assert not any("did two" in str(step["message"]) for step in copies)
    mapped = json.loads((book.path / "session_02" / "uuid_map.json").read_bytes())
    assert (len(mapped["turns"]), mapped["copied_turns"]) == (2, 2)
    document = meta(book)
    as_root = (
        ("acceptEdits", agent_setup.AS_ROOT) if os.geteuid() == 0 else ("bypassPermissions", None)
    )
    assert (document["permission_mode"], document["permission_note"]) == as_root
    rows = document["sessions"]
    assert rows[1]["resumed_from"] == rows[0]["session_id"] != rows[1]["session_id"]
    assert (tmp_path / "work" / "who").read_text() == "two\n"


def test_isolated_sessions_know_nothing_of_each_other_but_the_files(tmp_path):
    notes = {"memory_file": "MEMORY.md", "memory_seed": "# Mine\n"}
    given = config(
        tmp_path, WHO, "make one", "make two", engine="scripted", **notes, in_place="keep"
    )

    book = run(tmp_path, given)

    assert "did one" not in json.dumps(request(book, "session_02", 1)["messages"])
    assert (tmp_path / "work" / "MEMORY.md").read_text() == "# Mine\n"
    assert not any(entry["file_path"] == "MEMORY.md" for entry in proven(book, tmp_path)), (
        "seeded before the baseline"
    )


def test_four_at_once_each_see_their_own_tree_at_the_configured_path(tmp_path):
    sessions = ["make one", "make two", "make three", {"prompt": "make four", "count": 2}]
    given = config(tmp_path, WHO, *sessions, session_mode="forked", in_place="keep")

    book = run(tmp_path, given)

    rows = {session["session_dir"]: session for session in meta(book)["sessions"]}
    assert {session["stop_reason"] for session in rows.values()} == {"completed"}
    wave = [rows[name] for name in ("session_02", "session_03", "session_04_r01", "session_04_r02")]
    assert max(session["started_at"] for session in wave) < min(
        session["finished_at"] for session in wave
    ), "all at the same time"
    for name, who in (("session_02", "two"), ("session_03", "three"), ("session_04_r02", "four")):
        changed = {
            entry["file_path"]: entry for entry in lines(book.path / name / ".changes.jsonl")
        }
        assert f"+{who}\n" in changed["who"]["diff"]
        assert changed["who"]["attribution"] == "exact"
        assert "where" not in changed, "the same path as session 1 saw"
    assert (tmp_path / "work" / "where").read_text() == f"{tmp_path / 'work'}\n"
    assert (tmp_path / "work" / "who").read_text() == "four\n"
    assert not list((tmp_path / "runs").glob(".work-*"))


def test_without_namespaces_sessions_run_in_sequence_with_a_note(tmp_path):
    sessions = ("make one", {"prompt": "make two", "count": 2})
    given = config(tmp_path, WHO, *sessions, session_mode="forked", engine="scripted")
    setting = replace(
        service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None),
        isolation_mode=IsolationMode.NONE,
        parent_death_prefix=(),
    )

    book = start_run(tmp_path / "runs" / "run", given, setting)

    document = meta(book)
    assert "one after the other" in document["isolation_note"]
    first, second = document["sessions"][1:]
    assert first["finished_at"] <= second["started_at"]
    for name in ("session_02_r01", "session_02_r02"):
        changed = {
            entry["file_path"]: entry["diff"]
            for entry in lines(book.path / name / ".changes.jsonl")
        }
        assert "-one\n+two\n" in changed["who"], "each began where session 1 ended"


def calls(book):
    return sum(session["captured_requests"] for session in meta(book)["sessions"])


@pytest.mark.parametrize("engine", ["claude_code", "scripted"])
def test_a_run_never_spends_past_its_budget(tmp_path, engine):
    usage = {
        "input_tokens": 1000,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    # A response is charged after it was forwarded: a call that follows at once would still be paid.
    forever = {"rules": [{"replies": [{"blocks": [bash("sleep 0.1")], "usage": usage}]}]}
    probe = run(tmp_path, config(tmp_path, forever, "go", engine=engine, max_turns=1), "probe")
    call_usd = meta(probe)["total_spent_usd"] / calls(probe)

    given = config(
        tmp_path,
        forever,
        "go",
        "go on",
        engine=engine,
        max_turns=500,
        max_budget_usd=call_usd * 5.5,
    )
    book = run(tmp_path, given)

    document = meta(book)
    assert document["stop_reason"] == "budget_exhausted"
    assert [row["stop_reason"] for row in document["sessions"]] == ["budget_exhausted", "pending"]
    paid = [
        row
        for row in lines(book.path / "session_01" / "api_captures.jsonl")
        if row["status"] == 200
    ]
    assert len(paid) == 5
    assert document["total_spent_usd"] <= call_usd * 5.5


def test_session_records_why_it_stopped(tmp_path):
    def failing(status):
        return {"rules": [{"replies": [{"errors": [{"status": status}]}]}]}

    def run_until_stopped(name, scenario, **more):
        env = environment(tmp_path, CLAUDE_CODE_MAX_RETRIES="0")
        return meta(run(tmp_path, config(tmp_path, scenario, "go", "next", **more), name, env))

    turns = run_until_stopped("turns", FOREVER, max_turns=2)
    login = run_until_stopped("login", failing(401))
    slow = run_until_stopped(
        "slow", script([bash("sleep 20")], "done"), session_timeout_seconds=0.8, engine="scripted"
    )

    assert [session["stop_reason"] for session in turns["sessions"]] == ["max_turns", "max_turns"]
    assert turns["sessions"][0]["ended_early"]
    assert [session["stop_reason"] for session in login["sessions"]] == ["auth_error", "pending"]
    assert login["stop_reason"] == "auth_error"
    assert [session["stop_reason"] for session in slow["sessions"]] == ["timeout", "timeout"]
    assert (turns["stop_reason"], slow["stop_reason"]) == ("max_turns", "timeout")


def test_a_session_may_have_a_budget_of_its_own_and_the_run_goes_on(tmp_path):
    sessions = ({"prompt": "make one", "max_budget_usd": 0.000001}, "make two")

    document = meta(run(tmp_path, config(tmp_path, WHO, *sessions)))

    assert [session["stop_reason"] for session in document["sessions"]] == [
        "budget_exhausted",
        "completed",
    ]


def test_pre_and_post_commands_run_and_a_checked_failure_ends_the_run(tmp_path):
    before = {
        "command": 'echo ready > ready; test -d "$HARNESS_RUN_DIR" && test "$PWD" = "$HARNESS_WORK_DIR"'
    }
    after = {"command": "cat who > graded; exit 3", "check": False}
    given = config(
        tmp_path,
        WHO,
        "make one",
        engine="scripted",
        pre_run_commands=[before],
        post_run_commands=[after],
        in_place="keep",
    )

    document = meta(run(tmp_path, given))

    assert (tmp_path / "work" / "graded").read_text() == "one\n"
    assert "post-run command 1 ended with 3" in document["errors"][0]["error"]
    failing = config(
        tmp_path, WHO, "make one", engine="scripted", pre_run_commands=[{"command": "exit 4"}]
    )
    with pytest.raises(Unavailable, match="pre-run command 1 failed with 4"):
        run(tmp_path, failing, "failed")
    assert meta(again(tmp_path, "failed"))["sessions"][0]["stop_reason"] == "pending"


def test_work_directory_is_reset_on_request(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine").write_text("as it was\n")
    scenario = script([bash("echo changed > mine; echo new > new")], "done")

    book = run(tmp_path, config(tmp_path, scenario, "go", engine="scripted", in_place=True))

    assert tree(tmp_path / "work") == {"mine": (b"as it was\n", False)}
    assert {entry["file_path"] for entry in changelog(book)} == {"mine", "new"}


def test_a_run_can_be_moved_and_says_nothing_of_where_it_was(tmp_path):
    given = config(tmp_path, WHO, "make one", "make two", session_mode="chained", engine="scripted")
    book = run(tmp_path, given)
    shutil.move(book.path, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "work")
    moved = again(tmp_path, "../elsewhere")

    step = inspect_address(moved, RunAddress("elsewhere", session=2, turn=1), os.environ["PATH"])

    assert [change["file_path"] for change in step["file_changes"]] == ["who"]
    assert step["request"]["status"] == 200
    ours = [
        "run_meta.json",
        "state_changelog.jsonl",
        ".journal.jsonl",
        "full_diff.patch",
        "session_02/uuid_map.json",
    ]
    for name in ours:
        text = (moved.path / name).read_text()
        assert str(tmp_path) not in text.replace(f"+{tmp_path}/work", ""), name
    assert meta(moved)["work_dir"] == "work"


def test_the_key_is_in_no_file_of_a_run_though_the_agent_prints_it(tmp_path):
    scenario = script([bash("env | sort; echo done")], "I saw the environment")
    env = environment(tmp_path, ANTHROPIC_API_KEY=CANARY)

    book = run(tmp_path, config(tmp_path, scenario, "go"), env=env)

    assert meta(book)["stop_reason"] == "completed"
    everything = [path for path in book.path.rglob("*") if path.is_file()]
    assert len(everything) > 20
    assert [str(path) for path in everything if CANARY.encode() in path.read_bytes()] == []
    assert b"[scrubbed]" in (book.path / "session_01" / "transcript.jsonl").read_bytes()


def test_a_taken_name_and_a_run_inside_its_work_directory_are_refused(tmp_path):
    given = config(tmp_path, WHO, "make one", engine="scripted")
    run(tmp_path, given)

    with pytest.raises(Conflict, match="a run of this name"):
        run(tmp_path, given)
    with pytest.raises(Invalid, match="inside its work directory"):
        start_run(
            tmp_path / "work" / "runs" / "r",
            given,
            service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None),
        )


def test_any_command_can_be_the_agent(tmp_path):
    words = [
        "sh",
        "-c",
        'echo "$1" > said; echo "{\\"session_id\\": \\"$2\\"}"',
        "sh",
        "{prompt}",
        "{session_id}",
    ]
    given = config(
        tmp_path,
        None,
        "say {model}",
        engine="command",
        command=words,
        capture_api_requests=False,
        in_place="keep",
    )

    book = run(tmp_path, given)

    assert (tmp_path / "work" / "said").read_text() == "say {model}\n"
    row = meta(book)["sessions"][0]
    assert (row["stop_reason"], row["file_writes"], row["total_cost_usd"]) == ("completed", 1, None)
    assert [(entry["file_path"], entry["attribution"]) for entry in proven(book, tmp_path)] == [
        ("said", "shared")
    ]


def test_progress_is_shown_while_it_runs(tmp_path):
    progress = []
    setting = service.prepare_run(
        open_runtime(environment(tmp_path)),
        lambda *words: progress.append((time.monotonic(), *words)),
    )

    start_run(
        tmp_path / "runs" / "run", config(tmp_path, WHO, "make one", engine="scripted"), setting
    )

    assert [words for _, _, words, _ in progress] == ["started", "", "", "ended: completed"]
    assert [spent > 0 for *_, spent in progress] == [False, True, True, True]
