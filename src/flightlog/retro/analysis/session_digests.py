"""Digest of a recorded session: its frictions, outcomes, failures and costs. Pure.

Every mark names the step it was seen at. Only what the agent did counts, not what it claims.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from flightlog.model.entries import PromptKind
from flightlog.model.output_files import Redacted
from flightlog.model.session import NoteKind, Session, Step, ToolCall, Turn
from flightlog.model.usage import sum_costs
from flightlog.retro.analysis.digests import (
    MARKS_MAX,
    PROMPTS_MAX,
    ConversationDigest,
    DigestMark,
    DigestPrompt,
    error_signature,
    make_excerpt,
)
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import turn_steps
from flightlog.views.session.tools import command_of, edits_of_call, files_of_call

LOOP_CALLS = 4  # equal calls in one turn from which they count as a loop
DEAD_END_CALLS = 3  # failing calls at the end of a turn
_ROUNDING_USD = 1e-6  # sums of the same amounts in another order differ by less
_COMMIT = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")
_COMMITTED = re.compile(r"\[[^\]\n]+ (?:\([\w-]+\) )?[0-9a-f]{7,40}\]")
_TEST = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest)\b|\b(?:npm|pnpm|yarn|bun)(?: run)? test\b"
    r"|\b(?:go|cargo|mvn|gradle|dotnet|swift|mix|make|rake) test\b"
)
_TESTS_FAILED = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:failed|failing|failures?|errors?)\b|\bFAIL(?:ED)?\b|exit code [1-9]",
    re.IGNORECASE,
)
_REVERT = re.compile(
    r"\bgit\b[^|;&\n]*\b(?:checkout\s+(?:\S+\s+)?--|restore\b|reset\s+--hard|revert\b|stash(?!\s+(?:list|show|pop|apply))\b)"
)
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
    known = [cost for cost in model_costs.values() if cost is not None]
    started_ms = session.started_ms or 0
    prompts = [
        DigestPrompt(
            f"{session.id}#{turn.number}",
            turn.at_ms or started_ms,
            make_excerpt(turn.text),
            len(turn.text),
        )
        for turn in session.turns
        if turn.kind in _BY_HAND and turn.text.strip()
    ]
    public = redact(session).value if redact and any(_find_failures(session)) else session
    return ConversationDigest(
        id=session.id,
        source=session.agent,
        version=version,
        title=session.heading,
        started_ms=started_ms,
        ended_ms=session.ended_ms or 0,
        prompts=tuple(prompts[:PROMPTS_MAX]),
        turns=summary.turns,
        messages=summary.turns + summary.steps,
        chars=sum(prompt.chars for prompt in prompts),
        project=session.cwd,
        models=summary.models,
        frictions=tuple(_find_frictions(session))[:MARKS_MAX],
        outcomes=tuple(_find_outcomes(session))[:MARKS_MAX],
        failures=tuple(_find_failures(public))[:MARKS_MAX],
        costs=tuple(_turn_costs(session, sum(known)))[:MARKS_MAX],
        cost_usd=sum(known) if known else None,
        model_costs=tuple((model, cost) for model, cost in model_costs.items() if cost is not None),
        is_lower_bound=summary.is_lower_bound or bool(summary.unknown_responses),
        total_tokens=summary.usage.total_tokens,
    )


def _iter_calls(session: Session) -> Iterator[tuple[str, ToolCall]]:
    threads = [
        (session.id, session.turns),
        *((f"{session.id}@{subagent.id}", subagent.turns) for subagent in session.subagents),
    ]
    for thread, turns in threads:
        for turn in turns:
            for step in turn.steps:
                for call in step.tool_calls:
                    yield f"{thread}#{turn.number}.{step.number}", call


def _find_frictions(session: Session) -> Iterator[DigestMark]:
    for turn in session.turns:
        yield from _find_note_marks(session, turn)
        yield from _find_loops(session, turn)
        if turn.is_rewound:
            yield DigestMark(
                "dead end", f"{session.id}#{turn.number}", make_excerpt(turn.text) or "rewound turn"
            )
        elif _ends_in_failures(turn):
            yield DigestMark(
                "dead end", f"{session.id}#{turn.number}", "the turn ended on failing calls"
            )
    for address, call in _iter_calls(session):
        if call.denial_reason:
            path = next(iter(files_of_call(call)), "")
            kind = "rejected edit" if path else "rejected call"
            yield DigestMark(kind, address, make_excerpt(path or call.name))
    yield from _find_reverts(session)


def _find_note_marks(session: Session, turn: Turn) -> Iterator[DigestMark]:
    address = f"{session.id}#{turn.number}"
    if turn.kind is PromptKind.INTERRUPTION:
        yield DigestMark("interruption", address, make_excerpt(turn.text))
    for item in turn.items:
        if isinstance(item, Step):
            address = f"{session.id}#{turn.number}.{item.number}"
        elif item.kind in _NOTE_MARKS:
            yield DigestMark(_NOTE_MARKS[item.kind], address, make_excerpt(item.text))


def _find_loops(session: Session, turn: Turn) -> Iterator[DigestMark]:
    """Find equal calls repeated in a turn, and calls repeated after they failed."""
    counts: Counter[str] = Counter()
    failed: set[str] = set()
    retried: set[str] = set()
    loops: dict[str, tuple[str, str]] = {}
    for step in turn.steps:
        address = f"{session.id}#{turn.number}.{step.number}"
        for call in step.tool_calls:
            signature = f"{call.name} {sorted(call.input.items(), key=lambda pair: pair[0])}"
            counts[signature] += 1
            if counts[signature] == LOOP_CALLS:
                loops[signature] = (address, call.name)
            if signature in failed and signature not in retried:
                retried.add(signature)
                yield DigestMark(
                    "retry", address, make_excerpt(f"{call.name} again after it failed")
                )
            if call.is_error and not call.denial_reason:
                failed.add(signature)
    for signature, (address, name) in loops.items():
        text = make_excerpt(f"{name} called {counts[signature]} times alike")
        yield DigestMark("tool loop", address, text)


def _ends_in_failures(turn: Turn) -> bool:
    last = [call for step in turn.steps for call in step.tool_calls][-DEAD_END_CALLS:]
    return len(last) == DEAD_END_CALLS and all(
        call.is_error and not call.denial_reason for call in last
    )


def _find_reverts(session: Session) -> Iterator[DigestMark]:
    """Find edits undone by git, by the opposite edit, or by writing an earlier content."""
    edits: dict[str, set[tuple[str, str]]] = {}
    contents: dict[str, list[str]] = {}
    for address, call in _iter_calls(session):
        if call.is_error or call.denial_reason:
            continue
        command = command_of(call)
        if _REVERT.search(command):
            yield DigestMark("reverted file", address, make_excerpt(command))
        for edit in edits_of_call(call):
            known, written = edits.setdefault(edit.path, set()), contents.setdefault(edit.path, [])
            if any((new, old) in known for old, new in edit.replacements):
                yield DigestMark("reverted file", address, make_excerpt(edit.path))
            known.update(edit.replacements)
            if edit.content is not None:
                if edit.content in written[:-1]:
                    yield DigestMark("reverted file", address, make_excerpt(edit.path))
                written.append(edit.content)


def _find_outcomes(session: Session) -> Iterator[DigestMark]:
    for address, call in _iter_calls(session):
        command = command_of(call)
        if not command or call.denial_reason or call.result is None:
            continue
        if _COMMIT.search(command) and not call.is_error and _COMMITTED.search(call.output):
            yield DigestMark("commit", address, make_excerpt(call.output))
        if _TEST.search(command):
            passed = not call.is_error and not _TESTS_FAILED.search(call.output)
            yield DigestMark(
                "tests passed" if passed else "tests failed", address, make_excerpt(command)
            )


def _find_failures(session: Session) -> Iterator[DigestMark]:
    for address, call in _iter_calls(session):
        if call.is_error and not call.denial_reason and (key := error_signature(call.output)):
            yield DigestMark("failure", address, make_excerpt(call.output), key)


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
            yield DigestMark(
                "turn", f"{session.id}#{turn.number}", make_excerpt(turn.text), "", usd
            )
