"""A power cut, for real: a disk image is copied while mounted, so it holds only what reached the disk."""

import json
import subprocess
import sys

import pytest

SCENARIO = """
import fcntl, json, os, subprocess, sys
from pathlib import Path
from flightlog.setup.install import SCRIPT
from flightlog.store import blobs
from flightlog.store.files import quarantine_file, replace_file
from flightlog.store.jsonl import JsonlLine, append_line, read_lines
from flightlog.store.recordings.recording import open_recording
from flightlog.store.recordings.adoption import session_dir
from flightlog.store.recordings.sessions import adopt_session, read_meta, seal_session

top = Path(sys.argv[1])
disk, cut = top / "disk", top / "cut"
for each in (disk, cut): each.mkdir()
image = str(top / "disk.img")
def system(*words): subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
system("truncate", "-s", "24M", image)
system("mkfs.ext4", "-q", "-F", image)
system("mount", "-o", "loop,noauto_da_alloc", image, str(disk))
source = top / "source.jsonl"
source.write_bytes(b'{"n":1}\\n' * 5000)

def look(root):
    found = {}
    hooks = "hooked/sessions/claude-code/s/hooks.jsonl"
    for name in ("new/log.jsonl", "late/log.jsonl", "lost.jsonl", hooks):
        if (root / name).exists():
            found[name] = [item.data.decode() for item in read_lines(root / name) if isinstance(item, JsonlLine)]
    for name in ("page", "page.damaged-1"):
        found[name] = (root / name).read_text() if (root / name).exists() else None
    transcript = session_dir(root / "home", "a", "s") / "transcript.jsonl"
    if transcript.parent.exists():
        with open_recording(transcript) as recording:
            found["adopted"] = len(list(recording.read_lines()))
            found["meta"] = read_meta(transcript.parent).files["transcript.jsonl"].size_bytes
        found["sealed"] = not transcript.exists()
    return found

def after(what, work):
    work()
    system("cp", image, image + ".cut")
    system("mount", "-o", "loop", image + ".cut", str(cut))
    print(json.dumps([what, look(cut)]))
    system("umount", str(cut))

sources = {"transcript.jsonl": source}
after("durable line, new directory", lambda: append_line(disk / "new/log.jsonl", b'{"n":1}', durable=True))
append_line(disk / "late/log.jsonl", b'{"n":1}')
after("durable line behind one that was not", lambda: append_line(disk / "late/log.jsonl", b'{"n":2}', durable=True))
after("page", lambda: replace_file(disk / "page", b"first"))
after("page again", lambda: replace_file(disk / "page", b"second"))
after("quarantine", lambda: quarantine_file(disk / "page"))
after("adopt", lambda: adopt_session(disk / "home", "a", "s", sources))
source.write_bytes(b'{"n":1}\\n' * 6000)
after("adopt more", lambda: adopt_session(disk / "home", "a", "s", sources))
after("seal", lambda: seal_session(disk / "home", "a", "s"))
# A settle would sync as well: it is kept from running by its own lock.
held = session_dir(disk / "hooked", "claude-code", "s") / "settle.lock"
held.parent.mkdir(parents=True)
settling = held.open("w")
fcntl.flock(settling, fcntl.LOCK_EX)
def hook(event):
    payload = json.dumps({"session_id": "s", "hook_event_name": event}).encode()
    home = {"FLIGHTLOG_HOME": str(disk / "hooked")}
    subprocess.run([sys.executable, "-I", "-S", str(SCRIPT)], input=payload, env=home, check=True)
hook("PreToolUse")
after("hook at the end of a turn", lambda: hook("Stop"))
after("hook at the end of the session", lambda: hook("SessionEnd"))
(disk / "lost.jsonl").touch()
after("a line nobody called durable", lambda: append_line(disk / "lost.jsonl", b'{"n":1}'))
settling.close()
system("umount", str(disk))
"""


@pytest.mark.slow
def test_what_was_acknowledged_as_durable_survives_a_power_cut(tmp_path):
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", SCENARIO, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = dict(map(json.loads, done.stdout.splitlines()))

    assert seen["durable line, new directory"]["new/log.jsonl"] == ['{"n":1}']
    assert seen["durable line behind one that was not"]["late/log.jsonl"] == ['{"n":1}', '{"n":2}']
    assert seen["page"]["page"] == "first"
    assert seen["page again"]["page"] == "second"
    assert (seen["quarantine"]["page"], seen["quarantine"]["page.damaged-1"]) == (None, "second")
    assert (seen["adopt"]["adopted"], seen["adopt"]["meta"]) == (5000, 40_000)
    assert (seen["adopt more"]["adopted"], seen["adopt more"]["meta"]) == (6000, 48_000)
    assert (seen["seal"]["adopted"], seen["seal"]["sealed"]) == (6000, True)
    assert _events(seen["hook at the end of a turn"]) == ["PreToolUse", "Stop"]
    assert _events(seen["hook at the end of the session"]) == ["PreToolUse", "Stop", "SessionEnd"]
    # The cut is a real one: what nobody asked to be durable is not there.
    assert seen["a line nobody called durable"]["lost.jsonl"] == []


def _events(files):
    return [
        json.loads(line)["event"] for line in files["hooked/sessions/claude-code/s/hooks.jsonl"]
    ]
