"""Drafts and triage: from a raw report to an issue that may be public.

Ids are derived from the report and its time, so that the same incident drafted twice is one
draft.

Everything that leaves a draft is redacted. Its context, quotations, transcripts of conversations,
intranet addresses, e-mail addresses and known names are removed by rules, without guessing. Error
texts and traces stay.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.analysis.findings.failures import error_signature
from flightlog.model.errors import UNREADABLE, Incident, Invalid
from flightlog.model.output_files import Redacted
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.retro.analysis.similarity import content_words, word_overlap
from flightlog.retro.events import Complexity, IssueDrafted, IssueTriaged, Severity
from flightlog.retro.issues.board import Issue
from flightlog.retro.state import Pattern

DRAFT_NAME = re.compile(r"draft_\d{8}_\d{6}_([0-9a-f]{6,12})\.json")
FINDING, INCIDENT = "finding", "incident"
_GENERATED = frozenset({FINDING, INCIDENT})
_CRITICAL = frozenset({"corrupt state", "secret"})
_WORTH = frozenset({"friction", "failure again"})  # kinds of findings that a person can act on
SAME = 0.6  # word overlap from which two reports are one problem
TITLE_CHARS = 120  # a title fits on a line
DESCRIPTION_CHARS = 4000  # bounds the public file
# A whole path: a match from the middle of a directory name put unrelated files into one cluster.
_FILE = re.compile(
    r"(?<![\w./~\\-])((?:~|\.{1,2})?/?(?:[\w.@+-]+/)*[\w.@+-]*[\w-]"
    r"\.(?:py|pyi|js|jsx|ts|tsx|go|rs|java|kt|rb|c|h|cc|cpp|cs|php|sh|sql|html|css|toml|ya?ml|json|md))\b(?!\.\w)"
)
_ERROR = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Warning|Failure|Timeout))\b")
_TAGS = (
    ("crash", re.compile(r"\b(?:crash|traceback|segfault|panic|abort)", re.IGNORECASE)),
    ("performance", re.compile(r"\b(?:slow|latency|hang|timeout|memory)", re.IGNORECASE)),
    ("data", re.compile(r"\b(?:corrupt|lost|schema|damaged|invalid)", re.IGNORECASE)),
    ("docs", re.compile(r"\b(?:docs?|documentation|readme|typo)\b", re.IGNORECASE)),
)
_SEVERE: tuple[tuple[Severity, re.Pattern[str]], ...] = (
    ("critical", re.compile(r"(?i)\b(?:data loss|corrupt|secret leaked|security hole|destroys?)")),
    ("high", re.compile(r"(?i)\b(?:crash|traceback|cannot start|blocked|regression)")),
    ("low", re.compile(r"(?i)\b(?:typo|cosmetic|wording|minor)")),
)
QUOTE, ADDRESS, EMAIL, NAME = "<quoted conversation>", "<intranet address>", "<email>", "<name>"
_MARKS = (QUOTE, ADDRESS, EMAIL, NAME)
# RFC 2606. Compared by labels, so that `myexample.com` is not `example.com`.
_RESERVED = frozenset(
    {"test", "example", "invalid", "localhost", "example.com", "example.net", "example.org"}
)
_INSIDE = frozenset(
    {"corp", "home", "internal", "intranet", "lan", "local", "localdomain", "private", "vpn"}
)
# Common generic domains. Two letters are a country; any other last label counts as an intranet's.
_PUBLIC = re.compile(
    r"[a-z]{2}|xn--.*|app|biz|blog|cloud|com|dev|edu|gov|info|int|mil|name|net|online|org|page|pro|shop|site"
    r"|software|store|systems|tech|tools|wiki|world|xyz"
)
# Default accounts of machines and images, which name no person.
_ACCOUNTS = frozenset(
    {"admin", "app", "build", "claude", "codespace", "dev", "git", "localhost", "node", "root", "runner", "test",
     "ubuntu", "user", "vscode"}
)  # fmt: skip


class DraftFile(Struct, frozen=True):
    """A draft as stored in `issue-drafts/`; unknown fields are ignored."""

    id: str
    title: str
    description: str = ""
    category: str = "bug"
    severity: Severity | None = None
    tags: tuple[str, ...] = ()
    affected_files: tuple[str, ...] = ()
    context: dict[str, str] = {}
    created_ms: int = 0


def make_draft(
    title: str, description: str, now_ms: int, severity: Severity | None = None, **more: object
) -> DraftFile:
    """Return a draft with an id derived from its text and time."""
    if not title.strip():
        hint = 'flightlog issue report-bug --title "…" --description "…"'
        raise Invalid("an issue needs a title", hint=hint)
    digest = hashlib.sha256(f"{title}\0{description}\0{now_ms}".encode()).hexdigest()
    fields = {
        "id": digest[:12],
        "title": title.strip(),
        "description": description,
        "severity": severity,
    }
    return msgspec.convert(fields | {"created_ms": now_ms} | more, DraftFile)


def draft_from_incident(incident: Incident) -> DraftFile:
    """Return the draft of an incident that a feature reported."""
    severity: Severity = "critical" if incident.kind in _CRITICAL else "high"
    title = ": ".join(filter(None, (incident.feature, incident.kind, incident.subject)))
    counts = ", ".join(f"{name}: {number:,}" for name, number in incident.counts.items())
    evidence = f"Where: {', '.join(incident.evidence)}" if incident.evidence else ""
    return make_draft(
        title, "\n\n".join(filter(None, (counts, evidence))), incident.at_ms, severity,
        tags=(incident.feature, INCIDENT), context={"evidence": " ".join(incident.evidence)},
    )  # fmt: skip


def draft_from_finding(pattern: Pattern, now_ms: int) -> DraftFile:
    """Return the draft of a finding; its evidence stays private, in the context.

    The id depends on the finding and its count, so that an unchanged finding gives the same
    draft.
    """
    number = hashlib.sha256(f"{pattern.id}\0{pattern.count}".encode()).hexdigest()[:12]
    description = f"{pattern.label}\n\n{pattern.detail}"
    evidence = " ".join(place.address for place in pattern.evidence)
    return make_draft(
        f"{pattern.kind}: {pattern.label}", description, now_ms, "medium", category=pattern.kind,
        tags=(FINDING,), id=number, context={"pattern": pattern.id, "evidence": evidence},
    )  # fmt: skip


def worth_an_issue(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Return the repeated findings that a person can act on."""
    return [pattern for pattern in patterns if pattern.kind in _WORTH and pattern.count > 1]


