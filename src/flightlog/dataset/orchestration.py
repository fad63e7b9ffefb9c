"""The subagents of a session as one row: who ran together, how long, with what success.

Agents that start within five seconds of each other form a parallel batch, as the source's rule is.
"""

from collections.abc import Iterable, Mapping

from flightlog.dataset.rows import (
    AgentBatch,
    OrchestrationRow,
    SubagentUsage,
    chat_name,
    format_row_time,
    short_session_id,
)
from flightlog.dataset.telling import step_usage, turn_end_ms, uuid_of
from flightlog.model.session import Session, Subagent

TOGETHER_MS = 5_000


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
