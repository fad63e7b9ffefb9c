"""Commits as facts: what changed, when, after what. Who made them is left out.

Reads only what is new: commits that are not reachable from those named as known.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from flightlog.sources.git.heads import read_tip
from flightlog.sources.git.repository import Repository, git_output, run_git
from flightlog.store.git.command import check_not_option

_FORMAT = "%x1e%H%x1f%P%x1f%ct%x1f%cI%x1f%B%x1f"
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{7,64})", re.MULTILINE)
FILES_MAX = 50


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
