"""Read the samples and variants of a run.

    for sample in list_samples(run):      # every sample of every request, errors too
        sample.request, sample.variant, sample.model, sample.content

Reads the run's files and its journal of samples; writes nothing. A sample without a journal entry
is still read: its model is then the one that answered.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import decode_usage
from flightlog.lab.resample import layout
from flightlog.lab.resample.layout import SampleItem
from flightlog.lab.resample.state import SampleAnswered, SampleEvent, SampleFailed
from flightlog.model.usage import Usage
from flightlog.sources.foreign_json import text_field
from flightlog.store.journal import Journal, JournalRecord
from flightlog.usage.prices import price


class RequestEdit(Struct, frozen=True):
    """One edit: the path, the original value, the new value; None means absent."""

    path: tuple[str | int, ...]
    original: Any
    replacement: Any


class Variant(Struct, frozen=True):
    """An edited request. `path` is its directory, relative to the run."""

    session: str
    request: int
    number: int
    label: str
    edits: tuple[RequestEdit, ...]
    created_at: str
    source: str
    path: str


class Sample(Struct, frozen=True):
    """One sample. `variant` 0 is the request as recorded; `error` is "" if an answer came.

    `model` is the one that was asked for, `content` the blocks of the answer, `path` its file
    relative to the run.
    """

    session: str
    request: int
    variant: int
    number: int
    model: str
    content: tuple[dict[str, Any], ...]
    stop_reason: str
    usage: Usage
    cost_usd: float | None
    error: str
    path: str
    message_id: str = ""
    answered_by: str = ""
    status: int = 200


def list_samples(run: Path) -> list[Sample]:
    """Return every sample of the run at `run`, by session, request, variant and number."""
    results = (
        event for event in journal_events(run) if isinstance(event, SampleAnswered | SampleFailed)
    )
    models = {event.item: event.model for event in results}
    samples = []
    for session, request, variant, folder in layout.iter_sample_dirs(run):
        files = list(layout.iter_sample_files(folder))
        answered = {number for number, is_error, _ in files if not is_error}
        for number, is_error, path in files:
            if not is_error or number not in answered:
                item = SampleItem(session, request, variant, number)
                name, answer = str(path.relative_to(run)), _read_json_object(path)
                read = _failed_sample if is_error or not answer else _answered_sample
                samples.append(read(item, models.get(item, ""), answer, name))
    return samples


def list_variants(run: Path) -> list[Variant]:
    return [_read_variant(*entry) for entry in layout.iter_sample_dirs(run) if entry[2]]


def journal_events(run: Path) -> Iterator[SampleEvent]:
    journal: Journal[SampleEvent] = Journal(run / layout.JOURNAL, SampleEvent, now=str, new_id=str)
    if journal.path.exists():
        yield from (
            entry.event for entry in journal.read_records() if isinstance(entry, JournalRecord)
        )


def _failed_sample(item: SampleItem, model: str, answer: dict[str, Any], name: str) -> Sample:
    where, status = (item.session, item.request, item.variant, item.number), answer.get("status")
    error = str(answer.get("error") or ("unknown" if answer else "the file holds no JSON object"))
    status = status if isinstance(status, int) else 0
    return Sample(*where, model, (), "", Usage(), None, error, name, status=status)


def _answered_sample(item: SampleItem, model: str, answer: dict[str, Any], name: str) -> Sample:
    content = answer.get("content")
    blocks = content if isinstance(content, list) else ()
    answered_by = text_field(answer, "model")
    tokens = decode_usage(answer.get("usage"))
    return Sample(
        *(item.session, item.request, item.variant, item.number, model or answered_by),
        tuple(block for block in blocks if isinstance(block, dict)),
        text_field(answer, "stop_reason"),
        *(tokens, price(answered_by, tokens).usd, "", name),
        *(text_field(answer, "id"), answered_by),
    )


def _read_variant(session: str, request: int, number: int, path: Path) -> Variant:
    fields = _read_json_object(path / layout.VARIANT)
    listed = fields.get("edits")
    edits = [edit for edit in listed if isinstance(edit, dict)] if isinstance(listed, list) else []
    label, created_at, source = (
        text_field(fields, name) for name in ("label", "created_at", "source")
    )
    folder = layout.sample_dir(session, request, number)
    decoded = tuple(map(_decode_edit, edits))
    return Variant(session, request, number, label, decoded, created_at, source, folder)


def _decode_edit(fields: dict[str, Any]) -> RequestEdit:
    path = fields.get("path")
    parts = path if isinstance(path, list) else [path]
    sound = tuple(part for part in parts if isinstance(part, str | int))
    return RequestEdit(sound, fields.get("original"), fields.get("replacement"))


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
