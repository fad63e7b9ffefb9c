"""Turns worth branching at, cost estimate, side effects.

Snapshots hold the work directory. What a session did before the branch point to files elsewhere, over
the network, or with processes left running is still done, and still there, when a branch begins.
Told from tool calls: certain for tools that name a path, a guess for shell commands. Pure.

A proposal is always the turn *before* which things could still go another way: the one that made the
failing call, the one that wrote what was taken back, the first of a circle. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from flightlog.lab.events import SideEffect
from flightlog.model.session import Step, ToolCall
from flightlog.model.text import one_line
from flightlog.model.usage import Usage
from flightlog.usage.prices import price

_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_WEB = frozenset({"WebFetch", "WebSearch"})
_NETWORK = re.compile(
    r"\b(curl|wget|ssh|scp|rsync|nc|git\s+(push|pull|fetch|clone)|gh\s|docker\s|kubectl\s|"
    r"(npm|pnpm|yarn|pip3?|uv|cargo|go|gem|apt(-get)?|brew)\s+(install|add|publish|get|i)\b)"
)
_BACKGROUND = re.compile(r"(?<![&>])&\s*(?:$|[;)\n])|\b(nohup|setsid|disown|systemctl|daemon)\b")
_OUTSIDE = re.compile(r"(?:>>?|\b(?:tee(?:\s+-a)?|touch|mkdir(?:\s+-p)?|rm(?:\s+-\w+)*)\s)\s*[\"']?([/~][^\s;&|\"')]*)")
_HARMLESS = ("/dev/", "/proc/")
_WHAT_CHARS_MAX = 200
LOOP_FROM = 3
_WHY_CHARS_MAX = 120


class BranchEstimate(Struct, frozen=True):
    """US dollars for one branch that goes on as its source did; None where a price is not known.

    `cached_usd` takes the prompt cache as it was then; `uncached_usd` pays for the first request's
    whole context anew, as after a pause. `steps` is how many answers that would be.
    """

    steps: int
    cached_usd: float | None
    uncached_usd: float | None
    context_tokens: int


def estimate_branch(steps: Sequence[Step], turn: int) -> BranchEstimate:
    """Guess what going back to before `turn` costs."""
    rest = steps[turn - 1 :]
    costs = [each.cost.usd for each in rest]
    known = [cost for cost in costs if cost is not None]
    cached = sum(known) if rest and len(known) == len(costs) else None
    if cached is None:
        return BranchEstimate(len(rest), None, None, rest[0].usage.prompt if rest else 0)
    first = rest[0]
    anew = price(first.model, Usage(cache_write_5m=first.usage.prompt, output=first.usage.output), first.at_ms).usd
    more = max((anew or 0.0) - (first.cost.usd or 0.0), 0.0)
    return BranchEstimate(len(rest), cached, cached + more, first.usage.prompt)


def iter_side_effects(steps: Iterable[tuple[int, Step]], work_dir: str) -> Iterator[SideEffect]:
    """List what `steps`, each with its turn, did outside the work directory."""
    for turn, step in steps:
        for call in step.calls:
            for kind, what in _side_effects_of_call(call, work_dir):
                yield SideEffect(turn, kind, what[:_WHAT_CHARS_MAX])


def _side_effects_of_call(call: ToolCall, work_dir: str) -> Iterator[tuple[str, str]]:
    given = call.ran_input or call.input
    if call.name in _WRITES:
        path = str(given.get("file_path") or given.get("notebook_path") or "")
        if path.startswith("/") and not PurePosixPath(path).is_relative_to(work_dir):
            yield "file outside", path
    elif call.name in _WEB or call.name.startswith("mcp__"):
        yield "network", f"{call.name} {given.get('url') or given.get('query') or ''}".strip()
    elif call.name == "Bash":
        yield from _side_effects_of_shell(
            str(given.get("command") or ""), work_dir, background=bool(given.get("run_in_background"))
        )


def _side_effects_of_shell(command: str, work_dir: str, *, background: bool) -> Iterator[tuple[str, str]]:
    if background or _BACKGROUND.search(command):
        yield "background process", command
    if _NETWORK.search(command):
        yield "network", command
    for path in dict.fromkeys(_OUTSIDE.findall(command)):
        if not path.startswith(_HARMLESS) and not PurePosixPath(path).is_relative_to(work_dir):
            yield "file outside", path


class BranchSuggestion(Struct, frozen=True):
    """A turn to branch at, what is wrong there, and in words why."""

    turn: int
    kind: str
    why: str


Written = tuple[int, str, str]  # turn, path, what stands there after it (empty: nothing)


def branch_points(steps: Sequence[Step], written: Iterable[Written]) -> list[BranchSuggestion]:
    """Propose turns of a session, in order."""
    found = [*_find_failures(steps), *_find_loops(steps), *_find_reverts(written)]
    return sorted(found, key=lambda each: (each.turn, each.kind))


def _find_failures(steps: Sequence[Step]) -> Iterator[BranchSuggestion]:
    for turn, step in enumerate(steps, 1):
        for call in step.calls:
            if call.denied:
                yield BranchSuggestion(turn, "denied", f"{call.name} was not allowed: {_shorten_input(call)}")
            elif call.is_error:
                said = next(iter(call.output.splitlines()), "")
                yield BranchSuggestion(
                    turn, "error", one_line(f"{call.name} failed: {_shorten_input(call)}: {said}", _WHY_CHARS_MAX)
                )


def _find_loops(steps: Sequence[Step]) -> Iterator[BranchSuggestion]:
    """The same calls again and again, one turn after the other."""
    first, length = 1, 1
    for turn in range(2, len(steps) + 2):
        same = turn <= len(steps) and _call_signatures(steps[turn - 1]) == _call_signatures(steps[turn - 2]) != ()
        if same:
            length += 1
            continue
        if length >= LOOP_FROM:
            names = ", ".join(call.name for call in steps[first - 1].calls)
            yield BranchSuggestion(first, "loop", f"{names}: the same {length} times, turns {first} to {turn - 1}")
        first, length = turn, 1


def _find_reverts(written: Iterable[Written]) -> Iterator[BranchSuggestion]:
    """A file that came back to what it had been: what was done in between was taken back."""
    past: dict[str, list[tuple[int, str]]] = {}
    for turn, path, after in written:
        before = past.setdefault(path, [])
        earlier = next((at for at, (_, content) in enumerate(before[:-1]) if content == after), None)
        if earlier is not None:
            began = before[earlier + 1][0]
            yield BranchSuggestion(began, "reverted", one_line(f"{path}: taken back in turn {turn}", _WHY_CHARS_MAX))
            past[path] = [*before[: earlier + 1]]
        else:
            before.append((turn, after))


def _call_signatures(step: Step) -> tuple[tuple[str, str], ...]:
    return tuple((call.name, str(call.input)) for call in step.calls)


def _shorten_input(call: ToolCall) -> str:
    said = call.input.get("command") or call.input.get("file_path") or call.input
    return one_line(str(said), 60)
