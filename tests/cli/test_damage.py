"""One damaged session, a stuck lock, a full disk or a newer layout, seen from the command line."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from flightlog.store.locks import exclusive_lock
from support.archive_maker import prompt, put, reply
from support.cli_runs import FLIGHTLOG, environment, flightlog, within
from support.pages import running
from support.unprivileged import run_unprivileged
from support.waiting import until

SESSIONS = [f"{number}0000000-0000-4000-8000-000000000000" for number in range(3)]
HURT = SESSIONS[1]
HOOK = "src/flightlog/hooks/record.py"
REPORTS = (
    ("session", "list"),
    ("session", "usage", "--by", "session"),
    ("session", "search", "hello"),
    ("status",),
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Three sealed sessions, the second with several frames."""
    config = tmp_path_factory.mktemp("original")
    for number, session in enumerate(SESSIONS):
        turns = 1200 if session == HURT else 40
        lines = [
            line
            for turn in range(turns)
            for line in (
                prompt(f"hello {number} {turn} " + "x y z " * 150, at=2 * turn),
                reply(f"m{number}-{turn}", 100 + turn, at=2 * turn + 1, text="answer " * 100),
            )
        ]
        path = put(config, session, *lines)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    assert within(config, "settle").code == 0
    (config / "projects").rename(config / "agent")
    return config


@pytest.fixture
def archive(original, tmp_path):
    """A copy of the three sessions whose originals the agent has deleted."""
    config = tmp_path / "config"
    shutil.copytree(original, config)
    return config


def find_stored_file(config, session=HURT):
    (path,) = (config / "home/sessions/claude-code" / session).glob("transcript.jsonl*.zst")
    return path


