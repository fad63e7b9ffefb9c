import base64
import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest

from flightlog.hooks import recorder, writer
from flightlog.model import addresses
from flightlog.setup.install import SCRIPT, build_hook_command
from support.hooking import COMMAND, count_lost, payload, read_events, run_hook
from support.waiting import until

MEGABYTE = 1 << 20


def test_an_event_is_one_line_with_the_payload_as_it_came(tmp_path):
    odd = (
        b'{"hook_event_name":"Stop", "session_id":"s1","n":1.50,"text":"\\ud800 \xe2\x80\xa8 \\n"}'
    )
    before = time.time_ns() // 1_000_000

    run_hook(tmp_path, odd)

    (line,) = (tmp_path / "sessions/claude-code/s1/hooks.jsonl").read_bytes().splitlines()
    (event,) = read_events(tmp_path, "s1")
    assert odd in line
    assert (event["v"], event["agent"], event["event"]) == (1, "claude-code", "Stop")
    assert before <= event["at_ms"] <= time.time_ns() // 1_000_000


def test_any_event_is_recorded_by_its_name_in_order_of_arrival(tmp_path):
    names = ["SessionStart", "AnEventOfTomorrow", "SessionEnd"]
    for name in names:
        run_hook(tmp_path, payload(name))

    assert [event["event"] for event in read_events(tmp_path)] == names
    assert len({event["id"] for event in read_events(tmp_path)}) == 3


def test_line_ends_between_tokens_do_not_break_the_line(tmp_path):
    run_hook(
        tmp_path,
        json.dumps({"session_id": "session-1", "a": [1, 2]}, indent=2)
        .replace("\n", "\r\n")
        .encode(),
    )

    (event,) = read_events(tmp_path)
    assert event["payload"] == {"session_id": "session-1", "a": [1, 2]}


@pytest.mark.parametrize(
    "stdin",
    [
        b"null",
        b"\0\xff\xfe binary",
        b'{"torn": ',
        b'{"n": NaN}',
        b"{} {}",
        b"[" * 100_000,
        b'{"s": "raw\nnewline"}',
    ],
)
def test_what_is_not_json_is_kept_as_it_came(tmp_path, stdin):
    run_hook(tmp_path, stdin)

    (event,) = read_events(tmp_path, "unknown")
    assert base64.b64decode(event["raw"]) == stdin


@pytest.mark.parametrize("stdin", [b"[1]", b'"text"'])
def test_json_that_is_no_object_is_kept_too(tmp_path, stdin):
    run_hook(tmp_path, stdin)

    (event,) = read_events(tmp_path, "unknown")
    assert "raw" not in event
    assert event["payload"] == json.loads(stdin)


def test_without_an_event_the_caller_keeps_its_time_and_umask(tmp_path):
    program = (
        "import os, signal\nfrom flightlog.hooks import recorder\nos.umask(0o027)\n"
        "print(recorder.main([]), signal.getitimer(signal.ITIMER_REAL)[0],"
        " signal.getsignal(signal.SIGALRM).name, oct(os.umask(0)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"FLIGHTLOG_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert done.stdout == b"False 0.0 SIG_DFL 0o27\n", done.stderr


def test_no_alarm_is_left_that_could_kill_the_interpreter_at_its_end(tmp_path):
    program = (
        "import signal\nfrom flightlog.hooks import recorder\n"
        "print(recorder.main(['--project']), signal.getitimer(signal.ITIMER_REAL)[0])"
    )
    homes = (tmp_path / "home", tmp_path / "a file")
    homes[1].write_text("")

    for home in homes:  # the second one cannot be written to
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"FLIGHTLOG_HOME": str(home), "PATH": os.environ["PATH"]},
            input=payload("Stop"),
            capture_output=True,
            check=False,
        )
        assert done.stdout == b"True 0.0\n", done.stderr


OWN = build_hook_command(Path(sys.executable), flags=["--project"])


@pytest.mark.parametrize("order", [(COMMAND, OWN), (OWN, COMMAND)])
def test_an_event_of_both_hooks_is_recorded_once(tmp_path, order):
    for event in ("SessionStart", "Stop"):
        for command in order:
            run_hook(tmp_path, payload(event), run=command)

    assert [event["event"] for event in read_events(tmp_path)] == ["SessionStart", "Stop"]


