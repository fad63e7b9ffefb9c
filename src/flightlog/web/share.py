"""A session as one file to give away: redacted, self-contained, readable offline.

Every string is redacted in the decoded session, before anything is cut or drawn, and the page is
searched again. The page's own script and style are named by hash in its policy, so nothing else in
it can run or load.
"""

import base64
import hashlib
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from msgspec.structs import replace

from flightlog.archive.sharing import SessionDocument, rescan_page
from flightlog.model.output_files import Redacted
from flightlog.model.session import Note, NoteKind, Session
from flightlog.model.text import describe_redaction
from flightlog.privacy.redactor import Redactor
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import RowKind, TimelineRow, build_rows
from flightlog.web.templates import STATIC

STYLES = ("base.css", "timeline.css", "share.css")
SCRIPT = "share.js"


def render_share_page(document: Redacted[SessionDocument], cleaner: Redactor, templates: Environment) -> Redacted[str]:
    """Return the page of a redacted session. It is searched again by `cleaner`, which knows the session's values."""
    session = document.value.session
    outline = outline_session(session)
    laid, inner = _rows_of_each_subagent(session)
    removed = describe_redaction(document.secrets, document.personal)
    html = templates.get_template("share.html").render(
        session=session,
        told=outline.summary,
        rows=laid,
        lane_rows=inner,
        bars=outline.threads[""].sum_bars(),
        total=len(laid),
        position=0,
        removed=removed,
        lane=None,
        whole=True,
        offline=True,
        spilled="",
        prefix="",
        files=[],
        **_inline_assets(),
    )
    page = rescan_page(document.map(lambda _: html), cleaner, html=True)
    return replace(page, value=page.value.replace(removed, describe_redaction(page.secrets, page.personal), 1))


def _rows_of_each_subagent(session: Session) -> tuple[list[TimelineRow], dict[str, list[TimelineRow]]]:
    """Lay out every thread so that each subagent stands in one place, even one that claims to have started itself."""
    told: set[str] = set()
    inner: dict[str, list[TimelineRow]] = {}
    main = _drop_seen_subagents(build_rows(session), told)
    waiting = [lane for row in main for lane in row.lanes]
    lost = (lane for lane in session.lanes if lane.id not in told)
    while lane := waiting.pop(0) if waiting else next(lost, None):
        if lane.id not in told:
            told.add(lane.id)
            note = Note(NoteKind.REMARK, "subagent whose call is not on record here")
            main.append(TimelineRow(f"x{len(told)}", RowKind.NOTE, note, (lane,)))
        inner[lane.id] = _drop_seen_subagents(build_rows(session, lane), told)
        waiting += [each for row in inner[lane.id] for each in row.lanes]
    return main, inner


def _drop_seen_subagents(laid: list[TimelineRow], told: set[str]) -> list[TimelineRow]:
    kept = []
    for row in laid:
        fresh = tuple(lane for lane in row.lanes if lane.id not in told)
        told.update(lane.id for lane in fresh)
        kept.append(replace(row, lanes=fresh))
    return kept


def _inline_assets() -> dict[str, Any]:
    style = "\n".join((STATIC / name).read_text("utf-8") for name in STYLES)
    script = (STATIC / SCRIPT).read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_csp_hash(script)}'; style-src '{_csp_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}  # noqa: S704 - files of our own


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
