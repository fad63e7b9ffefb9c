"""Commits, blame, lines a commit added.

Reads only what is new: commits that are not reachable from those named as known.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from flightlog.store.git.command import check_not_option
from flightlog.store.git.repository import Repository, git_output, read_tip, run_git

_FORMAT = "%x1e%H%x1f%P%x1f%ct%x1f%cI%x1f%B%x1f"
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{7,64})", re.MULTILINE)
FILES_MAX = 50
_HEAD = re.compile(rb"^([0-9a-f]{40,64}) (\d+) (\d+)(?: \d+)?$")
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)")
COMMITS_MAX = 200


class Commit(Struct, frozen=True):
    """One commit; `at` is the committer's own clock, zone included."""

    hash: str
    parents: tuple[str, ...]
    at_ms: int
    at: str
    message: str
    files: tuple[str, ...]
    insertions: int
    deletions: int

    @property
    def reverted_commit(self) -> str:
        """The commit it takes back, as git's own words say it."""
        said = _REVERTS.search(self.message)
        return said[1] if said else ""


def iter_commits(
    repository: Repository, tips: Sequence[str], known: Sequence[str] = (), limit: int = 0
) -> Iterator[Commit]:
    """Yield the commits reachable from `tips` and not from `known`, newest first."""
    if not tips:
        return
    words = ["log", "--no-renames", "--numstat", "-z", f"--format={_FORMAT}", "--diff-merges=first-parent"]
    words += [f"--max-count={limit}"] if limit else []
    out = run_git(
        repository, *words, *map(check_not_option, tips), "--not", *_existing_commits(repository, known), "--"
    )
    for part in out.decode("utf-8", "replace").split("\x1e")[1:]:
        yield _parse_commit(part)


def commit_times(repository: Repository, names: Sequence[str]) -> dict[str, int]:
    """Return when these commits were made, in milliseconds; those this clone does not have are left out."""
    wanted = _existing_commits(repository, list(dict.fromkeys(names))) if names else []
    out = git_output(repository, "log", "--no-walk=unsorted", "--format=%H %ct", *wanted) if wanted else ""
    pairs = (line.split() for line in out.splitlines())
    return {name: int(at_s) * 1000 for name, at_s in pairs}


def head_commit(repository: Repository) -> str:
    """Return the commit that is checked out; empty in a new repository."""
    return read_tip(repository.top, repository.common) or git_output(
        repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}"
    )


def _existing_commits(repository: Repository, known: Sequence[str]) -> list[str]:
    """Leave out what this clone does not have: history may have been rewritten or cut."""
    if not known:
        return []
    listed = run_git(repository, "cat-file", "--batch-check", given="".join(f"{name}\n" for name in known).encode())
    return [line.split()[0].decode() for line in listed.splitlines() if line.split()[1:2] == [b"commit"]]


def _parse_commit(part: str) -> Commit:
    name, parents, at_s, at, message, numbers = part.split("\x1f", 5)
    added = removed = 0
    files = []
    for line in numbers.replace("\0", "\n").splitlines():
        more, _, rest = line.partition("\t")
        less, _, path = rest.partition("\t")
        if path:
            files.append(path)
            added += int(more) if more.isdecimal() else 0
            removed += int(less) if less.isdecimal() else 0
    return Commit(name, tuple(parents.split()), int(at_s) * 1000, at, message.strip(), tuple(files), added, removed)


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