def test_both_hooks_that_check_at_the_same_time_record_an_event_once(tmp_path):
    """Both wait for the lock of the log, so neither finds a line of the other before."""
    counts = []
    for session in ("s1", "s2", "s3"):
        log = tmp_path / "sessions" / "claude-code" / session / "hooks.jsonl"
        log.parent.mkdir(parents=True)
        with log.open("w") as lock, ThreadPoolExecutor(2) as pool:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for command in (COMMAND, OWN):
                event = payload("PreToolUse", session=session)
                pool.submit(run_hook, tmp_path, event, run=command)
            until(lambda: len(waiting_for(log)) == 2)  # noqa: B023 - called in this round
            fcntl.flock(lock, fcntl.LOCK_UN)
        if not list(log.parent.glob("*.shard.jsonl")):  # on a busy machine one gave up waiting
            counts.append(len(read_events(tmp_path, session)))

    assert set(counts) == {1}


def waiting_for(path):
    """Return the other processes that have `path` open."""
    processes = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it ended meanwhile, or it is another user's
            processes |= {link.parts[2]} if link.readlink() == path else set()
    return processes - {str(os.getpid())}


@pytest.mark.parametrize("command", [COMMAND, OWN])
def test_equal_events_of_one_hook_are_all_recorded(tmp_path, command):
    for _ in range(3):
        run_hook(tmp_path, payload("Stop"), run=command)

    assert len(read_events(tmp_path)) == 3


def test_empty_stdin_records_nothing(tmp_path):
    run_hook(tmp_path, b"")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hostile", ["../../escape", "a/b", ".hidden", "x" * 129, "sess ion", "日本", "a\n"]
)
def test_a_session_id_that_is_no_file_name_is_hashed(tmp_path, hostile):
    run_hook(tmp_path, payload(session=hostile))

    (directory,) = (tmp_path / "sessions" / "claude-code").iterdir()
    assert directory.name.startswith("sha256-")
    assert addresses.is_safe(directory.name)


def test_the_rule_for_ids_is_that_of_the_model():
    words = [
        "a",
        "A.b_c-1",
        "",
        ".a",
        "-a",
        "_a",
        "a/b",
        "a b",
        "é",
        "a" * 128,
        "a" * 129,
        "a\0",
        "0",
        "\u0660",
    ]

    assert [recorder.is_safe(word) for word in words] == [addresses.is_safe(word) for word in words]
    for environment in (
        {},
        {"XDG_DATA_HOME": "/data"},
        {"XDG_DATA_HOME": " "},
        {"XDG_DATA_HOME": "~/x"},
    ):
        assert writer.find_data_dir({**environment}) == _platform_home(environment)


def _platform_home(environment):
    script = "import platformdirs; print(platformdirs.user_data_dir('flightlog', appauthor=False))"
    clean = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    return subprocess.check_output(
        [sys.executable, "-c", script], env=clean | environment, text=True
    ).strip()


def test_the_default_home_is_that_of_platformdirs(tmp_path):
    run_hook(tmp_path, payload(), FLIGHTLOG_HOME="", XDG_DATA_HOME=str(tmp_path / "data"))

    assert len(read_events(tmp_path / "data" / "flightlog")) == 1
    assert platformdirs.__version__


def test_relative_home_is_ignored(tmp_path):
    run_hook(tmp_path, payload(), FLIGHTLOG_HOME="here", XDG_DATA_HOME=str(tmp_path / "data"))

    assert len(read_events(tmp_path / "data" / "flightlog")) == 1


