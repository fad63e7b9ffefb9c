"""A session as one HTML file to share: redacted, self-contained, readable offline.

Every string of the decoded session is redacted before anything is shortened or rendered, and the
page is scanned again. Its Content-Security-Policy allows only its own script and style, by hash.
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


def render_share_page(
    document: Redacted[SessionDocument], redactor: Redactor, templates: Environment
) -> Redacted[str]:
    """Return the page of a redacted session; `redactor`, which knows its values, scans it again."""
    session = document.value.session
    outline = outline_session(session)
    rows, subagent_rows = _rows_of_each_subagent(session)
    removed = describe_redaction(document.secrets, document.personal)
    html = templates.get_template("share.html").render(
        session=session,
        summary=outline.summary,
        rows=rows,
        subagent_rows=subagent_rows,
        bars=outline.threads[""].sum_bars(),
        total=len(rows),
        position=0,
        removed=removed,
        subagent=None,
        whole=True,
        offline=True,
        spilled="",
        prefix="",
        files=[],
        **_inline_assets(),
    )
    page = rescan_page(document.map(lambda _: html), redactor, html=True)
    return replace(
        page, value=page.value.replace(removed, describe_redaction(page.secrets, page.personal), 1)
    )


def _rows_of_each_subagent(
    session: Session,
) -> tuple[list[TimelineRow], dict[str, list[TimelineRow]]]:
    """Return the rows of every thread. Each subagent appears once, even in a cycle of subagents."""
    seen: set[str] = set()
    subagent_rows: dict[str, list[TimelineRow]] = {}
    main = _drop_seen_subagents(build_rows(session), seen)
    pending = [subagent for row in main for subagent in row.subagents]
    orphans = (subagent for subagent in session.subagents if subagent.id not in seen)
    while subagent := pending.pop(0) if pending else next(orphans, None):
        if subagent.id not in seen:
            seen.add(subagent.id)
            note = Note(NoteKind.REMARK, "subagent whose call was not recorded")
            main.append(TimelineRow(f"x{len(seen)}", RowKind.NOTE, note, (subagent,)))
        subagent_rows[subagent.id] = _drop_seen_subagents(build_rows(session, subagent), seen)
        pending += [child for row in subagent_rows[subagent.id] for child in row.subagents]
    return main, subagent_rows


def _drop_seen_subagents(rows: list[TimelineRow], seen: set[str]) -> list[TimelineRow]:
    result = []
    for row in rows:
        unseen = tuple(subagent for subagent in row.subagents if subagent.id not in seen)
        seen.update(subagent.id for subagent in unseen)
        result.append(replace(row, subagents=unseen))
    return result


def _inline_assets() -> dict[str, Any]:
    style = "\n".join((STATIC / name).read_text("utf-8") for name in STYLES)
    script = (STATIC / SCRIPT).read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_csp_hash(script)}'; style-src '{_csp_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}  # noqa: S704 - our own files


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
