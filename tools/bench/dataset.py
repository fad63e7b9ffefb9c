"""What the dataset costs at the source document's 5,000 chats.

    python -m tools.bench.dataset [--chats 5000] [--rounds 15]

A repository with that many chats in sessions of 50, words tracked: 410 characters and two tool calls a chat, which
makes the source document's 1 KB for a chat's row; two sessions a day, the newest of them running. Then one more turn
in the newest session, and the settle its Stop hook starts, timed as a whole process; a full compact; the hook
after a commit against a commit without it. Exits 1 when a bar is missed.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.bench.table import Table
from tools.bench.words import Words

from flightlog.dataset.layout import DatasetDirs, write_bodies
from flightlog.dataset.reader import name_shard, read_dataset
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.git.repository import open_repository

FLIGHTLOG = Path(sys.executable).with_name("flightlog")
SETTLE_P50_MS, SETTLE_MOST_MS = 300.0, 5_000.0
COMPACT_S, COMPACT_MB, COMMIT_MS = 1.0, 7.0, 50.0
EACH = 50
APART_S = 40_000
TURN_S = 600


class Ground:
    """A repository, an agent's configuration, and flightlog's data, all made for the bench."""

    def __init__(self, root: Path) -> None:
        """Make an empty repository with words allowed."""
        self.top, self.config, self.home = root / "repository", root / "claude", root / "home"
        self.top.mkdir()
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(root), "FLIGHTLOG_HOME": str(self.home), "LANG": "C.UTF-8",
            "CLAUDE_CONFIG_DIR": str(self.config), "FLIGHTLOG_DATASET_TRACK_WORDS": "true",
            "GIT_CONFIG_GLOBAL": os.devnull, **{f"GIT_{who}_{what}": "x@example.com"
                                               for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }  # fmt: skip
        self.run("git", "init", "-q", "-b", "main")
        self.run("git", "commit", "-q", "--allow-empty", "-m", "begin")
        self.draw = random.Random(4)
        self.words = Words(4)

    def run(self, *words: str) -> tuple[float, str]:
        """Run a program here and return how many milliseconds it took and what it said."""
        began = time.perf_counter()
        ran = subprocess.run(words, cwd=self.top, env=self.env, capture_output=True, check=False)
        took = (time.perf_counter() - began) * 1000
        assert ran.returncode == 0, ran.stderr
        return took, ran.stdout.decode()

    def flightlog(self, *words: str) -> tuple[float, str]:
        """Run flightlog here."""
        return self.run(str(FLIGHTLOG), *words)

    def session(self, number: int) -> str:
        """Name a session."""
        return f"{number:08x}-1111-4111-8111-111111111111"

    def add(self, session: int, first: int, count: int, ago: int = 0) -> None:
        """Append turns to a session's transcript, the last of them just over; `ago` sessions came after it."""
        folder = self.config / "projects" / str(self.top).replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.session(session)}.jsonl"
        end_s = int(time.time()) - ago * APART_S
        with path.open("a") as file:
            for number in range(first, first + count):
                at_s = end_s - (first + count - 1 - number) * TURN_S - 95
                file.writelines(
                    json.dumps(record) + "\n" for record in self._turn(session, number, at_s)
                )
        os.utime(path, (end_s, end_s))

    def _turn(self, session: int, number: int, at: int) -> Iterator[dict[str, Any]]:
        name = f"{session:x}-{number}"
        yield self._record(
            "user", name, 0, at, {"role": "user", "content": self.words.cut(self.draw, 110)}
        )
        for place in range(1, self.draw.choice((2, 3, 4))):
            tool = self.draw.choice(("Read", "Edit", "Bash"))
            path = f"{self.top}/src/module_{self.draw.randrange(400)}.py"
            given = {"command": "make test"} if tool == "Bash" else {"file_path": path}
            call = {
                "type": "tool_use",
                "id": f"toolu_{name}_{place:016}",
                "name": tool,
                "input": given,
            }
            yield self._reply(name, place * 2 - 1, at + place * 20, [call])
            result = {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": self.words.cut(self.draw, 900),
            }
            yield self._record(
                "user", name, place * 2, at + place * 20 + 5, {"role": "user", "content": [result]}
            )
        text = {"type": "text", "text": self.words.cut(self.draw, 300)}
        yield self._reply(name, 99, at + 90, [text])

    def _reply(
        self, name: str, place: int, at: int, content: list[dict[str, Any]]
    ) -> dict[str, Any]:
        usage = {
            "input_tokens": 12,
            "output_tokens": self.draw.randrange(400),
            "cache_read_input_tokens": 20_000,
        }
        body = {
            "id": f"msg_01{name:>6}{place:016}".replace(" ", "0"),
            "model": "claude-sonnet-4-5",
            "role": "assistant",
            "usage": usage,
        }
        return self._record("assistant", name, place, at, {**body, "content": content})

    def _record(
        self, kind: str, name: str, place: int, at: int, message: dict[str, Any]
    ) -> dict[str, Any]:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
        parent = _uuid(name, place - 1) if place else None
        return {"type": kind, "uuid": _uuid(name, place), "parentUuid": parent, "timestamp": stamp,
                "cwd": str(self.top), "version": "2.1.325", "isSidechain": False, "message": message}  # fmt: skip


