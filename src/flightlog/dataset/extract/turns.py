"""Chat, action, session and orchestration rows.

Pure, and blind to consent: the rows hold all words as they were said. `dataset.consent` redacts and cuts
them. Takes whole sessions or the end of one; `Before` carries what came earlier.

Agents that start within five seconds of each other form a parallel batch, as the source's rule is.
"""

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.dataset.rows import (
    ActionRow,
    AgentBatch,
    AnyRow,
    ChatRow,
    OrchestrationRow,
    SessionRow,
    StepUsage,
    SubagentUsage,
    chat_name,
    format_row_time,
    session_name,
    short_session_id,
)
from flightlog.model.entries import PromptKind, text_of
from flightlog.model.session import NoteKind, Session, Step, Subagent, ToolCall, Turn
from flightlog.views.session.edits import changed_file

FILES_MAX = 50
INPUT_CHARS, OUTPUT_CHARS, RESULT_CHARS = 10_000, 50_000, 500
_TYPES = {
    **dict.fromkeys(("Read", "NotebookRead", "LS", "read_file", "read_many_files", "list_directory"), "read"),
    **dict.fromkeys(("Grep", "Glob", "WebSearch", "ToolSearch", "search_file_content", "glob"), "search"),
    **dict.fromkeys(("Edit", "MultiEdit", "Write", "NotebookEdit", "replace", "write_file", "apply_patch"), "edit"),
    **dict.fromkeys(("Bash", "BashOutput", "KillShell", "exec_command", "run_shell_command", "shell"), "command"),
    **dict.fromkeys(("Task", "Agent"), "delegate"),
    **dict.fromkeys(("WebFetch", "web_fetch"), "fetch"),
}
_TARGETS = ("file_path", "notebook_path", "path", "pattern", "url", "query", "command", "description")
FILE_FIELDS = ("file_path", "notebook_path", "path")
_BY = {PromptKind.HUMAN: "human", PromptKind.TASK: "task", PromptKind.COMMAND: "command"}
TOGETHER_MS = 5_000


class EarlierTurns(Struct, frozen=True):
    """What earlier turns of a session add to its row."""

    chats: int = 0
    steps: int = 0
    actions: int = 0
    failed: int = 0
    compactions: int = 0
    tools: dict[str, int] = {}
    files: list[str] = []
    models: list[str] = []
    cost_usd: float = 0.0
    commits: list[str] = []
    started_ms: int = 0
    title: str = ""


def chat_rows(session: Session, top: str) -> Iterator[tuple[Turn, ChatRow]]:
    """Yield a row for each turn."""
    for turn in session.turns:
        yield turn, _chat_row(session, turn, top)


def action_rows(session: Session, turn: Turn, top: str, lane: str = "") -> Iterator[ActionRow]:
    """Yield a row for each tool call of a turn."""
    chat_id = "" if lane else chat_name(session.id, uuid_of(turn), turn.at_ms)
    for step in turn.steps:
        for call in step.calls:
            yield _action_row(session, step, call, top, (chat_id, lane))


def session_row(session: Session, total: EarlierTurns, crew: Sequence[SubagentUsage]) -> SessionRow:
    """Return the row of a session whose turns add up to `total`, with its subagents."""
    started = total.started_ms or session.started_ms
    title = " ".join((total.title or session.title).split())
    ended = session.ended_ms or started or 0
    return SessionRow(
        id=session_name(session.id, started),
        started_at=format_row_time(started),
        ended_at=format_row_time(ended),
        summary=title,
        chat_count=total.chats,
        commits=total.commits,
        session=session.id,
        agent=session.agent,
        rev=ended,
        summary_chars=len(title),
        branch=session.branch,
        version=session.version,
        duration_seconds=(ended - (started or ended)) / 1000,
        steps=total.steps,
        actions=total.actions + sum(agent.actions for agent in crew),
        failed_actions=total.failed,
        sub_agents=sum(not agent.warmup for agent in crew),
        compactions=total.compactions,
        tools_used=dict(sorted(total.tools.items())),
        files_modified=total.files[:FILES_MAX],
        models=total.models,
        cost_usd=round(total.cost_usd + sum(agent.cost_usd for agent in crew), 6) if total.steps else None,
    )


