"""What an analyst's words come to: names for findings, and findings of its own. Pure.

Taken from a block of JSON at the end of its answer; whatever does not fit is left out. A name stands
beside what was counted and never replaces it; evidence counts only where it was shown to the analyst.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from flightlog.model.damage import UNREADABLE
from flightlog.model.text import one_line
from flightlog.retro import events
from flightlog.retro.state import Pattern, PatternEvidence, RetroAnalysis

ORDER_END = (
    "End with one fenced json block, so that a program can keep what you say: "
    '{"names": {"<id of a finding>": "<a better name>"}, '
    '"new": [{"label": "…", "detail": "…", "evidence": ["<address from the data>"]}]}'
)
NEW_MAX = 20
KIND = "analyst"
_SURE = 0.5
_CHARS = 200
_BLOCK = re.compile(r"```json\s*\n(.*?)\n\s*```", re.DOTALL)


def decode_reply(text: str, analysis: RetroAnalysis) -> events.AnalystRan:
    """Return what an answer names and adds."""
    blocks = _BLOCK.findall(text)
    try:
        said = msgspec.json.decode(blocks[-1] if blocks else "{}", type=_AnalystReply)
    except UNREADABLE:
        return events.AnalystRan()
    known = {each.id for each in analysis.patterns}
    shown = {one.address for each in analysis.patterns for one in each.evidence}
    names = {name: one_line(given, _CHARS) for name, given in said.names.items() if name in known and given.strip()}
    new = [
        events.AnalystFinding(
            one_line(each.label, _CHARS),
            one_line(each.detail, _CHARS),
            tuple(address for address in each.evidence if address in shown),
        )
        for each in said.new[:NEW_MAX]
        if each.label.strip()
    ]
    return events.AnalystRan(names, tuple(new))


def extend_findings(found: Iterable[Pattern], happened: Iterable[events.Event]) -> tuple[Pattern, ...]:
    """Return the findings with the names and additions of analysts; the last word on each counts."""
    names: dict[str, str] = {}
    new: dict[str, events.AnalystFinding] = {}
    for event in happened:
        if isinstance(event, events.AnalystRan):
            names |= event.names
            new |= {f"{KIND}-{hashlib.sha256(each.label.encode()).hexdigest()[:10]}": each for each in event.new}
    counted = [replace(each, name=names.get(each.id, "")) for each in found]
    told = [
        Pattern(
            name, each.label, "other", _SURE, kind=KIND, detail=each.detail, count=len(each.evidence),
            evidence=tuple(PatternEvidence(address) for address in each.evidence),
        )
        for name, each in new.items()
    ]  # fmt: skip
    return (*counted, *told)


class _AnalystReply(msgspec.Struct, frozen=True):
    names: dict[str, str] = {}
    new: tuple[events.AnalystFinding, ...] = ()
