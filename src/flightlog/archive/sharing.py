"""A session as one redacted document: what every output to pass on is made of.

All files of the session are read before anything is replaced, so that a value recognized in one
of them is replaced in all: transcript, subagents, tool outputs stored beside it, and what the
model was given. The secrets of the session's own project are known, wherever the command runs.
Pictures are left out: they cannot be searched.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive.archive import Archive, open_archive
from flightlog.model.addresses import parse_address
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session, ThreadContext
from flightlog.model.text import REDACTION_TAG
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import find_private_in_files, make_redactor
from flightlog.store.recordings.reader import raw_lines
from flightlog.views.session.timeline import all_steps


class SessionDocument(Struct, frozen=True):
    """A session and what belongs to it: the context of each thread, and outputs stored beside the transcript."""

    session: Session
    contexts: dict[str, ThreadContext] = {}
    outputs: dict[str, str] = {}


def redact_session(
    runtime: Runtime, archive: Archive, session: Session, cleaner: Redactor | None = None
) -> tuple[Redacted[SessionDocument], Redactor]:
    """Return the session redacted as one document, and the redactor that knows its values."""
    cleaner = cleaner or make_redactor(runtime, Path(session.cwd))
    records = JsonRedactor(cleaner)
    for file in archive.find_recording(session.id).files:
        records.collect_values(raw_lines(file.path, 0))
    named = {call.spilled for step in all_steps(session) for call in step.calls if call.spilled}
    outputs = {
        name: text for name in sorted(named) if (text := archive.read_spilled_output(session.id, name)) is not None
    }
    document = SessionDocument(session, archive.thread_contexts(session.id), outputs)
    redacted = records.redact_document(_without_pictures(msgspec.to_builtins(document, enc_hook=str)))
    return redacted.map(lambda plain: msgspec.convert(plain, SessionDocument)), cleaner


def found_in_session(runtime: Runtime, written: str) -> Iterator[dict[str, Any]]:
    """Yield what is private in the session whose id or address begins with `written`, knowing its project's secrets."""
    archive = open_archive(runtime)
    recording = archive.find_recording(parse_address(written).session)
    known = make_redactor(runtime, Path(archive.read_session(recording.session).cwd)).known
    return find_private_in_files((file.path for file in recording.files), known)


def rescan_page(page: Redacted[str], cleaner: Redactor, *, html: bool) -> Redacted[str]:
    """Return a rendered page after another search: a layout can bring together what was apart."""
    after = cleaner.redact_text(page.value)
    text = after.value.text
    if html:
        text = REDACTION_TAG.sub(lambda tag: f"&lt;{tag[0][1:-1]}&gt;", text)
    return replace(page, value=text, secrets=page.secrets + after.secrets, personal=page.personal + after.personal)


def _without_pictures(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_pictures(each) for key, each in value.items()}
        return kept | {"data": ""} if value.get("type") in {"image", "base64"} and "data" in kept else kept
    return [_without_pictures(each) for each in value] if isinstance(value, list | tuple) else value
