"""Commit rows, and which session and turn made a commit.

A commit belongs to the turn whose tool output names it, as `git commit` does; otherwise to a turn
that ran a command with `commit` in it at that time. Authors are not recorded.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from flightlog.dataset.extract.turns import turn_end_ms, uuid_of
from flightlog.dataset.layout import ROOT
from flightlog.dataset.rows import (
    AnyRow,
    CommitRow,
    UpdateRow,
    chat_name,
    format_row_time,
    short_session_id,
)
from flightlog.model.session import Session, ToolCall, Turn
from flightlog.store.git.history import FILES_MAX, Commit, commit_times, head_commit, iter_commits
from flightlog.store.git.repository import Repository

# the line that `git commit` prints: `[branch 1a2b3c4]`
_NAMED = re.compile(r"\[[^\]\n]{1,200}? ([0-9a-f]{7,40})\]")
_RECENT_COMMITS = 50  # searched for commits of a session
_OUTPUT_CHARS = 20_000  # of a tool output, searched for commit hashes
_SLACK_MS = 2_000  # git stores whole seconds, and a call's times may be rounded too

Maker = tuple[str, str]  # session, chat


def find_makers(session: Session, commits: Iterable[Commit]) -> dict[str, Maker]:
    """Return which of these commits the turns of `session` made, as session and chat."""
    candidates = list(commits)
    makers: dict[str, Maker] = {}
    for turn in session.turns:
        chat = chat_name(session.id, uuid_of(turn), turn.at_ms)
        for call in _commit_calls(turn):
            hashes = tuple(_NAMED.findall(call.output[:_OUTPUT_CHARS]))
            for commit in candidates:
                if commit.hash.startswith(hashes) or _is_during_call(call, turn, commit):
                    makers.setdefault(commit.hash, (session.id, chat))
    return makers


def session_commits(
    repository: Repository, session: Session
) -> tuple[list[AnyRow], dict[str, Maker]]:
    """Return rows and makers of the recent commits that turns of this session made."""
    mentions_commits = any(any(_commit_calls(turn)) for turn in session.turns)
    tip = head_commit(repository) if mentions_commits else ""
    if not tip:
        return [], {}
    recent = list(iter_commits(repository, [tip], limit=_RECENT_COMMITS))
    makers = find_makers(session, recent)
    own = [commit for commit in recent if commit.hash in makers]
    times = commit_times(repository, [commit.parents[0] for commit in own if commit.parents])
    return build_rows(own, makers, times), makers


def build_rows(
    commits: Iterable[Commit], made_by: Mapping[str, Maker], times: Mapping[str, int]
) -> list[AnyRow]:
    """Return a row for each commit with files outside the dataset, and updates of reverted ones."""
    rows: list[AnyRow] = []
    for commit in commits:
        if commit.files and all(name.startswith(f"{ROOT}/") for name in commit.files):
            continue
        before_ms = times.get(commit.parents[0] if commit.parents else "")
        rows.append(_commit_row(commit, made_by.get(commit.hash), before_ms))
        if commit.reverted_commit:
            values = {"reverted": True, "reverted_by": commit.hash}
            rows += judgment_rows(f"commit:{commit.reverted_commit}", values, commit.at_ms)
    return rows


def judgment_rows(key: str, values: Mapping[str, object], at_ms: int) -> list[AnyRow]:
    """Return later judgments of the row `key` as rows of their own."""
    rows: list[AnyRow] = []
    for field, value in values.items():
        name = f"update-{field}-{at_ms}-{key}"[:120]
        time = format_row_time(at_ms)
        rows.append(
            UpdateRow(id=name, timestamp=time, row_id=key, field=field, value=value, rev=at_ms)
        )
    return rows


def _commit_row(commit: Commit, maker: Maker | None, before_ms: int | None) -> CommitRow:
    local = datetime.fromisoformat(commit.at)
    pause_s = None if before_ms is None else (commit.at_ms - before_ms) // 1000
    return CommitRow(
        id=commit.hash[:12],
        hash=commit.hash,
        timestamp=format_row_time(commit.at_ms),
        message=commit.message,
        message_chars=len(commit.message),
        files_changed=list(commit.files[:FILES_MAX]),
        insertions=commit.insertions,
        deletions=commit.deletions,
        hour_of_day=local.hour,
        day_of_week=local.strftime("%A"),
        parent_count=len(commit.parents),
        is_merge=len(commit.parents) > 1,
        is_initial=not commit.parents,
        rev=1 if maker else 0,
        files_left_out=max(len(commit.files) - FILES_MAX, 0),
        seconds_since_last_commit=pause_s,
        session_id=short_session_id(maker[0]) if maker else None,
        related_chats=[maker[1]] if maker else [],
    )


def _commit_calls(turn: Turn) -> Iterable[ToolCall]:
    for step in turn.steps:
        for call in step.tool_calls:
            arguments = call.executed_input or call.input
            command = arguments.get("command") or arguments.get("cmd")
            if isinstance(command, str) and "commit" in command and not call.is_error:
                yield call


def _is_during_call(call: ToolCall, turn: Turn, commit: Commit) -> bool:
    started = call.started_ms or turn.at_ms or 0
    return started - _SLACK_MS <= commit.at_ms <= (call.ended_ms or turn_end_ms(turn)) + _SLACK_MS
