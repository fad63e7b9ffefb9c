"""The facts of the first screen, and the health of a session.

Health comes from counts in the record, not from the quality of the work. A session without a
model response is quiet, not good.
"""

import enum
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo

from msgspec import Struct

from flightlog.model import usage
from flightlog.model.text import format_bytes, one_line, pluralize
from flightlog.views.session.outline import SessionSummary, TurnCost
from flightlog.views.transcript import format_timestamp

FAILED_SHARE_BAD = 0.25  # of the tool calls: agents recover from a few failures
FAILED_CALLS_BAD = 3  # at least: one failure of two calls says little
USD_SHOWN_MIN = 0.00005  # amounts below are $0.0000 when printed
TITLE_WIDTH = 100
PROJECT_WIDTH = 500  # a hostile path does not fill the screen


class HealthLevel(enum.Enum):
    """How a session went; `LOOK` and `BAD` have reasons."""

    QUIET = "quiet"
    GOOD = "good"
    LOOK = "look"
    BAD = "bad"


class HealthSummary(Struct, frozen=True):
    """A level and the reasons for it."""

    level: HealthLevel
    reasons: tuple[str, ...]


def judge_health(summary: SessionSummary) -> HealthSummary:
    """Return how a session went, judged by the counts of its summary."""
    bad: list[str] = []
    look: list[str] = []
    if summary.damage_count:
        bad.append(f"{pluralize(summary.damage_count, 'damaged span')} in the recording")
    if summary.failed_tool_calls:
        most = max(FAILED_CALLS_BAD, FAILED_SHARE_BAD * summary.tool_calls)
        is_often = summary.failed_tool_calls >= most
        reason = f"{summary.failed_tool_calls:,} of {summary.tool_calls:,} tool calls failed"
        (bad if is_often else look).append(reason)
    if summary.compactions:
        look.append(f"context compacted {pluralize(summary.compactions, 'time')}")
    if summary.unknown_records:
        look.append(f"{pluralize(summary.unknown_records, 'record')} of unknown type")
    if summary.unknown_responses:
        look.append(f"{pluralize(summary.unknown_responses, 'response')} without usage")
    elif summary.cost_usd is None and summary.steps:
        look.append("no price known for its model")
    if bad or look:
        return HealthSummary(HealthLevel.BAD if bad else HealthLevel.LOOK, (*bad, *look))
    if summary.steps:
        return HealthSummary(HealthLevel.GOOD, ())
    return HealthSummary(HealthLevel.QUIET, ("no model response on record",))


class ExpiringSession(Struct, frozen=True):
    """A session that the agent's own clean-up will delete, and when."""

    session: str
    title: str
    deletion_ms: int


class ProjectShare(Struct, frozen=True):
    """A project and its part of the work."""

    project: str
    sessions: int
    turns: int
    cost_usd: float | None
    cost_source: usage.CostSource
    is_lower_bound: bool

    @property
    def cost(self) -> usage.Cost:
        """The amount with its source."""
        return usage.Cost(self.cost_usd, self.cost_source, self.is_lower_bound)


class AgentShare(Struct, frozen=True):
    """An agent, its name as people write it, and how many sessions it has."""

    agent: str
    label: str
    sessions: int


class Overview(usage.TokensAndCost, frozen=True, kw_only=True):
    """The figures of the first screen; what is not read yet has its default."""

    recordings: int = 0
    recorded_bytes: int = 0
    sessions: int = 0
    projects: int = 0
    turns: int = 0
    unrecorded_cost_usd: float = 0.0
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    most_expensive_prompt: TurnCost | None = None
    top_projects: tuple[ProjectShare, ...] = ()
    expiring_sessions: tuple[ExpiringSession, ...] = ()
    keep_days: int = 0
    unknown_records: int = 0
    damage_count: int = 0
    is_sample: bool = False
    sessions_with_secrets: tuple[str, ...] = ()
    sessions_not_scanned: int = 0
    archived_sessions: int = 0
    damaged_sessions: tuple[str, ...] = ()
    unread_files: int = 0
    agents: tuple[AgentShare, ...] = ()


