"""Chat, action, session and orchestration rows.

Pure, and without regard to consent: the rows hold the original text. `dataset.extract.consent`
redacts and cuts it. Takes whole sessions or the last turns of one; `EarlierTurns` holds the rest.

Agents that start within five seconds of each other form a parallel batch, as in the source
document's tool.
"""

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.dataset import rows
from flightlog.model.entries import PromptKind, text_of
from flightlog.model.session import NoteKind, Session, Step, Subagent, ToolCall, Turn
from flightlog.views.session.tools import PATH_NAMES, files_of_call, first_text, tool_kind

FILES_MAX = 50  # file names per row
INPUT_CHARS, OUTPUT_CHARS, RESULT_CHARS = 10_000, 50_000, 500  # longest texts of a row
_TARGETS = (*PATH_NAMES, "pattern", "url", "query", "command", "cmd", "description")
_BY = {PromptKind.HUMAN: "human", PromptKind.TASK: "task", PromptKind.COMMAND: "command"}
TOGETHER_MS = 5_000  # agents that start within it form a parallel batch


class EarlierTurns(Struct, frozen=True):
    """Totals of earlier turns of a session."""

    chats: int = 0
    steps: int = 0
    actions: int = 0
    failed_actions: int = 0
    compactions: int = 0
    tools: dict[str, int] = {}
    files: list[str] = []
    models: list[str] = []
    cost_usd: float = 0.0
    commits: list[str] = []
    started_ms: int = 0
    title: str = ""


def chat_rows(session: Session, top: str) -> Iterator[tuple[Turn, rows.ChatRow]]:
    """Yield each turn with its row."""
    for turn in session.turns:
        yield turn, _chat_row(session, turn, top)


def action_rows(
    session: Session, turn: Turn, top: str, subagent: str = ""
) -> Iterator[rows.ActionRow]:
    """Yield a row for each tool call of a turn."""
    chat_id = "" if subagent else rows.chat_name(session.id, uuid_of(turn), turn.at_ms)
    for step in turn.steps:
        for call in step.tool_calls:
            yield _action_row(session, step, call, top, (chat_id, subagent))


def session_row(
    session: Session, total: EarlierTurns, subagents: Sequence[rows.SubagentUsage]
) -> rows.SessionRow:
    """Return the row of a session with these totals and subagents."""
    started = total.started_ms or session.started_ms
    title = " ".join((total.title or session.title).split())
    ended = session.ended_ms or started or 0
    cost_usd = total.cost_usd + sum(agent.cost_usd for agent in subagents)
    return rows.SessionRow(
        id=rows.session_name(session.id, started),
        started_at=rows.format_row_time(started),
        ended_at=rows.format_row_time(ended),
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
        actions=total.actions + sum(agent.actions for agent in subagents),
        failed_actions=total.failed_actions,
        sub_agents=sum(not agent.is_warmup for agent in subagents),
        compactions=total.compactions,
        tools_used=dict(sorted(total.tools.items())),
        files_modified=total.files[:FILES_MAX],
        models=total.models,
        cost_usd=round(cost_usd, 6) if total.steps else None,
    )


def add_turns(before: EarlierTurns, turns: Iterable[Turn], top: str) -> EarlierTurns:
    """Return the totals of `before` and more turns."""
    tools = Counter(before.tools)
    files = dict.fromkeys(before.files)
    models = set(before.models)
    chats = steps = calls = failed = compactions = 0
    cost = 0.0
    for turn in turns:
        chats += 1
        compactions += sum(
            not isinstance(item, Step) and item.kind is NoteKind.COMPACTION for item in turn.items
        )
        for step in turn.steps:
            steps += 1
            models.add(step.model)
            cost += step.cost_usd or 0.0
            for call in step.tool_calls:
                calls, failed = calls + 1, failed + call.is_error
                tools[call.name] += 1
                for name in files_of_call(call) if not call.is_error else ():
                    files.setdefault(relative_path(name, top))
    return replace(
        before,
        chats=before.chats + chats,
        steps=before.steps + steps,
        actions=before.actions + calls,
        failed_actions=before.failed_actions + failed,
        compactions=before.compactions + compactions,
        tools=dict(tools),
        files=list(files)[:FILES_MAX],
        models=sorted(models),
        cost_usd=before.cost_usd + cost,
    )


