"""Triage: a draft made fit to be seen, by rules. A model may only sharpen what passed here.

Everything of a draft that goes on is redacted; its context and the words of conversations stay
behind. Error texts and traces stay, without homes, names and secrets.
"""

import re
from collections.abc import Sequence

from flightlog.privacy.redact import Redactor
from flightlog.retro.analysis.alike import overlap
from flightlog.retro.analysis.words import content_words
from flightlog.retro.digest import signature
from flightlog.retro.events import Complexity, Severity, Triaged
from flightlog.retro.issues.board import Issue

SAME = 0.6
TITLE_CHARS = 120
DESCRIPTION_CHARS = 4000
_FILE = re.compile(
    r"(?<![\w/])((?:[\w.-]+/)*[\w-]+\.(?:py|pyi|js|jsx|ts|tsx|go|rs|java|kt|rb|c|h|cc|cpp|cs|php|sh|sql|html|css|toml|ya?ml|json|md))\b"
)
_EXCERPT = re.compile(
    r"^\s*(?:>+|(?:user|human|assistant|you|me|prompt|claude|chatgpt)\s*:).*$", re.IGNORECASE | re.MULTILINE
)
_ERROR = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Warning|Failure|Timeout))\b")
_TAGS = (
    ("crash", re.compile(r"\b(?:crash|traceback|segfault|panic|abort)", re.IGNORECASE)),
    ("performance", re.compile(r"\b(?:slow|latency|hang|timeout|memory)", re.IGNORECASE)),
    ("data", re.compile(r"\b(?:corrupt|lost|schema|damaged|invalid)", re.IGNORECASE)),
    ("docs", re.compile(r"\b(?:docs?|documentation|readme|typo)\b", re.IGNORECASE)),
)
_SEVERE: tuple[tuple[Severity, re.Pattern[str]], ...] = (
    ("critical", re.compile(r"\b(?:data loss|corrupt|secret leaked|security hole|destroys?)", re.IGNORECASE)),
    ("high", re.compile(r"\b(?:crash|traceback|cannot start|blocked|regression)", re.IGNORECASE)),
    ("low", re.compile(r"\b(?:typo|cosmetic|wording|minor)", re.IGNORECASE)),
)


def triaged(issue: Issue, redactor: Redactor, now_ms: int) -> Triaged:
    """Return the public face of a draft."""
    title = redactor.text(" ".join(issue.title.split()))[:TITLE_CHARS]
    description = redactor.text(_EXCERPT.sub("", issue.description)).strip()[:DESCRIPTION_CHARS]
    text = f"{title}\n{description}"
    named = tuple(dict.fromkeys(_FILE.findall(text)))
    files = tuple(dict.fromkeys((*(redactor.text(path) for path in issue.affected_files), *named)))
    found = (name for name, pattern in _TAGS if pattern.search(text))
    errors = (error.lower() for error in _ERROR.findall(text))
    tags = tuple(dict.fromkeys((*(redactor.text(tag) for tag in issue.tags), *found, *errors)))
    severity = issue.severity or _severity(text)
    return Triaged(
        issue.id, title, description, _signature(text), now_ms, severity, _complexity(tags, files), tags, files
    )


def same_as(new: Triaged, known: Sequence[Issue]) -> Issue | None:
    """Return the issue that says what `new` says, the likest of those that do."""
    words = _words(new.title, new.description)
    best: tuple[float, str, Issue] | None = None
    for issue in known:
        if issue.id == new.issue or not issue.signature:
            continue
        alike = overlap(words, _words(issue.title, issue.description))
        failing = (
            bool(new.signature) and new.signature == issue.signature and _ERROR.search(new.description) is not None
        )
        score = 1.0 if failing else alike
        if score >= SAME and (best is None or (score, issue.id) > best[:2]):
            best = (score, issue.id, issue)
    return best[2] if best else None


def _words(title: str, description: str) -> frozenset[str]:
    return frozenset(content_words(f"{title} {description[:600]}"))


def _signature(text: str) -> str:
    return signature(text) or " ".join(sorted(content_words(text))[:12])


def _severity(text: str) -> Severity:
    return next((name for name, pattern in _SEVERE if pattern.search(text)), "medium")


def _complexity(tags: Sequence[str], files: Sequence[str]) -> Complexity:
    """Guess from what is touched: words only, one file, a few, many."""
    if "docs" in tags:
        return "trivial"
    return "small" if len(files) == 1 else "medium" if len(files) <= 3 else "large"