def find_expiring_sessions(
    summaries: Sequence[SessionSummary], keep_days: int, now_ms: int, within_days: int
) -> tuple[ExpiringSession, ...]:
    """Return the sessions that will be deleted within `within_days`, the next one first.

    A session that is overdue is deleted when the agent starts next: its time is now.
    """
    kept_ms, end_ms = keep_days * usage.DAY_MS, now_ms + within_days * usage.DAY_MS
    due = [one for one in summaries if one.modified_ms + kept_ms <= end_ms]
    ends = ((one, max(one.modified_ms + kept_ms, now_ms)) for one in due)
    expiring = [ExpiringSession(one.session, one.title, end_ms) for one, end_ms in ends]
    return tuple(sorted(expiring, key=lambda session: (session.deletion_ms, session.session)))


def rank_projects(summaries: Sequence[SessionSummary], most: int) -> tuple[ProjectShare, ...]:
    """Return the `most` projects with the most turns, then the highest cost."""
    groups: dict[str, list[SessionSummary]] = defaultdict(list)
    for summary in summaries:
        groups[summary.project].append(summary)
    shares = []
    for name in groups.keys() - {""}:
        turns = sum(summary.turns for summary in groups[name])
        cost = usage.sum_costs(summary.cost for summary in groups[name])
        amount = (cost.usd, cost.source, cost.is_lower_bound)
        shares.append(ProjectShare(name, len(groups[name]), turns, *amount))
    shares.sort(key=lambda share: (-share.turns, -(share.cost_usd or 0.0), share.project))
    return tuple(shares[:most])


def most_expensive_prompt(summaries: Sequence[SessionSummary]) -> TurnCost | None:
    """Return the prompt that cost most in all sessions."""
    prompts = (summary.most_expensive_prompt for summary in summaries)
    turns = [prompt for prompt in prompts if prompt is not None]
    return max(
        turns, key=lambda turn: (turn.cost_usd or 0.0, turn.steps, turn.address), default=None
    )


class OverviewFact(Struct, frozen=True):
    """A sentence, and the command that shows more."""

    text: str
    next_command: str


class OverviewStage(enum.Enum):
    """What is known after each step of reading, the fastest first."""

    FILES = "files"
    COST = "cost"
    SESSIONS = "sessions"
    SECRETS = "secrets"


def iter_facts(
    overview: Overview, zone: tzinfo, stages: Iterable[OverviewStage] = tuple(OverviewStage)
) -> Iterator[OverviewFact]:
    """Yield the facts of the first screen that `stages` add, in the order they become known."""
    for stage in stages:
        match stage:
            case OverviewStage.FILES:
                size = format_bytes(overview.recorded_bytes)
                text = f"{pluralize(overview.recordings, 'recording')}, {size}"
                yield OverviewFact(text, f"{_program(overview)} status")
            case OverviewStage.COST:
                yield from _cost_facts(overview)
            case OverviewStage.SESSIONS:
                yield from _session_facts(overview, zone)
                yield from _recording_facts(overview, zone)
            case OverviewStage.SECRETS:
                yield from _secret_facts(overview)


def _program(overview: Overview) -> str:
    return "flightlog --samples" if overview.is_sample else "flightlog"


def _cost_facts(overview: Overview) -> Iterator[OverviewFact]:
    flightlog = _program(overview)
    tokens = usage.format_tokens(overview.usage.total_tokens, overview.usage, overview.cost)
    cost = f"{usage.format_cost(overview.cost)} for {tokens} tokens"
    yield OverviewFact(f"{cost}, each response counted once", f"{flightlog} session usage")
    if abs(overview.unrecorded_cost_usd) >= USD_SHOWN_MIN:
        amount = f"${abs(overview.unrecorded_cost_usd):,.4f} {'more' if overview.unrecorded_cost_usd > 0 else 'less'}"
        text = f"the clients counted {amount} than is on record; each difference has a reason"
        yield OverviewFact(text, f"{flightlog} session usage --by session")