def file_name(draft: DraftFile) -> str:
    """Return the file name of a draft."""
    return f"draft_{datetime.fromtimestamp(draft.created_ms / 1000, UTC):%Y%m%d_%H%M%S}_{draft.id}.json"


def read_draft(name: str, data: bytes) -> DraftFile:
    """Decode a draft file; the id is taken from its name."""
    match = DRAFT_NAME.fullmatch(name)
    if match is None:
        hint = "draft_<YYYYMMDD>_<HHMMSS>_<id>.json"
        raise Invalid(f"not a draft's file name: {name[:60]!r}", hint=hint)
    try:
        return replace(msgspec.json.decode(data, type=DraftFile), id=match[1])
    except UNREADABLE as error:
        hint = "correct the file or move it away"
        raise Invalid(f"cannot read draft {name}: {error}", hint=hint) from None


def draft_event(draft: DraftFile, incidents: Iterable[Incident] = ()) -> IssueDrafted:
    """Return the journal event of a draft; `is_generated` if it equals an incident's draft."""
    generated = any(draft == draft_from_incident(incident) for incident in incidents)
    return IssueDrafted(
        draft.id, draft.title, draft.description, draft.created_ms, draft.category, draft.severity,
        draft.tags, draft.affected_files, draft.context, generated,
    )  # fmt: skip


_NAME_CHARS = 3  # removing initials and particles ("de", "Li") would damage ordinary words

