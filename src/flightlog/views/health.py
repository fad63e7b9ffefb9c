"""How a session went, in one word and its reasons.

Counts what the record shows; it does not know whether the work was any good. A session with
nothing to count is quiet, not healthy.
"""

import enum

from msgspec import Struct

from flightlog.views.session.outline import SessionSummary

FAILED_SHARE_BAD = 0.25
FAILED_CALLS_BAD = 3


class HealthLevel(enum.Enum):
    """From nothing to remark to something wrong."""

    QUIET = "quiet"
    GOOD = "good"
    LOOK = "look"
    BAD = "bad"


class HealthSummary(Struct, frozen=True):
    """A word, and why."""

    level: HealthLevel
    reasons: tuple[str, ...]


def judge_health(told: SessionSummary) -> HealthSummary:
    """Judge a session by its summary."""
    bad: list[str] = []
    look: list[str] = []
    if told.damaged:
        bad.append(f"{told.damaged:,} damaged {'span' if told.damaged == 1 else 'spans'} in the recording")
    if told.failed_calls:
        said = f"{told.failed_calls:,} of {told.tool_calls:,} tool calls failed"
        often = told.failed_calls >= max(FAILED_CALLS_BAD, FAILED_SHARE_BAD * told.tool_calls)
        (bad if often else look).append(said)
    if told.compactions:
        look.append(f"context compacted {told.compactions:,} {'time' if told.compactions == 1 else 'times'}")
    if told.unknown_records:
        look.append(f"{told.unknown_records:,} records of unknown type")
    if told.cost.usd is None and told.steps:
        look.append("no price known for its model")
    level = (
        HealthLevel.BAD if bad else HealthLevel.LOOK if look else HealthLevel.GOOD if told.steps else HealthLevel.QUIET
    )
    return HealthSummary(level, (*bad, *look) or (("no model response on record",) if not told.steps else ()))
