"""Values known to be secret: the strongest layer, which needs no pattern.

The values of environment variables whose names look secret, the contents of `.env` files
and the proxy's key are searched as they are and as JSON, addresses and base64 write them.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

import re2
import stringzilla

from flightlog.privacy.detect.hits import HIGH, LATIN, Hit

VALUE_CHARS_MIN = 6
_SECRET_NAME = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|session|cookie|private|dsn|salt|webhook|signature", re.IGNORECASE
)
_HARMLESS = frozenset(("true", "false", "none", "null", "localhost", "production", "development", "default"))
_RULE = "known-value"


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names look secret."""
    return frozenset(
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and _usable(value) and not value.startswith(("/", "~/", "./"))
    )


def dotenv_values(text: str) -> frozenset[str]:
    """Return the values of a `.env` file that could be secret: all but words, numbers and paths."""
    pairs = {}
    for line in text.splitlines():
        name, mark, value = line.strip().removeprefix("export ").partition("=")
        if mark and not name.startswith("#"):
            pairs[name.strip()] = value.strip().strip("\"'")
    plain = {value for name, value in pairs.items() if _usable(value) and not re.fullmatch(r"[\w./:-]*", value)}
    return secret_values(pairs) | frozenset(value for value in plain if any(c.isdigit() for c in value))


class Known:
    """The known values of one run, ready to be searched."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Keep each value of six characters or more, with the ways it may be written."""
        self._values = {way: value for value in values if _usable(value) for way in _ways(value)}
        ordered = sorted(self._values, key=len, reverse=True)
        self.pattern = re2.compile(b"|".join(map(_literal, ordered)), LATIN) if ordered else None
        # What holds another way holds that one: the shortest say whether there is any.
        self._least = [way for way in ordered if not any(each in way for each in ordered if each != way)]

    def __bool__(self) -> bool:
        """Say whether there is anything to look for."""
        return self.pattern is not None

    def is_in(self, data: bytes) -> bool:
        """Say whether a known value stands in `data`: several times faster than the pattern."""
        return any(stringzilla.find(data, way) >= 0 for way in self._least)

    def find(self, view: bytes) -> Iterator[Hit]:
        """Yield each place where a known value stands."""
        if self.pattern is None:
            return
        for found in self.pattern.finditer(view):
            value = self._values[found.group()].encode("utf-8", "surrogatepass")
            yield Hit(found.start(), found.end(), _RULE, value, HIGH + 1)


def _usable(value: str) -> bool:
    return len(value) >= VALUE_CHARS_MIN and value.lower() not in _HARMLESS and not value.isspace()


def _literal(way: bytes) -> bytes:
    return b"".join(
        b"\\x%02x" % byte if not (48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122) else bytes((byte,))
        for byte in way
    )


def _ways(value: str) -> set[bytes]:
    once = json.dumps(value, ensure_ascii=False)[1:-1]
    twice = json.dumps(once, ensure_ascii=False)[1:-1]
    texts = {value, once, twice, json.dumps(value)[1:-1], quote(value, safe=""), quote(value), quote_plus(value)}
    ways = {text.encode("utf-8", "surrogatepass") for text in texts}
    return ways | _base64_cores(value.encode("utf-8", "surrogatepass"))


def _base64_cores(value: bytes) -> set[bytes]:
    """Return the part of the base64 text that does not depend on what stands around, at each alignment."""
    cores = set()
    for lead in range(3):
        whole = base64.b64encode(b"\0" * lead + value)
        first = (0, 2, 3)[lead]
        last = len(whole) - (0, 4, 4)[(lead + len(value)) % 3]
        core = whole[first:last]
        if len(core) >= 8:
            cores |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return cores