def add_turns(before: EarlierTurns, turns: Iterable[Turn], top: str) -> EarlierTurns:
    """Return the sum of `before` and more turns."""
    tools = Counter(before.tools)
    files = dict.fromkeys(before.files)
    models = set(before.models)
    chats = steps = calls = failed = compactions = 0
    cost = 0.0
    for turn in turns:
        chats += 1
        compactions += sum(not isinstance(item, Step) and item.kind is NoteKind.COMPACTION for item in turn.items)
        for step in turn.steps:
            steps += 1
            models.add(step.model)
            cost += step.cost.usd or 0.0
            for call in step.calls:
                calls, failed = calls + 1, failed + call.is_error
                tools[call.name] += 1
                if changed_file(call) and not call.is_error:
                    files.setdefault(relative_path(changed_file(call), top))
    return replace(
        before,
        chats=before.chats + chats,
        steps=before.steps + steps,
        actions=before.actions + calls,
        failed=before.failed + failed,
        compactions=before.compactions + compactions,
        tools=dict(tools),
        files=list(files)[:FILES_MAX],
        models=sorted(models),
        cost_usd=before.cost_usd + cost,
    )


def step_usage(step: Step, model: str) -> StepUsage:
    """Return a response's tokens, and its model where that is not `model`."""
    spent = step.usage
    name = step.message_id or step.request_id
    tokens = (spent.input, spent.output, spent.cache_read, spent.cache_write_5m, spent.cache_write_1h)
    return StepUsage(name, *tokens, "" if step.model == model else step.model)


def relative_path(path: str, top: str) -> str:
    """Return a path as the repository names it; one outside stays as it is."""
    inside = path == top or path.startswith(top.rstrip("/") + "/")
    return posixpath.relpath(path, top) if top and inside else path


def with_commits(row: AnyRow, commits: Iterable[str]) -> AnyRow:
    """Return a chat that led to these commits."""
    made = list(commits)
    if not made or not isinstance(row, ChatRow):
        return row
    return replace(row, resulted_in_commit=True, related_commit=made[-1])


def turn_end_ms(turn: Turn) -> int:
    """Return when the last thing known of a turn happened."""
    times = [turn.at_ms or 0, *(item.at_ms or 0 for item in turn.items)]
    times += [call.ended_ms or call.started_ms or 0 for step in turn.steps for call in step.calls]
    return max(times)


def uuid_of(turn: Turn) -> str:
    """A turn whose prompt is not on record is named by its first response."""
    return turn.uuid or next((step.message_id or step.request_id for step in turn.steps), f"turn-{turn.number}")


def action_type(tool: str) -> str:
    """Return the document's name for what a tool does."""
    return _TYPES.get(tool, "other")


def _chat_row(session: Session, turn: Turn, top: str) -> ChatRow:
    calls = [call for step in turn.steps for call in step.calls]
    files = [relative_path(name, top) for name in map(_call_file, calls) if name]
    modified = [relative_path(name, top) for name in map(changed_file, calls) if name]
    said = turn.text
    answer = next((text for step in reversed(turn.steps) if (text := text_of(step.content))), "")
    model = turn.steps[0].model if turn.steps else ""
    return ChatRow(
        id=chat_name(session.id, uuid_of(turn), turn.at_ms),
        timestamp=format_row_time(turn.at_ms),
        session_id=short_session_id(session.id),
        input=said,
        output=answer,
        tools=list(dict.fromkeys(call.name for call in calls)),
        files=list(dict.fromkeys([*files, *modified]))[:FILES_MAX],
        input_chars=len(said),
        output_chars=len(answer),
        uuid=uuid_of(turn),
        rev=max(turn_end_ms(turn) - (turn.at_ms or 0), 0),
        model=model,
        by=_BY.get(turn.kind, "client") if turn.kind else "client",
        files_modified=list(dict.fromkeys(modified))[:FILES_MAX],
        steps=[step_usage(step, model) for step in turn.steps],
        rewound=turn.rewound,
    )


def _action_row(session: Session, step: Step, call: ToolCall, top: str, place: tuple[str, str]) -> ActionRow:
    given = call.ran_input or call.input
    started, ended = call.started_ms or step.at_ms or 0, call.ended_ms or 0
    output = call.output
    target, said = _call_target(given, top)
    return ActionRow(
        id=f"action-{call.id}",
        timestamp=format_row_time(started),
        session_id=short_session_id(session.id),
        action_type=action_type(call.name),
        target=target,
        target_chars=said,
        tool=call.name,
        chat_id=place[0],
        lane=place[1],
        success=None if call.result is None else not (call.is_error or call.denied),
        duration_ms=max(ended - started, 0) if ended else 0,
        result_chars=len(output) if call.is_error else 0,
        result_summary=output if call.is_error else "",
    )


