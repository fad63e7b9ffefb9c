"""What an open page is sent when a session grew: the rows that changed, drawn once for everybody."""

import json
from collections.abc import Callable
from itertools import zip_longest

from jinja2 import Environment

from flightlog.views.session.outline import CHUNK_ROWS, unpack_records
from flightlog.web.held import Held, Shown
from flightlog.web.render import row_print

CHUNKS_MAX = 20
WELCOME_CHUNKS = 2


def news(templates: Environment) -> Callable[[Held | None, Held], bytes]:
    """Make the function that says what changed between two states."""

    def make(old: Held | None, new: Held) -> bytes:
        rows = _changed(old, new) if old else _last(new)
        touched = sorted({row // CHUNK_ROWS for row in rows})
        told = {
            "total": new.thread().total,
            "size": CHUNK_ROWS,
            "chunks": [_chunk(number, new) for number in touched],
            "rows": {row.id: _drawn(templates, new, row) for row in new.shown(rows)},
            "facts": _facts(templates, new),
            "strip": _strip(templates, new),
        }
        return b"event: news\ndata: " + json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"

    return make


def _last(new: Held) -> list[int]:
    """The rows that a page gets when it joins."""
    total = new.thread().total
    first = max((max(total - 1, 0) // CHUNK_ROWS - WELCOME_CHUNKS + 1) * CHUNK_ROWS, 0)
    return list(range(first, total))


def _changed(old: Held, new: Held) -> list[int]:
    """The rows that differ; chunks that were not touched are not opened."""
    pairs = list(zip_longest(old.thread().chunks, new.thread().chunks, fillvalue=b"\x90"))
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
        changed += _with_lanes(new)
    return sorted(set(changed))


def _with_lanes(new: Held) -> list[int]:
    """Rows near the end that show a subagent, which may have moved on."""
    rows = _last(new)
    return [row for row, shown in zip(rows, new.shown(rows), strict=True) if shown.lanes]


def _chunk(number: int, new: Held) -> dict[str, object]:
    thread = new.thread()
    rows = range(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, thread.total))
    return {"number": number, "ids": [thread.id_at(row) for row in rows]}


def _drawn(templates: Environment, held: Held, row: Shown) -> dict[str, str]:
    values = {"session": held.session, "lane": None, "whole": False, "spilled": "", "offline": False, "prefix": ""}
    return {"print": row_print(row), "html": templates.get_template("row.html").render(row=row, **values)}


def _facts(templates: Environment, held: Held) -> str:
    values = {"session": held.session, "told": held.outline.summary, "files": held.files()}
    return templates.get_template("facts.html").render(**values)


def _strip(templates: Environment, held: Held) -> str:
    total = held.thread().total
    return templates.get_template("strip.html").render(bars=held.bars(), total=total, position=max(total - 1, 0))
