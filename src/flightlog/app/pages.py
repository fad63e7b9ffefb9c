"""What the pages need of this machine: a token only its person can read, and a way to open a browser.

The token never stands in an argument list, which everybody on the machine can read: a browser
is given a private file that leads to the address.
"""

import os
import secrets
import webbrowser
from html import escape
from pathlib import Path

from flightlog.app.paths import SAMPLES, claude_config_dirs, home
from flightlog.store import files

_CHARS_MIN = 32
_LEAD = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}"><title>flightlog</title>\n'


def web_token() -> str:
    """Read the token of this person's pages, or make it."""
    path = home(os.environ) / "web" / "token"
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if len(token) < _CHARS_MIN or path.stat().st_mode & 0o077:
        token = secrets.token_urlsafe(32)
        files.replace(path, token.encode() + b"\n", durable=False)
    return token


def open_browser(address: str) -> bool:
    """Show `address` in the person's browser; say whether there is one."""
    lead = home(os.environ) / "web" / "open.html"
    files.replace(lead, _LEAD.format(escape(address)).encode(), durable=False)
    return webbrowser.open(Path(lead).as_uri())


def reads_samples() -> bool:
    """Whether the recordings are those that ship with the package."""
    return claude_config_dirs(os.environ) == [SAMPLES]
