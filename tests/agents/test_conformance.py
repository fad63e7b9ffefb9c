"""The laws that the source of every registered agent keeps, on what real agents wrote."""

import json
import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.agents import agent_names, find_agent, source_of
from flightlog.model.entries import (
    AssistantReply,
    ClientTotalReported,
    ContextCompacted,
    Entry,
    SubagentInfo,
    Thinking,
    ToolResult,
    ToolUse,
    exit_code_of,
)
from flightlog.model.errors import Damage, NotFound
from flightlog.model.session import SessionFile, ToolCall
from flightlog.sources.protocol import Fidelity
from flightlog.store.recordings.reader import is_virtual
from flightlog.views.session.edits import diffs_of_call
from support import recordings
from support.client_recordings import restore_database

RECORDINGS = Path(__file__).parents[1] / "recordings"
# Where the client of an agent would write a session, below its own directory.
ONE_FILE = {
    "claude-code": "projects/p/s.jsonl",
    "codex": "sessions/2026/11/15/rollout-2026-11-15T07-15-30-01a1de0f-a7ef-76b0-9fb7-620728d8.jsonl",
    "pi": "agent/sessions/--p--/2026-11-16T16-07-12-335Z_s.jsonl",
    "copilot": "session-state/s/events.jsonl",
    "gemini": "tmp/p/chats/session-s.jsonl",
    "opencode": "sessions/opencode/s/transcript.jsonl",  # our copy: its own are in a database
    "qwen": "projects/p/chats/s.jsonl",
}


def session_files(name):
    """The recorded session files of an agent; `session/` holds them as below its own directory."""
    patterns = {"claude-code": "**/*.jsonl", "opencode": "*/*/copy/*.jsonl"}
    pattern = patterns.get(name, "*/*/session/**/*.jsonl")
    return sorted((RECORDINGS / name).glob(pattern))


def lay_out(name, where):
    """Make all recordings of an agent into one of its own directories."""
    if name == "claude-code":
        return recordings.config_dir(where, *recordings.CASES)
    for session in sorted((RECORDINGS / name).glob("*/*/session")):
        shutil.copytree(session, where, dirs_exist_ok=True)
        for dump in where.glob("*.db.sql"):
            restore_database(dump, where / f"opencode-{session.parent.name}.db")
            dump.unlink()
    return where


FILES = [
    pytest.param(name, path, id=f"{name}:{path.relative_to(RECORDINGS / name)}")
    for name in agent_names()
    for path in session_files(name)
]


@pytest.fixture(scope="module", params=agent_names())
def agent(request):
    return find_agent(request.param)


@pytest.fixture(scope="module")
def listing(agent, tmp_path_factory):
    """Everything the agent's source finds in its fixtures."""
    return agent.find([str(lay_out(agent.name, tmp_path_factory.mktemp("root")))])


