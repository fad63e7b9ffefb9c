"""Commits and the steps whose lines they hold: git's own words joined with recorded edits."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from flightlog.app.tracing.ground import TraceContext
from flightlog.model.links import TraceLink
from flightlog.model.session import Session
from flightlog.sources.claude_code.grep import find_lines
from flightlog.sources.git.history import commit_times
from flightlog.sources.git.lines import commit_subject, commits_touching, iter_added_lines, resolve_commit
from flightlog.sources.git.repository import Repository
from flightlog.views.session.edits import LineEdit, find_commits, fingerprint_lines

_SLACK_MS = 5_000
_NAME_CHARS = 7


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
