"""Branches stay exact: every request, file, time and ref, as long as the model repeats what it said."""

import json
import os
import re
import subprocess
from contextlib import contextmanager

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.lab.config import TOOLS
from flightlog.lab.replay.recorded_context import find_differences
from support.labs import bash, config, run
from support.observing import observe_requests
from support.real_agent import PINNED, agent_program
from support.replays import Ground, _make_replies

MODELS = ("claude-opus-5-5", "claude-sonnet-4-5", "claude-haiku-4-5")
CLIENTS = (PINNED, "2.1.100", "2.0.76")
GIT = {
    f"GIT_{who}_{what}": f"{what}@x"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}
DATES = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "1700000000 +0000")
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"} | GIT | DATES
# What each run has of its own: subagent and session ids, times, durations, its directories.
OWN = re.compile(
    r"\ba[0-9a-f]{16}\b|agentId: a[0-9a-f]{6}\b|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|duration_ms: \d+|\.work-[\w.-]+|cc_version=[\w.]+"
)


def git(folder, *words):
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENV, capture_output=True, text=True, check=True
    )
    return done.stdout


def commit(words):
    return bash_with_dates(f"git add -A; git commit -qm {words}; git log --oneline; git stash list")


def bash_with_dates(command):
    settings = " ".join(f"{name}='{value}'" for name, value in (GIT | DATES).items())
    return bash(f"export {settings}; {command}")


def subagent_tool(client):
    return "Task" if client.startswith("2.0.") else "Agent"


def scenario(work, client):
    """Twelve turns: edits of files read before, commits, a stash, a subagent; then compacted, and two more."""
    file = str(work / "a.py")
    agent = {"description": "look", "prompt": "write it", "run_in_background": False}
    agent["subagent_type"] = "general-purpose"
    turns = [
        [{"tool": "Read", "input": {"file_path": file}}],
        [bash("echo more >> notes.txt")],
        [commit("one")],
        [
            {
                "tool": "Edit",
                "input": {"file_path": file, "old_string": "a = 1", "new_string": "a = 2"},
            }
        ],
        [commit("two")],
        [{"tool": subagent_tool(client), "input": agent}],
        [
            bash_with_dates(
                "echo stashed > notes.txt; git stash -q; git stash list; git status --short"
            )
        ],
        [
            {
                "tool": "Edit",
                "input": {"file_path": file, "old_string": "a = 2", "new_string": "a = 3"},
            }
        ],
        [
            bash_with_dates(
                "git checkout -qb side; git -C .trees/side commit -q --allow-empty -m aside; git status"
            )
        ],
        [commit("three")],
        [{"tool": "Read", "input": {"file_path": file}}],
        "done",
    ]
    later = [[bash("git log --oneline --all; cat a.py")], "done again"]
    rules = [
        {
            "when": {"prompt": "write it"},
            "replies": _make_replies("sub", [[bash("echo sub > sub.txt")], "sub done"]),
        },
        {"when": {"prompt": "do it"}, "replies": _make_replies("first", turns)},
        {"when": {"prompt": "go on"}, "replies": _make_replies("second", later)},
    ]
    return {"rules": rules}


def comparable(seen):
    """A request without the caller, cache markers, subagent ids, times and the run's own directories."""

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key != "cache_control"}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return OWN.sub("-", value) if isinstance(value, str) else value

    body = {key: plain(value) for key, value in seen.body.items() if key != "metadata"}
    for message in body["messages"]:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    headers = {name: value for name, value in seen.headers.items() if name.startswith("anthropic-")}
    return headers, body


@contextmanager
def recording_client(root, model, client):
    work = root / "work"
    work.mkdir(parents=True)
    (work / "a.py").write_text("a = 1\n")
    os.utime(work / "a.py", ns=(1, 1_600_000_000_000_000_000))
    git(work, "init", "-qb", "main")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "zero")
    git(work, "worktree", "add", "-qb", "aside", ".trees/side")
    (work / ".gitignore").write_text(".trees\n")
    states = {}
    # The old client refreshes git's index when it starts.
    api = observe_requests(
        work, states, *(["./.git", "./.git/index"] if client == "2.0.76" else [])
    )
    with serve_scenario(parse_scenario(scenario(work, client)), apis=(api,)) as server:
        ground = Ground(root, server)
        ground.env["FLIGHTLOG_CLAUDE"] = str(agent_program(client))
        before = picture(work)
        sessions = ("do it", "/compact be brief", "go on")
        tools = [*TOOLS, subagent_tool(client)]
        more = {"base_url": server.url, "model": model, "allowed_tools": tools}
        given = config(root, None, *sessions, session_mode="chained", **more)
        book, begin = make_whole(lambda n: run(root, given, f"run{n}", env=ground.env), server)
        reasons = [
            attempt.stop_reason for tries in book.state.attempts.values() for attempt in tries
        ]
        assert reasons == ["completed"] * 3
        assert picture(work) == before
        ground.setting = service_for(ground.env)
        yield ground, server, book.name, list(server.requests)[begin:], states


