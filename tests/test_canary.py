"""A canary placed anywhere is in no byte that may leave, whatever was run.

One law for every room: the places a secret can come in by, and the commands whose output or
pages may be shared. A room that writes something new adds its command to `SHARED`.
"""

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from support.cli_runs import FLIGHTLOG, environment
from support.mcp_server import run_server
from support.transcripts import SESSION, assistant, stamp, user, write

CANARY = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
KNOWN = "correct-horse-battery-9"
# No detector knows the form of these: one is assigned to a secret name once, one only the project's `.env` has.
ASSIGNED = "9fQ2xL7v+Kp3WzR8tYb6Nd4m"
IN_PROJECT = "pX4mR8wT2qZ7nB5vK9sDf3Hj"
# Only the output of a loop's commands has this one, first bare and later assigned to a secret name.
LATE = "Wq7Zt3Lm9Xc5Vb1Nr8Kd"
VALUES = (CANARY, KNOWN, ASSIGNED, IN_PROJECT)
# A shorter part of a value says nothing of it, and may occur by chance.
PART_CHARS = 10
OTHER = "22222222-2222-4222-8222-222222222222"
FAILURE = f"Error: {' '.join(VALUES)} {'x' * 60} refused {' '.join(VALUES)}"

# What a person may hand to others: standard output, unless it names files.
SHARED = {
    "export md": ("session", "export", SESSION, "--redact"),
    "export html": ("session", "export", SESSION, "--redact", "--format", "html"),
    "export json": ("session", "export", SESSION, "--redact", "--format", "json"),
    "export to a file": ("session", "export", SESSION, "--redact", "--output", "shared.md"),
    "export of a trajectory": ("session", "export", SESSION, "--redact", "--atif"),
    "export of a trajectory to files": (
        "session",
        "export",
        SESSION,
        "--redact",
        "--atif",
        "--output",
        "shared.atif",
    ),
    "export of all as trajectories": (
        "session",
        "export",
        "--all",
        "--redact",
        "--atif",
        "--output",
        "shared.all",
    ),
    "share": ("share", SESSION),
    "share of a session with a given title": ("share", OTHER),
    "share to a file": ("share", SESSION, "--output", "shared.html"),
    "scan": ("privacy", "scan", "."),
    "scan as JSON": ("privacy", "scan", ".", "--json"),
    "scan of a session": ("privacy", "scan", SESSION, "--json"),
    "redact": ("privacy", "redact", "notes.txt"),
    "redact lines": ("privacy", "redact", "--jsonl", "lines.jsonl"),
    "preview": ("privacy", "preview", "notes.txt"),
    "guard": ("privacy", "check", "--quiet"),
    "guard as JSON": ("privacy", "check", "--json"),
    "settle": ("settle", "--json"),
    "status": ("status", "--json"),
    "watch": ("watch", "--once"),
    "live state": ("live", "state", "--json"),
    "live profiles": ("live", "profiles", "--json"),
    "doctor": ("doctor",),
    "dataset sync": ("dataset", "session", "sync-to-jsonl", "--json"),
    "dataset rows": ("dataset", "export", "--format", "jsonl", "--output", "shared.jsonl"),
    "dataset messages": ("dataset", "export", "--format", "sft", "--output", "shared.sft.jsonl"),
    "dataset stats": ("dataset", "stats"),
    "dataset check": ("dataset", "check", "--json"),
    "loop status": ("loop", "status", "--session", "session-001", "--json"),
    "loop logs": ("loop", "logs", "--session", "session-001", "--json"),
    "loop report": ("loop", "generate-report", "--session", "session-001"),
    "loop insights": ("loop", "insights", "--session", "session-001"),
    "loop analysis": ("loop", "analyze", "--session", "session-001", "--json"),
    "loop monitor": ("loop", "monitor", "--session", "session-001", "--once"),
    "issues, processed and published": ("issue", "process", "--yes"),
    "issues as JSON": ("issue", "preview", "--json"),
    "issues, named for publishing": ("issue", "publish"),
    "clusters": ("issue", "clusters", "--json"),
    "a failure": ("--debug", "privacy", "redact", "nowhere"),
    "a damaged key": ("--debug", "privacy", "key", "import"),
}


