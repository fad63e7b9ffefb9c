"""Where drafts come from: people, findings, and what rooms found wrong. Pure.

Ids come from what is reported and when, so that the same incident drafted twice is one draft.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE, Incident
from flightlog.model.errors import Invalid
from flightlog.retro.events import IssueDrafted, Severity
from flightlog.retro.state import Pattern

NAME = re.compile(r"draft_\d{8}_\d{6}_([0-9a-f]{6,12})\.json")
FINDING = "finding"
_CRITICAL = frozenset({"corrupt state", "secret"})
_WORTH = frozenset({"friction", "failure again"})


class DraftFile(Struct, frozen=True):
    """A draft as it lies in `issue-drafts/`; unknown fields of a person's making are let be."""

    id: str
    title: str
    description: str = ""
    category: str = "bug"
    severity: Severity | None = None
    tags: tuple[str, ...] = ()
    affected_files: tuple[str, ...] = ()
    context: dict[str, str] = {}
    created_ms: int = 0


def make_draft(
    title: str, description: str, now_ms: int, severity: Severity | None = None, **more: object
) -> DraftFile:
    """Make a draft."""
    if not title.strip():
        raise Invalid("an issue needs a title", hint='flightlog issue report-bug --title "…" --description "…"')
    number = hashlib.sha256(f"{title}\0{description}\0{now_ms}".encode()).hexdigest()[:12]
    fields = {
        "id": number,
        "title": title.strip(),
        "description": description,
        "severity": severity,
        "created_ms": now_ms,
    }
    return msgspec.convert(fields | more, DraftFile)


def draft_from_incident(incident: Incident) -> DraftFile:
    """Make a draft of something a room found wrong."""
    severity: Severity = "critical" if incident.kind in _CRITICAL else "high"
    title = f"{incident.room}: {incident.kind}"
    found = ", ".join(f"{name}: {number:,}" for name, number in incident.counts.items())
    places = f"Where: {', '.join(incident.evidence)}" if incident.evidence else ""
    return make_draft(title, "\n\n".join(filter(None, (found, places))), incident.at_ms, severity,
                 tags=(incident.room, "incident"), context={"evidence": " ".join(incident.evidence)})  # fmt: skip


def draft_from_finding(pattern: Pattern, now_ms: int) -> DraftFile:
    """Make a draft of a finding; its evidence stays private, in the context. Seen as often, it is the same draft."""
    number = hashlib.sha256(f"{pattern.id}\0{pattern.count}".encode()).hexdigest()[:12]
    description = f"{pattern.label}\n\n{pattern.detail}"
    evidence = " ".join(each.address for each in pattern.evidence)
    return make_draft(f"{pattern.kind}: {pattern.label}", description, now_ms, "medium", category=pattern.kind,
                 tags=(FINDING,), id=number, context={"pattern": pattern.id, "evidence": evidence})  # fmt: skip


def worth_an_issue(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Return the findings that something can be done about."""
    return [pattern for pattern in patterns if pattern.kind in _WORTH and pattern.count > 1]


def file_name(one: DraftFile) -> str:
    """Name the file of a draft."""
    return f"draft_{datetime.fromtimestamp(one.created_ms / 1000, UTC):%Y%m%d_%H%M%S}_{one.id}.json"


def read_draft(name: str, data: bytes) -> DraftFile:
    """Read a draft; the id is that of its name."""
    named = NAME.fullmatch(name)
    if named is None:
        raise Invalid(f"not the name of a draft: {name[:60]!r}", hint="draft_<YYYYMMDD>_<HHMMSS>_<id>.json")
    try:
        return msgspec.structs.replace(msgspec.json.decode(data, type=DraftFile), id=named[1])
    except UNREADABLE as error:
        raise Invalid(f"the draft cannot be read: {error}: {name}", hint="correct the file or move it away") from None


def draft_event(one: DraftFile, noticed: Iterable[Incident] = ()) -> IssueDrafted:
    """Return what the journal notes of a draft; it is generated if it is exactly the draft of a noticed incident."""
    generated = any(one == draft_from_incident(each) for each in noticed)
    return IssueDrafted(one.id, one.title, one.description, one.created_ms, one.category, one.severity, one.tags,
                   one.affected_files, one.context, generated)  # fmt: skip