def _call_target(given: dict[str, Any], top: str) -> tuple[str | None, int]:
    """Say what a tool was used on, and how long that is where it is words and not the name of a file."""
    for name in _TARGETS:
        value = given.get(name)
        if isinstance(value, str) and value:
            is_file = name in FILE_FIELDS
            return (relative_path(value, top), 0) if is_file else (value, len(value))
    return None, 0


def _call_file(call: ToolCall) -> str:
    given = call.ran_input or call.input
    value = given.get("file_path") or given.get("notebook_path")
    return value if isinstance(value, str) else ""


def subagents_by_id(session: Session) -> dict[str, tuple[int, SubagentUsage]]:
    """Return each subagent of a session with the time it began."""
    chats = {
        call.id: chat_name(session.id, uuid_of(turn), turn.at_ms)
        for turn in session.turns
        for step in turn.steps
        for call in step.calls
    }
    failed = {call.id for turn in session.turns for step in turn.steps for call in step.calls if call.is_error}
    return {lane.id: (_start_ms(lane), _subagent_usage(lane, chats, failed)) for lane in session.lanes}


def orchestration_row(
    session: str, known: Mapping[str, tuple[int, SubagentUsage]], tools: Iterable[str]
) -> OrchestrationRow | None:
    """Return the row of a session's subagents; none when it had none."""
    ordered = sorted(known.values(), key=lambda pair: (pair[0], pair[1].id))
    if not ordered:
        return None
    groups: list[list[tuple[int, SubagentUsage]]] = []
    for began, agent in ordered:
        if groups and began - groups[-1][0][0] <= TOGETHER_MS:
            groups[-1].append((began, agent))
        else:
            groups.append([(began, agent)])
    everyone = [agent for _, agent in ordered]
    names = list(tools)
    return OrchestrationRow(
        id=f"orchestration-{short_session_id(session)}",
        session_id=short_session_id(session),
        session=session,
        timestamp=format_row_time(ordered[0][0]),
        rev=max(began + agent.duration_ms for began, agent in ordered),
        total_sub_agents=len(everyone),
        batch_count=len(groups),
        models_used=sorted({step.model or agent.model for agent in everyone for step in agent.steps}),
        total_tools_used=sum(agent.actions for agent in everyone),
        unique_tools=len(set(names)),
        total_duration_ms=sum(agent.duration_ms for agent in everyone),
        success_rate=round(100 * sum(agent.succeeded for agent in everyone) / len(everyone), 1),
        batches=[_build_batch(group) for group in groups],
        agents=everyone,
    )


def _build_batch(group: list[tuple[int, SubagentUsage]]) -> AgentBatch:
    ends = [began + agent.duration_ms for began, agent in group]
    return AgentBatch(
        execution_type="parallel" if len(group) > 1 else "sequential",
        agent_count=len(group),
        duration_ms=max(ends) - group[0][0],
        all_succeeded=all(agent.succeeded for _, agent in group),
        agent_ids=[agent.id for _, agent in group],
    )


def _subagent_usage(lane: Subagent, chats: Mapping[str, str], failed: set[str]) -> SubagentUsage:
    began = _start_ms(lane)
    end = max((turn_end_ms(turn) for turn in lane.turns), default=began)
    steps = [step for turn in lane.turns for step in turn.steps]
    model = steps[0].model if steps else ""
    return SubagentUsage(
        id=lane.id,
        model=model,
        agent_type=lane.agent_type,
        chat_id=chats.get(lane.call_id, ""),
        started_at=format_row_time(began),
        duration_ms=max(end - began, 0),
        actions=sum(len(step.calls) for step in steps),
        cost_usd=round(sum(step.cost.usd or 0.0 for step in steps), 6),
        warmup=lane.warmup,
        succeeded=lane.call_id not in failed,
        steps=[step_usage(step, model) for step in steps],
    )


def _start_ms(lane: Subagent) -> int:
    return min((turn.at_ms for turn in lane.turns if turn.at_ms), default=0)