def step_usage(step: Step, model: str) -> rows.StepUsage:
    """Return a response's tokens, and its model if it is not `model`."""
    usage = step.usage
    name = step.message_id or step.request_id
    tokens = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
    )
    return rows.StepUsage(name, *tokens, "" if step.model == model else step.model)


def relative_path(path: str, top: str) -> str:
    """Return a path relative to the repository; one outside stays absolute."""
    inside = path == top or path.startswith(top.rstrip("/") + "/")
    return posixpath.relpath(path, top) if top and inside else path


def with_commits(row: rows.AnyRow, commits: Iterable[str]) -> rows.AnyRow:
    """Return a chat row with the last of these commits."""
    hashes = list(commits)
    if not hashes or not isinstance(row, rows.ChatRow):
        return row
    return replace(row, resulted_in_commit=True, related_commit=hashes[-1])


def turn_end_ms(turn: Turn) -> int:
    """Return the time of the last event of a turn."""
    times = [turn.at_ms or 0, *(item.at_ms or 0 for item in turn.items)]
    times += [
        call.ended_ms or call.started_ms or 0 for step in turn.steps for call in step.tool_calls
    ]
    return max(times)


def uuid_of(turn: Turn) -> str:
    """Return a turn's id: its prompt's, or its first response's if the prompt is not recorded."""
    return turn.uuid or next(
        (step.message_id or step.request_id for step in turn.steps), f"turn-{turn.number}"
    )


def _chat_row(session: Session, turn: Turn, top: str) -> rows.ChatRow:
    calls = [call for step in turn.steps for call in step.tool_calls]
    files = [relative_path(name, top) for name in map(_call_file, calls) if name]
    modified = [relative_path(name, top) for call in calls for name in files_of_call(call)]
    prompt = turn.text
    answer = next((text for step in reversed(turn.steps) if (text := text_of(step.content))), "")
    model = turn.steps[0].model if turn.steps else ""
    return rows.ChatRow(
        id=rows.chat_name(session.id, uuid_of(turn), turn.at_ms),
        timestamp=rows.format_row_time(turn.at_ms),
        session_id=rows.short_session_id(session.id),
        input=prompt,
        output=answer,
        tools=list(dict.fromkeys(call.name for call in calls)),
        files=list(dict.fromkeys([*files, *modified]))[:FILES_MAX],
        input_chars=len(prompt),
        output_chars=len(answer),
        uuid=uuid_of(turn),
        rev=max(turn_end_ms(turn) - (turn.at_ms or 0), 0),
        model=model,
        prompt_source=_BY.get(turn.kind, "client") if turn.kind else "client",
        files_modified=list(dict.fromkeys(modified))[:FILES_MAX],
        steps=[step_usage(step, model) for step in turn.steps],
        is_rewound=turn.is_rewound,
    )


def _action_row(
    session: Session, step: Step, call: ToolCall, top: str, thread: tuple[str, str]
) -> rows.ActionRow:
    started, ended = call.started_ms or step.at_ms or 0, call.ended_ms or 0
    target, target_chars = _call_target(call.executed_input or call.input, top)
    return rows.ActionRow(
        id=f"action-{call.id}",
        timestamp=rows.format_row_time(started),
        session_id=rows.short_session_id(session.id),
        action_type=tool_kind(call.name),
        target=target,
        target_chars=target_chars,
        tool=call.name,
        chat_id=thread[0],
        subagent=thread[1],
        success=None if call.result is None else not (call.is_error or call.denial_reason),
        duration_ms=max(ended - started, 0) if ended else 0,
        result_chars=len(call.output) if call.is_error else 0,
        result_summary=call.output if call.is_error else "",
    )


def _call_target(arguments: dict[str, Any], top: str) -> tuple[str | None, int]:
    """Return the target of a call, and its length unless it is a file name."""
    for name in _TARGETS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return (relative_path(value, top), 0) if name in PATH_NAMES else (value, len(value))
    return None, 0