def make_whole(make, server):
    """Make a run until its first transcript has its end; return it, and the request it began with.

    A client before 2.1.300 may exit before it wrote the last response, and resumes without it then.
    """
    for number in range(5):
        begin = len(server.requests)
        book = make(number)
        if '"text":"done"' in (book.path / "session_01" / "transcript.jsonl").read_text():
            return book, begin
    raise AssertionError("the client never wrote its last response")


def service_for(env):
    from flightlog.app.runtime import open_runtime
    from flightlog.lab import service

    return service.prepare_run(open_runtime(env), lambda *_: None)


def picture(folder):
    files = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        data = b"" if path.is_dir() else path.read_bytes()
        files[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, data)
    return files


def select_session_requests(requests):
    """The requests of sessions and subagents; those without tools are the client's own, as for titles."""
    return [
        seen
        for seen in requests
        if seen.path.partition("?")[0].endswith("/messages") and seen.body.get("tools")
    ]


def check_order_after_compaction(source, request):
    """The trajectory has what follows a compaction in the order of the request."""
    steps = source.read.bundle.documents["trajectory.json"].steps
    parts = [[step.observation, step.message] for step in steps if step.source != "agent"]
    expected, wire = str(parts), json.dumps(request.body["messages"])
    marks = ["This session is being continued", "aveat", "be brief", "Compacted ", "go on"]
    assert sorted(marks, key=wire.index) == sorted(marks, key=expected.index) == marks


def prove(root, model, client, turns):
    with recording_client(root, model, client) as (ground, server, run_name, source, states):
        before = picture(ground.work)
        follows = [seen for seen in source if "go on" in json.dumps(seen.body)]
        check_order_after_compaction(ground.source(3, run_name), follows[0])
        reading = ground.source(1, run_name)
        for turn in turns:
            call = reading._find_request(reading.read.own_steps()[turn - 1])

            book, begin = make_whole(
                lambda number, turn=turn: ground.branch(
                    f"t{turn:02d}_{number}", 1, turn, run_name, continue_sessions=True
                ),
                server,
            )

            where = (model, client, turn)
            meta = json.loads((book.path / "replay_meta.json").read_bytes())["certificate"]
            parts = [
                meta[name] for name in ("verdict", "context", "files", "repository", "environment")
            ]
            assert parts == ["exact"] * 5, (where, meta)
            assert meta["later_requests"]["first_difference"] is None
            assert meta["later_requests"]["equal"] == meta["later_requests"]["compared"]
            sent = select_session_requests(server.requests[begin:])
            expected = select_session_requests(source[call.index - 1 :])
            for number, (one, other) in enumerate(zip(sent, expected, strict=True)):
                requests = comparable(one), comparable(other)
                places = [*find_differences(requests[0][1], requests[1][1])][:3]
                assert requests[0] == requests[1], (where, number, places)
            check_states(states, sent, expected, where)
            assert picture(ground.work) == before


def check_states(states, sent, expected, where):
    """At the cut all is equal; later, files have the times of now."""
    for number, (one, other) in enumerate(zip(sent, expected, strict=True)):
        state, recorded = (dict(states[id(seen.body)]) for seen in (one, other))
        assert len(state["times"]) > 20
        if number:
            del state["times"], recorded["times"]
        assert state == recorded, (where, number)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_request_after_the_cut_equals_the_recorded_one(tmp_path, client):
    prove(tmp_path, MODELS[1], client, (6, 10))


@pytest.mark.soak
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("model", MODELS)
def test_every_turn_of_every_model_and_client_stays_exact(tmp_path, model, client):
    prove(tmp_path, model, client, range(1, 13))
