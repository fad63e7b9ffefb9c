"""Commits, blame, and the lines a commit added."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from flightlog.store.git.command import check_not_option
from flightlog.store.git.repository import Repository, git_output, read_tip, run_git

_FORMAT = "%x1e%H%x1f%P%x1f%ct%x1f%cI%x1f%B%x1f"
# Written by `git revert`.
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{7,64})", re.MULTILINE)
FILES_MAX = 50  # of one commit in a report
_HEAD = re.compile(rb"^([0-9a-f]{40,64}) (\d+) (\d+)(?: \d+)?$")  # of a line in a blame
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)")  # the first new line of a hunk
COMMITS_MAX = 200  # more commits of one file since a session are of no use


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
        """The commit it reverts, from the message that `git revert` writes."""
        match = _REVERTS.search(self.message)
        return match[1] if match else ""


def iter_commits(
    repository: Repository, tips: Sequence[str], known: Sequence[str] = (), limit: int = 0
) -> Iterator[Commit]:
    """Yield the commits reachable from `tips` and not from `known`, newest first."""
    if not tips:
        return
    words = ["log", "--no-renames", "--numstat", "-z", "--diff-merges=first-parent"]
    words += [f"--format={_FORMAT}"]
    words += [f"--max-count={limit}"] if limit else []
    words += [*map(check_not_option, tips), "--not", *_existing_commits(repository, known), "--"]
    for part in run_git(repository, *words).decode("utf-8", "replace").split("\x1e")[1:]:
        yield _parse_commit(part)


def commit_times(repository: Repository, names: Sequence[str]) -> dict[str, int]:
    """Return the times in milliseconds of those commits that this clone has."""
    existing = _existing_commits(repository, list(dict.fromkeys(names)))
    return dict(_log_times(repository, "--no-walk=unsorted", *existing)) if existing else {}


def _log_times(repository: Repository, *words: str) -> list[tuple[str, int]]:
    lines = git_output(repository, "log", "--format=%H %ct", *words).splitlines()
    return [(name, int(at_s) * 1000) for name, at_s in map(str.split, lines)]


def head_commit(repository: Repository) -> str:
    """Return the commit that is checked out; empty in a new repository."""
    tip = read_tip(repository.top, repository.common)
    return tip or git_output(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")


def _existing_commits(repository: Repository, known: Sequence[str]) -> list[str]:
    """Return the commits that this clone has: history may have been rewritten or cut."""
    if not known:
        return []
    given = "".join(f"{name}\n" for name in known).encode()
    listed = run_git(repository, "cat-file", "--batch-check", given=given).splitlines()
    return [line.split()[0].decode() for line in listed if line.split()[1:2] == [b"commit"]]


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
    at_ms, names = int(at_s) * 1000, tuple(parents.split())
    return Commit(name, names, at_ms, at, message.strip(), tuple(files), added, removed)


class CommittedLine(Struct, frozen=True):
    """One line of a file and the commit that added it; empty if it is not committed."""

    number: int
    text: str
    commit: str
    at_ms: int


class AddedLines(Struct, frozen=True):
    """Consecutive lines that a commit added."""

    path: str
    line: int
    lines: tuple[str, ...]


def blame_lines(repository: Repository, path: str, first: int, last: int) -> list[CommittedLine]:
    """Return lines `first` to `last` of a file in the work tree with the commit that added each."""
    out = run_git(repository, "blame", "--porcelain", "-w", "-L", f"{first},{last}", "--", path)
    lines: list[CommittedLine] = []
    times: dict[bytes, int] = {}
    commit, number = b"", 0
    for line in out.split(b"\n"):
        head = _HEAD.match(line)
        if line.startswith(b"\t"):
            name = commit.decode()
            committed = name if name.strip("0") else ""
            text = line[1:].decode("utf-8", "replace")
            at_ms = times.get(commit, 0) if committed else 0
            lines.append(CommittedLine(number, text, committed, at_ms))
        elif head:
            commit, number = head[1], int(head[3])
        elif line.startswith(b"committer-time "):
            times[commit] = int(line.split()[1]) * 1000
    return lines


def resolve_commit(repository: Repository, written: str) -> str:
    """Return the full hash of the commit that `written` names; empty if there is none."""
    words = ("rev-parse", "--quiet", "--verify", "--end-of-options", f"{written}^{{commit}}")
    return git_output(repository, *words)


def commits_touching(
    repository: Repository, paths: Sequence[str], since_ms: int
) -> list[tuple[str, int]]:
    """Return the commits since then that touch these files, newest first, with times."""
    if not paths:
        return []
    words = ("--all", "--no-merges", f"--since=@{since_ms // 1000}", f"--max-count={COMMITS_MAX}")
    return _log_times(repository, *words, "--", *paths)


def commit_subject(repository: Repository, commit: str) -> str:
    """Return the first line of a commit's message."""
    return git_output(repository, "show", "--no-patch", "--format=%s", check_not_option(commit))


def iter_added_lines(repository: Repository, commit: str) -> Iterator[AddedLines]:
    """Yield the lines that a commit added, hunk by hunk."""
    words = ["diff-tree", "--root", "--no-commit-id", "-p", "-r", "--unified=0"]
    words += ["--no-renames", "--no-color"]
    path, number, added = "", 0, list[str]()
    for line in run_git(repository, *words, check_not_option(commit)).split(b"\n"):
        hunk = _HUNK.match(line)
        if line.startswith(b"+++ ") or hunk:
            if added:
                yield AddedLines(path, number, tuple(added))
            added = []
        if hunk:
            number = int(hunk[1])
        elif line.startswith(b"+++ "):
            path = line[4:].removeprefix(b"b/").decode("utf-8", "surrogateescape").rstrip("\t")
        elif line.startswith(b"+"):
            added.append(line[1:].decode("utf-8", "replace"))
    if added:
        yield AddedLines(path, number, tuple(added))