_SPEAKER = r"(?:user|human|customer|assistant|claude|chatgpt|gpt|codex|gemini|prompt|you|me)"
_VERB = r"(?:said|says|asked|asks|wrote|writes|typed|replied|replies|answered|answers|mentioned|complained|requested)"
_QUOTED = r"(?:\"[^\"]*(?:\"|\Z)|\u201c[^\u201d]*(?:\u201d|\Z)|\u00ab[^\u00bb]*(?:\u00bb|\Z)|(?<!\w)'[^'\n]*'(?!\w))"
# A paragraph ends at an empty line or an error text, which a report needs.
_PARAGRAPH = r".*(?:\n(?![ \t]*$|[ \t]+File |E\s{2}|Traceback|[\w.]*(?:Error|Exception)\b).+)*"
_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL
)
_TURN = re.compile(
    rf"^[ \t]*(?:\[[^\]\n]*\][ \t]*)?[-*#_]*[ \t]*{_SPEAKER}[*_]*[ \t]*:{_PARAGRAPH}"
    rf"|^[^\n]*[\"'](?:role|sender|type)[\"']\s*:\s*[\"'](?:user|human|assistant)[\"'].*"
    rf"|^[ \t]*[>\u276f\u23fa]{_PARAGRAPH}",
    re.IGNORECASE | re.MULTILINE,
)
_SAID = re.compile(
    rf"(\b{_VERB}\b(?:\s+\w+){{0,4}}\s*[:,]?\s*|\b{_SPEAKER}(?:\s+[\w']+){{1,5}}\s*:\s*){_QUOTED}",
    re.IGNORECASE,
)
_SAID_PLAINLY = re.compile(
    rf"(\b{_SPEAKER}s?\s+(?:\w+\s+)?{_VERB}\b[^\n:]{{0,40}}:\s*)[^\s<].*", re.IGNORECASE
)
_PERSONAL = re.compile(r"\b(?:I|[Mm]y|[Mm]e|[Ww]e|[Oo]ur|[Yy]ou|[Yy]our)\b")
_ANY_QUOTED = re.compile(_QUOTED)
_URL = re.compile(r"(?<![\w+.-])[a-z][a-z0-9+.-]*://[^\s<>\"'`)\]}]+", re.IGNORECASE)
_UNC = re.compile(r"(?<![\w\\])\\\\[\w.-]+\\[^\s\"']+")
_HOST = re.compile(
    r"(?<![\w@/.-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}(?![\w-]|\.\w|\()(?::\d+)?(?:/[^\s<>\"'`)]*)?"
    r"|(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)(?::\d+)?(?:/[^\s<>\"'`)]*)?"
    r"|(?<![\w:])f(?:[cd][0-9a-f]{2}|e80):[0-9a-f:]+",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]+@((?:[\w-]+\.)+[^\W\d_]{2,})")


def triage_issue(
    issue: Issue, redactor: Redactor, now_ms: int, names: Iterable[str] = ()
) -> IssueTriaged:
    """Return the public form of a draft; `names` are known people's, and are removed."""
    raw = [issue.title, issue.description, issue.category, *issue.tags, *issue.affected_files]
    public = public_texts(raw, redactor, names)
    title, description, category, *rest = public.value
    title, description = " ".join(title.split())[:TITLE_CHARS], description[:DESCRIPTION_CHARS]
    text = f"{title}\n{description}"
    mentioned = (path.removeprefix("./") for path in _FILE.findall(text))
    files = tuple(dict.fromkeys((*rest[len(issue.tags) :], *mentioned)))
    matched = (name for name, pattern in _TAGS if pattern.search(text))
    errors = (error.lower() for error in _ERROR.findall(text))
    tags = tuple(dict.fromkeys((*rest[: len(issue.tags)], *matched, *errors)))
    severe = [severity for severity, pattern in _SEVERE if pattern.search(text)]
    guessed: Severity = severe[0] if severe else "medium"
    severity = issue.severity or guessed
    signature = error_signature(text) or " ".join(sorted(content_words(text))[:12])
    return IssueTriaged(
        issue.id, title, description, signature, now_ms, severity, _guess_complexity(tags, files),
        tags, files, category, public.secrets, public.personal,
    )  # fmt: skip


def public_texts(
    texts: Sequence[str], redactor: Redactor, names: Iterable[str]
) -> Redacted[list[str]]:
    """Return `texts` without conversation, addresses, names and secrets, and count those."""
    plain = [without_private_text(text, names).strip() for text in texts]
    pairs = list(zip(texts, plain, strict=True))
    marks = sum(new.count(mark) - old.count(mark) for old, new in pairs for mark in _MARKS)
    redacted = JsonRedactor(redactor).redact_document(plain)
    return replace(redacted, personal=redacted.personal + max(marks, 0))


