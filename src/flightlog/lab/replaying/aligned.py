"""Two sessions side by side, step by step: where they first part, and what each did from there.

A branch is laid beside its source from the turn it goes back to. Pure.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from flightlog.model.events import Text
from flightlog.model.session import Step
from flightlog.model.text import one_line

_SAID_CHARS_MAX = 160


def align_steps(left: Sequence[Step], right: Sequence[Step], *, first: int = 1) -> dict[str, Any]:
    """Lay two sequences of steps side by side; `first` is the turn the first pair has."""
    rows = []
    parted: int | None = None
    other_result: int | None = None
    for turn, (one, other) in enumerate(zip_longest(left, right), first):
        same = one is not None and other is not None and _step_actions(one) == _step_actions(other)
        same_results = same and one is not None and other is not None and _step_results(one) == _step_results(other)
        if parted is None and not same:
            parted = turn
        if parted is None and other_result is None and not same_results:
            other_result = turn
        rows.append(
            {
                "turn": turn,
                "left": _describe_step(one),
                "right": _describe_step(other),
                "same": same,
                "same_results": same_results,
            }
        )
    return {"first_divergence": parted, "first_other_result": other_result, "steps": rows}


def _step_actions(step: Step) -> tuple[Any, ...]:
    texts = tuple(block.text for block in step.content if isinstance(block, Text))
    return texts, tuple((call.name, call.input) for call in step.calls)


def _step_results(step: Step) -> tuple[Any, ...]:
    return tuple((call.output, call.is_error) for call in step.calls)


def _describe_step(step: Step | None) -> str:
    if step is None:
        return ""
    calls = [f"{call.name} {_input_summary(call.input)}{' (failed)' if call.is_error else ''}" for call in step.calls]
    texts = [block.text for block in step.content if isinstance(block, Text)]
    return one_line(" · ".join([*texts, *calls]), _SAID_CHARS_MAX)


def _input_summary(given: dict[str, Any]) -> str:
    return str(given.get("command") or given.get("file_path") or given.get("prompt") or given)
