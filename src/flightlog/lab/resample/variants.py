"""Variants of a request made on disk: the edited request first, then what was changed, which makes it one.

The same edit under the same label is the same variant, so that asking again adds samples to it.
"""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from flightlog.agents.capture.sanitize import Scrubber
from flightlog.lab.layout import as_json
from flightlog.lab.resample import layout
from flightlog.lab.resample.requests import find_edits, load_recorded_body
from flightlog.lab.resample.samples import list_variants
from flightlog.lab.resample.state import BatchStore
from flightlog.lab.store import RunStore
from flightlog.model.errors import Invalid
from flightlog.model.text import one_line
from flightlog.store.files import replace_file, resolve_inside

_LABEL_CHARS_MAX = 80


class VariantLabel(Struct, frozen=True):
    """What a variant is called, where it comes from, and when it was made."""

    label: str
    source: str
    created_at: str


def make_variant(
    store: BatchStore, run: RunStore, of: tuple[str, int], edited: dict[str, Any], told: tuple[VariantLabel, Scrubber]
) -> int:
    """Make the variant of request `of` (its session's directory, its number), or find it; return its number."""
    session, request = of
    label, scrubber = told
    name = one_line(label.label, _LABEL_CHARS_MAX)
    if not name:
        raise Invalid("a variant needs a label", hint="give it one with --label")
    cleaned = json.loads(scrubber.clean_bytes(json.dumps(edited).encode()))
    edits = find_edits(load_recorded_body(run, session, request), cleaned)
    body = as_json(cleaned).encode()
    for variant in list_variants(run.path):
        if (variant.session, variant.request, variant.label) == (session, request, name) and _has_body(
            run.path / variant.path, body
        ):
            return variant.number
    number = store.next_variant(session, request)
    folder = layout.sample_dir(session, request, number)
    replace_file(resolve_inside(run.path, f"{folder}/{layout.REQUEST}"), body)
    said = {
        "label": name,
        "base_request_index": request,
        "edits": to_builtins(edits),
        "created_at": label.created_at,
        "source": label.source,
    }
    replace_file(resolve_inside(run.path, f"{folder}/{layout.VARIANT}"), as_json(said).encode())
    return number


def _has_body(path: Path, body: bytes) -> bool:
    try:
        return (path / layout.REQUEST).read_bytes() == body
    except OSError:
        return False
