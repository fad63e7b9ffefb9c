"""Turns worth going back to, and why: what failed, what was undone later, what went round in circles.

A proposal is always the turn *before* which things could still go another way: the one that made the
failing call, the one that wrote what was taken back, the first of a circle. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from flightlog.model.session import Step, ToolCall
from flightlog.model.text import one_line

LOOP_FROM = 3
_WHY_CHARS_MAX = 120


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
