"""Variants of a request made on disk: the edited request first, then what was changed, which makes it one.

The same edit under the same label is the same variant, so that asking again adds samples to it.
"""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from flightlog.lab.book import Book
from flightlog.lab.layout import as_json
from flightlog.lab.resampling import layout
from flightlog.lab.resampling.editing import changed
from flightlog.lab.resampling.ledger import Ledger
from flightlog.lab.resampling.reading import variants
from flightlog.lab.resampling.recorded import recorded_body
from flightlog.model.errors import Invalid
from flightlog.model.text import one_line
from flightlog.sources.api.scrub import Scrubber
from flightlog.store.files import inside, replace

_LABEL_CHARS_MAX = 80


class Label(Struct, frozen=True):
    """What a variant is called, where it comes from, and when it was made."""

    label: str
    source: str
    created_at: str


def made(ledger: Ledger, book: Book, of: tuple[str, int], edited: dict[str, Any], told: tuple[Label, Scrubber]) -> int:
    """Make the variant of request `of` (its session's directory, its number), or find it; return its number."""
    session, request = of
    label, scrubber = told
    name = one_line(label.label, _LABEL_CHARS_MAX)
    if not name:
        raise Invalid("a variant needs a label", hint="give it one with --label")
    cleaned = json.loads(scrubber.clean(json.dumps(edited).encode()))
    edits = changed(recorded_body(book, session, request), cleaned)
    body = as_json(cleaned).encode()
    for each in variants(book.path):
        if (each.session, each.request, each.label) == (session, request, name) and _is(book.path / each.path, body):
            return each.number
    number = ledger.next_variant(session, request)
    folder = layout.folder(session, request, number)
    replace(inside(book.path, f"{folder}/{layout.REQUEST}"), body)
    said = {
        "label": name,
        "base_request_index": request,
        "edits": to_builtins(edits),
        "created_at": label.created_at,
        "source": label.source,
    }
    replace(inside(book.path, f"{folder}/{layout.VARIANT}"), as_json(said).encode())
    return number


def _is(path: Path, body: bytes) -> bool:
    try:
        return (path / layout.REQUEST).read_bytes() == body
    except OSError:
        return False
