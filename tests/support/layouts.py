"""Directories of every layout as a released version left them, and what they say.

`python tests/support/layouts.py VERSION` lets everything happen once, at a place no machine has, and keeps
what each room left in `recordings/layouts/VERSION.tar.zst` with what it says in `VERSION.json`.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec

from flightlog.archive.archive import Archive
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.stats import count_by_kind
from flightlog.lab.layout import run_meta
from flightlog.lab.run_reader import RunSession, trees_of
from flightlog.lab.store import RunStore
from flightlog.live.state_file import runtime_state
from flightlog.loop.directories import iter_events, open_loop_session
from flightlog.loop.status import build_status
from flightlog.privacy.redactor import Redactor
from flightlog.retro.state import decode_analysis
from flightlog.retro.store import ANALYSIS, RetroStore
from flightlog.store.compression import zstd

KEPT = Path(__file__).parents[1] / "recordings" / "layouts"
VERSIONS = sorted(path.name.removesuffix(".tar.zst") for path in KEPT.glob("*.tar.zst"))
ROOMS = {
    "live": "home/.claude/session-health",
    "loop": "project/ralph-loop-sessions",
    "lab": "project/runs",
    "retro": "project/.chat-retro-runtime",
    "dataset": "project/.git-ml",
    "archive": "flightlog/sessions",
}
BYTES_MAX = 600_000


def unpack_version(version, into):
    """Lay the directories of a version out and return where."""
    data = zstd.decompress((KEPT / f"{version}.tar.zst").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        # Python 3.11.3 and older has no filters; the archive is ours.
        packed.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return into


def describe_layout(root):
    """What the directories say to this version, room by room, in plain values."""
    return {
        "live": _live(root / ROOMS["live"]),
        "loop": _loop(root / ROOMS["loop"]),
        "lab": _lab(root / ROOMS["lab"]),
        "retro": _retro(root / ROOMS["retro"]),
        "dataset": count_by_kind(read_dataset(root / ROOMS["dataset"] / "tracked")),
        "archive": _archive(root / "flightlog"),
    }


def _live(folder):
    state = runtime_state.read_state(folder, 0)
    return {
        "profiles": [profile.profile_id for profile in state.auth_profiles],
        "sessions": [session.session_id for session in state.sessions],
    }


def _loop(folder):
    (directory,) = folder.glob("session-*")
    status = build_status(open_loop_session(directory), 0.0)
    fields = (
        "session",
        "status",
        "tasks_completed",
        "tasks_total",
        "errors",
        "model_calls",
        "total_tokens",
    )
    return {name: getattr(status, name) for name in fields} | {
        "events": sum(1 for _ in iter_events(directory))
    }


def _lab(folder):
    book = RunStore(folder / "tax", now=lambda: "t", new_id=lambda: "i")
    reading = RunSession(book, book.planned_sessions()[0], trees_of(book, os.environ["PATH"]))
    meta = run_meta(book.name, book.config, book.state)
    return {
        "stop_reason": meta["stop_reason"],
        "steps": meta["total_steps"],
        "requests": len(reading.calls),
        "changes": [(change["file_path"], change["kind"]) for change in reading.iter_changes()],
        "first_request": len(reading.exchanges.sent_body(reading.calls[0].exchange)),
    }


def _retro(folder):
    room = RetroStore(folder, Redactor(b"k" * 32), lambda: 0, lambda: "")
    patterns = decode_analysis((folder / ANALYSIS).read_bytes()).patterns
    return {
        "issues": {name: issue.title for name, issue in room.load_board().issues.items()},
        "findings": [pattern.id for pattern in patterns],
    }


def _archive(home):
    archive = Archive({"claude-code": (str(home / "nowhere"),)}, str(home))
    sessions = [archive.read_session(name) for name in archive.recordings]
    return {
        session.id: {
            "turns": len(session.turns),
            "steps": len(session.steps),
            "prompt": session.turns[0].text[:60],
        }
        for session in sessions
    }


def _keep(version):
    """Make the directories again; runs where `/home/dev` is empty and gone afterwards."""
    from support.real_agent import make_bench
    from support.traced import build, did, tool

    made = build(make_bench(Path("/home/dev")))
    did(tool(made.bench, made.environment(), "flightlog", "settle"))
    did(tool(made.bench, made.environment(), "flightlog", "watch", "--once"))
    root = Path("/home/dev")
    with io.BytesIO() as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for folder in ROOMS.values():
                tar.add(root / folder, folder, filter=_plain)
        body = packed.getvalue()
    compressed = zstd.compress(body, 19)
    assert len(compressed) < BYTES_MAX, (
        f"{len(compressed)} bytes: too much to keep in the repository"
    )
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{version}.tar.zst").write_bytes(compressed)
    document = msgspec.json.format(msgspec.json.encode(describe_layout(root)), indent=2) + b"\n"
    (KEPT / f"{version}.json").write_bytes(document)
    sys.stdout.write(
        f"{version}: {len(body):,} bytes, {len(compressed):,} packed\n{json.dumps(describe_layout(root))[:400]}\n"
    )


def _plain(member):
    """Nobody's name, no socket, no lock."""
    member.uid = member.gid = 0
    member.uname = member.gname = "dev"
    return member if member.isfile() or member.isdir() else None


if __name__ == "__main__":
    if sys.argv[2:] == ["inside"]:
        _keep(sys.argv[1])
    else:
        again = (
            f"mount -t tmpfs tmpfs /home && exec {sys.executable} {__file__} {sys.argv[1]} inside"
        )
        subprocess.run(["unshare", "-m", "sh", "-c", again], check=True)
