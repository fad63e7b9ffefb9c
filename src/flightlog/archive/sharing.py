"""Redact a session as one document; every output that leaves the machine is made from it.

All files of the session are read before anything is replaced, so that a value recognized in one
of them is replaced in all: transcript, subagents, tool outputs stored beside it, and what the
model was given. The secrets of the session's own project are known, wherever the command runs.
Pictures are taken out, because they cannot be searched.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.session_reader import read_own_usage
from flightlog.model.addresses import parse_address
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session, ThreadContext
from flightlog.model.text import REDACTION_TAG
from flightlog.model.usage import UsageRow
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import find_private_in_files, make_redactor
from flightlog.store.recordings.reader import raw_lines
from flightlog.views.session.timeline import all_steps


class SessionDocument(Struct, frozen=True):
    """A session, the context of each thread, and the tool outputs stored beside the transcript.

    `own_usage` leaves out responses that were copied from another session.
    """

    session: Session
    contexts: dict[str, ThreadContext] = {}
    outputs: dict[str, str] = {}
    own_usage: UsageRow | None = None


def redact_session(
    runtime: Runtime,
    archive: Archive,
    session: Session,
    redactor: Redactor | None = None,
    pictures: list[str] | None = None,
) -> tuple[Redacted[SessionDocument], Redactor]:
    """Return the session redacted as one document, and the redactor that knows its values.

    Pictures are not part of it. `pictures`, if given, gets the data of each in turn; the document
    then has `picture0`, `picture1` … in its place.
    """
    redactor = redactor or make_redactor(runtime, Path(session.cwd))
    json_redactor = JsonRedactor(redactor)
    for file in archive.find_recording(session.id).files:
        json_redactor.collect_values(raw_lines(file.path, 0))
    calls = (call for step in all_steps(session) for call in step.tool_calls)
    names = {call.result_file for call in calls if call.result_file}
    texts = {name: archive.read_spilled_output(session.id, name) for name in sorted(names)}
    outputs = {name: text for name, text in texts.items() if text is not None}
    document = SessionDocument(session, archive.thread_contexts(session.id), outputs)
    plain = _without_pictures(msgspec.to_builtins(document, enc_hook=str), pictures)
    redacted = json_redactor.redact_document(plain)
    usage = read_own_usage(archive, session.id)
    convert = partial(msgspec.convert, type=SessionDocument)
    return redacted.map(lambda value: replace(convert(value), own_usage=usage)), redactor


def find_private_in_session(runtime: Runtime, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the private values in the session whose id or address begins with `prefix`.

    The secrets of the session's own project are known.
    """
    archive = open_archive(runtime)
    recording = archive.find_recording(parse_address(prefix).session)
    known = make_redactor(runtime, Path(archive.read_session(recording.session).cwd)).known
    return find_private_in_files((file.path for file in recording.files), known)


def rescan_page(page: Redacted[str], redactor: Redactor, *, html: bool) -> Redacted[str]:
    """Return a rendered page redacted again: a layout can join two halves of a secret."""
    after = redactor.redact_text(page.value)
    text = after.value.text
    if html:
        text = REDACTION_TAG.sub(lambda tag: f"&lt;{tag[0][1:-1]}&gt;", text)
    counts = {"secrets": page.secrets + after.secrets, "personal": page.personal + after.personal}
    return replace(page, value=text, **counts)


def _without_pictures(value: Any, taken: list[str] | None) -> Any:
    if isinstance(value, dict):
        fields = {key: _without_pictures(item, taken) for key, item in value.items()}
        is_picture = value.get("type") in {"image", "base64"} and "data" in fields
        if is_picture and taken is not None:
            taken.append(str(fields["data"]))
        name = "" if taken is None else f"picture{len(taken) - 1}"
        return fields | {"data": name} if is_picture else fields
    if isinstance(value, list | tuple):
        return [_without_pictures(item, taken) for item in value]
    return value
