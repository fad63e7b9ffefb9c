"""Names that come from outside and end up in paths, addresses and screens.

Knows nothing of files: it only says which names are safe to use.
"""

import re

from flightlog.model.errors import Invalid

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


def is_safe(name: str) -> bool:
    """Say whether `name` can be a file name and a word on the command line."""
    return _SAFE.fullmatch(name) is not None


def check_id(name: str) -> str:
    """Return `name`, or refuse it: no separators, no control characters, at most 128 characters."""
    if not is_safe(name):
        raise Invalid(
            f"not a usable id: {name[:60]!r}",
            hint="an id is letters, digits, '.', '_' and '-'; see them: flightlog session list",
        )
    return name
