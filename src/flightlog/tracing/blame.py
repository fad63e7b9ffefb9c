"""Blame: which prompt wrote a line, and which steps are in a commit.

A committed line comes from the last edit that wrote it before the commit, an uncommitted one from
the last edit. Of several edits that hold the line, the one that holds most of its neighbors in the
same order wins. If no edit holds it, only the session that made the commit is named.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from flightlog.archive.archive import Archive
from flightlog.model.addresses import Address, TraceLink, parse_address
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Session
from flightlog.model.text import pluralize
from flightlog.sources.foreign_json import find_lines
from flightlog.store.git import history
from flightlog.store.git.command import GitError
from flightlog.store.git.repository import Repository
from flightlog.views.session.edits import (
    LineEdit,
    count_matching_lines,
    find_commits,
    fingerprint_lines,
)
from flightlog.views.session.timeline import iter_turns

if TYPE_CHECKING:
    from flightlog.tracing.providers import TraceContext

_SLACK_MS = 5_000  # git stores whole seconds, and a recorded edit may end after the commit started
LINES_MAX = 100_000  # lines of a file that blame reads
_NAME_CHARS = 7  # of a commit hash, as git abbreviates it in tool output


class BlameContext(Protocol):
    """Where blame looks: a repository, recordings, and the edits in them."""

    archive: Archive

    @property
    def repository(self) -> Repository | None:
        """The repository of the file, if there is one."""

    @property
    def all_edits(self) -> Sequence[tuple[str, tuple[LineEdit, ...]]]:
        """The edits of each session, with paths relative to the project where possible."""

    def find_session(self, name: str, /) -> Session | None:
        """Return a session, or None."""

    def relative_path(self, file: Path) -> str:
        """Return a file's path relative to the project."""


class BlameLine(Struct, frozen=True):
    """A line and its origin; empty fields are unknown."""

    line_number: int
    text: str
    commit: str = ""
    step: str = ""
    hunk: str = ""
    prompt: str = ""
    at_ms: int = 0
    attribution: str = "no recorded edit holds this line"


def attribute_lines(file: Path, first: int, last: int, context: BlameContext) -> list[BlameLine]:
    """Return the origin of lines `first` to `last` of a file; `last` 0 means its end."""
    try:
        if not file.is_file():  # a pipe or a device may never end
            raise FileNotFoundError
        body = file.read_text("utf-8", errors="replace")
    except OSError:
        raise NotFound(f"no such file: {file}", hint="flightlog blame FILE:LINE") from None
    lines = body.split("\n")[: LINES_MAX + 1]
    lines = lines[:-1] if lines[-1] == "" else lines
    last = last or len(lines)
    if not 1 <= first <= last <= len(lines):
        count = pluralize(len(lines), "line")
        raise Invalid(f"{file.name} has {count}", hint=f"flightlog blame {file}:1-{len(lines)}")
    path = context.relative_path(file)
    fingerprints = fingerprint_lines(lines)
    paths = {path, str(file.resolve())}
    every = (edit for _, own in context.all_edits for edit in own)
    edits = [edit for edit in every if edit.path in paths]
    committed = {line.number: line for line in _blame_with_git(context, path, first, last)}
    uncommitted = (
        history.CommittedLine(number, lines[number - 1], "", 0) for number in range(first, last + 1)
    )
    return [
        _attribute_line(committed.get(line.number, line), fingerprints, edits, context)
        for line in uncommitted
    ]


def _blame_with_git(
    context: BlameContext, path: str, first: int, last: int
) -> list[history.CommittedLine]:
    """Return git's blame, or nothing for a file that git does not know."""
    if context.repository is None:
        return []
    try:
        return history.blame_lines(context.repository, path, first, last)
    except GitError:
        return []


