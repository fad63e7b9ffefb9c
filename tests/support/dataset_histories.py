"""Random git histories over a dataset, with real git, and what a reader must see at their end.

Several people work on several branches: they write shards, merge, rebase, squash, cherry-pick, revert,
merge many at once, merge on a server without a work tree, compact, delete rows, forget sessions and strip words. A
history keeps account of every row that was written, of those that were taken out and of those that lost their words.

Compactions of the default branch are committed by us (decision 17); everything else is a person's own commit. No
conflict in our files is excused, whatever was picked, taken back or merged, in a work tree or without one.
"""

import os
import random
import subprocess
from collections import Counter
from pathlib import Path

from flightlog.dataset.compact import compact_and_commit, compact_dataset
from flightlog.dataset.layout import DatasetDirs, prepare_dataset, write_shard
from flightlog.dataset.reader import read_dataset
from flightlog.dataset.retention import apply_tombstones, tombstones_for_rows, tombstones_for_words
from flightlog.dataset.rows import format_row_time, key_of
from flightlog.dataset.tombstones import make_tombstone
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.git.repository import open_repository

RECORDS = JsonRedactor(Redactor(b"k" * 32))
OURS = ".git-ml/"
OPERATIONS = {
    "write": 10, "go on": 6, "merge": 5, "rebase": 2, "squash": 2, "cherry-pick": 2, "revert": 2, "octopus": 1,
    "server merge": 3, "compact": 4, "delete": 2, "switch": 2, "forget": 2, "strip": 1,
}  # fmt: skip


def environment(home: Path) -> dict[str, str]:
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", "x"), ("EMAIL", "x@example.com"))}  # fmt: skip
    plain_git = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_EDITOR": "true",
        "LC_ALL": "C",
    }
    return {"PATH": os.environ["PATH"], "HOME": str(home), **who, **plain_git}