def _call_file(call: ToolCall) -> str:
    # The `path` of a search is a directory.
    names = PATH_NAMES if call.name.lower() in {"read", "view"} else PATH_NAMES[:-1]
    return first_text(call.executed_input or call.input, names) or ""


def subagents_by_id(session: Session) -> dict[str, tuple[int, rows.SubagentUsage]]:
    """Return start time and usage of each subagent of a session."""
    calls = [
        (turn, call) for turn in session.turns for step in turn.steps for call in step.tool_calls
    ]
    chats = {call.id: rows.chat_name(session.id, uuid_of(turn), turn.at_ms) for turn, call in calls}
    failed = {call.id for _, call in calls if call.is_error}
    started = ((subagent, _start_ms(subagent)) for subagent in session.subagents)
    return {one.id: (at_ms, _subagent_usage(one, chats, failed)) for one, at_ms in started}


def orchestration_row(
    session: str, subagents: Mapping[str, tuple[int, rows.SubagentUsage]], tools: Iterable[str]
) -> rows.OrchestrationRow | None:
    """Return the row of a session's subagents, or None if it has none."""
    ordered = sorted(subagents.values(), key=lambda pair: (pair[0], pair[1].id))
    if not ordered:
        return None
    groups: list[list[tuple[int, rows.SubagentUsage]]] = []
    for started_ms, agent in ordered:
        if groups and started_ms - groups[-1][0][0] <= TOGETHER_MS:
            groups[-1].append((started_ms, agent))
        else:
            groups.append([(started_ms, agent)])
    agents = [agent for _, agent in ordered]
    tool_names = list(tools)
    return rows.OrchestrationRow(
        id=f"orchestration-{rows.short_session_id(session)}",
        session_id=rows.short_session_id(session),
        session=session,
        timestamp=rows.format_row_time(ordered[0][0]),
        rev=max(started_ms + agent.duration_ms for started_ms, agent in ordered),
        total_sub_agents=len(agents),
        batch_count=len(groups),
        models_used=sorted({step.model or agent.model for agent in agents for step in agent.steps}),
        total_tools_used=sum(agent.actions for agent in agents),
        unique_tools=len(set(tool_names)),
        total_duration_ms=sum(agent.duration_ms for agent in agents),
        success_rate=round(100 * sum(agent.is_success for agent in agents) / len(agents), 1),
        batches=[_build_batch(group) for group in groups],
        agents=agents,
    )


def _build_batch(group: list[tuple[int, rows.SubagentUsage]]) -> rows.AgentBatch:
    ends = [started_ms + agent.duration_ms for started_ms, agent in group]
    return rows.AgentBatch(
        execution_type="parallel" if len(group) > 1 else "sequential",
        agent_count=len(group),
        duration_ms=max(ends) - group[0][0],
        all_succeeded=all(agent.is_success for _, agent in group),
        agent_ids=[agent.id for _, agent in group],
    )


def _subagent_usage(
    subagent: Subagent, chats: Mapping[str, str], failed: set[str]
) -> rows.SubagentUsage:
    started_ms = _start_ms(subagent)
    ended_ms = max((turn_end_ms(turn) for turn in subagent.turns), default=started_ms)
    steps = [step for turn in subagent.turns for step in turn.steps]
    model = steps[0].model if steps else ""
    return rows.SubagentUsage(
        id=subagent.id,
        model=model,
        agent_type=subagent.agent_type,
        chat_id=chats.get(subagent.tool_call_id, ""),
        started_at=rows.format_row_time(started_ms),
        duration_ms=max(ended_ms - started_ms, 0),
        actions=sum(len(step.tool_calls) for step in steps),
        cost_usd=round(sum(step.cost_usd or 0.0 for step in steps), 6),
        is_warmup=subagent.is_side_call,
        is_success=subagent.tool_call_id not in failed,
        steps=[step_usage(step, model) for step in steps],
    )


def _start_ms(subagent: Subagent) -> int:
    return min((turn.at_ms for turn in subagent.turns if turn.at_ms), default=0)