def find_same_issue(new: IssueTriaged, known: Sequence[Issue]) -> Issue | None:
    """Return the issue that says what `new` says, the likest of those that do."""
    words = _issue_words(new.title, new.description)
    best: tuple[float, str, Issue] | None = None
    for issue in known:
        if issue.id == new.issue or not issue.signature:
            continue
        if not _GENERATED.isdisjoint((*new.tags, *issue.tags)):
            # Drafts of incidents and findings differ only by what their title names.
            alike = float(new.title == issue.title)
        else:
            alike = word_overlap(words, _issue_words(issue.title, issue.description))
        is_same = bool(new.signature) and new.signature == issue.signature
        failing = is_same and _ERROR.search(new.description) is not None
        score = 1.0 if failing else alike
        if score >= SAME and (best is None or (score, issue.id) > best[:2]):
            best = (score, issue.id, issue)
    return best[2] if best else None


def _issue_words(title: str, description: str) -> frozenset[str]:
    return frozenset(content_words(f"{title} {description[:600]}"))


def _guess_complexity(tags: Sequence[str], files: Sequence[str]) -> Complexity:
    """Guess the effort: only documentation, one file, up to three files, more."""
    if "docs" in tags:
        return "trivial"
    return "small" if len(files) == 1 else "medium" if len(files) <= 3 else "large"


def without_private_text(text: str, names: Iterable[str] = ()) -> str:
    """Replace conversation, intranet and e-mail addresses, and `names` in `text`."""
    text = _FENCE.sub(lambda match: QUOTE if _TURN.search(match[2]) else match[0], text)
    text = _TURN.sub(QUOTE, text)
    text = _SAID.sub(rf"\1{QUOTE}", text)
    text = _SAID_PLAINLY.sub(rf"\1{QUOTE}", text)
    text = _ANY_QUOTED.sub(_unless_personal, text)
    text = _URL.sub(_public_url, text)
    text = _UNC.sub(ADDRESS, text)
    text = _EMAIL.sub(lambda match: match[0] if is_reserved(match[1]) else EMAIL, text)
    text = _HOST.sub(lambda match: ADDRESS if _is_inside(match[0]) else match[0], text)
    pattern = _names_pattern(names)
    return pattern.sub(NAME, text) if pattern else text


def is_reserved(domain: str) -> bool:
    """Return whether `domain` is, or is below, a documentation domain of RFC 2606."""
    labels = domain.lower().rstrip(".").split(".")
    return labels[-1] in _RESERVED or ".".join(labels[-2:]) in _RESERVED


def is_intranet(host: str) -> bool:
    """Return whether `host` has no public suffix, or a label of a private network."""
    host = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        if is_reserved(host):
            return False
        return (
            len(labels) == 1 or not _PUBLIC.fullmatch(labels[-1]) or not _INSIDE.isdisjoint(labels)
        )
    return not address.is_global and not address.is_loopback


def _unless_personal(match: re.Match[str]) -> str:
    """Replace quotations of four or more words with a personal pronoun: they are speech."""
    return QUOTE if len(match[0].split()) >= 4 and _PERSONAL.search(match[0]) else match[0]


def _public_url(match: re.Match[str]) -> str:
    """Return the URL without user and query, which may hold tokens."""
    try:
        parts = urlsplit(match[0])
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ADDRESS
    return ADDRESS if is_intranet(host) else f"{parts.scheme}://{host}{port}{parts.path}"


def _is_inside(text: str) -> bool:
    """Return whether a host without a scheme is in an intranet; most dotted words are files."""
    host = re.split(r"[:/]", text, maxsplit=1)[0] if "." in text else text
    labels = host.lower().split(".")
    is_word = (
        labels[-1].isalpha() and labels[-1] not in _INSIDE and not _PUBLIC.fullmatch(labels[-1])
    )
    return is_intranet(host) and not is_word


def _names_pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """Match whole names and long words of them in any case, short words as spelled."""
    whole = {name.strip() for name in names if len(name.strip()) >= _NAME_CHARS} - _ACCOUNTS
    words = {word for name in whole for word in name.split() if len(word) >= _NAME_CHARS}
    words = {word for word in words if word[0].isupper()}
    if not whole:
        return None
    # A name of six or more letters is seldom an ordinary word too; "Mark" is one.
    in_any_case = sorted(whole | {word for word in words if len(word) >= 6}, key=len, reverse=True)
    parts = [f"(?i:{'|'.join(map(re.escape, in_any_case))})", *map(re.escape, sorted(words))]
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)")
