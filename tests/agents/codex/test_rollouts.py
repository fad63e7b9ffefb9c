"""Codex: every token that the model sent is counted once, and sessions are read as they went."""

import json
from datetime import UTC
from pathlib import Path

import pytest

from flightlog.agents import find_agent
from flightlog.model.entries import AssistantReply, Entry, ToolResult, UnknownRecord
from flightlog.model.errors import Damage
from flightlog.model.session import NoteKind
from flightlog.model.usage import Breakdown, Usage
from flightlog.views.atif.writer import AtifOptions, build_trajectory
from support.codex_rollouts import CASES, home_of, read_archive, total_usage, wire_usage
from support.judges import validate_files
from support.real_clients import make_machine
from support.scripted_apis.openai_responses import decode_usage

CODEX = find_agent("codex")
TOTALS = ("total_token_usage", "last_token_usage")


def count_rows(files):
    return {row.message_id: row for file in files for row in CODEX.source.scan_usage(file).rows}


def edit_lines(home, change):
    """Rewrite each rollout below `home` by what `change` makes of its records; None removes one."""
    for path in home.rglob("rollout-*.jsonl"):
        records = [change(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records if record))


@pytest.mark.parametrize("case", CASES)
def test_usage_equals_what_the_model_sent(case, tmp_path):
    home = home_of(tmp_path, case)

    assert total_usage(home) == wire_usage(case)
    for file in CODEX.find([str(home)]).files:
        rows = CODEX.source.scan_usage(file).rows
        replies = [
            entry.event
            for entry in CODEX.source.entries(file)
            if isinstance(entry, Entry) and isinstance(entry.event, AssistantReply)
        ]
        counted = {reply.message_id: reply.usage for reply in replies if reply.usage}
        assert counted == {row.message_id: Usage(*row[3:9]) for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_running_totals_alone_give_the_same_usage(case, tmp_path):
    home = home_of(tmp_path, case)

    edit_lines(home, lambda record: None if record["type"] == "token_usage_record" else record)

    assert total_usage(home) == wire_usage(case)


@pytest.mark.parametrize("case", ["0.166.0/multi-turn-tools", "0.166.0/fork-and-resume"])
def test_records_alone_give_the_same_usage(case, tmp_path):
    home = home_of(tmp_path, case)
    is_event = {"type": "token_count"}.items()

    edit_lines(home, lambda record: None if is_event <= record["payload"].items() else record)

    assert total_usage(home) == wire_usage(case)
    assert all(len(session.steps) for session in read_archive(home).iter_sessions())


def test_counts_after_compaction_are_an_estimate_and_not_a_call(tmp_path):
    (file,) = CODEX.find([str(home_of(tmp_path, "0.166.0/compaction-auto"))]).files
    (session,) = read_archive(tmp_path).iter_sessions()

    assert [row.input_tokens for row in count_rows([file]).values()] == [80_000, 5_953, 10_218]
    notes = [item for item in session.turns[0].items if getattr(item, "kind", None)]
    assert [(note.kind, note.text) for note in notes] == [
        (NoteKind.COMPACTION, "context compacted (auto), from 80,050 tokens")
    ]


def test_a_paginated_fork_counts_without_its_parent(tmp_path):
    home = home_of(tmp_path, "0.166.0/forked-session")

    assert total_usage(home) == Usage(10_769, 46)  # its running total includes 52,016 of the parent


def test_a_copied_history_keeps_the_names_of_its_responses(tmp_path):
    parent, fork = CODEX.find([str(home_of(tmp_path, "0.140.0/legacy-fork"))]).files

    shared = count_rows([parent]).keys() & count_rows([fork]).keys()

    assert len(shared) == 3
    assert len(count_rows([parent])) == 4
    assert len(count_rows([fork])) == 5


def test_a_history_copied_without_records_of_usage_counts_once(tmp_path):
    parent, fork = CODEX.find([str(home_of(tmp_path, "0.166.0/fork-and-resume"))]).files
    lines = Path(parent.path).read_bytes().splitlines(keepends=True)
    base = json.loads(Path(fork.path).read_bytes().partition(b"\n")[0])
    base = base["payload"]["history_base"]["end_ordinal_exclusive"]
    copied = [line for line in lines[:base] if b'"token_usage_record"' not in line]
    first, *rest = Path(fork.path).read_bytes().splitlines(keepends=True)

    Path(fork.path).write_bytes(b"".join([first, *copied, *rest]))

    assert total_usage(tmp_path) == wire_usage("0.166.0/fork-and-resume")


def test_turns_without_ids_are_separated_by_their_prompts(tmp_path):
    home = home_of(tmp_path, "0.140.0/legacy-fork")

    def remove_turn_id(record):
        record["payload"].pop("turn_id", None)
        return record

    edit_lines(home, remove_turn_id)

    assert total_usage(home) == wire_usage("0.140.0/legacy-fork")


def test_subagents_are_nested_under_the_call_that_started_them(tmp_path):
    for case in ("0.166.0/subagent", "0.140.0/subagent-fork-context"):
        (session,) = read_archive(home_of(tmp_path / case, case)).iter_sessions()
        (subagent,) = session.subagents

        assert subagent.tool_call_id == "call_spawn_1"
        assert [step.content[0].text for step in subagent.turns[-1].steps if step.content] == [
            "3 files."
        ]
        assert session.turns[0].steps[0].tool_calls[0].subagent == subagent.id


def test_results_have_exit_codes_and_errors(tmp_path):
    home = home_of(tmp_path, "0.166.0/cached-and-reasoning", "0.140.0/legacy-fork")
    results = [
        entry.event
        for file in CODEX.find([str(home)]).files
        for entry in CODEX.source.entries(file)
        if isinstance(entry, Entry) and isinstance(entry.event, ToolResult)
    ]

    assert [(result.is_error, result.detail["exitCode"]) for result in results] == [
        *[(True, 1), (True, 1)],  # `cat missing.txt`, and its copy in the fork
        *[(False, 0), (False, 0)],
    ]


@pytest.mark.parametrize("case", ["0.140.0/approvals", "0.166.0/approvals"])
def test_a_refused_command_is_denied(case, tmp_path):
    (session,) = read_archive(home_of(tmp_path, case)).iter_sessions()

    calls = [call for step in session.steps for call in step.tool_calls]

    assert [call.permission_decision for call in calls] == ["deny", ""]
    assert [call.is_error for call in calls] == [True, False]


def test_the_name_that_a_person_gave_is_the_title_of_that_thread(tmp_path):
    home = home_of(tmp_path, "0.166.0/approvals", "0.140.0/legacy-fork")
    files = CODEX.find([str(home)]).files
    names = [{"id": files[1].session, "thread_name": name} for name in ("Old", "My own title")]
    for second, name in enumerate(names):
        name["updated_at"] = f"2026-11-16T16:22:0{second}.321391091Z"

    (home / "session_index.jsonl").write_text("".join(f"{json.dumps(name)}\n" for name in names))

    titles = {session.id: session.title for session in read_archive(home).iter_sessions()}
    assert [titles[file.session] for file in files] == [
        *["The first prompt", "My own title", "Touch two files"]
    ]


def test_prompts_taken_back_are_rewound(tmp_path):
    home = home_of(tmp_path, "0.140.0/legacy-fork")
    (file, _) = CODEX.find([str(home)]).files
    lines = Path(file.path).read_bytes().splitlines(keepends=True)
    third = max(at for at, line in enumerate(lines) if b'"task_started"' in line)
    event = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    event["timestamp"] = json.loads(lines[third])["timestamp"]

    Path(file.path).write_bytes(
        b"".join([*lines[:third], json.dumps(event).encode() + b"\n", *lines[third:]])
    )

    session = read_archive(home).read_session(file.session)
    assert [turn.is_rewound for turn in session.turns] == [False, True, False]


def test_damage_is_read_around_and_reported(tmp_path):
    home = home_of(tmp_path, "0.166.0/multi-turn-tools")
    (path,) = home.rglob("rollout-*.jsonl")
    first, *rest = path.read_bytes().splitlines(keepends=True)
    strange = b'{"timestamp":"2026-11-15T07:15:30.000Z","type":"new_thing","payload":{"a":1}}\n'
    long = b'{"timestamp":"","type":"world_state","payload":{"text":"%s"}}\n' % (b"x" * (20 << 20))
    (path.parent / "rollout-odd.jsonl").write_text("{}\n")

    path.write_bytes(b"".join([first, b'{"torn\n', strange, long, *rest, rest[-1][:50]]))

    listing = CODEX.find([str(home)])
    items = list(CODEX.source.entries(listing.files[0]))
    unknown = [
        item.event.kind for item in items if isinstance(getattr(item, "event", 0), UnknownRecord)
    ]
    assert [damage.path for damage in listing.damage] == [str(path.parent / "rollout-odd.jsonl")]
    assert unknown == ["new_thing"]
    assert len([item for item in items if isinstance(item, Damage)]) >= 2
    assert total_usage(home) == wire_usage("0.166.0/multi-turn-tools")


def test_a_file_that_grows_line_by_line_reads_as_one(tmp_path):
    home = home_of(tmp_path, "0.166.0/fork-and-resume")
    for path in sorted(home.rglob("rollout-*.jsonl")):
        data = path.read_bytes()
        expected = list(CODEX.source.entries(find_file(home, path)))
        items, rows, end = [], {}, 0
        for at in [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]:
            path.write_bytes(data[:at])
            file = find_file(home, path)
            items += [item for item in CODEX.source.entries(file, end) if isinstance(item, Entry)]
            rows |= {row.message_id: row for row in CODEX.source.scan_usage(file, end).rows}
            end = at

        assert items == [item for item in expected if isinstance(item, Entry)]
        assert rows == count_rows([find_file(home, path)])


def find_file(home, path):
    return next(file for file in CODEX.find([str(home)]).files if file.path == str(path))


def test_the_real_client_is_counted_exactly(tmp_path):
    machine = make_machine(tmp_path, "codex")
    look = {"usage": {"input": 700, "output": 80, "cache_read": 300, "reasoning": 25}}
    look["blocks"] = [{"thinking": "Look."}, machine.shell_call("false")]
    script = {"rules": [{"replies": [look, {"text": "It fails."}]}]}

    run = machine.run(script, "Run it")

    home = machine.home / ".codex"
    (session,) = read_archive(home).iter_sessions()
    assert total_usage(home) == sum((decode_usage(call.usage) for call in run.calls), Usage())
    assert [call.is_error for step in session.steps for call in step.tool_calls] == [True]
    assert session.steps[-1].content[0].text == "It fails."


def test_harbor_accepts_every_trajectory(tmp_path):
    archive = read_archive(home_of(tmp_path / "codex", *CASES))
    for session in archive.iter_sessions():
        known = archive.thread_contexts(session.id)
        bundle = build_trajectory(session, AtifOptions("1.6"), known)
        for path, body in bundle.iter_files():
            (tmp_path / session.id / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / session.id / path).write_bytes(body)

    files = sorted(tmp_path.glob("0*/**/*.json"))
    errors = {path: errors for path, errors in validate_files("0.25.0", files).items() if errors}
    assert (len(files) >= len(archive.recordings), errors) == (True, {})


def test_a_count_that_no_index_could_store_is_damage(tmp_path):
    home = home_of(tmp_path, "0.166.0/multi-turn-tools")
    (path,) = home.rglob("rollout-*.jsonl")
    huge = {"usage": {"input_tokens": 10**40, "output_tokens": 5}}
    record = {"timestamp": "", "type": "token_usage_record", "payload": huge}
    path.write_text(f"{path.read_text()}{json.dumps(record)}\n")

    report = read_archive(home, tmp_path / "data").usage_report(Breakdown.SESSION, UTC)

    assert report.total.usage == wire_usage("0.166.0/multi-turn-tools")
    assert report.damaged_lines == 1


@pytest.mark.parametrize("turn", ["1", None])
def test_turns_without_a_name_of_their_own_count_in_each_thread(turn, tmp_path):
    counts = {"input_tokens": 100, "output_tokens": 5}
    total = {"type": "token_count", "info": dict.fromkeys(TOTALS, counts)}
    for thread in ("a" * 36, "b" * 36):
        lines = [
            {"type": "session_meta", "payload": {"id": thread}},
            {"type": "turn_context", "payload": {"turn_id": turn, "model": "gpt-5"}},
            {"type": "event_msg", "payload": total, "timestamp": "2026-01-01T00:00:00Z"},
        ]
        path = tmp_path / "sessions" / f"rollout-2026-01-01T00-00-00-{thread}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    assert total_usage(tmp_path) == Usage(200, 10)


def test_an_event_without_a_total_hides_none_from_the_next_scan(tmp_path):
    home = home_of(tmp_path, "0.140.0/approvals")
    (path,) = home.rglob("rollout-*.jsonl")
    (file,) = CODEX.find([str(home)]).files
    lines = path.read_text().splitlines()
    repeated = [line for line in lines if '"last_token_usage"' in line][-1]
    limits = {"timestamp": "", "type": "event_msg", "payload": {"type": "token_count"}}
    path.write_text("".join(f"{line}\n" for line in (*lines, json.dumps(limits), repeated)))
    end = path.stat().st_size - len(repeated) - 1

    assert CODEX.source.scan_usage(file, end).rows == []
