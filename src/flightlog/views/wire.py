"""Views as JSON and as files for people: one schema for command line, page and tests."""

import msgspec

from flightlog.model.session import Session
from flightlog.views.story import Telling, story
from flightlog.views.story_forms import as_html, as_markdown


def exported(session: Session, form: str, telling: Telling) -> str:
    """Write a whole session as `md`, `html` or `json`."""
    match form:
        case "md":
            return as_markdown(story(session, telling))
        case "html":
            return as_html(story(session, telling))
        case _:
            return msgspec.json.format(msgspec.json.encode(session), indent=2).decode() + "\n"
