"""A whole session as a file for people or programs."""

from msgspec.structs import replace

from flightlog.model.session import Session
from flightlog.views.story import RenderOptions, render_session
from flightlog.views.story_forms import as_html, as_markdown
from flightlog.views.wire import as_json


def export_session(session: Session, form: str, telling: RenderOptions) -> str:
    """Write a whole session as `md`, `html` or `json`."""
    match form:
        case "md":
            return as_markdown(render_session(session, telling))
        case "html":
            return as_html(render_session(session, telling))
        case _:
            return as_json(replace(session, title=session.heading)) + "\n"
