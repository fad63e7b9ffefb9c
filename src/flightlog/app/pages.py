"""What the pages need of this machine: a path that cannot be guessed, and a way to open a browser.

The token never stands in an argument list, which everybody on the machine can read: a browser
is given a private file that leads to the address.
"""

import re
import secrets
import webbrowser
from html import escape
from pathlib import Path

from flightlog.model.runtime import Runtime
from flightlog.store import files
from flightlog.store.migration import ensure_writable

_NAME = re.compile(r"[0-9a-f]{32}")  # 128 random bits
_LEAD = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}"><title>flightlog</title>\n'


def web_root(runtime: Runtime) -> str:
    """Return the path below which the pages of this home live; make it at the first call.

    It is kept, so that links stay valid. A browser sends cookies to every port of a host, but only
    to paths below the cookie's own: another server on this machine does not know this one.
    """
    path = Path(runtime.data_dir) / "web" / "root"
    try:
        name = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if not _NAME.fullmatch(name) or path.stat().st_mode & 0o077:
        ensure_writable(Path(runtime.data_dir))
        name = secrets.token_hex(16)
        files.replace_file(path, name.encode() + b"\n", durable=False)
    return f"/{name}"


def open_browser(runtime: Runtime, address: str) -> bool:
    """Show `address` in the person's browser; say whether there is one."""
    lead = Path(runtime.data_dir) / "web" / "open.html"
    files.replace_file(lead, _LEAD.format(escape(address)).encode(), durable=False)
    return webbrowser.open(Path(lead).as_uri())
