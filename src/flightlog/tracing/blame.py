"""Which prompt wrote a line; steps in a commit.

For a committed line, the last edit that wrote it before the commit; for one that is not committed,
the last edit at all. Of several that hold the line, the one that holds most of its neighbours in the
same order. Where no edit holds it, the session that made the commit, and nothing more is claimed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.model.addresses import TraceLink, parse_address
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Session
from flightlog.model.text import pluralize
from flightlog.sources.foreign_json import find_lines
from flightlog.store.git.command import GitError
from flightlog.store.git.history import (
    CommittedLine,
    blame_lines,
    commit_subject,
    commit_times,
    commits_touching,
    iter_added_lines,
    resolve_commit,
)
from flightlog.store.git.repository import Repository
from flightlog.tracing.providers import TraceContext
from flightlog.views.session.edits import LineEdit, count_matching_lines, find_commits, fingerprint_lines
from flightlog.views.session.timeline import iter_turns

_SLACK_MS = 5_000
LINES_MAX = 100_000
_NAME_CHARS = 7


class BlameLine(Struct, frozen=True):
    """A line, and where it comes from; empty fields are not known."""

    number: int
    text: str
    commit: str = ""
    step: str = ""
    hunk: str = ""
    prompt: str = ""
    at_ms: int = 0
    how: str = "no recorded edit holds this line"


def attribute_lines(written: Path, first: int, last: int, ground: TraceContext) -> list[BlameLine]:
    """Say who wrote lines `first` to `last` of a file; 0 for `last` is the end of it."""
    try:
        body = written.read_text("utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"no such file: {written}", hint="flightlog blame FILE:LINE") from None
    lines = body.split("\n")[: LINES_MAX + 1]
    lines = lines[:-1] if lines[-1] == "" else lines
    last = last or len(lines)
    if not 1 <= first <= last <= len(lines):
        raise Invalid(
            f"{written.name} has {pluralize(len(lines), 'line')}", hint=f"flightlog blame {written}:1-{len(lines)}"
        )
    path = ground.relative_path(written)
    marks = fingerprint_lines(lines)
    own = [edit for _, edits in ground.all_edits for edit in edits if edit.path in {path, str(written.resolve())}]
    known = {each.number: each for each in _blame_with_git(ground, path, first, last)}
    return [
        _attribute_line(known.get(number) or CommittedLine(number, lines[number - 1], "", 0), marks, own, ground)
        for number in range(first, last + 1)
    ]


def _blame_with_git(ground: TraceContext, path: str, first: int, last: int) -> list[CommittedLine]:
    """What git says; nothing for a file it does not know."""
    if ground.repository is None:
        return []
    try:
        return blame_lines(ground.repository, path, first, last)
    except GitError:
        return []


def _attribute_line(
    told: CommittedLine, marks: Sequence[str], own: Sequence[LineEdit], ground: TraceContext
) -> BlameLine:
    before = told.at_ms + _SLACK_MS if told.commit else float("inf")
    found = [
        (count_matching_lines(edit, marks, told.number - 1), edit.at_ms, edit) for edit in own if edit.at_ms <= before
    ]
    found = [each for each in found if each[0]]
    if not found:
        return _attribute_to_commit(told, ground)
    _, _, edit = max(found, key=lambda each: each[:2])
    how = "the recorded edit that holds this line"
    at = parse_address(edit.at)
    prompt = _turn_prompt(ground.find_session(at.session), at.lane, at.turn)
    return BlameLine(told.number, told.text, told.commit, edit.at, edit.address, prompt, edit.at_ms, how)


def _attribute_to_commit(told: CommittedLine, ground: TraceContext) -> BlameLine:
    """No edit holds it: a command may have written it, in the session that made its commit."""
    for name in ground.archive.recordings if told.commit else ():
        if not _mentions_commit(ground, name, told.commit):
            continue
        session = ground.find_session(name)
        made = find_commits(session) if session else {}
        step = next((at for short, at in made.items() if told.commit.startswith(short)), "")
        if step:
            at = parse_address(step)
            how = "no recorded edit holds this line; this step made its commit"
            return BlameLine(
                told.number, told.text, told.commit, step, "", _turn_prompt(session, at.lane, at.turn), told.at_ms, how
            )
    return BlameLine(told.number, told.text, told.commit, at_ms=told.at_ms)


def _mentions_commit(ground: TraceContext, session: str, commit: str) -> bool:
    from flightlog.sources.foreign_json import find_lines  # noqa: PLC0415 - few lines need it

    files = ground.archive.recordings[session].files
    return any(True for file in files for _ in find_lines(file.path, commit[:7]))


def _turn_prompt(session: Session | None, lane: str, turn: int) -> str:
    own = iter_turns(session) if session else ()
    return next((each.text for name, each in own if (name, each.number) == (lane, turn)), "")


def commit_links(ground: TraceContext, session: Session, edits: Sequence[LineEdit]) -> Iterator[TraceLink]:
    """Yield the commits that hold lines of a session, or that its tools say they made."""
    repository = ground.repository
    if repository is None:
        return
    at: dict[str, list[str]] = defaultdict(list)
    paths = sorted({edit.path for edit in edits if not edit.path.startswith("/")})
    for commit, at_ms in commits_touching(repository, paths, (session.started_ms or 0) - _SLACK_MS):
        at[commit] += steps_in_commit(repository, commit, at_ms, edits)
    for name, step in find_commits(session).items():
        full = resolve_commit(repository, name)
        if full:
            at[full].append(step)
    for commit, steps in at.items():
        if steps:
            yield TraceLink("commit", commit, commit_subject(repository, commit), tuple(dict.fromkeys(steps)))


def steps_in_commit(repository: Repository, commit: str, at_ms: int, edits: Iterable[LineEdit]) -> list[str]:
    """Return the steps whose lines stand in what a commit added."""
    lines: dict[str, set[str]] = defaultdict(set)
    for each in iter_added_lines(repository, commit):
        lines[each.path] |= {print_ for print_ in fingerprint_lines(each.lines) if print_}
    return [
        edit.at
        for edit in edits
        if edit.at_ms <= at_ms + _SLACK_MS and _shares_lines(edit, lines.get(edit.path, set()))
    ]


def steps_behind_commit(ground: TraceContext, commit: str) -> list[str]:
    """Return the steps, or at least sessions, that a commit comes from, as far as recordings say."""
    repository = ground.repository
    if repository is None:
        return []
    at_ms = commit_times(repository, [commit]).get(commit, 0)
    steps = [step for _, edits in ground.all_edits for step in steps_in_commit(repository, commit, at_ms, edits)]
    return steps or [
        recording.session
        for recording in ground.archive.recordings.values()
        if any(True for file in recording.files for _ in find_lines(file.path, commit[:_NAME_CHARS]))
    ]


def _shares_lines(edit: LineEdit, lines: set[str]) -> bool:
    """Whether at least half of the smaller side is the same: one brace in common is nothing."""
    own = {print_ for print_ in edit.lines if print_}
    return bool(own & lines) and 2 * len(own & lines) >= min(len(own), len(lines))
