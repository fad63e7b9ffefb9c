"""Work that led nowhere: loops of equal calls, interrupted turns, turns that were taken back."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from flightlog.analysis.findings import (
    FRAME,
    ActionThread,
    FindingDraft,
    LocatedStep,
    ToolAction,
    draft_finding,
    has_same_output,
    quote_input,
)
from flightlog.model.entries import PromptKind, text_of
from flightlog.model.session import NoteKind, Step, Turn
from flightlog.model.text import pluralize

# Three equal calls occur in ordinary work (status, state, state again); the fourth is a loop.
LOOP_CALLS_MIN = 4
_POLLING = re.compile(r"\b(?:sleep|wait|watch|tail -f)\b")  # waiting on purpose
_POLL_TOOLS = frozenset(
    {"bashoutput", "taskoutput", "read_bash", "write_stdin", "wait", "todowrite"}
)
_NOISE = re.compile(  # differs at every run
    rf"{FRAME.pattern}|\d+(?:\.\d+)? ?m?s\b|\d\d:\d\d(?::\d\d(?:\.\d+)?)?", re.MULTILINE
)
_CONTINUES = re.compile(
    r"\W*(?:(?:ok(?:ay)?|yes|sorry|please|now)\W+)*(?:continue|go on|go ahead|proceed|keep going|carry on|resume)\b",
    re.IGNORECASE,
)
# A prompt that rejects what was just done. Only its beginning counts: "no" later on is about code.
_REJECTION = re.compile(
    r"""\W*(?:(?:hey|hm+|um+|ugh|argh|sorry|please|wait|well|ok(?:ay)?|but|actually)\W+)*
    (?:(?:that|this|it)(?:'s|\ is|\ was)\ [^.!?;,\n]{1,40}[.!;,]\s+(?=i\ |not\ ))?(?:
      (?:no|nope)\b(?:\W*$|\s*[,.!;:](?!\W*thank)|\s+(?:that|this|it|you|i|not|wait|don'?t|the)\b|\s+[\u2013\u2014-])
    | (?:that|this|it)(?:'s|\ is|\ was)\ (?:not|wrong|incorrect|the\ wrong|completely|totally)\b
    | (?:that|this)\ (?:isn't|wasn't|is\ not|was\ not)\ (?:what|right|correct|it)\b
    | wrong\b | incorrect\b | try\ again\b | not\ (?:quite|what|like|right|correct)\b
    | you\ (?:misunderstood|misread|got\ it\ wrong|broke)\b
    | you\ (?:should\ not|shouldn't|were\ not\ supposed|weren't\ supposed|changed\ the\ wrong|edited\ the\ wrong)\b
    | i\ (?:did\ not|didn't)\ (?:ask|want|mean|say|tell)\b | i\ (?:said|asked\ for|meant|wanted)\b(?!\ to\b)
    | stop\b(?=\W*$|[.,!:;]|\s+(?:that|it|this|doing|changing|adding|editing))
    | why\ did\ you\ (?:change|delete|remove|edit|touch|rewrite|add)\b
    | (?:undo|revert|go\ back)\W*$ | (?:that|this)\ (?:broke|breaks)\b
    | (?:undo|revert|take\ back|roll\ back)\s+(?:that|this|it|your|those|these|all|everything|the\ (?:last|change|edit))
    | (?:roll|take|put)\ (?:that|this|it)\ back\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# What an agent says of its own work; "another approach" alone may follow a single failed command.
_GIVEN_UP = re.compile(
    r"\bwrong (?:approach|track|direction|path|turn)\b|\bdead end\b|\bstart(?:ing)? over\b"
    r"|\bi was wrong\b|\bthis (?:approach|path|way) (?:does not|doesn't|won't|will not|cannot|can't) work",
    re.IGNORECASE,
)
_STARTED_BY_PERSON = frozenset({PromptKind.HUMAN, PromptKind.COMMAND})


def is_rejection(prompt: str) -> bool:
    """Return whether a prompt rejects what the agent just did."""
    return _REJECTION.match(prompt) is not None


def find_loops(actions: Sequence[ToolAction]) -> Iterator[list[ToolAction]]:
    """Yield the equal calls of a turn with equal results, if nothing was edited between them.

    Reads, failures and denied calls are other findings; waiting for a process is no loop.
    """
    counts = Counter(map(_brief_key, actions))
    runs: dict[str, list[ToolAction]] = {}
    for action in actions:
        if action.edits:
            yield from _long_runs(runs)
            runs = {}
        elif counts[_brief_key(action)] < LOOP_CALLS_MIN or _is_waiting(action):
            continue
        elif action.is_successful:
            run = runs.setdefault(action.signature, [])
            if run and not has_same_output(run[-1], action, _NOISE):
                yield from _long_runs({"": run})
                run = runs[action.signature] = []
            run.append(action)
    yield from _long_runs(runs)


def find_tool_loops(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find calls repeated in one turn, with the same result each time."""
    for index in range(len(thread.turns)):
        actions = thread.turn_actions(index)
        for run in find_loops(actions) if len(actions) >= LOOP_CALLS_MIN else ():
            if not (run[0].kind == "read" and run[0].path):
                title = f"{quote_input(run[0])} was called {len(run)} times with the same result"
                yield draft_finding("tool-loop", title, run)


def find_interruptions(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find turns that the person stopped and did not let continue."""
    for index, turn in enumerate(() if thread.subagent else thread.turns):
        steps, is_stopped = _steps_before_stop(turn)
        following = _next_prompt(thread.turns, index)
        is_resumed = following is not None and _CONTINUES.match(following.text)
        if not is_stopped or not steps or is_resumed or turn.is_rewound:
            continue
        # A denied call stops the turn too; that is a decision about the call.
        if any(call.denial_reason for call in steps[-1].tool_calls):
            continue
        located = thread.turn_steps(index)[: len(steps)]
        title = f"Interrupted by the person after {pluralize(len(steps), 'step')}"
        yield FindingDraft("interruption", title, (located[-1][0],), tuple(located))


def find_wrong_turns(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find turns that the person took back or rejected, and edits that the agent gave up itself."""
    yield from _find_given_up(thread)
    run: list[LocatedStep] = []
    reasons: list[str] = []
    for index, turn in enumerate(() if thread.subagent else thread.turns):
        reason = _rejection(thread.turns, index)
        if reason and turn.steps:
            run += thread.turn_steps(index)
            reasons.append(reason)
        elif run and turn.steps:
            yield _draft_wrong_turn(run, reasons)
            run, reasons = [], []
    if run:
        yield _draft_wrong_turn(run, reasons)


def _find_given_up(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find the steps of a turn from its first edit until the agent says that they led nowhere."""
    for index in range(len(thread.turns)):
        edited = {action.address for action in thread.turn_actions(index) if action.edits}
        run: list[LocatedStep] = []
        for address, step in thread.turn_steps(index) if edited else ():
            if run and _GIVEN_UP.search(text_of(step.content)):
                title = f"{pluralize(len(run), 'step')} given up by the agent itself"
                yield FindingDraft("wrong-turn", title, tuple(at for at, _ in run), tuple(run))
                run = []
            if run or address in edited:
                run.append((address, step))


def _brief_key(action: ToolAction) -> tuple[str, str, str]:
    """Return a key that equal calls share; it costs less than the signature."""
    return action.call.name, action.command, action.path


def _long_runs(runs: Mapping[str, list[ToolAction]]) -> Iterator[list[ToolAction]]:
    return (run for run in runs.values() if len(run) >= LOOP_CALLS_MIN)


def _is_waiting(action: ToolAction) -> bool:
    if action.command:
        return _POLLING.search(action.command) is not None
    return action.call.name.lower() in _POLL_TOOLS


def _steps_before_stop(turn: Turn) -> tuple[list[Step], bool]:
    steps: list[Step] = []
    for item in turn.items:
        if isinstance(item, Step):
            steps.append(item)
        elif item.kind is NoteKind.INTERRUPTION:
            return steps, True
    return steps, bool(steps) and steps[-1].is_aborted


def _next_prompt(turns: Sequence[Turn], index: int) -> Turn | None:
    """Return the next turn if a person started it."""
    turn = turns[index + 1] if index + 1 < len(turns) else None
    return turn if turn is not None and turn.kind in _STARTED_BY_PERSON else None


def _rejection(turns: Sequence[Turn], index: int) -> str:
    turn = turns[index]
    if turn.is_rewound:
        return "taken back"
    following = _next_prompt(turns, index)
    has_worked = any(step.tool_calls for step in turn.steps)
    is_rejected = (
        following is not None and not following.is_rewound and is_rejection(following.text)
    )
    return "rejected" if has_worked and is_rejected and not _steps_before_stop(turn)[1] else ""


def _draft_wrong_turn(run: list[LocatedStep], reasons: list[str]) -> FindingDraft:
    by = "taken back by the person" if "taken back" in reasons else "rejected by the next prompt"
    title = f"{pluralize(len(run), 'step')} of {pluralize(len(reasons), 'turn')} {by}"
    return FindingDraft("wrong-turn", title, tuple(address for address, _ in run), tuple(run))