def lay_out_file(name, where, data):
    """Lay `data` out as the one main transcript below `where` and return what the source finds."""
    path = where / ONE_FILE[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    files = find_agent(name).find([str(where)]).files if name != "opencode" else ()
    # Codex has no session before the first line is whole, which says whose it is.
    return files[0] if files else SessionFile(str(path), "s", len(data), 0, agent=name)


def plain(items):
    """Records as a cut cannot change them: the order of one without a time depends on the one before."""
    records = (item for item in items if isinstance(item, Entry | Damage))
    return [replace(item, order_ms=0) if isinstance(item, Entry) else item for item in records]


def without_queued(records):
    """Records without the words of queued prompts, which one read leaves out if a record repeats them."""
    return [
        record._replace(text="") if record.kind == "queue-operation enqueue" else record
        for record in records
    ]


def fullest(scans):
    """The counts of the fullest copy of each response, as the attribution picks it."""
    best = {}
    for row in (row for scan in scans for row in scan.rows):
        known = best.get((row.message_id, row.subagent))
        if known is None or row.output_tokens > known.output_tokens:
            best[(row.message_id, row.subagent)] = row
    return best


def test_registered_agents_keep_the_protocol(agent):
    assert find_agent(agent.name) is agent
    assert agent.source is source_of(agent.name)
    assert isinstance(agent.source.fidelity, Fidelity)


def test_an_unknown_agent_is_not_found():
    with pytest.raises(NotFound, match="no such agent: 'absent'"):
        find_agent("absent")


@pytest.mark.parametrize(("name", "path"), FILES)
def test_reading_in_two_parts_equals_one_read(name, path, tmp_path):
    data = path.read_bytes()
    source = source_of(name)
    whole = lay_out_file(name, tmp_path / "whole", data)
    expected = plain(source.entries(whole))
    records = source.index_records(whole).records
    for number, cut in enumerate(range(1, len(data), len(data) // 7 + 1)):
        part = lay_out_file(name, tmp_path / str(number), data[:cut])
        first = plain(source.entries(part))
        usage, index = source.scan_usage(part), source.index_records(part)
        first_part = [record for record in index.records if record.offset < index.end]
        end = max(
            (item.offset + item.length + 1 for item in first if item.offset < index.end), default=0
        )
        rest = lay_out_file(name, tmp_path / str(number), data)
        moved = {"path": whole.path}
        entries = [item for item in first if item.offset < index.end]
        entries += plain(source.entries(rest, end))

        assert [replace(item, **moved) for item in entries] == expected
        again = first_part + source.index_records(rest, index.end).records
        assert without_queued(again) == without_queued(records)
        assert fullest([usage, source.scan_usage(rest, usage.end)]) == fullest(
            [source.scan_usage(whole)]
        )


@pytest.mark.parametrize("name", agent_names())
def test_a_record_without_its_newline_is_indexed_once(name, tmp_path):
    data = session_files(name)[0].read_bytes()
    cut = data.index(b"\n", len(data) // 2)
    source = source_of(name)

    first = source.index_records(lay_out_file(name, tmp_path, data[:cut]))
    rest = source.index_records(lay_out_file(name, tmp_path, data), first.end)

    offsets = [record.offset for record in (*first.records, *rest.records)]
    assert len(offsets) == len(set(offsets))


def test_records_read_again_by_their_span_are_the_same(agent, listing):
    for file in listing.files:
        entries = [item for item in agent.source.entries(file) if isinstance(item, Entry)]
        spans = list(dict.fromkeys((entry.offset, entry.length) for entry in entries))
        again = list(agent.source.entries_at(file.path, spans))

        facts = [
            (entry.key, entry.event, entry.at_ms, entry.offset, entry.length) for entry in entries
        ]
        assert [
            (entry.key, entry.event, entry.at_ms, entry.offset, entry.length) for entry in again
        ] == facts


@pytest.mark.parametrize("name", agent_names())
@given(data=st.data())
@settings(max_examples=60)
def test_damage_never_raises(name, data, tmp_path_factory):
    path = data.draw(st.sampled_from(session_files(name)))
    body = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
    file = lay_out_file(name, tmp_path_factory.mktemp("damaged"), bytes(body))
    source = source_of(name)

    items = list(source.entries(file))

    assert all(isinstance(item, Entry | Damage | SubagentInfo) for item in items)
    assert source.scan_usage(file).error == ""
    assert source.index_records(file).error == ""
    assert source.tail(file.path, 0).end <= file.size
    assert all(isinstance(entry, Entry) for entry in source.titles([file]))
    assert all(isinstance(thread, str) for thread in source.thread_contexts([file]))


@pytest.mark.parametrize("name", sorted(ONE_FILE.keys() - {"opencode"}))
def test_pipes_and_links_in_a_circle_are_listed_as_damage(name, tmp_path):
    path = tmp_path / ONE_FILE[name]
    path.parent.mkdir(parents=True)
    os.mkfifo(path)  # opening one waits for a writer
    for folder in (path.parent, path.parent.parent):
        (folder / "circle").symlink_to(folder / "circle")

    listing = find_agent(name).find([str(tmp_path)])

    assert listing.files == ()
    assert "not a file" in {damage.reason for damage in listing.damage}


def test_a_file_that_is_gone_is_damage(agent, tmp_path):
    file = lay_out_file(agent.name, tmp_path, b"{}\n")
    Path(file.path).unlink()
    source = agent.source

    assert [type(item) for item in source.entries(file)] == [Damage]
    assert source.scan_usage(file).error
    assert source.index_records(file).error
    assert (list(source.entries_at(file.path, [(0, 3)])), list(source.titles([file]))) == ([], [])
    assert (source.tail(file.path, 2).end, source.thread_contexts([file])) == (0, {})
    assert source.session_files(file) == ()


def test_totals_equal_the_manifest_of_the_fixtures(agent, listing):
    manifest = json.loads((RECORDINGS / agent.name / "manifest.json").read_bytes())
    expected, counted = defaultdict(list), defaultdict(list)
    for path, totals in manifest.items():
        expected[Path(path).name].append(tuple(totals.values()))
    for file in listing.files:
        rows = fullest([agent.source.scan_usage(file)]).values()
        sums = (
            len(agent.source.index_records(file).records),
            len(rows),
            sum(row.input_tokens for row in rows),
            sum(row.output_tokens for row in rows),
            sum(row.cache_read_tokens for row in rows),
            sum(row.cache_write_tokens for row in rows),
            sum(row.cache_write_1h_tokens for row in rows),
        )
        counted[Path(file.path).name].append(sums)

    for sums in (*expected.values(), *counted.values()):
        sums.sort()
    assert counted == expected


def test_fidelity_says_what_the_recordings_hold(agent, listing):
    items = [item for file in listing.files for item in agent.source.entries(file)]
    entries = [item for item in items if isinstance(item, Entry)]
    replies = [entry.event for entry in entries if isinstance(entry.event, AssistantReply)]
    blocks = [block for reply in replies for block in reply.content]
    contexts = agent.source.thread_contexts(listing.files).values()
    results = [entry.event for entry in entries if isinstance(entry.event, ToolResult)]
    uses = [block for block in blocks if isinstance(block, ToolUse)]
    calls = [ToolCall(use.id, use.name, use.input) for use in uses]

    assert agent.source.fidelity == Fidelity(
        timestamps=any(entry.at_ms for entry in entries),
        usage=any(reply.usage for reply in replies),
        client_totals=any(isinstance(entry.event, ClientTotalReported) for entry in entries),
        thinking=any(isinstance(block, Thinking) and block.text for block in blocks),
        tool_results=any(isinstance(entry.event, ToolResult) for entry in entries),
        subagents=any(isinstance(item, SubagentInfo) for item in items),
        system_prompt=any(context.system for context in contexts),
        exit_codes=any(exit_code_of(result.detail) is not None for result in results),
        permissions=any(result.permission_decision or result.denial_reason for result in results),
        file_changes=any(diff.lines for call in calls for diff in diffs_of_call(call)),
    )


def test_the_key_of_an_entry_begins_with_its_uuid(agent, listing):
    entries = [
        item
        for file in listing.files
        for item in agent.source.entries(file)
        if isinstance(item, Entry) and item.uuid
    ]

    assert entries
    assert [entry.key for entry in entries if not entry.key.startswith(f"{entry.uuid}:")] == []


def test_any_file_of_a_session_leads_to_all_of_them(agent, listing):
    by_session = defaultdict(set)
    for file in listing.files:
        by_session[file.session].add(file)

    for file in listing.files:
        near = {
            known
            for known in by_session[file.session]
            if known.path.split("/")[:-1] == file.path.split("/")[:-1]
        }
        assert near <= set(agent.source.session_files(file))
        assert set(agent.source.session_files(file)) <= by_session[file.session]


def test_the_tail_agrees_with_the_entries(agent, listing):
    for file in listing.files:
        tail = agent.source.tail(file.path, 0)
        events = [getattr(entry, "event", None) for entry in agent.source.entries(file)]
        replies = [event for event in events if isinstance(event, AssistantReply)]
        counted = [reply for reply in replies if reply.usage or reply.is_synthetic]
        sizes = [
            event.tokens_after if isinstance(event, ContextCompacted) else event.usage.total_tokens
            for event in events
            if isinstance(event, ContextCompacted) or event in counted
        ]

        if not is_virtual(file.path):
            assert tail.end == file.size
        assert tail.messages >= len(replies)
        if counted:
            assert (tail.model, tail.total_tokens) == (counted[-1].model, sizes[-1])


def test_the_source_finds_what_the_driver_started(bench):
    agent = find_agent(bench.client.agent)

    session = bench.run(
        {"rules": [{"replies": [{"text": "Hello."}]}]}, "Say hello."
    ).outcome.session

    assert session in {file.session for file in agent.find([str(bench.config)]).files}