def list_spellings(value):
    """The ways a value may be written."""
    once = json.dumps(value)[1:-1]
    return {
        value,
        once,
        json.dumps(once)[1:-1],
        quote(value, safe=""),
        base64.b64encode(value.encode()).decode(),
    }


def leaks(output):
    """Return what `said` holds of the values: a part of one, or all of it in another form."""
    text = output.decode("utf-8", "replace") if isinstance(output, bytes) else output
    forms = {form for value in (*VALUES, LATE) for form in list_spellings(value)}
    # A signature of an error has `#` for numbers and no capitals.
    bare = {*VALUES, *(re.sub(r"\d+", "#", value) for value in VALUES)}
    bare |= {value.lower() for value in bare}
    parts = {
        value[at : at + PART_CHARS] for value in bare for at in range(len(value) - PART_CHARS + 1)
    }
    return sorted(form for form in forms | parts if form in text)


def cut_at(limit, value, words="word "):
    """Return a text in which `limit` falls into the middle of `value`."""
    before = limit - len(value) // 2 - 1
    return (words * limit)[:before] + " " + value + " and more words after it" * 3


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words], cwd=folder, check=True,
                   capture_output=True)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A repository and a session with the canary everywhere a secret comes in by."""
    root = tmp_path_factory.mktemp("canary")
    repository = root / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", f"fix-{CANARY}")
    (repository / "notes.txt").write_text(f"token: {CANARY}\nalso {KNOWN}\n")
    lines = [
        {"text": f"use {CANARY} and {KNOWN}"},
        {"text": f"ACME_TOKEN={ASSIGNED}"},
        *deltas(CANARY),
        *deltas(ASSIGNED),
    ]
    (repository / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (repository / f"{ASSIGNED}-{IN_PROJECT}.txt").write_text("x")
    git(repository, "add", f"{ASSIGNED}-{IN_PROJECT}.txt")
    git(
        repository,
        "commit",
        "-q",
        "-m",
        f"deploy with {CANARY}\n\n{cut_at(10_000, ASSIGNED)} {IN_PROJECT}",
    )
    git(repository, "add", "-A")
    (repository / ".env").write_text(f"SHOP_BACKEND={IN_PROJECT}\n")
    session(root / "config", repository)
    failing_session(root / "config", repository)
    (root / "elsewhere").mkdir()
    loop(root)
    return root


def deltas(value):
    """Return the two records of a stream that say `value`, the first half and the second."""
    halves = f"send {value[:12]}", f"{value[12:]} now"
    delta = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in halves
    ]
    return [{"type": "stream_event", "session_id": SESSION, "event": event} for event in delta]


def session(config, repository):
    """A session with the values in every place that text comes from, cut at every limit the outputs have."""
    where = {"cwd": f"/home/ada/{CANARY}/shop", "gitBranch": f"fix-{ASSIGNED}-{IN_PROJECT}"}
    path = f"/srv/{ASSIGNED}/{IN_PROJECT}-{CANARY}.txt"
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": path}}
    failing = {
        "type": "tool_use",
        "id": "t2",
        "name": "Bash",
        "input": {"command": cut_at(500, ASSIGNED)},
    }
    task = {
        "prompt": "look around",
        "description": cut_at(60, IN_PROJECT),
        "subagent_type": ASSIGNED,
    }
    agent = {"type": "tool_use", "id": "t3", "name": "Task", "input": task}
    again = {"type": "tool_use", "id": "t4", "name": "Bash", "input": {"command": "login"}}
    spilled = "<persisted-output>\nOutput too large. Full output saved to: /x/tool-results/b1.txt\n</persisted-output>"
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": f"TOKEN={CANARY}\n{KNOWN}\ncommit: add {CANARY}",
        },
        {
            "type": "tool_result",
            "tool_use_id": "t2",
            "is_error": True,
            "content": cut_at(500, IN_PROJECT),
        },
        {"type": "tool_result", "tool_use_id": "t4", "is_error": True, "content": FAILURE},
        {"type": "tool_result", "tool_use_id": "t3", "content": spilled},
    ]
    encoded = " ".join(form for value in VALUES for form in sorted(list_spellings(value)))
    limits = [
        cut_at(limit, value)
        for limit in (40, 60, 100, 160, 200, 220, 300, 2_000, 4_000)
        for value in VALUES
    ]
    key = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQIBADANBgkqhkiG9w0B' * 700}\n-----END PRIVATE KEY-----\n"
    records = (
        # The title of the session: both the heading of 80 characters and that of 60 end inside the value.
        user(cut_at(70, CANARY), 1, **where | {"cwd": str(repository)}),
        user(f"ACME_TOKEN={ASSIGNED} and {KNOWN}", 2, **where),
        user(cut_at(10_000, ASSIGNED), 3, **where),
        # What is redacted gets shorter: a limit plus any margin falls into the value.
        user(key + cut_at(10_000, IN_PROJECT), 4, **where),
        assistant("m1", 5, {"type": "text", "text": f"I use \x1b[32m{CANARY}\x1b[0m"}, call, failing, agent, again,
                  **where),
        user(results, 6, **where),
        user("\n".join([encoded, *limits]), 7, **where),
        assistant("m2", 8, {"type": "thinking", "thinking": encoded},
                  {"type": "text", "text": cut_at(50_000, ASSIGNED)}, **where),
        {"type": "system", "subtype": "api_error", "uuid": "u9", "parentUuid": "u8", "timestamp": stamp(9),
         "sessionId": SESSION, "content": f"401 {ASSIGNED}", "level": "error", **where},
        {"type": "summary", "leafUuid": "nowhere", "summary": cut_at(80, ASSIGNED)},
        {**user("odd", 10, **where), "type": "odd", f"field_{ASSIGNED}": IN_PROJECT},
        user("look", 11, toolUseResult={"stdout": encoded, CANARY: ASSIGNED}, **where | {"version": f"2.1-{ASSIGNED}"}),
        assistant("m4", 12, {"type": f"block_{ASSIGNED}", "text": encoded}, **where),
        f'{{"type": "user", "text": "{CANARY} {ASSIGNED} {IN_PROJECT}',
    )  # fmt: skip
    transcript = write(config, SESSION, *records)
    subagent = [user(f"look around {ASSIGNED}", 1, isSidechain=True, agentId="a1", **where),
            assistant("m3", 2, {"type": "text", "text": encoded}, isSidechain=True, agentId="a1", **where)]  # fmt: skip
    beside = transcript.with_suffix("")
    (beside / "subagents").mkdir(parents=True)
    (beside / "subagents" / "agent-a1.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in subagent)
    )
    (beside / "tool-results").mkdir()
    (beside / "tool-results" / "b1.txt").write_text(encoded)


def failing_session(config, repository):
    """Another session that runs into an error of the first one, so that it is a finding."""
    about = {"sessionId": OTHER, "cwd": str(repository)}
    call = {"type": "tool_use", "id": "t9", "name": "Bash", "input": {"command": "login"}}
    result = {"type": "tool_result", "tool_use_id": "t9", "is_error": True, "content": FAILURE}
    titled = {"type": "custom-title", "sessionId": OTHER, "customTitle": cut_at(70, ASSIGNED)}
    records = (
        user(f"ACME_TOKEN={ASSIGNED}", 1, **about),
        assistant("m9", 2, call, **about),
        user([result], 3, **about),
    )
    write(config, OTHER, *records, titled)


def loop(root):
    """A loop session with the canary in its plan, in what its tasks say and in what they report."""
    result = {"feature": {"feature_id": "F1", "name": CANARY, "purpose": KNOWN}}
    lines = [
        json.dumps(result),
        json.dumps({"artifact": cut_at(400, IN_PROJECT)}),
        cut_at(400, ASSIGNED),
    ]
    (root / "repository" / "told.jsonl").write_text("\n".join(lines) + "\n")
    # Both ends of what is kept of an output fall into a value, and a value is recognized after it was written.
    errors = f"{CANARY} {'x' * 1_988}\n{ASSIGNED} {'y' * 390}\n"
    (root / "repository" / "early.txt").write_text(
        f"{'z' * 20_000} {IN_PROJECT}\n{errors}refused: {LATE} {CANARY}\n"
    )
    (root / "repository" / "late.txt").write_text(f"LATE_TOKEN={LATE}\n")
    report = 'cat told.jsonl >> "$FLIGHTLOG_REPORT"'
    skipped = {"error_handling": {"on_failure": "skip"}, "max_retries": 0}
    tasks = [
        {
            "task_id": "a",
            "name": f"deploy with {CANARY}",
            "description": KNOWN,
            "run": {"command": report},
        },
        {
            "task_id": "e",
            "name": cut_at(80, ASSIGNED),
            "run": {"command": "cat early.txt; exit 1"},
            **skipped,
        },
        {
            "task_id": "l",
            "name": f"use {ASSIGNED}",
            "run": {"command": "cat late.txt; exit 1"},
            **skipped,
        },
        {
            "task_id": "b",
            "name": "fails",
            "run": {"command": f"ACME_TOKEN={ASSIGNED}; echo {CANARY} is refused; exit 1"},
        },
    ]
    settings = {"human_intervention": "never", "max_retries": 0}
    gates = [{"name": f"gate {CANARY}", "metric": "m", "threshold": 1}]
    plan = {
        "plan": cut_at(60, ASSIGNED),
        "tasks": tasks,
        "config": settings,
        "quality_gates": gates,
    }
    (root / "repository" / "plan.yaml").write_text(json.dumps(plan))
    share(root, "loop", "run", "--plan", "plan.yaml", "--autonomous")


def share(place, *words):
    # Sessions are passed on from anywhere, and then the current directory knows nothing of their project.
    folder = place / ("elsewhere" if words[0] in {"session", "share"} else "repository")
    env = environment(place / "config", FLIGHTLOG_DATASET_TRACK_WORDS="true", MY_SECRET_TOKEN=KNOWN)
    done = subprocess.run([FLIGHTLOG, *words], env=env, cwd=folder, capture_output=True, timeout=120,
                          check=False, stdin=subprocess.DEVNULL)  # fmt: skip
    output = done.stdout + done.stderr
    pages = [Path(folder / name) for name in words if name.startswith("shared.")]
    files = [
        file
        for page in pages
        for file in ([page] if page.is_file() else page.rglob("*"))
        if file.is_file()
    ]
    return output + b"".join(file.read_bytes() for file in files)


@pytest.mark.parametrize("command", SHARED)
def test_the_canary_is_in_no_output_that_may_be_shared(place, command):
    output = share(place, *SHARED[command])

    assert output
    assert leaks(output) == []


def test_the_canary_is_in_no_answer_to_an_agent(place):
    words = ["send", "use", "word", "token", "commit", "login", "deploy", CANARY, ASSIGNED, KNOWN]
    env = environment(place / "config", MY_SECRET_TOKEN=KNOWN)
    with run_server(env, place / "repository", "--all-projects") as server:
        answers = [server.call("search", query=word, limit=25) for word in words]
        answers += [
            server.call("sessions"),
            server.call("usage"),
            server.call("usage", scope="project"),
        ]
        addresses = {
            one
            for text in answers
            for one in re.findall(r"^([\w-]{36}(?:@\w+)?(?:#[\d.]+)?)  ", text, re.MULTILINE)
        }
        answers += [server.call("open", address=address, around=2) for address in sorted(addresses)]
        answers += [
            server.call("file_history", path=path) for path in ("notes.txt", f"{ASSIGNED}.txt")
        ]

    assert len(addresses) > 5
    assert "<secret:" in "".join(answers)
    assert [leaks(text) for text in answers] == [[]] * len(answers)


def test_the_canary_is_in_no_page_of_a_loop_session(place):
    (session,) = (place / "repository" / "ralph-loop-sessions").glob("session-001-*")
    # The plan is the person's own file, kept as it is; a report is what the task itself wrote.
    pages = [path for path in session.iterdir() if path.is_file() and path.name != "plan.yaml"]

    assert len(pages) > 10
    for page in pages:
        assert leaks(page.read_bytes()) == [], page.name
    assert leaks(session.name) == []
    assert "<secret:" in (session / "errors-and-retries.json").read_text()


def test_the_canary_was_there_to_be_found(place):
    plain = share(place, "session", "export", SESSION).decode()

    assert all(value in plain for value in VALUES)
    assert "not redacted" in plain
    assert os.sep in plain


def test_the_pages_with_the_canary_taken_out_say_so(place):
    assert b"<secret:" in share(place, *SHARED["redact"])
    assert b"secret:" in share(place, *SHARED["export html"])


def test_git_is_given_nothing_of_a_run_that_holds_the_canary(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "work").mkdir()
    command = f"echo {CANARY} > found.txt; env"
    script = {
        "rules": [
            {
                "replies": [
                    {"blocks": [{"tool": "Bash", "input": {"command": command}}]},
                    {"text": CANARY},
                ]
            }
        ]
    }
    given = {"model": "claude-opus-5-5", "engine": "scripted", "work_dir": "work", "scenario": script,
             "sessions": [{"session_index": 1, "prompt": f"deploy with {CANARY}"}]}  # fmt: skip
    config = tmp_path.parent / f"{tmp_path.name}.yaml"
    config.write_text(json.dumps(given))
    env = environment(tmp_path / "config", ANTHROPIC_API_KEY=KNOWN)
    ran = subprocess.run([FLIGHTLOG, "lab", "run", config, "--run-name", "r"], cwd=tmp_path, env=env, check=True,
                         capture_output=True, timeout=120)  # fmt: skip

    git(tmp_path, "add", "-A", "runs")
    staged = subprocess.run(
        ["git", "diff", "--cached"], cwd=tmp_path, check=True, capture_output=True
    ).stdout

    assert b".gitignore" in staged
    everything = b"".join(
        path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()
    )
    assert CANARY.encode() in everything, "the run itself holds what was said"
    assert not [way for way in list_spellings(KNOWN) if way.encode() in everything], (
        "but not the key the agent was given"
    )
    assert len((tmp_path / "runs/r/session_01/api_captures.jsonl").read_bytes().splitlines()) == 2
    for value in (CANARY, KNOWN):
        assert not [
            way for way in list_spellings(value) if way.encode() in staged + ran.stdout + ran.stderr
        ]


def test_tracked_issue_files_hold_no_secret_no_name_and_no_home(place):
    (place / "repository" / "conversations.json").write_text(
        json.dumps(
            [
                {
                    "uuid": "c1",
                    "name": CANARY,
                    "chat_messages": [{"sender": "human", "text": f"{CANARY} {KNOWN}"}],
                }
            ]
        )
    )
    description = (
        f"at /home/ada/{CANARY}/x.py: {KNOWN}, mail grace.hopper@navy-ships.net\nuser: use {CANARY}"
    )
    share(place, "retro", "analyze", "conversations.json")
    share(
        place,
        "issue",
        "report-bug",
        "--title",
        f"Login with {CANARY} fails",
        "--description",
        description,
    )
    share(place, "issue", "process", "--findings", "--yes")
    waiting = re.search(rb"issue approve (cluster-\w+)", share(place, "issue", "process", "--yes"))
    share(place, "issue", "approve", waiting[1].decode())
    share(place, "issue", "publish")
    issues = (place / "repository").rglob("issue_*.json")
    name = next(path for path in issues if "Login" in path.read_text()).stem.removeprefix("issue_")
    published = share(place, "issue", "preview")
    share(
        place,
        "issue",
        "resolve",
        name,
        "--notes",
        f"No longer uses {CANARY} of grace.hopper@navy-ships.net",
    )
    listed = subprocess.run(["git", "ls-files", "--others", "--exclude-standard", ".chat-retro-runtime"],
                            cwd=place / "repository", capture_output=True, text=True, check=True).stdout  # fmt: skip
    tracked = b"".join((place / "repository" / path).read_bytes() for path in listed.split())

    assert b"<secret:" in published
    assert b"No longer uses" in tracked
    assert b"failure again" in tracked
    assert leaks(published + tracked) == []
    for value in ("grace.hopper", "/home/ada"):
        assert value.encode() not in published + tracked, value


def test_tracked_rows_say_that_something_was_taken_out(place):
    share(place, *SHARED["dataset sync"])
    rows = b"".join(
        path.read_bytes() for path in (place / "repository" / ".git-ml").rglob("*.jsonl")
    )

    assert b"<secret:" in rows
    assert b"deploy with" in rows
    assert leaks(rows) == []
