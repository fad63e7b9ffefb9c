"""What went wrong in a session, each finding with its evidence and its cost. Pure.

A detector takes the actions of one thread and yields drafts; `rank.find_findings` runs all of
them. Only what the tools did counts, not what the agent claims.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from flightlog.model.addresses import short_address
from flightlog.model.session import NoteKind, Session, Step, ToolCall, Turn
from flightlog.model.text import one_line
from flightlog.model.usage import Cost, CostSource, format_cost
from flightlog.views.session import tools

EXCERPT_CHARS = 60  # of a command or path in a title, which is one line of a list
_WRITERS = frozenset({"edit", "command"})  # kinds of tools that can change a file
_SHELL = re.compile(r"\A(?:\S*/)?(?:ba|z|da)?sh\n-\w*c\n")  # Codex gives the words of a command
# What clients put around the output of a command, another at every run: Codex, Gemini, Copilot.
FRAME = re.compile(
    r"^Chunk ID: \w+$|^Wall time: [\d.]+ seconds$|^Process Group PGID: \d+$|^<shellId: \d+\b",
    re.MULTILINE,
)
_FRAME_CHARS = 40  # by which two outputs that are the same inside their frames differ at most
_COMPARED_CHARS = 50_000  # of two outputs that are not equal at once; longer ones differ
LocatedStep = tuple[str, Step]  # with its address


class Finding(Struct, frozen=True):
    """Something that went wrong; `cost_usd` is that of the steps spent on it, None if unknown.

    `address` is the step where it begins. Findings can share steps, so costs do not add up.
    """

    kind: str
    address: str
    title: str
    cost_usd: float | None
    evidence: tuple[str, ...]


class FindingDraft(Struct, frozen=True):
    """A finding before it is merged, priced and ranked; `spent` are the steps it cost."""

    kind: str
    title: str
    evidence: tuple[str, ...]
    spent: tuple[LocatedStep, ...]


class ToolAction(Struct, frozen=True, gc=False):
    """A tool call and where it happened; `era` is the number of compactions before it."""

    cwd: str
    address: str
    step: Step
    call: ToolCall
    turn: Turn
    era: int
    kind: str
    command: str
    edits: tuple[tools.ToolEdit, ...]
    path: str
    """The file that the input names, or ""."""

    @property
    def is_failed(self) -> bool:
        """Whether the tool ran and reported an error."""
        return self.call.is_error and not self.call.denial_reason

    @property
    def is_successful(self) -> bool:
        """Whether the tool ran without an error."""
        return not self.call.is_error and not self.call.denial_reason

    @property
    def about(self) -> str:
        """What the call is about: its command, its file, or the first text of its input."""
        if self.command or (self.path and self.kind != "search"):
            return self.command or self.path
        return next((text for text in self.call.input.values() if isinstance(text, str)), "")

    @property
    def signature(self) -> str:
        """The tool and its input as text, to compare calls."""
        return f"{self.call.name} {self.call.input!r}"


class ActionThread(Struct, frozen=True):
    """The turns, steps and actions of the main thread (`subagent` is "") or of a subagent."""

    subagent: str
    turns: tuple[Turn, ...]
    steps: tuple[LocatedStep, ...]
    actions: tuple[ToolAction, ...]
    starts: tuple[tuple[int, int], ...]
    """Where each turn begins in `steps` and `actions`, and where the last one ends."""
    eras: tuple[int, ...]
    """The number of compactions before each turn."""

    def turn_steps(self, index: int) -> tuple[LocatedStep, ...]:
        """Return the steps of the turn at `index` of `turns`."""
        return self.steps[self.starts[index][0] : self.starts[index + 1][0]]

    def turn_actions(self, index: int) -> tuple[ToolAction, ...]:
        """Return the actions of the turn at `index` of `turns`."""
        return self.actions[self.starts[index][1] : self.starts[index + 1][1]]


def list_threads(session: Session) -> list[ActionThread]:
    """Return the actions of the main thread, then of each subagent."""
    threads = [("", session.turns), *((agent.id, agent.turns) for agent in session.subagents)]
    return [_list_actions(session, subagent, turns) for subagent, turns in threads]


def _list_actions(session: Session, subagent: str, turns: tuple[Turn, ...]) -> ActionThread:
    thread = f"{session.id}@{subagent}" if subagent else session.id
    actions: list[ToolAction] = []
    steps: list[LocatedStep] = []
    starts: list[tuple[int, int]] = []
    eras: list[int] = []
    era = 0
    for turn in turns:
        starts.append((len(steps), len(actions)))
        eras.append(era)
        for item in turn.items:
            if not isinstance(item, Step):
                era += item.kind is NoteKind.COMPACTION
                continue
            address = f"{thread}#{turn.number}.{item.number}"
            steps.append((address, item))
            for call in item.tool_calls:
                kind = tools.tool_kind(call.name)
                command = _SHELL.sub("", tools.command_of(call), 1) if kind == "command" else ""
                edits = tools.edits_of_call(call) if kind in _WRITERS else ()
                path = tools.first_text(call.input, tools.PATH_NAMES) or ""
                place = (session.cwd, address, item, call, turn, era)
                actions.append(ToolAction(*place, kind, command, edits, path))
    starts.append((len(steps), len(actions)))
    return ActionThread(subagent, turns, tuple(steps), tuple(actions), tuple(starts), tuple(eras))


def draft_finding(
    kind: str, title: str, actions: Sequence[ToolAction], spent: Iterable[ToolAction] | None = None
) -> FindingDraft:
    """Return a draft with `actions` as evidence, which cost the steps of `spent` or their own."""
    steps = {action.address: action.step for action in (actions if spent is None else spent)}
    evidence = tuple(dict.fromkeys(action.address for action in actions))
    return FindingDraft(kind, title, evidence, tuple(steps.items()))


def describe_finding(finding: Finding) -> str:
    """Return a finding as one line: where, what kind, what happened, at what cost, its evidence."""
    cost = format_cost(Cost(finding.cost_usd, CostSource.TABLE))
    first, *others = map(short_address, finding.evidence)
    then = f"; then {' '.join(others)}" if others else ""
    return f"{finding.kind} at {first}: {finding.title}; {cost}{then}"


def quote_input(action: ToolAction) -> str:
    """Return what a call did, for a title: its command, or the tool with what it is about."""
    return quote_path(action, action.command or f"{action.call.name} {action.about}".rstrip())


def quote_path(action: ToolAction, text: str) -> str:
    """Return a command or path for a title, with paths relative to the session's directory."""
    return one_line(text.replace(f"{action.cwd}/", "") if action.cwd else text, EXCERPT_CHARS)


def has_same_output(action: ToolAction, other: ToolAction, noise: re.Pattern[str] = FRAME) -> bool:
    """Return whether two calls gave the same output, but for `noise`."""
    one, two = action.call.output, other.call.output
    is_alike = abs(len(one) - len(two)) <= _FRAME_CHARS and len(one) <= _COMPARED_CHARS
    return one == two or (is_alike and noise.sub("", one) == noise.sub("", two))


def is_below(path: str, name: str) -> bool:
    """Return whether `path` is or ends with the file `name`, or is in a directory of that name."""
    return bool(name.strip("./")) and f"/{name.strip('./')}/" in f"/{path}/"
