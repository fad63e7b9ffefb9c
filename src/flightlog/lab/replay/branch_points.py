"""Suggest turns to branch at, estimate the cost of a branch, list side effects.

Snapshots cover the work directory. Effects elsewhere (other files, the network, running processes)
remain when a branch starts. They are inferred from tool calls: certain for tools that name a path,
a guess for shell commands.

A suggestion is always the turn *before* which things could still go differently: the turn of the
failing call, of the change that was reverted, or the first turn of a loop. Pure.
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
# Shell commands are only guessed at: well-known programs, `&` and redirections to absolute paths.
_NETWORK = re.compile(
    r"\b(curl|wget|ssh|scp|rsync|nc|git\s+(push|pull|fetch|clone)|gh\s|docker\s|kubectl\s|"
    r"(npm|pnpm|yarn|pip3?|uv|cargo|go|gem|apt(-get)?|brew)\s+(install|add|publish|get|i)\b)"
)
_BACKGROUND = re.compile(r"(?<![&>])&\s*(?:$|[;)\n])|\b(nohup|setsid|disown|systemctl|daemon)\b")
_OUTSIDE = re.compile(
    r"(?:>>?|\b(?:tee(?:\s+-a)?|touch|mkdir(?:\s+-p)?|rm(?:\s+-\w+)*)\s)\s*[\"']?([/~][^\s;&|\"')]*)"
)
_HARMLESS = ("/dev/", "/proc/")
_WHAT_CHARS_MAX = 200  # the effects go into the journal
LOOP_FROM = 3  # twice may be a retry; three equal turns in a row are a loop
_WHY_CHARS_MAX = 120


class BranchEstimate(Struct, frozen=True):
    """Expected US dollars of a branch that continues like its source; None for unknown prices.

    `cached_usd` assumes the prompt cache of the recording; `uncached_usd` pays the first request's
    whole context again, as after a pause. `steps` is the number of expected answers.
    """

    steps: int
    cached_cost_usd: float | None
    uncached_cost_usd: float | None
    context_tokens: int


def estimate_branch(steps: Sequence[Step], turn: int) -> BranchEstimate:
    rest = steps[turn - 1 :]
    costs = [step.cost_usd for step in rest]
    priced = [cost for cost in costs if cost is not None]
    cached = sum(priced) if rest and len(priced) == len(costs) else None
    if cached is None:
        return BranchEstimate(len(rest), None, None, rest[0].usage.prompt_tokens if rest else 0)
    first = rest[0]
    written, output = first.usage.prompt_tokens, first.usage.output_tokens
    usage = Usage(cache_write_tokens=written, output_tokens=output)
    uncached = price(first.model, usage, first.at_ms).usd
    surcharge = max((uncached or 0.0) - (first.cost_usd or 0.0), 0.0)
    return BranchEstimate(len(rest), cached, cached + surcharge, first.usage.prompt_tokens)


def iter_side_effects(steps: Iterable[tuple[int, Step]], work_dir: str) -> Iterator[SideEffect]:
    """Yield the effects of `steps`, each with its turn, outside of the work directory."""
    for turn, step in steps:
        for call in step.tool_calls:
            for kind, what in _side_effects_of_call(call, work_dir):
                yield SideEffect(turn, kind, what[:_WHAT_CHARS_MAX])


def _side_effects_of_call(call: ToolCall, work_dir: str) -> Iterator[tuple[str, str]]:
    arguments = call.executed_input or call.input
    if call.name in _WRITES:
        path = str(arguments.get("file_path") or arguments.get("notebook_path") or "")
        if path.startswith("/") and not PurePosixPath(path).is_relative_to(work_dir):
            yield "file outside", path
    elif call.name in _WEB or call.name.startswith("mcp__"):
        yield (
            "network",
            f"{call.name} {arguments.get('url') or arguments.get('query') or ''}".strip(),
        )
    elif call.name == "Bash":
        command = str(arguments.get("command") or "")
        if arguments.get("run_in_background") or _BACKGROUND.search(command):
            yield "background process", command
        if _NETWORK.search(command):
            yield "network", command
        for path in dict.fromkeys(_OUTSIDE.findall(command)):
            if not path.startswith(_HARMLESS) and not PurePosixPath(path).is_relative_to(work_dir):
                yield "file outside", path


class BranchSuggestion(Struct, frozen=True):
    """A turn to branch at, the kind of problem, and its description."""

    turn: int
    kind: str
    reason: str


Written = tuple[int, str, str]  # turn, path, object id after it ("" if deleted)


def branch_points(steps: Sequence[Step], written: Iterable[Written]) -> list[BranchSuggestion]:
    suggestions = [*_find_failures(steps), *_find_loops(steps), *_find_reverts(written)]
    return sorted(suggestions, key=lambda suggestion: (suggestion.turn, suggestion.kind))


def _find_failures(steps: Sequence[Step]) -> Iterator[BranchSuggestion]:
    for turn, step in enumerate(steps, 1):
        for call in step.tool_calls:
            if call.denial_reason:
                reason = f"{call.name} was not allowed: {_shorten_input(call)}"
                yield BranchSuggestion(turn, "denied", reason)
            elif call.is_error:
                first_line = next(iter(call.output.splitlines()), "")
                text = f"{call.name} failed: {_shorten_input(call)}: {first_line}"
                yield BranchSuggestion(turn, "error", one_line(text, _WHY_CHARS_MAX))


def _find_loops(steps: Sequence[Step]) -> Iterator[BranchSuggestion]:
    """Find turns that repeat the calls of the previous turn."""
    first, length = 1, 1
    for turn in range(2, len(steps) + 2):
        same = (
            turn <= len(steps)
            and _call_signatures(steps[turn - 1]) == _call_signatures(steps[turn - 2]) != ()
        )
        if same:
            length += 1
            continue
        if length >= LOOP_FROM:
            names = ", ".join(call.name for call in steps[first - 1].tool_calls)
            reason = f"{names}: the same {length} times, turns {first} to {turn - 1}"
            yield BranchSuggestion(first, "loop", reason)
        first, length = turn, 1


def _find_reverts(written: Iterable[Written]) -> Iterator[BranchSuggestion]:
    """Find files that returned to earlier content, so the changes in between were reverted."""
    versions: dict[str, list[tuple[int, str]]] = {}
    for turn, path, after in written:
        before = versions.setdefault(path, [])
        position = next(
            (at for at, (_, content) in enumerate(before[:-1]) if content == after), None
        )
        if position is not None:
            turn_of_change = before[position + 1][0]
            reason = one_line(f"{path}: taken back in turn {turn}", _WHY_CHARS_MAX)
            yield BranchSuggestion(turn_of_change, "reverted", reason)
            versions[path] = [*before[: position + 1]]
        else:
            before.append((turn, after))


def _call_signatures(step: Step) -> tuple[tuple[str, str], ...]:
    return tuple((call.name, str(call.input)) for call in step.tool_calls)


def _shorten_input(call: ToolCall) -> str:
    argument = call.input.get("command") or call.input.get("file_path") or call.input
    return one_line(str(argument), 60)