class History:
    """One repository, its people, and the account of what they wrote."""

    def __init__(self, root: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.top = root / "work"
        self.top.mkdir(parents=True)
        self.env = environment(root)
        self.bare = root / "server.git"
        self.rows: dict[str, dict] = {}
        self.taken: set[str] = set()
        self.forgotten: set[str] = set()
        self.silent: set[str] = set()
        self.clock = 0
        self.conflicts: list[str] = []
        self.did: Counter[str] = Counter()
        self.files = self.sessions = 0
        self.open: list[dict] = []
        self.numbers: Counter[str] = Counter()
        self.git("init", "-q", "-b", "main")
        for name, value in (("name", "x"), ("email", "x@example.com")):
            self.git("config", f"user.{name}", value)
        self.git("init", "-q", "--bare", str(self.bare))
        self.place = DatasetDirs(open_repository(self.top))
        if self.draw.random() < 0.7:  # else branches begin before the dataset does
            prepare_dataset(self.place, RECORDS)
        self.commit("begin")
        self.branches = ["main", *(f"work-{number}" for number in range(self.draw.randint(3, 15)))]
        for name in self.branches[1:]:
            self.git("branch", name)

    def git(self, *words, check=True, cwd=None):
        ran = subprocess.run(
            ["git", *words], cwd=cwd or self.top, env=self.env, capture_output=True, check=False
        )
        if check:
            assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
        return ran

    def out(self, *words, **more):
        return self.git(*words, **more).stdout.decode()

    def commit(self, message):
        self.files += 1
        (self.top / f"code-{self.files}.txt").write_text(f"{message} {self.files}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "-m", message)

    def checkout(self, branch):
        self.git("checkout", "-q", branch)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.checkout(self.draw.choice(self.branches))
            name = self.draw.choices(list(OPERATIONS), OPERATIONS.values())[0]
            getattr(self, name.replace("-", "_").replace(" ", "_"))()
            self.did[name] += 1
            assert not self.out("status", "--porcelain").strip(), name

    # Writing

    def _chat(self, session: str, number: int, rev: int) -> dict:
        text = f"{session} {number} " + " ".join(
            f"w{self.draw.randrange(10**6)}" for _ in range(20)
        )
        return {"kind": "chat", "id": f"chat-{session}-{number}", "timestamp": format_row_time(self._now()),
                "session_id": session, "input": text, "output": "x" * (rev % 50), "tools": ["Read"], "files": [],
                "uuid": f"u{number}", "rev": rev, "long": "the same long words again and again " * 12}  # fmt: skip

    def _now(self) -> int:
        """A time of its own for each chat, so that stripping words has a before and an after."""
        self.clock += 1
        return 1_793_600_000_000 + self.clock * 1000

    def _put(self, session: str, rows: list[dict]) -> None:
        self.numbers[session] += 1
        write_shard(self.place, session, rows, self.numbers[session], RECORDS)
        for row in rows:
            known = self.rows.get(key_of(row))
            if known is None or known["rev"] <= row["rev"]:
                self.rows[key_of(row)] = row
            if session in self.forgotten:
                self.taken.add(key_of(row))

    def write(self):
        self.sessions += 1
        session = f"{self.sessions:08x}"
        chats = [self._chat(session, number, 1) for number in range(self.draw.randint(1, 4))]
        row = {"kind": "session", "id": f"2026-11-02_{session}", "session": session, "started_at": "2026-11-02",
                "chat_count": len(chats), "rev": 1}  # fmt: skip
        self._put(session, [row, *chats])
        self.open.append({"session": session, "chat": chats[-1], "told": row})
        self.commit(f"session {session}")

    def go_on(self):
        """The same turn grows, perhaps on another branch by now."""
        if not self.open:
            return self.write()
        one = self.draw.choice(self.open)
        one["chat"] = {
            **one["chat"],
            "rev": one["chat"]["rev"] + 1,
            "output": "y" * self.draw.randint(1, 300),
        }
        one["told"] = {**one["told"], "rev": one["told"]["rev"] + 1}
        self._put(one["session"], [one["told"], one["chat"]])
        self.commit(f"more of {one['session']}")
        return None

    def switch(self):
        """A shard is written, the person changes branches before it is committed."""
        self.sessions += 1
        session = f"{self.sessions:08x}"
        self._put(session, [self._chat(session, 0, 1)])
        self.git("checkout", "-q", self.draw.choice(self.branches))
        self._put(session, [self._chat(session, 1, 1)])
        self.commit(f"session {session} across branches")

    def delete(self):
        living = sorted(set(self.rows) - self.taken)
        if living:
            key = self.draw.choice(living)
            self.taken.add(key)
            self._put("gone", [make_tombstone("asked for", 1, row_id=key)])
            self.rows = {name: row for name, row in self.rows.items() if row["kind"] != "tombstone"}
            self.commit("delete a row")

    def forget(self):
        """All of a session, with what is written of it later on any branch."""
        here = {
            str(row.get("session_id"))
            for row in read_dataset(self.place.tracked_dir).rows_of_kind("chat")
        }
        if here:
            session = self.draw.choice(sorted(here))
            self._let_go(
                tombstones_for_rows(read_dataset(self.place.tracked_dir), [session], self._now())
            )
            self.forgotten.add(session)
            forgotten = {
                key
                for key, row in self.rows.items()
                if session in (row.get("session_id"), row.get("session"))
            }
            self.taken |= forgotten

    def strip(self):
        """The words of every row until now, also of those on branches that this one does not know."""
        self._let_go(tombstones_for_words(self._now()))
        self.silent |= set(self.rows)

    def _let_go(self, marks):
        apply_tombstones(self.place, RECORDS, marks, "main", dry_run=False)
        compact_and_commit(self.place, RECORDS, default="main")
        if self.out("status", "--porcelain").strip():
            self.commit("let rows go")

    def compact(self):
        compact_and_commit(self.place, RECORDS, default="main")
        if self.out("status", "--porcelain").strip():
            self.commit("compact")

    # Mixing

    def _note(self, what, paths, output):
        """Count conflicts in our files."""
        self.conflicts += [
            f"{what}: {path} {output[-300:]}" for path in sorted(paths) if path.startswith(OURS)
        ]

    def _settle(self, ran, *abort):
        """Count conflicts in our files, and go on as if nothing had happened."""
        unmerged = {line.split("\t")[1] for line in self.out("ls-files", "-u").splitlines()}
        self._note(abort[0], unmerged, ran.stdout)
        if ran.returncode:
            self.git(*abort, check=False)
            self.git("reset", "-q", "--hard")
            self.git("clean", "-qfd")

    def merge(self):
        ran = self.git("merge", "-q", "--no-edit", self.draw.choice(self.branches), check=False)
        self._settle(ran, "merge", "--abort")

    def octopus(self):
        others = self.draw.sample(self.branches, min(3, len(self.branches)))
        ran = self.git("merge", "-q", "--no-edit", *others, check=False)
        self._settle(ran, "merge", "--abort")

    def rebase(self):
        branch = self.draw.choice(self.branches[1:])
        self.checkout(branch)
        self._settle(self.git("rebase", "-q", "main", check=False), "rebase", "--abort")

    def squash(self):
        self.checkout("main")
        ran = self.git("merge", "-q", "--squash", self.draw.choice(self.branches[1:]), check=False)
        self._settle(ran, "reset", "--hard")
        if not ran.returncode and self.out("status", "--porcelain").strip():
            self.git("commit", "-q", "-m", "squashed")

    def _some_commit(self, where: str, most: int) -> str:
        """Any commit of late; one time in five a merge, which git refuses to pick and to take back."""
        merges = "--merges" if self.draw.random() < 0.2 else "--no-merges"
        commits = self.out("rev-list", where, merges, f"--max-count={most}").split()
        return self.draw.choice(
            commits or self.out("rev-list", where, f"--max-count={most}").split()
        )

    def cherry_pick(self):
        commit = self._some_commit("--all", 40)
        self._settle(self.git("cherry-pick", commit, check=False), "cherry-pick", "--abort")

    def revert(self):
        commit = self._some_commit("HEAD", 25)
        self._settle(self.git("revert", "--no-edit", commit, check=False), "revert", "--abort")

    def server_merge(self):
        """What a merge button does: no work tree, no attributes, no configuration of ours."""
        ours, theirs = self.draw.sample(self.branches, 2)
        self.git("push", "-q", "--force", str(self.bare), "--all")
        words = ("merge-tree", "--write-tree", "--messages", "-z", ours, theirs)
        ran = self.git(*words, check=False, cwd=self.bare)
        tree = ran.stdout.split(b"\0")[0].decode()
        if ran.returncode:
            names = [
                part.split("\t")[1] for part in ran.stdout.decode().split("\0") if "\t" in part
            ]
            self._note("server", names, ran.stdout)
            return
        made = self.out(
            "commit-tree", tree, "-p", ours, "-p", theirs, "-m", "on the server", cwd=self.bare
        ).strip()
        self.git("fetch", "-q", str(self.bare), made)
        self.checkout(ours)
        self.git("merge", "-q", "--ff-only", made)

    # The end

    def finish(self) -> dict[str, list[str]]:
        """Bring everything to the default branch and hold what a reader sees against the account."""
        self.checkout("main")
        for branch in self.branches[1:]:
            self._settle(
                self.git("merge", "-q", "--no-edit", branch, check=False), "merge", "--abort"
            )
        compact_dataset(self.place, RECORDS, default="main")
        first = {path.name: path.read_bytes() for path in self.place.tracked_dir.glob("*.jsonl")}
        compact_dataset(self.place, RECORDS, default="main")
        second = {path.name: path.read_bytes() for path in self.place.tracked_dir.glob("*.jsonl")}
        book = read_dataset(self.place.tracked_dir)
        seen = {
            key: row
            for key, row in book.rows.items()
            if key not in book.removed_keys and row["kind"] != "tombstone"
        }
        due = {key: row for key, row in self.rows.items() if key not in self.taken}
        present = {
            key for key, row in seen.items() if row["kind"] == "chat" and row["input"] is not None
        }
        bodies = b"".join(second.values())
        return {
            "words back": sorted(present & self.silent),
            "words lost": sorted(
                key for key in due if key.startswith("chat:") and key not in present | self.silent
            ),
            "bytes back": sorted(
                key for key in self.taken if b'"id":"%s"' % key.split(":")[1].encode() in bodies
            ),
            "conflicts": self.conflicts,
            "lost": sorted(due.keys() - seen.keys()),
            "stale": sorted(
                key for key in due.keys() & seen.keys() if seen[key]["rev"] < due[key]["rev"]
            ),
            "back": sorted(seen.keys() & self.taken),
            "unheard of": sorted(seen.keys() - due.keys() - self.taken),
            "doubled": sorted(book.repeats) + ["older"] * bool(book.older),
            "not the same twice": sorted(name for name in first if first[name] != second.get(name)),
            "damage": [str(one) for one in book.damage],
        }
