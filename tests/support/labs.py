"""Running experiments in tests: a machine of its own, the real agent or the scripted one, offline."""

import json
import os
import stat
import subprocess
from base64 import b64decode
from pathlib import Path

import msgspec

from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.config import TOOLS, RunConfig
from flightlog.lab.run_reader import trees_of
from flightlog.lab.runner.run import start_run
from flightlog.lab.store import RunStore
from flightlog.store.git.snapshots import open_trees
from flightlog.store.git.worktree import SnapshotDirs
from support.real_agent import PINNED, agent_program

MODEL = "claude-opus-5-5"


def environment(root, **more):
    """What a person on a bare machine has; nothing of the surroundings."""
    (root / "home").mkdir(exist_ok=True)
    plain = {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "home"),
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
    }
    own = {
        "FLIGHTLOG_CLAUDE": str(agent_program(PINNED)),
        "FLIGHTLOG_HOME": os.environ["FLIGHTLOG_HOME"],
    }
    return plain | own | more


def config(root, scenario, *sessions, engine="claude_code", **more):
    """A run of `sessions` (prompts, or mappings) in `root/work`."""
    (root / "work").mkdir(exist_ok=True)
    listed = [session if isinstance(session, dict) else {"prompt": session} for session in sessions]
    numbered = [{"session_index": at, **session} for at, session in enumerate(listed, 1)]
    given = {"model": MODEL, "work_dir": str(root / "work"), "sessions": numbered, "engine": engine}
    usual = {"scenario": scenario, "memory_file": None, "allowed_tools": [*TOOLS, "Agent"]}
    return msgspec.convert(given | usual | more, RunConfig)


def run(root, given, name="run", env=None):
    """Carry a run out and return its book."""
    own = {"FLIGHTLOG_HOME": os.environ["FLIGHTLOG_HOME"]} | (env or environment(root))
    return start_run(
        root / "runs" / name, given, service.prepare_run(open_runtime(own), lambda *_: None)
    )


def rewrite_config(path, text):
    """Write a run's configuration again, as the person whose run it is."""
    (path / "config.yaml").write_text(text)
    service.remember_run(open_runtime(), RunStore(path, now=str, new_id=str).config_digest)


def again(root, name="run"):
    """Open a run as another process would."""
    return RunStore(root / "runs" / name, now=lambda: "t", new_id=lambda: "i")


def changelog(book):
    return lines(book.path / "state_changelog.jsonl")


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def meta(book):
    return json.loads((book.path / "run_meta.json").read_bytes())


def tree(folder):
    """Every file in a directory but git's own: bytes, links, whether it can be run."""
    return {
        str(path.relative_to(folder)): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes(),
            path.is_symlink() or bool(path.lstat().st_mode & stat.S_IXUSR),
        )
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or path.is_file()) and ".git" not in path.relative_to(folder).parts
    }


def lay_out(book, snapshot, into):
    """Lay a snapshot of a run out in a directory."""
    into.mkdir(parents=True)
    place = SnapshotDirs(book.shadow_dir, into, Path("/nonexistent"), os.environ["PATH"])
    open_trees(place, now=lambda: 0.0, line=into.name).restore_snapshot(snapshot)
    return into


def apply_entries(folder, entries):
    """Apply entries of a changelog one after the other, as anybody with git can."""
    for entry in entries:
        patch = b64decode(entry["diff"]) if entry.get("diff_encoding") else entry["diff"].encode()
        apply(folder, patch, "-p0")


def apply(folder, patch, *words):
    if patch:
        command = ["git", "apply", "--whitespace=nowarn", "--allow-empty", *words, "-"]
        env = {"PATH": os.environ["PATH"], "GIT_DIR": "/nonexistent", "HOME": "/nonexistent"}
        done = subprocess.run(
            command, cwd=folder, env=env, input=patch, capture_output=True, check=False
        )
        assert done.returncode == 0, (done.stderr.decode(), patch.decode("utf-8", "replace")[:2000])


def proven(book, tmp_path):
    """Rebuild the final tree three ways from the baseline, byte for byte; return the changelog."""
    entries = changelog(book)
    final = tree(lay_out(book, book.state.end.tree, tmp_path / "final"))
    by_steps = lay_out(book, "baseline", tmp_path / "by-steps")
    apply_entries(by_steps, entries)
    assert tree(by_steps) == final
    by_sessions = lay_out(book, "baseline", tmp_path / "by-sessions")
    for session in book.planned_sessions():
        apply(by_sessions, (book.path / session.session_dir / "session_diff.patch").read_bytes())
    assert tree(by_sessions) == final
    at_once = lay_out(book, "baseline", tmp_path / "at-once")
    apply(at_once, (book.path / "full_diff.patch").read_bytes())
    assert tree(at_once) == final
    assert trees_of(book, os.environ["PATH"]) is not None
    return entries


def bash(command, **more):
    return {"tool": "Bash", "input": {"command": command, **more}}


def replies(*turns):
    """Replies of a model: words, or lists of blocks."""
    return [
        {"text": one} if isinstance(one, str) else one if isinstance(one, dict) else {"blocks": one}
        for one in turns
    ]


def script(*turns):
    """A scenario with one rule."""
    return {"rules": [{"replies": replies(*turns)}]}
