"""Going back in tests: a session with everything in it, and what the model was really asked, read off the wire."""

import hashlib
import os
import re
from contextlib import contextmanager
from pathlib import Path

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.replay.branch import ReplayOptions, prepare_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.runner.run import continue_run
from support.labs import bash, config, environment, replies, run

KEY = "sk-" + "fake-" + "0" * 12
_AGENT = re.compile(r"\ba[0-9a-f]{16}\b")
_TOOK = re.compile(r"duration_ms: \d+")


def scenario(work: Path) -> dict:
    """Twelve turns: tools, two at once, a failure, a subagent, binaries, deletes; then, compacted, a fork of it."""
    agent = {
        "description": "look",
        "prompt": "write it",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    first = [
        [bash("printf '\\000\\001\\377' > new.bin; rm old.txt"), bash("echo two > two")],
        [{"tool": "Write", "input": {"file_path": str(work / "written.txt"), "content": "here\n"}}],
        [{"tool": "Agent", "input": agent}],
        [bash("echo before > before; exit 3")],
        [bash("mv two moved; chmod +x run.sh")],
        [{"text": "looking"}, {"tool": "Read", "input": {"file_path": str(work / "written.txt")}}],
        "done",
    ]
    second = [
        [bash("rm new.bin; echo five > five")],
        [{"tool": "Write", "input": {"file_path": str(work / "abs.txt"), "content": "absolute\n"}}],
        [bash("ln -s five link")],
        [bash("cat five")],
        "done again",
    ]
    rules = [
        {"when": {"subagent": True}, "replies": replies([bash("echo sub > sub.txt")], "sub done")},
        {"when": {"prompt": "do it"}, "replies": _make_replies("first", first)},
        {"when": {"prompt": "go on"}, "replies": _make_replies("second", second)},
    ]
    return {"rules": rules}


def _make_replies(word, turns):
    """Replies whose tool calls have the same ids whenever they are given: a model that answers the same."""
    made = replies(*turns)
    for at, reply in enumerate(made):
        for number, block in enumerate(reply.get("blocks", ())):
            if "tool" in block:
                block["id"] = f"toolu_{word}{at}{number}"
    return made


class Ground:
    """A machine with one recorded run on it, and the model it talks to."""

    def __init__(self, root, model):
        self.root, self._model = root, model
        self.work = root / "work"
        self.env = environment(root, ANTHROPIC_API_KEY=KEY)
        self.setting = service.prepare_run(open_runtime(self.env), lambda *_: None)

    def list_requests(self, session_id):
        """What a session's main thread asked, without who asked."""
        requests = [
            normal(seen.body)
            for seen in list(self._model.requests)
            if seen.headers.get("x-claude-code-session-id") == session_id
            and "x-claude-code-agent-id" not in seen.headers
            and seen.path.partition("?")[0].endswith("/messages")
        ]
        assert requests, "the session asked nothing"
        return requests

    def count(self):
        return len(self._model.requests)

    def source(self, session=1, run="run", replicate=0):
        return ReplaySource(
            service.open_run(open_runtime(), self.root / "runs", run),
            session,
            replicate,
            os.environ["PATH"],
        )

    def prepare_branch(self, name, session, turn, asked, run="run"):
        source = self.source(session, run)
        return prepare_branch(
            source.run,
            source.build_branch_point(turn),
            asked,
            (self.root / "runs" / name, 1),
            self.setting,
        )

    def branch(self, name, session, turn, run="run", **asked):
        return continue_run(
            self.prepare_branch(name, session, turn, ReplayOptions(**asked), run),
            self.setting,
            again=False,
        )


@contextmanager
def recording_ground(root):
    """Record the session on a machine of its own."""
    work = root / "work"
    work.mkdir(parents=True)
    (work / "old.txt").write_text("old\n")
    (work / "run.sh").write_text("#!/bin/sh\n")
    with serve_scenario(parse_scenario(scenario(work))) as model:
        ground = Ground(root, model)
        sessions = ("do it", "/compact be brief", "go on")
        given = config(root, None, *sessions, session_mode="chained", base_url=model.url)
        book = run(root, given, env=ground.env)
        assert [
            attempt.stop_reason for tries in book.state.attempts.values() for attempt in tries
        ] == ["completed"] * 3
        yield ground


def normal(body):
    """A request without who asks; a subagent's id and how long it took are not the model's to say again."""
    fields = {key: value for key, value in body.items() if key != "metadata"}
    return _replace_ids(fields)


def _replace_ids(value):
    if isinstance(value, dict):
        return {key: _replace_ids(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_ids(item) for item in value]
    return _TOOK.sub("TOOK", _AGENT.sub("AGENT", value)) if isinstance(value, str) else value


def fingerprint(folder):
    """Every file of a directory, by its bytes, its kind and its mode."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            str(path.readlink())
            if path.is_symlink()
            else hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }
