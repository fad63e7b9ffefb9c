"""A session as one HTML file, self-contained and readable offline: to share, or to keep.

For a page to share, every string of the decoded session is redacted before anything is rendered,
and the page is scanned again. A page to keep is complete. Their Content-Security-Policy allows only
their own script and style, by hash.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from flightlog.analysis.findings.rank import find_findings
from flightlog.archive.sharing import SessionDocument, rescan_page
from flightlog.model.output_files import Redacted
from flightlog.model.session import Note, NoteKind, Session
from flightlog.model.text import describe_redaction
from flightlog.model.usage import row_fields
from flightlog.privacy.redactor import Redactor
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import RowKind, TimelineRow, build_rows
from flightlog.web.templates import BASE64, IMAGE_CHARS_MAX, STATIC

STYLES = ("base.css", "timeline.css", "share.css")
SCRIPT = "share.js"
PART_ROWS = 250  # a page of 5,000 steps is then a third as long, and opens as fast as a short one
_PART_MARK, _END_MARK, _PACKED_MARK = "<!--part-->", "<!--end-->", "<!--packed-->"
# An attribute that we wrote: in any text of the session the quotation mark is escaped.
_PICTURE = re.compile(r';base64,picture(\d{1,6})"')


def render_share_page(
    document: Redacted[SessionDocument],
    redactor: Redactor,
    templates: Environment,
    pictures: Sequence[str] = (),
) -> Redacted[str]:
    """Return the page of a redacted session; `redactor`, which knows its values, scans it again.

    `pictures` are those that were taken out of it; they are put back unchecked.
    """
    removed = describe_redaction(document.secrets, document.personal)
    html = _render_page(document.value, templates, PageNotice(removed, "", len(pictures)))
    page = rescan_page(document.map(lambda _: html), redactor, html=True)
    text = page.value.replace(removed, describe_redaction(page.secrets, page.personal), 1)
    text = _PICTURE.sub(lambda match: _picture(match, pictures), text)
    return replace(page, value=_pack_parts(text))


def render_export_page(document: SessionDocument, templates: Environment) -> str:
    """Return the page of a whole session; nothing is removed."""
    notice = PageNotice("", document.session.id[:8], 0)
    return _pack_parts(_render_page(document, templates, notice))


class PageNotice(Struct, frozen=True):
    """What the page says at its top: what was removed, or that it is the complete session."""

    removed: str
    complete: str
    pictures: int


def _render_page(document: SessionDocument, templates: Environment, notice: PageNotice) -> str:
    session = document.session
    usage = document.own_usage
    outline = outline_session(session)
    rows, subagent_rows = _rows_of_each_subagent(session)
    return templates.get_template("share.html").render(
        session=session,
        with_copies=outline.summary.usage,
        summary=replace(outline.summary, **row_fields(usage) if usage else {}),
        rows=rows,
        subagent_rows=subagent_rows,
        bars=outline.threads[""].sum_bars(),
        kinds=outline.threads[""].count_kinds(),
        part_rows=PART_ROWS,
        total=len(rows),
        position=0,
        notice=notice,
        findings=find_findings(session),
        outputs=document.outputs,
        subagent=None,
        whole=True,
        offline=True,
        spilled="",
        prefix="",
        files=[],
        **_inline_assets(),
    )


def _pack_parts(html: str) -> str:
    """Return a page whose later rows are compressed; its script unpacks them after the first ones.

    The marks are comments, which no text of a session can contain: it is escaped.
    """
    rows, _, end = html.partition(_END_MARK)
    first, *parts = rows.split(_PART_MARK)
    packed = (
        base64.b64encode(gzip.compress(part.encode("utf-8", "replace"), mtime=0)).decode()
        for part in parts
    )
    scripts = "".join(f'<script type="text/plain" class="part">{text}</script>' for text in packed)
    return first + end.replace(_PACKED_MARK, scripts, 1)


def _picture(match: re.Match[str], pictures: Sequence[str]) -> str:
    """Return the data of a picture; its text is foreign, and has to be base64 and nothing else."""
    number = int(match[1])
    data = pictures[number] if number < len(pictures) else ""
    is_sound = len(data) <= IMAGE_CHARS_MAX and BASE64.fullmatch(data)
    return f';base64,{data}"' if is_sound else match[0]


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
