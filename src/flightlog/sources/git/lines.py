"""Lines and who committed them: blame of a file, and what a commit added. Reads only."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from flightlog.sources.git.repository import Repository, git_output, run_git
from flightlog.store.git.command import check_not_option

_HEAD = re.compile(rb"^([0-9a-f]{40,64}) (\d+) (\d+)(?: \d+)?$")
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)")
COMMITS_MAX = 200


class CommittedLine(Struct, frozen=True):
    """One line of a file: its text, and the commit it came with; none when it is not committed."""

    number: int
    text: str
    commit: str
    at_ms: int


class AddedLines(Struct, frozen=True):
    """Lines a commit added in one place."""

    path: str
    line: int
    lines: tuple[str, ...]


def blame_lines(repository: Repository, path: str, first: int, last: int) -> list[CommittedLine]:
    """Say which commit brought lines `first` to `last` of the file as it lies in the work tree."""
    out = run_git(repository, "blame", "--porcelain", "-w", "-L", f"{first},{last}", "--", path)
    told: list[CommittedLine] = []
    times: dict[bytes, int] = {}
    commit, number = b"", 0
    for line in out.split(b"\n"):
        head = _HEAD.match(line)
        if line.startswith(b"\t"):
            name = commit.decode()
            known = name if name.strip("0") else ""
            text = line[1:].decode("utf-8", "replace")
            told.append(CommittedLine(number, text, known, times.get(commit, 0) if known else 0))
        elif head:
            commit, number = head[1], int(head[3])
        elif line.startswith(b"committer-time "):
            times[commit] = int(line.split()[1]) * 1000
    return told


def resolve_commit(repository: Repository, written: str) -> str:
    """Return the full name of the commit `written` means; empty when there is none."""
    return git_output(repository, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{written}^{{commit}}")


def commits_touching(repository: Repository, paths: Sequence[str], since_ms: int) -> list[tuple[str, int]]:
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
    told = (line.split() for line in git_output(repository, *words, "--", *paths).splitlines())
    return [(name, int(at_s) * 1000) for name, at_s in told]


def commit_subject(repository: Repository, commit: str) -> str:
    """Return the first line of a commit's message."""
    return git_output(repository, "show", "--no-patch", "--format=%s", check_not_option(commit))


def iter_added_lines(repository: Repository, commit: str) -> Iterator[AddedLines]:
    """Yield what a commit added, place by place."""
    words = ["diff-tree", "--root", "--no-commit-id", "-p", "-r", "--unified=0", "--no-renames", "--no-color"]
    path, line, lines = "", 0, list[str]()
    for each in run_git(repository, *words, check_not_option(commit)).split(b"\n"):
        hunk = _HUNK.match(each)
        if each.startswith(b"+++ ") or hunk:
            if lines:
                yield AddedLines(path, line, tuple(lines))
            lines = []
        if hunk:
            line = int(hunk[1])
        elif each.startswith(b"+++ "):
            path = each[4:].removeprefix(b"b/").decode("utf-8", "surrogateescape").rstrip("\t")
        elif each.startswith(b"+"):
            lines.append(each[1:].decode("utf-8", "replace"))
    if lines:
        yield AddedLines(path, line, tuple(lines))
