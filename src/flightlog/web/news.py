"""What an open page is sent when a session grew: the rows that changed, drawn once for everybody."""

import json
from collections.abc import Callable

from jinja2 import Environment

from flightlog.model.session import Session
from flightlog.views.summary import summarise
from flightlog.views.timeline import Row, strip
from flightlog.web.held import Held
from flightlog.web.pages.session import CHUNK_ROWS, files_changed
from flightlog.web.render import row_print

ROWS_MAX = 400
WELCOME_CHUNKS = 2


def news(templates: Environment) -> Callable[[Held | None, Held], bytes]:
    """Make the function that says what changed between two states."""

    def make(old: Held | None, new: Held) -> bytes:
        before = {row.id: row for row in old.rows()} if old else {}
        laid = new.rows()
        changed = [place for place, row in enumerate(laid) if before.get(row.id) != row]
        changed = [place for place in changed if old is not None or place >= _tail(len(laid))][-ROWS_MAX:]
        full = dict(zip(changed, new.full([laid[place] for place in changed]), strict=True))
        touched = sorted({place // CHUNK_ROWS for place in changed})
        told = {
            "total": len(laid),
            "size": CHUNK_ROWS,
            "chunks": [_chunk(number, laid) for number in touched],
            "rows": {row.id: _drawn(templates, new.session, row) for row in full.values()},
            "facts": _facts(templates, new),
            "strip": _strip(templates, laid),
        }
        return b"event: news\ndata: " + json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"

    return make


def _tail(total: int) -> int:
    """Where the chunks begin that a page gets when it joins."""
    return max((max(total - 1, 0) // CHUNK_ROWS - WELCOME_CHUNKS + 1) * CHUNK_ROWS, 0)


def _chunk(number: int, laid: list[Row]) -> dict[str, object]:
    part = laid[number * CHUNK_ROWS : (number + 1) * CHUNK_ROWS]
    return {"number": number, "ids": [row.id for row in part]}


def _drawn(templates: Environment, session: Session, row: Row) -> dict[str, str]:
    values = {"session": session, "lane": None, "whole": False, "spilled": "", "offline": False, "prefix": ""}
    return {"print": row_print(row), "html": templates.get_template("row.html").render(row=row, **values)}


def _facts(templates: Environment, held: Held) -> str:
    values = {"session": held.session, "told": summarise(held.session), "files": files_changed(held.rows())}
    return templates.get_template("facts.html").render(**values)


def _strip(templates: Environment, laid: list[Row]) -> str:
    place = max(len(laid) - 1, 0)
    return templates.get_template("strip.html").render(bars=strip(laid), total=len(laid), position=place)