def test_files_are_private_whatever_the_umask(tmp_path):
    home = tmp_path / "home"
    for umask in ("000", "777"):
        run_hook(tmp_path, payload(), run=f"umask {umask}; {COMMAND}", FLIGHTLOG_HOME=str(home))

    for path in (home, *home.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_environment_is_in_no_byte_written(tmp_path):
    canary = "canary-" + os.urandom(8).hex()
    for event in ("SessionStart", "PreToolUse", "Stop", "SessionEnd"):
        run_hook(
            tmp_path, payload(event), ANTHROPIC_API_KEY=canary, CLAUDE_CODE_MESSAGING_TOKEN=canary
        )

    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(read_events(tmp_path)) == 4
    assert not [path for path in written if canary.encode() in path.read_bytes()]


def test_a_payload_too_long_for_a_line_goes_whole_to_the_spool(tmp_path):
    huge = payload("PostToolUse", text="x" * (17 * MEGABYTE))

    run_hook(tmp_path, huge)

    (event,) = read_events(tmp_path)
    assert (event["truncated"], event["event"]) == (True, "PostToolUse")
    assert (tmp_path / "spool" / event["spool"]).read_bytes() == huge


@pytest.mark.parametrize("is_text", [True, False])
def test_fifty_megabytes_are_on_record_however_far_the_copy_came(tmp_path, is_text):
    huge = payload(text="x" * (50 * MEGABYTE)) if is_text else os.urandom(MEGABYTE) * 50

    run_hook(tmp_path, huge)

    (event,) = read_events(tmp_path, "session-1" if is_text else "unknown")
    (file,) = (tmp_path / "spool").iterdir()
    assert file.name in {event["spool"], event["spool"] + ".part"}
    assert huge.startswith(file.read_bytes())


def test_noise_that_fits_until_it_is_encoded_goes_to_the_spool(tmp_path):
    noise = os.urandom(MEGABYTE) * 14

    run_hook(tmp_path, noise)

    (event,) = read_events(tmp_path, "unknown")
    assert (tmp_path / "spool" / event["spool"]).read_bytes() == noise


@pytest.mark.parametrize(
    "run",
    [
        build_hook_command(Path("/nonexistent/python")),
        build_hook_command(Path(sys.executable), Path("/nonexistent/record.py")),
        build_hook_command(Path("/bin/false")),
        COMMAND.replace("claude-code", "--unknown --flags '' ../../x -h"),
    ],
    ids=["no python", "no script", "broken python", "wrong arguments"],
)
def test_a_broken_installation_is_not_noticed_by_the_agent(tmp_path, run):
    run_hook(tmp_path, payload("Stop"), run=run)


@pytest.mark.parametrize("missing", ["recorder.py", "writer.py", "settle_gate.py"])
def test_a_half_upgraded_installation_is_not_noticed_by_the_agent(tmp_path, missing):
    copy = tmp_path / "flightlog" / "hooks"
    copy.mkdir(parents=True)
    (copy.parent / "__init__.py").write_bytes(b"")
    for file in SCRIPT.parent.glob("*.py"):
        (copy / file.name).write_bytes(
            file.read_bytes() if file.name != missing else b"def main(:\n"
        )

    run_hook(
        tmp_path, payload("Stop"), run=build_hook_command(Path(sys.executable), copy / "record.py")
    )
    (copy / missing).unlink()
    run_hook(
        tmp_path, payload("Stop"), run=build_hook_command(Path(sys.executable), copy / "record.py")
    )


@pytest.mark.parametrize("obstacle", ["file", "symlink", "directory"])
def test_a_home_that_cannot_be_used_costs_the_record_and_says_so(tmp_path, obstacle):
    home = tmp_path / "home"
    match obstacle:
        case "file":
            home.write_text("")
        case "symlink":
            (home / "sessions/claude-code/session-1").mkdir(parents=True)
            (home / "sessions/claude-code/session-1/hooks.jsonl").symlink_to(tmp_path / "elsewhere")
        case "directory":
            (home / "sessions/claude-code/session-1/hooks.jsonl").mkdir(parents=True)

    run_hook(tmp_path, payload(), FLIGHTLOG_HOME=str(home))

    assert count_lost(tmp_path) + count_lost(home) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_broken_home_variable_is_not_noticed_by_the_agent(tmp_path):
    run_hook(tmp_path, payload("Stop"), FLIGHTLOG_HOME="/proc/nothing")
    run_hook(tmp_path, payload("Stop"), FLIGHTLOG_HOME="/dev/null/x", TMPDIR="/dev/null")

    assert count_lost(tmp_path) == 1


@pytest.mark.slow
def test_stdin_that_never_ends_costs_the_agent_a_second(tmp_path):
    started = time.monotonic()
    with subprocess.Popen(["sleep", "30"], stdout=subprocess.PIPE) as silent:
        done = subprocess.run(
            ["sh", "-c", COMMAND],
            stdin=silent.stdout,
            env={
                "PATH": os.environ["PATH"],
                "FLIGHTLOG_HOME": str(tmp_path),
                "TMPDIR": str(tmp_path),
            },
            capture_output=True,
            check=False,
        )
        waited = time.monotonic() - started
        until(lambda: count_lost(tmp_path) == 1)
        silent.kill()

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert 0.9 < waited < 5


def test_slow_record_is_finished_in_the_background(tmp_path):
    """A payload that arrives late: the agent is let go after a second, the record is written all the same."""
    reader, writer = os.pipe()
    hook = subprocess.Popen(
        ["sh", "-c", COMMAND],
        stdin=reader,
        env={"PATH": os.environ["PATH"], "FLIGHTLOG_HOME": str(tmp_path)},
    )
    os.close(reader)
    os.write(writer, payload()[:20])

    assert hook.wait(10) == 0
    assert not (tmp_path / "sessions").exists()
    os.write(writer, payload()[20:])
    os.close(writer)
    until(lambda: read_events(tmp_path))
    assert [event["event"] for event in read_events(tmp_path)] == ["PostToolUse"]


def test_events_of_one_session_at_once_are_all_there(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: run_hook(tmp_path, payload(n=number, pad="x" * 9000)), range(40)
            )
        )

    assert sorted(event["payload"]["n"] for event in read_events(tmp_path)) == list(range(40))
