"""A session as one file to give away: redacted, self-contained, readable offline.

Every string is redacted in the decoded session, before anything is cut or drawn; pictures are
left out, since nobody can read them for secrets. The page's own script and style are named by
hash in its policy, so nothing else in it can run or load.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec
from jinja2 import Environment
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.session import Note, NoteKind, Session
from flightlog.views.summary import summarise
from flightlog.views.timeline import Row, RowKind, rows, strip
from flightlog.web.render import STATIC

STYLES = ("base.css", "timeline.css", "share.css")
SCRIPT = "share.js"
_TAG = re.compile(r"<([a-z]+):[a-z0-9-]+:[0-9a-f]{4,}>")
Redact = Callable[[Any], Any]


class Shared(Struct, frozen=True):
    """The file's text, and how many private values were taken out of it."""

    html: str
    removed: int


def share(session: Session, redact: Redact, templates: Environment) -> Shared:
    """Draw `session` for somebody else; `redact` takes what is private out of a JSON value."""
    plain = _without_pictures(msgspec.to_builtins(session))
    told = redact(plain)
    removed = _tags(told) - _tags(plain)
    clean = msgspec.convert(told, Session)
    laid, inner = _each_lane_once(clean)
    html = templates.get_template("share.html").render(
        session=clean,
        told=summarise(clean),
        rows=laid,
        lane_rows=inner,
        bars=strip(laid),
        total=len(laid),
        position=0,
        removed=removed,
        lane=None,
        whole=True,
        offline=True,
        spilled="",
        prefix="",
        files=[],
        **_own_parts(),
    )
    return Shared(html, removed)


def _each_lane_once(session: Session) -> tuple[list[Row], dict[str, list[Row]]]:
    """Lay out every thread so that each subagent stands in one place, even one that claims to have started itself."""
    told: set[str] = set()
    inner: dict[str, list[Row]] = {}
    main = _first_told(rows(session), told)
    waiting = [lane for row in main for lane in row.lanes]
    lost = (lane for lane in session.lanes if lane.id not in told)
    while lane := waiting.pop(0) if waiting else next(lost, None):
        if lane.id not in told:
            told.add(lane.id)
            note = Note(NoteKind.REMARK, "subagent whose call is not on record here")
            main.append(Row(f"x{len(told)}", RowKind.NOTE, note, (lane,)))
        inner[lane.id] = _first_told(rows(session, lane), told)
        waiting += [each for row in inner[lane.id] for each in row.lanes]
    return main, inner


def _first_told(laid: list[Row], told: set[str]) -> list[Row]:
    kept = []
    for row in laid:
        fresh = tuple(lane for lane in row.lanes if lane.id not in told)
        told.update(lane.id for lane in fresh)
        kept.append(replace(row, lanes=fresh))
    return kept


def _own_parts() -> dict[str, Any]:
    style = "\n".join((STATIC / name).read_text("utf-8") for name in STYLES)
    script = (STATIC / SCRIPT).read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}  # noqa: S704 - files of our own


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _without_pictures(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_pictures(each) for key, each in value.items()}
        return kept | {"data": ""} if value.get("type") in {"image", "base64"} and "data" in kept else kept
    return [_without_pictures(each) for each in value] if isinstance(value, list | tuple) else value


def _tags(value: Any) -> int:
    if isinstance(value, str):
        return len(_TAG.findall(value))
    if isinstance(value, dict):
        return sum(_tags(key) + _tags(each) for key, each in value.items())
    return sum(map(_tags, value)) if isinstance(value, list | tuple) else 0
