"""Views as JSON and as files for people: one schema for command line, page and tests."""

import json
import re
from typing import Any

import msgspec

from flightlog.model.session import Session
from flightlog.model.text import UNSAFE
from flightlog.views.story import Telling, story
from flightlog.views.story_forms import as_html, as_markdown

_LONE = re.compile(rb"\\ud[89a-f][0-9a-f]{2}")


def exported(session: Session, form: str, telling: Telling) -> str:
    """Write a whole session as `md`, `html` or `json`."""
    match form:
        case "md":
            return as_markdown(story(session, telling))
        case "html":
            return as_html(story(session, telling))
        case _:
            return as_json(session) + "\n"


def as_json(value: Any) -> str:
    """Write JSON that can be read anywhere and shown on a terminal: what could act there is escaped."""
    return _shown(msgspec.json.format(_encoded(value), indent=2))


def as_json_line(value: Any) -> str:
    """Write the same on one line."""
    return _shown(_encoded(value))


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file name that is not text; everything else was made text when it was decoded.
        return _LONE.sub(rb"\\ufffd", json.dumps(msgspec.to_builtins(value)).encode())


def _shown(body: bytes) -> str:
    return UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", body.decode())
