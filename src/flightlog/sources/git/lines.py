"""Lines and who committed them: blame of a file, and what a commit added. Reads only."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from flightlog.sources.git.repository import Repository, asked, git
from flightlog.store.git.command import plain

_HEAD = re.compile(rb"^([0-9a-f]{40,64}) (\d+) (\d+)(?: \d+)?$")
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)")
COMMITS_MAX = 200


class Blamed(Struct, frozen=True):
    """One line of a file: its text, and the commit it came with; none when it is not committed."""

    number: int
    text: str
    commit: str
    at_ms: int


class Added(Struct, frozen=True):
    """Lines a commit added in one place."""

    path: str
    line: int
    lines: tuple[str, ...]


def blame(repository: Repository, path: str, first: int, last: int) -> list[Blamed]:
    """Say which commit brought lines `first` to `last` of the file as it lies in the work tree."""
    out = git(repository, "blame", "--porcelain", "-w", "-L", f"{first},{last}", "--", path)
    told: list[Blamed] = []
    times: dict[bytes, int] = {}
    commit, number = b"", 0
    for line in out.split(b"\n"):
        head = _HEAD.match(line)
        if line.startswith(b"\t"):
            name = commit.decode()
            known = name if name.strip("0") else ""
            text = line[1:].decode("utf-8", "replace")
            told.append(Blamed(number, text, known, times.get(commit, 0) if known else 0))
        elif head:
            commit, number = head[1], int(head[3])
        elif line.startswith(b"committer-time "):
            times[commit] = int(line.split()[1]) * 1000
    return told


def resolved(repository: Repository, written: str) -> str:
    """Return the full name of the commit `written` means; empty when there is none."""
    return asked(repository, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{written}^{{commit}}")


def commits_of(repository: Repository, paths: Sequence[str], since_ms: int) -> list[tuple[str, int]]:
    """Return the commits of any branch since then that touch one of these files, newest first, with their times."""
    if not paths:
        return []
    words = [
        "log",
        "--all",
        "--no-merges",
        f"--since=@{since_ms // 1000}",
        f"--max-count={COMMITS_MAX}",
        "--format=%H %ct",
    ]
    told = (line.split() for line in asked(repository, *words, "--", *paths).splitlines())
    return [(name, int(at_s) * 1000) for name, at_s in told]


def subject(repository: Repository, commit: str) -> str:
    """Return the first line of a commit's message."""
    return asked(repository, "show", "--no-patch", "--format=%s", plain(commit))


def added(repository: Repository, commit: str) -> Iterator[Added]:
    """Yield what a commit added, place by place."""
    words = ["diff-tree", "--root", "--no-commit-id", "-p", "-r", "--unified=0", "--no-renames", "--no-color"]
    path, line, lines = "", 0, list[str]()
    for each in git(repository, *words, plain(commit)).split(b"\n"):
        hunk = _HUNK.match(each)
        if each.startswith(b"+++ ") or hunk:
            if lines:
                yield Added(path, line, tuple(lines))
            lines = []
        if hunk:
            line = int(hunk[1])
        elif each.startswith(b"+++ "):
            path = each[4:].removeprefix(b"b/").decode("utf-8", "surrogateescape").rstrip("\t")
        elif each.startswith(b"+"):
            lines.append(each[1:].decode("utf-8", "replace"))
    if lines:
        yield Added(path, line, tuple(lines))
