"""What holds for the sessions that the real client of any other agent recorded."""

import json
import os
import shutil
from pathlib import Path

import pytest

from flightlog.agents import find_agent, source_of
from flightlog.agents.adoption import adopt_session_files
from flightlog.model.entries import Entry
from flightlog.model.errors import Damage
from flightlog.model.usage import Usage
from flightlog.privacy.scanner import secret_counts
from flightlog.store.recordings.reader import raw_lines
from support.agent_sessions import (
    find_files,
    open_archive,
    own_dir,
    report_usage,
    steps_of,
    usage_rows,
)
from support.cli_runs import within
from support.client_recordings import lay_out_home, list_cases, wire_usage

AGENTS = ("copilot", "pi")
CASES = [case for agent in AGENTS for case in list_cases(agent)]
THREAD = "01a1e51f-9707-7b41-a3c9-b11fd6582cf7"
PIPES = {
    "codex": f"sessions/2026/01/01/rollout-2026-01-01T00-00-00-{THREAD}.jsonl",
    "copilot": "session-state/s/events.jsonl",
    "gemini": "tmp/project/chats/session-2026-01-01T00-00-01a1e51f.jsonl",
    "opencode": "opencode.db",
    "pi": "agent/sessions/--p--/2026-01-01T00-00-00-000Z_s.jsonl",
    "qwen": f"projects/-p/chats/{THREAD}.jsonl",
}
LONG = b'{"type":"unheard","data":{"text":"' + b"y" * (3 << 20) + b'"}}\n'


def make_pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def agent_of(case):
    return case.partition("/")[0]


@pytest.mark.parametrize("case", CASES)
def test_tokens_equal_those_of_the_recorded_responses(case, tmp_path):
    home, agent = lay_out_home(tmp_path, case), agent_of(case)

    assert report_usage(agent, home).total.usage == wire_usage(case)


@pytest.mark.parametrize("case", CASES)
def test_steps_have_the_ids_and_tokens_of_the_usage(case, tmp_path):
    home, agent = lay_out_home(tmp_path, case), agent_of(case)
    rows = {row.message_id: row for file in find_files(agent, home) for row in usage_rows(file)}
    steps = {
        step.message_id: step
        for session in open_archive(agent, home).iter_sessions()
        for step in steps_of(session)
    }

    assert steps.keys() == rows.keys()
    assert sum((step.usage for step in steps.values()), Usage()) == wire_usage(case)


@pytest.mark.parametrize("case", CASES)
def test_a_live_tail_equals_one_read(case, tmp_path):
    home, agent = lay_out_home(tmp_path, case), agent_of(case)
    source = source_of(agent)
    for file in find_files(agent, home):
        path = Path(file.path)
        data, expected = path.read_bytes(), list(source.entries(file))
        grown, start = [], 0
        for end in range(1500, len(data) + 1500, 1500):
            path.write_bytes(data[:end])
            new = [item for item in source.entries(file, start) if isinstance(item, Entry)]
            grown += new
            start = max((item.offset + item.length + 1 for item in new), default=start)

        assert grown == [item for item in expected if isinstance(item, Entry)]


@pytest.mark.parametrize("case", CASES)
def test_the_ids_that_an_agent_writes_are_no_secrets(case, tmp_path):
    files = find_files(agent_of(case), lay_out_home(tmp_path, case))

    assert secret_counts(line for file in files for line in raw_lines(file.path, 0)) == {}


@pytest.mark.parametrize("agent", AGENTS)
def test_torn_and_long_lines_are_read_around(agent, tmp_path):
    home = lay_out_home(tmp_path, *list_cases(agent))
    before = report_usage(agent, home).total.usage
    for file in find_files(agent, home):
        first, *lines = Path(file.path).read_bytes().splitlines(keepends=True)
        body = b"".join((first, b'{"type":"mess\n', LONG, *lines, b'{"ty'))
        Path(file.path).write_bytes(body)

    damage = [
        item.reason
        for file in find_files(agent, home)
        for item in source_of(agent).entries(file)
        if isinstance(item, Damage)
    ]

    assert damage == ["torn", "torn at the end"] * len(find_files(agent, home))
    assert report_usage(agent, home).total.usage == before
    assert all(
        dict(session.unknown_record_types) == {"unheard": 1}
        for session in open_archive(agent, home).iter_sessions()
    )


@pytest.mark.parametrize("case", CASES)
def test_our_copy_reads_the_same_when_the_session_is_gone(case, tmp_path):
    home, agent, data = lay_out_home(tmp_path / "home", case), agent_of(case), tmp_path / "data"
    before = {session.id: session for session in open_archive(agent, home).iter_sessions()}
    for file in find_files(agent, home):
        adopt_session_files(str(data), file.session, [file])
    shutil.rmtree(own_dir(agent, home))

    copies = list(open_archive(agent, home, data).iter_sessions())

    assert {copy.id for copy in copies} == before.keys()
    for copy in copies:
        known = before[copy.id]
        facts = (copy.title, copy.turns, copy.subagents, copy.client_totals)
        assert facts == (known.title, known.turns, known.subagents, known.client_totals)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_a_rewrite_removes_stays_in_our_copy(agent, tmp_path):
    case = next(case for case in list_cases(agent) if "multi-turn" in case)
    home, data = lay_out_home(tmp_path / "home", case), tmp_path / "data"
    (file,) = find_files(agent, home)
    adopt_session_files(str(data), file.session, [file])
    lines = Path(file.path).read_bytes().splitlines(keepends=True)
    Path(file.path).write_bytes(b"".join(lines[: len(lines) // 2]))

    adopt_session_files(str(data), file.session, find_files(agent, home))

    alone = report_usage(agent, home).total.usage
    assert alone.output_tokens < wire_usage(case).output_tokens
    assert report_usage(agent, home, data).total.usage == wire_usage(case)


@pytest.mark.parametrize("agent", AGENTS)
def test_commands_read_the_sessions_below_home(agent, tmp_path):
    cases = list_cases(agent)
    home = lay_out_home(tmp_path / "home", *cases)

    def run(*arguments):
        return within(None, "session", *arguments, HOME=str(home)).out

    rows = json.loads(run("list", "--json"))
    (usage,) = json.loads(run("usage", "--by", "agent", "--json"))["rows"]
    hits = run("search", f"agent:{agent} gamma")
    shown = run("show", find_files(agent, home)[0].session)

    assert {row["agent"] for row in rows} == {agent}
    total = sum((wire_usage(case) for case in cases), Usage())
    assert (usage["agent"], usage["output_tokens"]) == (agent, total.output_tokens)
    assert usage["cache_read_tokens"] == total.cache_read_tokens
    assert "gamma" in hits
    assert f"\n{agent}" in shown


@pytest.mark.parametrize(
    ("agent", "path"),
    [
        *PIPES.items(),
        ("gemini", "tmp/project/chats/session-2026-01-01T00-00-01a1e51f.json"),
        ("opencode", "storage/session/p/ses_a.json"),
    ],
)
def test_a_pipe_instead_of_a_session_is_damage(agent, path, tmp_path):
    make_pipe(Path(own_dir(agent, tmp_path), path))

    listing = find_agent(agent).find([own_dir(agent, tmp_path)])

    assert listing.files == ()
    assert [damage.reason for damage in listing.damage] == ["not a file"]
