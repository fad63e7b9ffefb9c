"""Codex: which files are listed, which session they belong to, and what our copies of them hold."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from flightlog.agents import find_agent
from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.codex.files import read_compressed
from flightlog.archive.session_reader import SessionFollower
from flightlog.store.compression import zstd
from support.codex_rollouts import CASES, home_of, read_archive, total_usage, wire_usage
from support.real_clients import TOOLS

CODEX = find_agent("codex")
MIGRATED = ("0.140.0/legacy-fork", "0.140.0/subagent-fork-context")


@pytest.mark.parametrize("case", MIGRATED)
def test_a_migrated_rollout_is_the_same_session(case, tmp_path):
    home, data = home_of(tmp_path / "codex", case), tmp_path / "data"
    before = [(session.turns, session.subagents) for session in read_archive(home).iter_sessions()]
    for session, recording in read_archive(home).recordings.items():
        adopt_session_files(str(data), session, recording.files)

    program = TOOLS / "codex" / "0.166.0" / "codex"
    environment = {"HOME": str(tmp_path), "CODEX_HOME": str(home), "PATH": "/usr/bin:/bin"}
    command = [program, "migrate-rollouts", "--apply"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    for session, recording in read_archive(home).recordings.items():
        adopt_session_files(str(data), session, recording.files)

    assert all(b'"paginated"' in path.read_bytes() for path in home.rglob("rollout-*.jsonl"))
    assert total_usage(home, data) == wire_usage(case)
    after = [
        (session.turns, session.subagents) for session in read_archive(home, data).iter_sessions()
    ]
    assert after == before


def test_a_subagent_of_a_subagent_belongs_to_the_session_at_the_top(tmp_path):
    meta = {"type": "session_meta", "payload": {"id": "c", "source": {"subagent": {}}}}
    meta["payload"]["source"]["subagent"]["thread_spawn"] = {"parent_thread_id": "b"}
    names = {"a": None, "b": "a", "c": "b"}
    folder = tmp_path / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    for name, parent in names.items():
        meta["payload"]["source"]["subagent"]["thread_spawn"]["parent_thread_id"] = parent
        text = json.dumps(meta) if parent else "{}"
        (folder / f"rollout-2026-01-02T03-04-05-{name}.jsonl").write_text(f"{text}\n")

    files = CODEX.find([str(tmp_path)]).files

    assert [(file.session, file.subagent) for file in files] == [("a", ""), ("a", "b"), ("a", "c")]
    assert CODEX.source.session_files(files[2]) == files


def test_one_file_of_a_thread_is_read(tmp_path):
    home = home_of(tmp_path, "0.166.0/subagent")
    (path, _) = sorted(home.rglob("rollout-*.jsonl"))
    archived = home / "archived_sessions"
    archived.mkdir()
    shutil.copy(path, archived / path.name)
    both = CODEX.find([str(home)])

    path.unlink()
    only_archived = total_usage(home)
    packed = archived / f"{path.name}.zst"
    packed.write_bytes(zstd.compress((archived / path.name).read_bytes()))
    (archived / path.name).unlink()

    assert [Path(file.path).parent.name for file in both.files] == ["16", "16"]
    assert only_archived == total_usage(home) == wire_usage("0.166.0/subagent")
    packed.write_bytes(packed.read_bytes()[:-40])
    assert ["compression" in damage.reason for damage in CODEX.find([str(home)]).damage] == [True]


def test_our_copy_reads_the_same_after_the_agent_deleted_its_own(tmp_path):
    home, data = home_of(tmp_path / "codex", *CASES), tmp_path / "data"
    before = list(read_archive(home).iter_sessions())
    usage = total_usage(home)
    for session, recording in read_archive(home).recordings.items():
        adopt_session_files(str(data), session, recording.files)

    shutil.rmtree(home / "sessions")

    after = {session.id: session for session in read_archive(home, data).iter_sessions()}
    assert len(after) == len(before)
    for session in before:
        assert after[session.id].turns == session.turns
        assert after[session.id].subagents == session.subagents
    assert total_usage(home, data) == usage


def test_listing_reads_the_head_of_each_file_only(tmp_path):
    folder = tmp_path / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    for number in range(300):
        path = folder / f"rollout-2026-01-02T03-04-05-{number:04}.jsonl"
        path.write_bytes(b'{"type":"session_meta","payload":{"source":"exec","base_instructions":"')
        with path.open("r+b") as file:
            file.truncate(1 << 30)  # sparse: a reader of whole lines would need minutes

    assert len(CODEX.find([str(tmp_path)]).files) == 300


def test_a_subagent_is_followed_before_its_session_has_a_file(tmp_path):
    home = home_of(tmp_path, "0.166.0/subagent")
    (main,) = (file for file in CODEX.find([str(home)]).files if not file.subagent)
    lines = Path(main.path).read_bytes()
    Path(main.path).unlink()
    follower = SessionFollower(read_archive(home), main.session)
    before = follower.refresh().summary.steps
    Path(main.path).write_bytes(lines)

    assert (before, follower.refresh().summary.steps) == (2, 5)


def test_a_small_file_that_unpacks_to_too_much_is_not_read(tmp_path):
    path = tmp_path / "rollout-2026-11-15T07-15-30-x.jsonl.zst"
    path.write_bytes(zstd.compress(b"{}\n" * 1_000_000))

    assert len(read_compressed(f"{path}/lines")) == 3_000_000
    with pytest.raises(OSError, match="unpacks to more than 1 MB"):
        read_compressed(f"{path}/lines", 1 << 20)


def test_a_subagent_whose_first_line_is_half_written_is_no_session(tmp_path):
    home, data = home_of(tmp_path / "codex", "0.166.0/subagent"), tmp_path / "data"
    (own,) = (file for file in CODEX.find([str(home)]).files if file.subagent)
    prompt = b"[system prompt"  # the client writes 20 KB of it
    whole = Path(own.path).read_bytes().replace(prompt, prompt + b"x" * 9000, 1)
    parent = whole.index(b"parent_thread_id")
    listings = []
    for end in (0, 20, parent, parent + 40, 4095, 4096, 9000):
        Path(own.path).write_bytes(whole[:end])
        listings.append(CODEX.find([str(home)]))
        for session, recording in read_archive(home).recordings.items():
            adopt_session_files(str(data), session, recording.files)

    Path(own.path).write_bytes(whole)

    assert {file.session for listing in listings for file in listing.files} == {own.session}
    assert [len(listing.damage) for listing in listings] == [1, 1, 1, 1, 1, 0, 0]
    assert listings[0].damage[0].reason == "its first line is not finished"
    assert list(read_archive(home, data).recordings) == [own.session]
    assert total_usage(home, data) == wire_usage("0.166.0/subagent")
