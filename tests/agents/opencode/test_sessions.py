"""OpenCode: a session's rows as turns, tool calls and subagents; live, archived and damaged."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC

import pytest

from flightlog.agents import find_agent
from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.opencode.rows import close_databases, open_database
from flightlog.archive.archive import Archive
from flightlog.archive.session_reader import SessionFollower, follow_entries
from flightlog.model.entries import Entry, UnknownRecord
from flightlog.model.errors import Damage
from flightlog.model.session import NoteKind
from flightlog.model.usage import Breakdown
from flightlog.store.recordings.reader import raw_lines
from flightlog.usage.pipeline import UsagePipeline
from support.cli_runs import within
from support.client_recordings import ROOT, lay_out_home

OPENCODE = find_agent("opencode")
SOURCE = OPENCODE.source
VERSION = "opencode/1.18.33"
FOLDER = ".local/share/opencode"
TABLES = ("session", "message", "part")
NEW_MESSAGE = (
    "INSERT INTO message SELECT id || 'x', session_id, time_created + 5, time_updated, data"
    " FROM message WHERE data LIKE '%assistant%' ORDER BY session_id, time_created DESC LIMIT 1"
)


@pytest.fixture
def home(tmp_path):
    yield lay_out_home(tmp_path / "home", f"{VERSION}/subagent")
    close_databases()


def find(home):
    return OPENCODE.find([str(home / FOLDER)])


def read(home, data=""):
    archive = Archive({"opencode": (str(home / FOLDER),)}, str(data))
    return next(iter(archive.iter_sessions()))


def change(home, *statements):
    with closing(sqlite3.connect(home / FOLDER / "opencode.db")) as database, database:
        for statement in statements:
            database.execute(statement)


def states(home):
    return {file.path: (file.inode, file.changed_ns) for file in find(home).files}


def test_tool_calls_have_results_exit_codes_and_failures(tmp_path):
    session = read(lay_out_home(tmp_path, f"{VERSION}/multi-turn-tools"))

    calls = [call for step in session.steps for call in step.tool_calls]
    assert [(call.name, call.is_error, call.detail) for call in calls] == [
        ("bash", True, {"exitCode": 3}),
        ("write", False, None),
        ("edit", False, None),
        ("nosuchtool", True, None),
    ]
    assert [turn.text for turn in session.turns] == ['"Write greet.py"', '"And then?"']
    assert session.steps[0].content[0].text == "I should list the files."
    assert (session.cwd, session.version) == ("/home/dev/project", "1.18.33")


def test_denied_calls_say_why(tmp_path):
    session = read(lay_out_home(tmp_path, f"{VERSION}/permission-denied"))

    calls = [call for step in session.steps for call in step.tool_calls]
    assert [call.permission_decision for call in calls] == ["deny", "deny"]
    assert calls[0].denial_reason.startswith("The user has specified a rule which prevents")
    assert calls[1].denial_reason == "The user rejected permission to use this specific tool call."


def test_a_subagent_is_below_the_call_that_started_it(home):
    session = read(home)

    (subagent,) = session.subagents
    (call,) = session.steps[0].tool_calls
    assert (subagent.tool_call_id, subagent.agent_type) == (call.id, "general")
    assert (call.subagent, subagent.description) == (subagent.id, "Look for a file")
    assert [call.detail for call in subagent.turns[0].steps[0].tool_calls] == [{"exitCode": 1}]


@pytest.mark.parametrize(
    ("case", "kind", "text"),
    [
        ("compaction-auto", NoteKind.COMPACTION, "context compacted (auto), from 11,900 tokens"),
        ("api-error", NoteKind.API_FAILURE, "Bad request"),
    ],
)
def test_what_the_client_did_by_itself_is_a_note(case, kind, text, tmp_path):
    session = read(lay_out_home(tmp_path, f"{VERSION}/{case}"))

    notes = [item for turn in session.turns for item in turn.items if hasattr(item, "kind")]
    assert (kind, True) in [(note.kind, note.text.startswith(text)) for note in notes]


def test_everything_in_the_write_ahead_log_is_read(home):
    with closing(sqlite3.connect(home / FOLDER / "opencode.db")) as client:
        client.execute("PRAGMA wal_autocheckpoint = 0")
        client.execute("UPDATE session SET title = 'Only in the log' WHERE parent_id IS NULL")
        client.commit()

        assert read(home).title == "Only in the log"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE session SET title = 'x', time_updated = time_updated + 1 WHERE {own}",
        "UPDATE message SET time_updated = time_updated + 1 WHERE session_{own}",
        "UPDATE event_sequence SET seq = seq + 1 WHERE aggregate_{own}",
        "DELETE FROM part WHERE id = (SELECT MIN(id) FROM part WHERE session_{own})",
        "DELETE FROM message WHERE id = (SELECT MIN(id) FROM message WHERE session_{own})",
    ],
)
def test_a_change_of_rows_is_seen_in_that_session_only(statement, tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/forked-session")
    first, second = find(home).files
    before = states(home)

    change(home, statement.format(own=f"id = '{first.session}'"))

    after = states(home)
    assert after[first.path] != before[first.path]
    assert after[second.path] == before[second.path]
    assert set(SOURCE.session_files(first)) <= set(find(home).files)


def test_clients_without_events_show_changes_by_the_times_of_parts(home):
    change(home, "DROP TABLE event", "DROP TABLE event_sequence")
    before = states(home)

    change(home, "UPDATE part SET time_updated = time_updated + 1 WHERE data LIKE '%missing%'")

    assert all(state != before[path] for path, state in states(home).items())


def test_after_a_new_message_usage_reads_its_session_only(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/forked-session")
    index = tmp_path / "index.db"
    for number in range(30):
        change(
            home,
            f"INSERT INTO session SELECT id || {number}, project_id, workspace_id, parent_id, slug,"
            " directory, path, title, version, share_url, summary_additions, summary_deletions,"
            " summary_files, summary_diffs, metadata, 0, 0, 0, 0, 0, 0, revert, permission, agent,"
            " model, time_created, time_updated, time_compacting, time_archived FROM session"
            " WHERE title LIKE '%fork%' AND length(id) = 30",
        )
    first = UsagePipeline(find(home).files, index)
    first.refresh()
    first.save()
    change(home, NEW_MESSAGE)

    second = UsagePipeline(find(home).files, index)
    second.refresh()

    (messages,) = [
        rows
        for rows in (SOURCE.scan_usage(file) for file in find(home).files)
        if len(rows.rows) > 3
    ]
    assert first.stats.files == first.stats.opened == 32
    assert (second.stats.opened, second.stats.decoded) == (1, messages.records_decoded)


def test_listing_reads_no_content_and_counting_no_parts(home):
    (database,) = (home / FOLDER).glob("*.db")
    columns = set()
    with open_database(str(database)) as connection:
        connection.set_authorizer(lambda _, table, column, *__: columns.add((table, column)) or 0)

    files = find(home).files

    assert not {column for column in columns if column[1] == "data"}
    assert all(SOURCE.scan_usage(file).rows for file in files)
    assert {table for table, column in columns if column == "data"} == {"message"}


def test_a_locked_database_is_damage(home):
    (file, _) = find(home).files
    close_databases()
    with closing(sqlite3.connect(home / FOLDER / "opencode.db")) as client:
        client.execute("PRAGMA locking_mode = EXCLUSIVE")
        client.execute("UPDATE session SET slug = 'x'")
        client.commit()

        listing = find(home)
        items = list(SOURCE.entries(file))
        scan = SOURCE.scan_usage(file)
        more = {"XDG_DATA_HOME": str(home / ".local/share"), "FLIGHTLOG_HOME": str(home / "data")}
        counted = within(None, "session", "usage", **more)

    assert "damaged spans may hold more tokens: flightlog doctor" in counted.err
    assert [damage.reason for damage in listing.damage] == ["database is locked"]
    assert [item.reason for item in items] == ["database is locked"] == [scan.error]
    assert len(find(home).files) == 2


def test_a_file_that_is_no_database_is_damage(home):
    (home / FOLDER / "opencode-dev.db").write_bytes(b"not a database" * 99)

    listing = find(home)

    assert len(listing.files) == 2
    assert [damage.reason for damage in listing.damage] == ["file is not a database"]


def test_damaged_rows_are_read_around(home):
    change(
        home,
        "UPDATE part SET data = substr(data, 1, 20) WHERE data LIKE '%I look.%'",
        "UPDATE part SET data = json_set(data, '$.type', 'hologram') WHERE data LIKE '%It is miss%'",
        "UPDATE message SET data = x'00ff' WHERE id = (SELECT MAX(id) FROM message)",
        "INSERT INTO session SELECT 'a/b', project_id, workspace_id, 'a/b', slug, directory, path,"
        " title, version, share_url, summary_additions, summary_deletions, summary_files,"
        " summary_diffs, metadata, 0, 0, 0, 0, 0, 0, revert, permission, agent, model, 'soon', 'later',"
        " time_compacting, time_archived FROM session LIMIT 1",
    )

    listing = find(home)

    items = [item for file in listing.files for item in SOURCE.entries(file)]
    unknown = [item.event for item in items if isinstance(getattr(item, "event", 0), UnknownRecord)]
    assert [damage.reason for damage in listing.damage] == ["a session's id is not usable"]
    assert {item.reason for item in items if isinstance(item, Damage)} >= {"torn", "NUL bytes"}
    assert unknown == []  # the message of the unknown part is the one that is damaged
    assert sum(SOURCE.scan_usage(file).damaged_lines for file in listing.files) == 1


def test_a_part_of_100_megabytes_is_read(home):
    text = '\'{"type":"text","text":"\' || hex(zeroblob(52428800)) || \'"}\''
    change(home, f"UPDATE part SET data = {text} WHERE data LIKE '%I look.%'")

    step = read(home).subagents[0].turns[0].steps[0]

    assert [len(block.text) for block in step.content] == [100 << 20]


def test_an_unknown_part_is_shown_and_not_dropped(home):
    change(
        home,
        "UPDATE part SET data = json_set(data, '$.type', 'hologram') WHERE data LIKE '%It is%'",
    )

    assert read(home).unknown_record_types == (("part/hologram", 1),)


def test_following_a_session_equals_reading_it_at_the_end(home, tmp_path):
    shutil.copy(home / FOLDER / "opencode.db", tmp_path / "whole.db")
    late = "(SELECT id FROM {} ORDER BY time_created DESC LIMIT 3)"
    change(
        home,
        *(f"DELETE FROM {name} WHERE id IN {late.format(name)}" for name in ("part", "message")),
    )
    archive = Archive({"opencode": (str(home / FOLDER),)})
    follower = SessionFollower(archive, next(iter(archive.recordings)))
    first = follower.refresh()
    rows = (
        f"INSERT OR IGNORE INTO {name} SELECT * FROM whole.{name}" for name in ("message", "part")
    )
    change(home, f"ATTACH '{tmp_path / 'whole.db'}' AS whole", *rows)

    whole = follower.refresh()

    expected = archive.read_outline(follower.session).summary
    assert first.summary.steps == 1
    assert (whole.summary.steps, whole.summary) == (4, expected)
    assert follower.refresh() is whole


def test_followed_records_come_once_and_when_they_are_there(home):
    change(
        home, "UPDATE part SET data = json_set(data, '$.text', '') WHERE data LIKE '%It is miss%'"
    )
    archive = Archive({"opencode": (str(home / FOLDER),)})
    passes = []

    def pause():
        text = "UPDATE part SET data = json_set(data, '$.text', 'It is missing.'), time_updated = 5"
        change(
            home, f'{text} WHERE data LIKE \'%"text":""%\'', "UPDATE event_sequence SET seq = 99"
        )
        passes.append(len(followed))
        return len(passes) < 3

    followed = []
    followed.extend(follow_entries(archive, next(iter(archive.recordings)), pause))

    keys = [item.key for item in followed if isinstance(item, Entry)]
    assert len(keys) == len(set(keys))
    assert passes[1] == passes[0] + 1 == passes[2]


def test_the_archived_copy_reads_the_same_without_the_database(home, tmp_path):
    data = tmp_path / "data"
    files = find(home).files
    before = read(home)
    adopt_session_files(str(data), files[0].session, files)
    change(home, "UPDATE session SET title = 'Renamed', time_updated = time_updated + 9")
    adopt_session_files(str(data), files[0].session, find(home).files)

    (home / FOLDER / "opencode.db").unlink()
    close_databases()
    after = read(home, data)

    assert before.title != after.title == "Renamed"
    assert (after.turns, after.subagents) == (before.turns, before.subagents)


@pytest.mark.parametrize("case", ["multi-turn-tools", "subagent"])
def test_copies_of_this_version_stay_readable(case, tmp_path):
    files = find(lay_out_home(tmp_path, f"{VERSION}/{case}")).files

    for file in files:
        copy = (
            ROOT
            / VERSION
            / case
            / "copy"
            / ("subagent.jsonl" if file.subagent else "transcript.jsonl")
        )
        assert list(raw_lines(file.path, 0)) == list(raw_lines(str(copy), 0))


def test_files_of_older_versions_read_as_the_database(home, tmp_path):
    old = tmp_path / "old"
    with closing(sqlite3.connect(home / FOLDER / "opencode.db")) as database:
        for name, parent, directory, title, created, updated in database.execute(
            "SELECT id, parent_id, directory, title, time_created, time_updated FROM session"
        ):
            info = {
                "parentID": parent,
                "directory": directory,
                "title": title,
                "version": "1.18.33",
            }
            info["time"] = {"created": created, "updated": updated}
            write_json(old / FOLDER / f"storage/session/p/{name}.json", info)
        for name, session, data in database.execute("SELECT id, session_id, data FROM message"):
            write_json(old / FOLDER / f"storage/message/{session}/{name}.json", json.loads(data))
        for name, message, data in database.execute("SELECT id, message_id, data FROM part"):
            write_json(old / FOLDER / f"storage/part/{message}/{name}.json", json.loads(data))

    listing, session, expected = find(old), read(old), read(home)

    assert (session.turns, session.subagents) == (expected.turns, expected.subagents)
    assert listing.damage == ()
    shutil.copytree(old / FOLDER / "storage", home / FOLDER / "storage")
    assert len(find(home).files) == 2  # moved into the database


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def test_commands_know_sessions_of_opencode(home):
    more = {"XDG_DATA_HOME": str(home / ".local/share"), "FLIGHTLOG_HOME": str(home / "data")}
    name = find(home).files[0].session

    listed, shown, counted, searched = (
        within(None, *words, **more)
        for words in (
            ("session", "list", "--json"),
            ("session", "show", name),
            ("session", "usage", "--by", "agent", "--json"),
            ("session", "search", "missing"),
        )
    )

    assert [row["agent"] for row in json.loads(listed.out)] == ["opencode"]
    assert "general: Look for a file" in shown.out
    (row,) = json.loads(counted.out)["rows"]
    assert (row["agent"], row["input_tokens"], row["output_tokens"]) == ("opencode", 15_610, 104)
    assert name[:8] in searched.out


def test_times_out_of_range_are_unknown_and_hide_no_session(home):
    created = "UPDATE message SET data = json_set(data, '$.time.created', 9007199254740000)"
    usual = len(read(home).steps)
    change(home, created, *(f"UPDATE {name} SET time_updated = {2**63 - 1}" for name in TABLES))

    listing = find(home)
    report = UsagePipeline(listing.files, None).report(Breakdown.DAY, UTC)

    assert (len(listing.files), listing.damage) == (2, ())
    assert all(file.changed_ns < 2**63 for file in listing.files)
    assert (report.total.last_ms, report.total.responses) == (0, 4)
    assert len(read(home).steps) == usual


def test_a_named_pipe_in_place_of_a_database_is_damage(tmp_path):
    os.mkfifo(tmp_path / "opencode.db")
    (tmp_path / "storage/session/p").mkdir(parents=True)
    os.mkfifo(tmp_path / "storage/session/p/s.json")

    listing = OPENCODE.find([str(tmp_path)])

    assert listing.files == ()
    assert [damage.reason for damage in listing.damage] == ["not a file", "not a file"]