def _uuid(name: str, place: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {place}"))


def main() -> int:
    """Measure, print one table, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        sessions = options.chats // EACH
        for number in range(sessions):
            ground.add(number, 0, EACH, sessions - 1 - number)
        took, _ = ground.flightlog("dataset", "session", "sync-to-jsonl")
        table.title(f"{options.chats:,} chats")
        table.note("first sync, s", f"{took / 1000:.1f}")
        ground.flightlog("settle", ground.session(sessions - 1))
        _settle(ground, table, sessions - 1, options.rounds)
        _compact(ground, table)
        _commit(ground, table, options.rounds)
    return 1 if table.failed else 0


def _settle(ground: Ground, table: Table, session: int, rounds: int) -> None:
    """One more turn each time, then the settle that its Stop starts."""
    floor = [ground.flightlog("--version")[0] for _ in range(3)]
    times = []
    for number in range(rounds):
        ground.add(session, EACH + number, 1)
        took, output = ground.run(str(FLIGHTLOG), "settle", ground.session(session), "--json")
        assert json.loads(output)["dataset_rows"] > 2, output
        times.append(took)
    table.note("flightlog --version, ms", f"{statistics.median(floor):.0f}")
    table.most("settle of a Stop, p50, ms", statistics.median(times), SETTLE_P50_MS)
    table.most("settle of a Stop, slowest, ms", max(times), SETTLE_MOST_MS)


def _compact(ground: Ground, table: Table) -> None:
    place = DatasetDirs(open_repository(ground.top))
    ground.flightlog("dataset", "tracked", "compact")
    book = read_dataset(place.tracked_dir)
    size = sum(path.stat().st_size for path in place.tracked_dir.glob("*.jsonl"))
    table.note("rows", dict(book.count_rows()))
    table.most("compacted, MB", size / 1e6, COMPACT_MB)
    records = JsonRedactor(Redactor(b"k" * 32))
    lines = sorted(version.line for version in book.lines.values())
    took = []
    for number in range(3):
        for path in place.tracked_dir.glob("*.jsonl"):
            path.write_bytes(b"")
        parts = [lines[start::100] for start in range(100)]
        bodies = [
            b"".join(b" " * (1 + number) + line + b"\n" for line in part) for part in parts if part
        ]
        write_bodies(place, [name_shard("all", body, "2026-11-02") for body in bodies], records)
        took.append(ground.flightlog("dataset", "tracked", "compact")[0] / 1000)
    table.truth(
        "the same rows as before", read_dataset(place.tracked_dir).count_rows() == book.count_rows()
    )
    table.most("full compact of them from shards, s", statistics.median(took), COMPACT_S)


def _commit(ground: Ground, table: Table, rounds: int) -> None:
    """The hook after a commit, against a commit without it, in turns."""
    ground.flightlog("dataset", "install-hooks")
    hook = ground.top / ".git" / "hooks" / "post-commit"
    body = hook.read_bytes().replace(
        b"nohup ", b": nohup "
    )  # what git waits for, without what it does not
    hook.write_bytes(body)
    plain: list[float] = []
    hooked: list[float] = []
    for number in range(rounds):
        for times, on in ((plain, False), (hooked, True)):
            hook.chmod(0o755 if on else 0o644)
            (ground.top / f"file-{number}-{on}").write_text("x")
            ground.run("git", "add", f"file-{number}-{on}")
            times.append(ground.run("git", "commit", "-q", "-m", "x")[0])
    added = statistics.median(hooked) - statistics.median(plain)
    table.most("the hook adds to a commit, p50, ms", added, COMMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
