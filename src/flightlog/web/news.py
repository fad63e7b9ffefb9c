"""What an open page is sent when a session grew: the rows that changed, drawn once for everybody."""

import json
from collections.abc import Callable
from itertools import zip_longest

from jinja2 import Environment

from flightlog.views.session.outline import CHUNK_ROWS, unpack_records
from flightlog.web.held import PageRow, SessionPage
from flightlog.web.render import row_fingerprint

CHUNKS_MAX = 20
WELCOME_CHUNKS = 2


def render_changes(templates: Environment) -> Callable[[SessionPage | None, SessionPage], bytes]:
    """Make the function that says what changed between two states."""

    def make(old: SessionPage | None, new: SessionPage) -> bytes:
        rows = _changed_rows(old, new) if old else _welcome_rows(new)
        touched = sorted({row // CHUNK_ROWS for row in rows})
        told = {
            "total": new.thread_of().total,
            "size": CHUNK_ROWS,
            "chunks": [_chunk_row_ids(number, new) for number in touched],
            "rows": {row.id: _render_row(templates, new, row) for row in new.load_rows(rows)},
            "facts": _render_facts(templates, new),
            "strip": _render_strip(templates, new),
        }
        return b"event: news\ndata: " + json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"

    return make


def _welcome_rows(new: SessionPage) -> list[int]:
    """The rows that a page gets when it joins."""
    total = new.thread_of().total
    first = max((max(total - 1, 0) // CHUNK_ROWS - WELCOME_CHUNKS + 1) * CHUNK_ROWS, 0)
    return list(range(first, total))


def _changed_rows(old: SessionPage, new: SessionPage) -> list[int]:
    """The rows that differ; chunks that were not touched are not opened."""
    pairs = list(zip_longest(old.thread_of().chunks, new.thread_of().chunks, fillvalue=b"\x90"))
    touched = [number for number, (before, after) in enumerate(pairs) if before is not after and before != after]
    changed = []
    for number in touched[-CHUNKS_MAX:]:
        before, after = (unpack_records(chunk) for chunk in pairs[number])
        changed += [
            number * CHUNK_ROWS + place
            for place, line in enumerate(after)
            if place >= len(before) or before[place] != line
        ]
    if old.outline.subagents != new.outline.subagents:
        changed += _rows_with_subagents(new)
    return sorted(set(changed))


def _rows_with_subagents(new: SessionPage) -> list[int]:
    """Rows near the end that show a subagent, which may have moved on."""
    rows = _welcome_rows(new)
    return [row for row, shown in zip(rows, new.load_rows(rows), strict=True) if shown.lanes]


def _chunk_row_ids(number: int, new: SessionPage) -> dict[str, object]:
    thread = new.thread_of()
    rows = range(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, thread.total))
    return {"number": number, "ids": [thread.id_at(row) for row in rows]}


def _render_row(templates: Environment, held: SessionPage, row: PageRow) -> dict[str, str]:
    values = {"session": held.session, "lane": None, "whole": False, "spilled": "", "offline": False, "prefix": ""}
    return {"print": row_fingerprint(row), "html": templates.get_template("row.html").render(row=row, **values)}


def _render_facts(templates: Environment, held: SessionPage) -> str:
    values = {"session": held.session, "told": held.outline.summary, "files": held.changed_files()}
    return templates.get_template("facts.html").render(**values)


def _render_strip(templates: Environment, held: SessionPage) -> str:
    total = held.thread_of().total
    return templates.get_template("strip.html").render(
        bars=held.timeline_bars(), total=total, position=max(total - 1, 0)
    )
