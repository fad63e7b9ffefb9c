"""What a person types to search, read into what to look for.

Words and "phrases" must all be there; `-word` must not; `word*` is the beginning of a word.
`tool: model: file: project: since: cost:` narrow it down. Knows nothing of the index but the
syntax of its full-text expressions, and nothing of the clock: how to read a time is passed in.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from flightlog.model.errors import Invalid

_PART = re.compile(r'(?P<minus>-?)(?:(?P<key>[A-Za-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')
_COST = re.compile(r"(?P<sign>>=|<=|>|<|)\$?(?P<usd>\d+(?:\.\d+)?)")
_INDEXED = {"tool": "tool", "model": "model", "file": "file"}
_HINT = 'flightlog session search "retry loop" tool:Bash since:7d cost:>1'


class SearchQuery(Struct, frozen=True):
    """What to look for; `words` are what to mark in a hit."""

    match: str = ""
    words: tuple[str, ...] = ()
    project: str = ""
    since_ms: int = 0
    cost_from: float | None = None
    cost_to: float | None = None

    def matches_cost(self, usd: float | None) -> bool:
        """Say whether a session that costs `usd` is wanted; one of unknown cost is not, if a cost is asked for."""
        if self.cost_from is None and self.cost_to is None:
            return True
        return usd is not None and (self.cost_from or 0.0) <= usd <= (self.cost_to if self.cost_to is not None else usd)


def parse_query(typed: str, read_time: Callable[[str], int]) -> SearchQuery:
    """Read a query; what cannot be read is refused with an example."""
    wanted: list[str] = []
    unwanted: list[str] = []
    words: list[str] = []
    rest: dict[str, str] = {}
    # A NUL byte would end the expression for SQLite.
    for part in _PART.finditer(typed.replace("\0", " ")):
        said = part["phrase"] if part["phrase"] is not None else part["word"]
        key = (part["key"] or "").lower()
        if key in ("project", "since", "cost"):
            rest[key] = said
            continue
        column = _INDEXED.get(key, "")
        if part["key"] and not column:
            said = f"{part['key']}:{said}"
        expression = _index_expression(said, column)
        if expression:
            (unwanted if part["minus"] else wanted).append(expression)
            words += [] if part["minus"] or column else [said.removesuffix("*")]
    if not wanted and (unwanted or not rest):
        raise Invalid("nothing to search for", hint=_HINT)
    match = " AND ".join(wanted) + "".join(f" NOT {each}" for each in unwanted)
    low, high = _parse_cost(rest["cost"]) if "cost" in rest else (None, None)
    since_ms = read_time(rest["since"]) if "since" in rest else 0
    return SearchQuery(match, tuple(words), rest.get("project", ""), since_ms, low, high)


def cut_snippet(text: str, words: tuple[str, ...], width: int = 160) -> str:
    """Cut the passage of `text` around the first of `words`, on one line."""
    low = text.lower()
    places = [at for word in words if (at := low.find(word.lower())) >= 0]
    at = min(places, default=0)
    start = max(0, at - width // 3)
    cut = " ".join(text[start : start + width].split())
    return ("…" if start else "") + cut + ("…" if start + width < len(text) else "")


def _index_expression(said: str, column: str) -> str:
    """Write one word or phrase in the index's own syntax; punctuation alone finds nothing."""
    if not re.search(r"\w", said):
        return ""
    star = " *" if said.endswith("*") else ""
    quoted = '"' + said.removesuffix("*").replace('"', '""') + '"' + star
    return f"({column or '{said output}'} : {quoted})"


def _parse_cost(said: str) -> tuple[float | None, float | None]:
    match = _COST.fullmatch(said)
    if match is None:
        raise Invalid(f"not an amount: {said[:40]!r}", hint="write cost:>1.50 or cost:<0.1, in USD")
    usd = float(match["usd"])
    return (None, usd) if match["sign"].startswith("<") else (usd, None)