def _secret_facts(overview: Overview) -> Iterator[OverviewFact]:
    if overview.sessions_with_secrets:
        sessions = overview.sessions_with_secrets
        verb = "holds" if len(sessions) == 1 else "hold"
        text = f"{pluralize(len(sessions), 'session')} {verb} what looks like secrets"
        yield OverviewFact(text, f"flightlog privacy scan {sessions[0]} --secrets")
    if overview.sessions_not_scanned:
        count = pluralize(overview.sessions_not_scanned, "session")
        yield OverviewFact(f"{count} not scanned for secrets", "flightlog privacy scan")


def _session_facts(overview: Overview, zone: tzinfo) -> Iterator[OverviewFact]:
    flightlog = _program(overview)
    first, last = (
        format_timestamp(at_ms, zone, "%Y-%m-%d")
        for at_ms in (overview.first_timestamp_ms, overview.last_timestamp_ms)
    )
    projects, turns = pluralize(overview.projects, "project"), pluralize(overview.turns, "turn")
    days = first if first == last else f"{first} to {last}"
    text = f"{pluralize(overview.sessions, 'session')} in {projects}, {turns}, {days}"
    yield OverviewFact(text, f"{flightlog} session list")
    if len(overview.agents) > 1:
        shares = (
            f"{pluralize(share.sessions, 'session')} of {share.label}" for share in overview.agents
        )
        yield OverviewFact(", ".join(shares), f"{flightlog} session usage --by agent")
    if overview.most_expensive_prompt is not None:
        turn = overview.most_expensive_prompt
        steps = pluralize(turn.steps, "step")
        cost = usage.format_cost(turn.cost)
        text = f"most expensive prompt: '{one_line(turn.prompt, TITLE_WIDTH)}', {steps}, {cost}"
        yield OverviewFact(text, f"{flightlog} session show {shlex.quote(turn.address)}")
    for share in overview.top_projects:
        counts = f"{pluralize(share.sessions, 'session')}, {pluralize(share.turns, 'turn')}"
        work = f"{counts}, {usage.format_cost(share.cost)}"
        name = one_line(share.project, PROJECT_WIDTH)
        command = f"{flightlog} session list --project {shlex.quote(name)}"
        yield OverviewFact(f"{name}: {work}", command)


def _recording_facts(overview: Overview, zone: tzinfo) -> Iterator[OverviewFact]:
    """Yield what is archived, damaged, about to be deleted, private or unknown."""
    if overview.archived_sessions:
        text = f"{pluralize(overview.archived_sessions, 'session')} archived (original deleted)"
        yield OverviewFact(text, "flightlog status")
    if overview.damaged_sessions:
        count = pluralize(len(overview.damaged_sessions), "session")
        text = f"{count} damaged, {overview.damaged_sessions[0]} first"
        yield OverviewFact(text, "flightlog doctor --verify")
    yield _retention_fact(overview, zone)
    if overview.unread_files:
        files = pluralize(overview.unread_files, "file")
        yield OverviewFact(f"{files} in an unknown layout not read", "flightlog doctor")
    if overview.unknown_records or overview.damage_count:
        records = pluralize(overview.unknown_records, "record")
        spans = pluralize(overview.damage_count, "damaged span")
        yield OverviewFact(f"{records} of unknown type, {spans}", "flightlog doctor")


def _retention_fact(overview: Overview, zone: tzinfo) -> OverviewFact:
    if overview.is_sample:
        return OverviewFact("see it work on a session made now", "flightlog demo")
    if not overview.expiring_sessions:
        rule = f"Claude Code's {overview.keep_days}-day clean-up"
        return OverviewFact(f"nothing is deleted within a week by {rule}", "flightlog doctor")
    first = overview.expiring_sessions[0]
    count = pluralize(len(overview.expiring_sessions), "session")
    day = format_timestamp(first.deletion_ms, zone, "%Y-%m-%d")
    rule = f"Claude Code's {overview.keep_days}-day rule"
    title = one_line(first.title, TITLE_WIDTH)
    text = f"deleted within a week by {rule}: {count}, first '{title}', {day}"
    return OverviewFact(text, "flightlog init")
