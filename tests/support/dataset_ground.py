"""A repository of one's own with sessions that began in it, and the records of turns."""

import json
import os
import subprocess
from pathlib import Path

from flightlog.archive.archive import Archive
from flightlog.dataset.extract.extract import ExtractContext, ExtractOptions
from flightlog.dataset.layout import DatasetDirs, prepare_dataset
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.state import writer_name
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.trust import FILE, TrustStore
from flightlog.store.git.repository import open_repository
from support.dataset_histories import environment
from support.transcripts import assistant, stamp, user


class Ground:
    """A repository, the agent's configuration beside it, and flightlog's own data."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root / "shop"
        self.config = root / "claude"
        self.top.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        for name, value in (("name", "x"), ("email", "x@example.com")):
            self.git("config", f"user.{name}", value)
        (self.top / "a.txt").write_text("a\n")
        self.commit("first")
        self.place = DatasetDirs(open_repository(self.top))
        writer_name(self.place.state_dir, "cafe0123")

    def git(self, *words):
        ran = subprocess.run(
            ["git", *words],
            cwd=self.top,
            env=environment(self.root),
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, (words, ran.stderr)
        return ran.stdout.decode()

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def on(self):
        """Begin a dataset, as a person on this machine."""
        prepare_dataset(self.place, self.kit().redactor)
        TrustStore(self.root / "home" / FILE).allow_rows(self.top)
        return self

    def kit(self, *, words=True, local_cache=False):
        redactor = Redactor(b"k" * 32, homes={str(self.top): "."})
        return ExtractContext(
            self.place,
            Archive({"claude-code": (str(self.config),)}),
            JsonRedactor(redactor),
            ExtractOptions(words, local_cache),
        )

    def write(self, session, *records, subagent=""):
        path = self.config / "projects" / str(self.top).replace("/", "-") / f"{session}.jsonl"
        if subagent:
            path = path.with_suffix("") / "subagents" / f"agent-{subagent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [{**record, "cwd": str(self.top), "sessionId": session} for record in records]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(path, (1_790_000_000, 1_790_000_000))
        return path

    def recording(self, session):
        return self.kit().archive.find_recording(session)

    @property
    def book(self):
        return read_dataset(self.place.tracked_dir)

    @property
    def shards(self):
        return sorted(self.place.pending_dir.glob("*.jsonl"))

    def rows(self, kind):
        return list(self.book.rows_of_kind(kind))


def turn(number, prompt="Do it.", answer="Done.", *tools):
    """The records of one turn: a prompt, a step for each (name, input, result), an answer."""
    at_record = number * 100
    yield user(prompt, at_record, uuid=f"p{number}", parentUuid=None, timestamp=stamp(at_record))
    for place, (name, given, result) in enumerate(tools, 1):
        call = {"type": "tool_use", "id": f"call-{number}-{place}", "name": name, "input": given}
        yield assistant(f"m{number}-{place}", at_record + 2 * place, call)
        if result is not None:
            returned = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
            yield user([returned], at_record + 2 * place + 1)
    if answer is not None:
        yield assistant(f"m{number}-end", at_record + 90, {"type": "text", "text": answer})
