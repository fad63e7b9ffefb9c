"""Digest of a recorded session: its frictions, outcomes, failures and costs. Pure.

Every mark names the step it was seen at. Only what the agent did counts, not what it claims.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from flightlog.analysis.findings import ActionThread, ToolAction, failures, list_threads
from flightlog.analysis.findings.edits import find_undone_edits, is_commit, is_revert
from flightlog.analysis.findings.permissions import find_denials
from flightlog.analysis.findings.waste import find_loops
from flightlog.model.entries import PromptKind, text_of
from flightlog.model.output_files import Redacted
from flightlog.model.session import NoteKind, Session, Step, Turn
from flightlog.model.usage import sum_costs
from flightlog.retro.analysis.digests import (
    MARKS_MAX,
    PROMPTS_MAX,
    ConversationDigest,
    DigestMark,
    DigestPrompt,
    make_excerpt,
    read_prompts,
)
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import turn_steps

_ROUNDING_USD = 1e-6  # sums of the same amounts in another order differ by less
FIX_CALLS_MAX = 30  # calls after a failure among which its fix is looked for
_BY_PERSON = frozenset({"user-rejected", "declined", "denied"})  # Claude Code, Codex, Copilot
_PLAIN_COMMAND = re.compile(r"[\w./:=@,+%~-]+(?: [\w./:=@,+%~-]+)*", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z][\w-]{0,120}", re.ASCII)
_BY_HAND = frozenset({PromptKind.HUMAN, PromptKind.COMMAND})
_NOTE_MARKS = {
    NoteKind.INTERRUPTION: "interruption",
    NoteKind.COMPACTION: "compaction",
    NoteKind.API_FAILURE: "failed request",
}


def digest_session(
    session: Session,
    version: str,
    redact: Callable[[Session], Redacted[Session]] | None,
    model_costs: Mapping[str, float | None],
) -> ConversationDigest:
    """Return the digest of `session`; `version` names the state of its files.

    `model_costs` are those of the usage report, which counts a response in one session only.

    Issues are published from failures, so failure texts are cut from the redacted session.
    """
    summary = outline_session(session).summary
    threads = list_threads(session)
    actions = _list_actions(threads)
    known = [cost for cost in model_costs.values() if cost is not None]
    prompts = _list_prompts(session)
    has_failures = any(_find_failures(actions))
    public = (
        _list_actions(list_threads(redact(session).value)) if redact and has_failures else actions
    )
    return ConversationDigest(
        id=session.id,
        source=session.agent,
        version=version,
        title=session.heading,
        started_ms=session.started_ms or 0,
        ended_ms=session.ended_ms or 0,
        prompts=tuple(prompts[:PROMPTS_MAX]),
        messages=summary.turns + summary.steps,
        project=session.cwd,
        frictions=tuple(_find_frictions(session.id, threads))[:MARKS_MAX],
        outcomes=tuple(_find_outcomes(actions))[:MARKS_MAX],
        failures=tuple(_find_failures(public))[:MARKS_MAX],
        permissions=tuple(_find_permissions(session, actions))[:MARKS_MAX],
        fixes=tuple(_find_fixes(public))[:MARKS_MAX],
        edits=sum(bool(action.edits) and action.is_successful for action in actions),
        first_edit_ms=_time_to_first_edit(session, actions),
        costs=tuple(_turn_costs(session, sum(known)))[:MARKS_MAX],
        cost_usd=sum(known) if known else None,
        model_costs=tuple((model, cost) for model, cost in model_costs.items() if cost is not None),
        is_lower_bound=summary.is_lower_bound or bool(summary.unknown_responses),
        is_empty=summary.is_empty,
        **read_prompts(_iter_typed_prompts(session)),
    )


def _list_prompts(session: Session) -> list[DigestPrompt]:
    prompts = []
    for turn in session.turns:
        if turn.kind in _BY_HAND and turn.text.strip():
            address, at_ms = f"{session.id}#{turn.number}", turn.at_ms or session.started_ms or 0
            prompts.append(DigestPrompt(address, at_ms, make_excerpt(turn.text), len(turn.text)))
    return prompts


def _list_actions(threads: Sequence[ActionThread]) -> list[ToolAction]:
    return [action for thread in threads for action in thread.actions]


def _find_frictions(session: str, threads: Sequence[ActionThread]) -> Iterator[DigestMark]:
    main = threads[0]
    for index, turn in enumerate(main.turns):
        actions = main.turn_actions(index)
        yield from _find_note_marks(session, turn)
        for action in failures.find_retries(actions):
            again = f"{action.call.name} again after it failed"
            yield DigestMark("retry", action.address, make_excerpt(again))
        for run in find_loops(actions):
            alike = f"{run[0].call.name} called {len(run)} times alike"
            yield DigestMark("tool loop", run[0].address, make_excerpt(alike))
        if turn.is_rewound:
            text = make_excerpt(turn.text) or "rewound turn"
            yield DigestMark("dead end", f"{session}#{turn.number}", text)
        elif failures.ends_in_failures(actions):
            text = "the turn ended on failing calls"
            yield DigestMark("dead end", f"{session}#{turn.number}", text)
    for action, path in find_denials(_list_actions(threads)):
        kind = "rejected edit" if path else "rejected call"
        yield DigestMark(kind, action.address, make_excerpt(path or action.call.name))
    for thread in threads:
        yield from _find_reverts(thread)


def _find_reverts(thread: ActionThread) -> Iterator[DigestMark]:
    for action in thread.actions:
        if action.is_successful and is_revert(action):
            yield DigestMark("reverted file", action.address, make_excerpt(action.command))
    for _, action, path in find_undone_edits(thread):
        yield DigestMark("reverted file", action.address, make_excerpt(path))


def _find_note_marks(session: str, turn: Turn) -> Iterator[DigestMark]:
    address = f"{session}#{turn.number}"
    if turn.kind is PromptKind.INTERRUPTION:
        yield DigestMark("interruption", address, make_excerpt(turn.text))
    for item in turn.items:
        if isinstance(item, Step):
            address = f"{session}#{turn.number}.{item.number}"
        elif item.kind in _NOTE_MARKS:
            yield DigestMark(_NOTE_MARKS[item.kind], address, make_excerpt(item.text))


def _find_outcomes(actions: Sequence[ToolAction]) -> Iterator[DigestMark]:
    for action in actions:
        if action.call.denial_reason or action.call.result is None:
            continue
        if is_commit(action):
            yield DigestMark("commit", action.address, make_excerpt(action.call.output))
        if failures.is_test_run(action):
            kind = "tests passed" if failures.has_passed(action) else "tests failed"
            yield DigestMark(kind, action.address, make_excerpt(action.command))


def _find_failures(actions: Sequence[ToolAction]) -> Iterator[DigestMark]:
    for action in actions:
        if action.is_failed and (key := failures.error_signature(action.call.output)):
            text = make_excerpt(failures.find_error_line(action.call.output))
            yield DigestMark("failure", action.address, text, key)


def _turn_costs(session: Session, own_cost_usd: float) -> Iterator[DigestMark]:
    """Yield the cost of a person's prompts, the last one first, up to the session's own cost.

    A resumed session begins with the turns of the one before it, whose responses count there.
    """
    left = own_cost_usd + _ROUNDING_USD
    for turn in reversed(session.turns):
        usd = sum_costs(step.cost for step in turn_steps(session, turn)).usd
        left -= usd or 0.0
        if left < 0:
            return
        if turn.kind in _BY_HAND and usd:
            address = f"{session.id}#{turn.number}"
            yield DigestMark("turn", address, make_excerpt(turn.text), "", usd)


def _iter_typed_prompts(session: Session) -> Iterator[tuple[str, str, str]]:
    """Yield address and text of the prompts that a person typed, with the answer before each."""
    answer = ""
    for turn in session.turns:
        if turn.kind is PromptKind.HUMAN and turn.text.strip():
            yield f"{session.id}#{turn.number}", turn.text, answer
        texts = (text_of(step.content) for step in reversed(turn.steps))
        answer = next(filter(None, texts), answer)


def _find_permissions(session: Session, actions: Sequence[ToolAction]) -> Iterator[DigestMark]:
    for action in actions:
        call = action.call
        if call.permission_decision in {"approved", "blocked"}:
            kind = call.permission_decision
        elif call.denial_reason in _BY_PERSON:
            kind = "rejected"
        else:
            continue
        rule, text = _exact_rule(session, action)
        yield DigestMark(kind, action.address, make_excerpt(text), rule)


def _exact_rule(session: Session, action: ToolAction) -> tuple[str, str]:
    """Return the settings rule for exactly this call ("" if none can say it), and its text."""
    name, command = action.call.name, action.command
    if command:
        # `*` and a final `:*` are wildcards of a rule, and shell operators are judged part by part.
        is_plain = bool(_PLAIN_COMMAND.fullmatch(command)) and not command.endswith(":*")
        return f"Bash({command})" if is_plain else "", f"{name}: {command}"
    path = action.edits[0].path if action.edits else action.path
    if path:
        kind = "Edit" if action.edits else "Read"
        inside = path.removeprefix(f"{session.cwd}/")
        is_plain = inside != path and bool(_PLAIN_COMMAND.fullmatch(inside))
        return f"{kind}(/{inside})" if is_plain else "", f"{name}: {path}"
    return (name, name) if _PLAIN_NAME.fullmatch(name) else ("", name)


def _find_fixes(actions: Sequence[ToolAction]) -> Iterator[DigestMark]:
    """Find what was done between a failing command and the same command without a failure.

    Where the call was not made again, what came next in the turn is marked as such.
    """
    for at, failed in enumerate(actions):
        # What follows a failed edit says nothing about it: the agent reads the file and edits again.
        if not (failed.is_failed and failed.command):
            continue
        if not (key := failures.error_signature(failed.call.output)):
            continue
        between: list[tuple[str, str]] = []
        kind = "next"
        for later in actions[at + 1 : at + 1 + FIX_CALLS_MAX]:
            if not later.is_successful:
                continue
            is_same_tool = later.call.name == failed.call.name
            is_repeated = is_same_tool and _action_head(later) == _action_head(failed)
            text = _action_text(later)
            if text and (not is_repeated or text != _action_text(failed)):
                between.append((later.address, text))
            if is_repeated:
                kind = "fix"
                break
        turn = failed.address.rpartition(".")[0]
        if kind == "next":
            between = [pair for pair in between if pair[0].rpartition(".")[0] == turn][:1]
        if between:
            address, text = between[-1]
            yield DigestMark(kind, address, make_excerpt(text), key)


def _action_text(action: ToolAction) -> str:
    """Return what a call runs or changes, "" for a call that only reads."""
    paths = dict.fromkeys(edit.path for edit in action.edits)
    return action.command or ", ".join(f"edit {path}" for path in paths)


def _action_head(action: ToolAction) -> list[str]:
    return (action.command or " ".join(edit.path for edit in action.edits)).split()[:2]


def _time_to_first_edit(session: Session, actions: Sequence[ToolAction]) -> int | None:
    """Return the time from the first prompt to the first edit that was made, if there is one."""
    started = next((turn.at_ms for turn in session.turns if turn.kind in _BY_HAND), None)
    edits = (action for action in actions if action.edits and action.is_successful)
    first = next((action.call.started_ms for action in edits), None)
    return None if started is None or first is None else max(first - started, 0)