def flip(path):
    body = bytearray(path.read_bytes())
    body[len(body) // 3] ^= 4
    path.write_bytes(body)


def change_digit(path):
    """Change one digit of a usage figure in a copy that is not sealed."""
    live = path.with_name("transcript.jsonl")
    sealed = subprocess.run(["zstd", "-dcq", str(path)], capture_output=True, check=False).stdout
    path.unlink()
    live.write_bytes(sealed.replace(b'"output_tokens":100}', b'"output_tokens":900}', 1))


HARMS = {
    "a flipped byte": flip,
    "a cut end": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "an emptied file": lambda path: path.write_bytes(b""),
    "a damaged seek table": lambda path: path.write_bytes(path.read_bytes()[:-5] + b"xxxxx"),
    "a deleted file": lambda path: path.unlink(),
    "an emptied manifest": lambda path: path.with_name("meta.json").write_bytes(b""),
    "a session replaced by a file": lambda path: (
        shutil.rmtree(path.parent),
        path.parent.write_bytes(b""),
    ),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_damage_stays_in_its_session(archive, harm):
    within(archive, "session", "list")
    harm(find_stored_file(archive))

    for with_index in (True, False):
        if not with_index:
            for path in (archive / "home").glob("index.db*"):
                path.unlink()
        for command in REPORTS:
            assert within(archive, *command).code == 0, command
        listed = json.loads(within(archive, "session", "list", "--all", "--json").out)
        assert sorted(session["session"] for session in listed) == SESSIONS
        assert within(archive, "settle").code == 0
        assert within(archive, "privacy", "scan", HURT).code == 0
    usage = json.loads(within(archive, "session", "usage", "--by", "session", "--json").out)
    assert {row["session"] for row in usage["rows"] if row["responses"] == 40} == set(SESSIONS) - {
        HURT
    }


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_verify_finds_what_reports_cannot_see(archive, harm):
    assert within(archive, "doctor", "--verify").code == 0
    harm(find_stored_file(archive))

    ran = within(archive, "doctor", "--verify", "--json")

    faults = json.loads(ran.out)["faults"]
    assert {fault["session"] for fault in faults} == {HURT}
    assert ran.code == (0 if all(fault["repair"] for fault in faults) else 3)
    assert (ran.code == 0) == (harm is HARMS["a damaged seek table"])


@pytest.mark.parametrize("harm", list(HARMS.values())[:-1], ids=list(HARMS)[:-1])
def test_verify_restores_from_the_file_the_agent_still_has(archive, harm):
    (archive / "agent").rename(archive / "projects")
    harm(find_stored_file(archive))

    ran = within(archive, "doctor", "--verify")

    assert ran.code == 0, ran.out
    assert re.search("restored from|recorded again", ran.out)
    shutil.rmtree(archive / "projects")
    assert (
        within(archive, "doctor", "--verify").out
        == "3 sessions verified, 0 faults repaired, 0 left\n"
    )
    listed = json.loads(within(archive, "session", "list", "--json").out)
    assert {session["session"]: session["steps"] for session in listed}[HURT] == 1200


def test_verify_names_the_process_that_holds_a_session(archive):
    with exclusive_lock(find_stored_file(archive).parent / ".lock", who="process 1, adopting"):
        ran = within(archive, "doctor", "--verify")

    assert ran.code == 75
    assert "2 sessions verified" in ran.out
    assert re.search(
        rf"not verified: held by process 1, adopting, process {os.getpid()}, running .*, since 20",
        ran.err,
    )


def test_a_changed_figure_is_found_by_the_sample_of_a_settle(archive):
    change_digit(find_stored_file(archive, SESSIONS[0]))

    until(
        lambda: (
            f"damaged: {SESSIONS[0]}/transcript.jsonl: changed, " in within(archive, "settle").err
        )
    )

    assert "1 archived session damaged" in within(archive, "status").out
    assert "1 session damaged" in within(archive, "up").out
    assert "(damaged) " in within(archive, "session", "list").out
    assert within(archive, "doctor").code == 3


def test_a_damaged_session_is_read_around_its_bad_frame(archive):
    flip(find_stored_file(archive))

    shown = within(archive, "session", "show", HURT)

    assert shown.code == 0
    assert "sealed data damaged or missing" in shown.out
    summary = next(
        session
        for session in json.loads(within(archive, "session", "list", "--json").out)
        if session["session"] == HURT
    )
    assert 0 < summary["steps"] < 1200
    assert summary["damage_count"] == 1


def test_every_page_works_beside_a_damaged_session(archive, monkeypatch):
    flip(find_stored_file(archive))
    for name, value in environment(archive).items():
        monkeypatch.setenv(name, value)

    with running(archive) as pages:
        for path in (
            "/",
            "/usage",
            "/search?q=hello",
            "/doctor?whole",
            *(f"/sessions/{session}" for session in SESSIONS),
        ):
            assert pages.ask(path).status == 200, path


def test_a_session_directory_without_permission_hides_no_other(original):
    with tempfile.TemporaryDirectory() as open_to_all:
        archive = Path(open_to_all) / "config"
        shutil.copytree(original, archive)
        for path in (archive.parent, archive, *archive.rglob("*")):
            path.chmod(0o777)
        find_stored_file(archive).parent.chmod(0)
        commands = [*REPORTS, ("session", "list", "--json")]
        for command in commands:
            within(original, *command)  # loads every module while permissions do not count

        ran = run_unprivileged(lambda: [tuple(within(archive, *command)) for command in commands])

    assert [code for code, _, _ in ran] == [0] * 5
    assert sorted(session["session"] for session in json.loads(ran[-1][1])) == SESSIONS


def test_init_and_doctor_name_a_data_directory_that_cannot_be_made(original, tmp_path):
    commands = [("init", "--yes"), ("doctor",), ("status",)]
    for command in commands:
        within(tmp_path, *command)  # loads every module while permissions do not count
    with tempfile.TemporaryDirectory() as folder:
        config, closed = Path(folder) / "config", Path(folder) / "closed"
        shutil.copytree(original, config)
        (closed / "bin").mkdir(parents=True)
        for path in (Path(folder), config, *config.rglob("*")):
            path.chmod(0o777)
        closed.chmod(0o555)
        (closed / "bin").chmod(0)
        environ = {"FLIGHTLOG_HOME": f"{closed}/data", "PATH": f"{closed}/bin"}

        def run_commands():
            ran = [tuple(within(config, *command, **environ)) for command in commands[:2]]
            return [*ran, tuple(within(config, "status", FLIGHTLOG_HOME=f"{closed}/bin/data"))]

        (code, _, error), (_, checks, _), (_, _, refused) = run_unprivileged(run_commands)

        assert not (config / "settings.json").exists()
    assert (code > 0, f"not writable: {closed}\n" in error) == (True, True)
    assert f"not writable: {closed}\n" in checks
    assert refused.startswith("flightlog: permission denied: ")


def test_up_counts_archived_sessions_whose_original_is_gone(archive):
    ran = within(archive, "up")

    assert ran.code == 0
    assert "3 sessions in 1 project" in ran.out
    assert "3 sessions archived (original deleted)" in ran.out
    assert "No sessions on this machine yet" not in ran.out


@pytest.mark.parametrize("layout", ['{"layout": 99}', "{garbled", "[]"])
def test_a_store_of_a_layout_we_do_not_know_is_read_only(archive, layout):
    (archive / "agent").rename(archive / "projects")
    home = archive / "home"
    within(archive, "session", "list")
    (home / "layout.json").write_text(layout)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}

    writing = (
        ("settle",),
        ("settle", HURT),
        ("init", "--yes"),
        ("trust", "--yes"),
        ("privacy", "redact", "x"),
    )
    refused = [within(archive, *command) for command in writing]
    read = [within(archive, *command) for command in REPORTS]

    assert [ran.code for ran in refused] == [4] * len(writing)
    assert all("nothing is written" in ran.err for ran in refused)
    assert [ran.code for ran in read] == [0, 0, 0, 0]
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_the_hook_records_its_event_in_a_store_of_a_later_layout(archive):
    (archive / "home" / "layout.json").write_text('{"layout": 99}')
    event = json.dumps({"session_id": HURT, "hook_event_name": "Stop"}).encode()

    ran = subprocess.run(
        [sys.executable, "-I", "-S", HOOK, "claude-code", "--inline"],
        input=event,
        env=environment(archive),
        check=False,
    )

    assert ran.returncode == 0
    root = find_stored_file(archive).parent
    assert b'"event":"Stop"' in (root / "hooks.jsonl").read_bytes()
    assert "hooks.jsonl" not in json.loads((root / "meta.json").read_bytes())["hashes"]


def test_a_stopped_process_at_the_index_stops_nothing_and_is_named(archive):
    within(archive, "session", "list")
    gate = max((archive / "home").glob("index*.gate"), key=lambda path: path.stat().st_mtime_ns)
    code = f"import fcntl, time; f = open({str(gate)!r}, 'r+'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(90)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline()
        os.kill(holder.pid, signal.SIGSTOP)
        until(lambda: "(stopped)" in Path(f"/proc/{holder.pid}/status").read_text())

        for command in (*REPORTS, ("settle",)):
            start = time.monotonic()
            assert flightlog(archive, *command).code == 0, command
            assert time.monotonic() - start < 20
        ran = within(archive, "doctor")
    finally:
        holder.kill()
        holder.communicate()

    assert ran.code == 1
    assert re.search(
        rf"failure lock +held by process {holder.pid}, running .*, since 20.*, stopped: {gate}",
        ran.out,
    )
    assert f"kill -CONT {holder.pid}" in ran.out


@pytest.mark.parametrize(
    ("options", "text"), [("size=64k", "0 MB free"), ("nr_inodes=8", " free: ")]
)
def test_doctor_exits_1_when_disk_or_inodes_are_full(archive, tmp_path, options, text):
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", options, str(disk), str(FLIGHTLOG), "doctor"],
        env=environment(archive, FLIGHTLOG_HOME=str(disk)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 1, ran.stderr
    assert re.search(rf"failure disk .*{text}", ran.stdout)


def test_doctor_exits_1_after_lost_events_until_they_are_acknowledged(archive, tmp_path):
    (archive / "home" / "lost").write_text("33\n")
    (archive / "projects").mkdir()
    (tmp_path / "tmp").mkdir()

    ran = within(archive, "doctor", TMPDIR=str(tmp_path / "tmp"))
    fixed = flightlog(archive, "doctor", "--fix", TMPDIR=str(tmp_path / "tmp"))

    assert ran.code == 1
    assert "failure hooks       33 hook events lost" in ran.out
    assert fixed.code == 0
    assert [path.read_text() for path in (archive / "home").glob("acknowledged-lost-*")] == ["33\n"]


def test_verify_reports_a_session_whose_directory_is_gone(archive):
    shutil.rmtree(archive / "home/sessions/claude-code" / HURT)

    lost = within(archive, "doctor", "--verify")
    (archive / "agent").rename(archive / "projects")
    restored = within(archive, "doctor", "--verify")

    assert (lost.code, within(archive, "session", "list").code) == (3, 0)
    assert f"{HURT}" in lost.out
    assert restored.code == 0
    assert within(archive, "doctor", "--verify", "--json").code == 0


def test_lost_session_is_reported_no_more_after_fix(archive):
    shutil.rmtree(archive / "home/sessions/claude-code" / HURT)

    codes = [
        within(archive, *words).code
        for words in (("doctor", "--verify", "--fix"), ("doctor", "--verify"))
    ]

    assert codes == [3, 0]