def _attribute_line(
    line: history.CommittedLine,
    fingerprints: Sequence[str],
    edits: Sequence[LineEdit],
    context: BlameContext,
) -> BlameLine:
    before = line.at_ms + _SLACK_MS if line.commit else float("inf")
    candidates = [
        (count, edit.at_ms, edit)
        for edit in edits
        if edit.at_ms <= before
        and (count := count_matching_lines(edit, fingerprints, line.number - 1))
    ]
    if not candidates:
        return _attribute_to_commit(line, context)
    _, _, edit = max(candidates, key=lambda candidate: candidate[:2])
    how = "the recorded edit that holds this line"
    prompt = _turn_prompt(context, parse_address(edit.at))
    return BlameLine(
        line.number, line.text, line.commit, edit.at, edit.address, prompt, edit.at_ms, how
    )


def _attribute_to_commit(line: history.CommittedLine, context: BlameContext) -> BlameLine:
    """Name the step that made the line's commit: one of its commands may have written the line."""
    for name in _sessions_mentioning(context, line.commit) if line.commit else ():
        session = context.find_session(name)
        commits = find_commits(session) if session else {}
        step = next((at for short, at in commits.items() if line.commit.startswith(short)), "")
        if step:
            how = "no recorded edit holds this line; this step made its commit"
            prompt = _turn_prompt(context, parse_address(step))
            return BlameLine(line.number, line.text, line.commit, step, "", prompt, line.at_ms, how)
    return BlameLine(line.number, line.text, line.commit, at_ms=line.at_ms)


def _sessions_mentioning(context: BlameContext, commit: str) -> Iterator[str]:
    for name, recording in context.archive.recordings.items():
        if any(any(find_lines(file.path, commit[:_NAME_CHARS])) for file in recording.files):
            yield name


def _turn_prompt(context: BlameContext, at: Address) -> str:
    session = context.find_session(at.session)
    turns = iter_turns(session) if session else ()
    return next(
        (
            turn.text
            for subagent, turn in turns
            if (subagent, turn.number) == (at.subagent, at.turn)
        ),
        "",
    )


def commit_links(
    context: "TraceContext", session: Session, edits: Sequence[LineEdit]
) -> Iterator[TraceLink]:
    """Yield the commits that hold lines of a session, or that its tool output names."""
    repository = context.repository
    if repository is None:
        return
    steps: dict[str, list[str]] = defaultdict(list)
    paths = sorted({edit.path for edit in edits if not edit.path.startswith("/")})
    for commit, at_ms in history.commits_touching(
        repository, paths, (session.started_ms or 0) - _SLACK_MS
    ):
        steps[commit] += steps_in_commit(repository, commit, at_ms, edits)
    for name, step in find_commits(session).items():
        if full := history.resolve_commit(repository, name):
            steps[full].append(step)
    for commit, own in steps.items():
        if own:
            title = history.commit_subject(repository, commit)
            yield TraceLink("commit", commit, title, tuple(dict.fromkeys(own)))


def steps_in_commit(
    repository: Repository, commit: str, at_ms: int, edits: Iterable[LineEdit]
) -> list[str]:
    """Return the steps whose lines are among those that a commit added."""
    lines: dict[str, set[str]] = defaultdict(set)
    for added in history.iter_added_lines(repository, commit):
        lines[added.path].update(filter(None, fingerprint_lines(added.lines)))
    recent = [edit for edit in edits if edit.at_ms <= at_ms + _SLACK_MS]
    return [edit.at for edit in recent if _shares_lines(edit, lines.get(edit.path, set()))]


def steps_behind_commit(context: "TraceContext", commit: str) -> list[str]:
    """Return the steps, or else the sessions, that a commit comes from."""
    repository = context.repository
    if repository is None:
        return []
    at_ms = history.commit_times(repository, [commit]).get(commit, 0)
    threads = (edits for _, edits in context.all_edits)
    steps = [step for own in threads for step in steps_in_commit(repository, commit, at_ms, own)]
    return steps or list(_sessions_mentioning(context, commit))


def _shares_lines(edit: LineEdit, lines: set[str]) -> bool:
    """Return whether half of the smaller side is shared; one common brace is not enough."""
    own = set(filter(None, edit.lines))
    return bool(own & lines) and 2 * len(own & lines) >= min(len(own), len(lines))
