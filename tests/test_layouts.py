"""Old data opens (R17), later data survives (R18): directories that every version must be able to live with."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools.docs.files import FILES, find_pattern

from flightlog.app.runtime import open_runtime
from flightlog.lab.events import WorkTreeRestored
from flightlog.lab.store import RunStore
from flightlog.live.state_file import runtime_state
from flightlog.model.errors import Damage, Misconfigured
from flightlog.privacy.redactor import Redactor
from flightlog.retro.state import decode_analysis
from flightlog.retro.store import ANALYSIS, RetroStore, read_analysis_and_board
from flightlog.setup import doctor
from flightlog.store.directories import LayoutMigration
from flightlog.store.journal import Journal, JournalRecord, UnknownEvent
from retro.rooms import report_issue
from support.cli_runs import FLIGHTLOG
from support.journal_events import EARLIER, LATER
from support.layouts import KEPT, ROOMS, VERSIONS, describe_layout, unpack_version
from support.waiting import until

JOURNALS = {
    "loop": ("project/ralph-loop-sessions/session-001-shop/journal.jsonl", "kind"),
    "lab": ("project/runs/tax/.journal.jsonl", "kind"),
    "retro": ("project/.chat-retro-runtime/state/journal.jsonl", "type"),
    "live": ("home/.claude/session-health/.flightlog/journal.jsonl", "type"),
}


def plain(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_released_version_wrote_opens_and_says_the_same(version, tmp_path):
    description = plain(describe_layout(unpack_version(version, tmp_path)))

    assert description == json.loads((KEPT / f"{version}.json").read_text())


BASE_FILES = {
    "commit": "commits.jsonl",
    "session": "sessions.jsonl",
    "chat": "chats.jsonl",
    "action": "actions.jsonl",
    "orchestration": "orchestration.jsonl",
    "update": "updates.jsonl",
    "tombstone": "tombstones.jsonl",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_a_released_version_compacted_are_all_read(version, tmp_path):
    tracked = unpack_version(version, tmp_path) / ROOMS["dataset"] / "tracked"
    for shard in sorted((tracked / "pending").glob("*.jsonl")):
        for line in shard.read_text().splitlines():
            row = json.loads(line)
            with (tracked / BASE_FILES[row.pop("kind")]).open("a") as file:
                file.write(json.dumps(row) + "\n")
        shard.unlink()

    description = plain(describe_layout(tmp_path))["dataset"]

    assert description == json.loads((KEPT / f"{version}.json").read_text())["dataset"]


def test_doctor_brings_an_older_form_up_to_date_with_a_copy_first(tmp_path, monkeypatch):
    """Of a made-up time when what is kept of a session was called otherwise; nothing of it opens before."""
    home = unpack_version(VERSIONS[-1], tmp_path) / "flightlog"
    wanted = plain(describe_layout(tmp_path))["archive"]
    (meta,) = home.rglob("meta.json")
    meta.write_bytes(meta.read_bytes().replace(b'"files"', b'"copies"'))
    older = {
        path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()
    }
    monkeypatch.setenv("FLIGHTLOG_HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "nobody"))
    steps = (
        LayoutMigration(
            2, "files are called files", lambda root: root.rglob("meta.json"), rename_copies
        ),
    )

    before = [
        finding
        for finding in doctor.examine_installation(open_runtime(), steps=steps)
        if finding.subject == "layout"
    ]
    done = [
        finding.message
        for finding in doctor.repair_installation(open_runtime(), steps)
        if "copy" in finding.message
    ]
    again = [
        finding.message
        for finding in doctor.repair_installation(open_runtime(), steps)
        if "copy" in finding.message
    ]
    after = [
        finding
        for finding in doctor.examine_installation(open_runtime(), steps=steps)
        if finding.subject == "layout"
    ]

    assert [(finding.level.value, finding.next_command) for finding in before] == [
        ("warning", "flightlog doctor --fix")
    ]
    assert [finding.level.value for finding in after] == ["ok"]
    assert (len(done), again) == (1, [])
    copy = home / "backups" / "before-layout-2"
    assert str(copy) in done[0]
    assert (copy / meta.relative_to(home)).read_bytes() == older[meta.relative_to(home)]
    assert plain(describe_layout(tmp_path))["archive"] == wanted
    rest = {name: body for name, body in older.items() if name != meta.relative_to(home)}
    assert {name: (home / name).read_bytes() for name in rest} == rest


def rename_copies(body):
    return body.replace(b'"copies"', b'"files"')


def test_there_is_a_directory_of_every_layout():
    assert "0.1.0" in VERSIONS
    for version in VERSIONS:
        assert set(json.loads((KEPT / f"{version}.json").read_text())) == set(ROOMS)


@pytest.mark.parametrize("room", sorted(FILES))
def test_every_file_of_a_layout_is_in_the_reference(room, tmp_path):
    root = unpack_version(VERSIONS[-1], tmp_path) / ROOMS[room]

    unnamed = [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not find_pattern(room, str(path.relative_to(root)))
    ]

    assert unnamed == []


def later(root):
    """What a later version adds everywhere: events of a new kind, new fields of known ones, rows of a new kind."""
    added = {}
    for room, (name, tag) in JOURNALS.items():
        path = root / name
        lines = path.read_bytes().splitlines() if path.exists() else []
        event = {
            "v": 1,
            "id": f"later-{room}",
            "seq": len(lines) + 1,
            "ts": "2030-01-01T00:00:00.000Z",
        }
        line = json.dumps({**event, tag: "hologram", "depth": 3}).encode()
        wider = [
            json.dumps({**json.loads(record), "seen_by_later": room}).encode() for record in lines
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(record + b"\n" for record in (*wider, line)))
        added[room] = [*wider, line]
    shards = root / ROOMS["dataset"] / "tracked" / "pending"
    row = b'{"kind":"hologram","id":"h-1","depth":3,"rev":1}'
    (shards / "2030-01-01-later-000000000000.jsonl").write_bytes(row + b"\n")
    added["dataset"] = [row]
    return added


def test_what_a_later_version_added_is_kept_as_it_is(tmp_path):
    root = unpack_version(VERSIONS[-1], tmp_path)
    before = plain(describe_layout(root))
    added = later(root)
    now = plain(describe_layout(root))
    assert now == before, "what is not known changes nothing of what is"

    project = root / "project"
    room = RetroStore(
        root / ROOMS["retro"],
        Redactor(b"k" * 32),
        lambda: 1,
        map("new{}".format, itertools.count()).__next__,
    )
    report_issue(room, "Said by the earlier version", "x")
    RunStore(root / ROOMS["lab"] / "tax", now=lambda: "t", new_id=lambda: "earlier").append(
        WorkTreeRestored("baseline")
    )
    state = runtime_state.read_state(root / ROOMS["live"], 0)
    runtime_state.upsert_session(root / ROOMS["live"], state.sessions[0], 1)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "home"),
        "FLIGHTLOG_HOME": str(root / "flightlog"),
    }
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "LANG": "C.UTF-8"}
    asked = ["ralph-runtime", "generate-report", "--session", "session-001"]
    for words in (
        ["git", "init", "-q", "-b", "main"],
        asked,
        ["flightlog", "dataset", "tracked", "compact"],
    ):
        program = shutil.which(words[0]) if words[0] == "git" else FLIGHTLOG.with_name(words[0])
        done = subprocess.run(
            [program, *words[1:]], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    for room_name, (name, _) in JOURNALS.items():
        body = (root / name).read_bytes().splitlines()
        assert [line for line in body if line in added[room_name]] == added[room_name], room_name
    rows = b"".join(
        path.read_bytes() for path in sorted((root / ROOMS["dataset"]).rglob("*.jsonl"))
    )
    assert b'"depth":3' in rows
    assert b'"h-1"' in rows
    assert any(
        issue.title == "Said by the earlier version" for issue in room.load_board().issues.values()
    )


def test_a_file_of_a_later_schema_is_refused_and_stays_where_it_is(tmp_path):
    root = unpack_version(VERSIONS[-1], tmp_path)
    path = root / ROOMS["retro"] / ANALYSIS
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2, "new": True}))
    body = path.read_bytes()
    room = RetroStore(root / ROOMS["retro"], Redactor(b"k" * 32), lambda: 1, lambda: "i")

    with pytest.raises(Misconfigured, match="later flightlog"):
        room.load_analysis()

    assert path.read_bytes() == body
    assert list(path.parent.glob("*.corrupt*")) == []
    assert read_analysis_and_board(open_runtime(), room.root)[0] is None
    with pytest.raises(Misconfigured):
        decode_analysis(body)


def test_two_versions_side_by_side_lose_nothing_of_each_other(tmp_path):
    """Processes of both versions write to one journal and are killed at random; whatever one said it kept is there."""
    path, chance = tmp_path / "journal.jsonl", random.Random(7)
    acked: list[str] = []
    for round_ in range(12):
        version = ("earlier", "later")
        writers = [
            start(which, path, tmp_path / f"{round_}-{which}-{writer}")
            for which in version
            for writer in "ab"
        ]
        until(lambda writers=writers: all(log.stat().st_size for _, log in writers))
        time.sleep(chance.uniform(0.0, 0.2))
        for writer, _ in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait(20)
        acked += [word for _, log in writers for word in log.read_text().split("\n")[:-1]]

    for union in (EARLIER, LATER):
        items = list(Journal(path, union, now=str, new_id=str).read_records())
        ids = {item.id for item in items if isinstance(item, JournalRecord | UnknownEvent)}
        assert set(acked) <= ids
        torn = [item for item in items if isinstance(item, Damage)]
        assert len(torn) <= 12 * 4
    kinds = [type(item) for item in Journal(path, EARLIER, now=str, new_id=str).read_records()]
    assert UnknownEvent in kinds
    assert len(acked) > 100
    wide = [line for line in path.read_bytes().splitlines() if b'"more"' in line]
    assert wide, "known events with a new field are there too"


def start(which, path, log):
    program = Path(__file__).parent / "support" / "journal_events.py"
    log.touch()
    return subprocess.Popen([sys.executable, program, which, str(path), str(log)]), log
