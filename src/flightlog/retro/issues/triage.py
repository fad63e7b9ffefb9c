"""Drafts, triage, clusters, priorities.

Ids come from what is reported and when, so that the same incident drafted twice is one draft.

Everything of a draft that goes on is redacted. Its context, quotations and transcripts of conversations, addresses
that work inside a network only, e-mail addresses and names that are known are removed, by rules and without guessing.
Error texts and traces stay.
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

from flightlog.model.errors import UNREADABLE, Incident, Invalid
from flightlog.model.output_files import Redacted
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.retro.analysis.digests import error_signature
from flightlog.retro.analysis.similarity import content_words, word_overlap
from flightlog.retro.events import Complexity, IssueDrafted, IssueTriaged, Severity
from flightlog.retro.issues.board import Issue
from flightlog.retro.state import Pattern

DRAFT_NAME = re.compile(r"draft_\d{8}_\d{6}_([0-9a-f]{6,12})\.json")
FINDING = "finding"
_CRITICAL = frozenset({"corrupt state", "secret"})
_WORTH = frozenset({"friction", "failure again"})
SAME = 0.6
TITLE_CHARS = 120
DESCRIPTION_CHARS = 4000
# A whole path: one that began in the middle of a directory name put unrelated files into one cluster.
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
    ("critical", re.compile(r"\b(?:data loss|corrupt|secret leaked|security hole|destroys?)", re.IGNORECASE)),
    ("high", re.compile(r"\b(?:crash|traceback|cannot start|blocked|regression)", re.IGNORECASE)),
    ("low", re.compile(r"\b(?:typo|cosmetic|wording|minor)", re.IGNORECASE)),
)
QUOTE, ADDRESS, EMAIL, NAME = "<quoted conversation>", "<intranet address>", "<email>", "<name>"
_MARKS = (QUOTE, ADDRESS, EMAIL, NAME)
# RFC 2606. Compared by labels, so that `myexample.com` is not `example.com`.
_RESERVED = frozenset({"test", "example", "invalid", "localhost", "example.com", "example.net", "example.org"})
_INSIDE = frozenset({"corp", "home", "internal", "intranet", "lan", "local", "localdomain", "private", "vpn"})
# Common generic domains. Two letters are a country; any other last label is treated as a company's own.
_PUBLIC = re.compile(
    r"[a-z]{2}|xn--.*|app|biz|blog|cloud|com|dev|edu|gov|info|int|mil|name|net|online|org|page|pro|shop|site"
    r"|software|store|systems|tech|tools|wiki|world|xyz"
)
# Accounts that machines are delivered with name no person.
_ACCOUNTS = frozenset({"admin", "build", "codespace", "dev", "git", "localhost", "node", "root", "runner", "test"})


class DraftFile(Struct, frozen=True):
    """A draft as it lies in `issue-drafts/`; unknown fields of a person's making are let be."""

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
    """Make a draft."""
    if not title.strip():
        raise Invalid("an issue needs a title", hint='flightlog issue report-bug --title "…" --description "…"')
    number = hashlib.sha256(f"{title}\0{description}\0{now_ms}".encode()).hexdigest()[:12]
    fields = {
        "id": number,
        "title": title.strip(),
        "description": description,
        "severity": severity,
        "created_ms": now_ms,
    }
    return msgspec.convert(fields | more, DraftFile)


def draft_from_incident(incident: Incident) -> DraftFile:
    """Make a draft of something a room found wrong."""
    severity: Severity = "critical" if incident.kind in _CRITICAL else "high"
    title = f"{incident.room}: {incident.kind}"
    found = ", ".join(f"{name}: {number:,}" for name, number in incident.counts.items())
    places = f"Where: {', '.join(incident.evidence)}" if incident.evidence else ""
    return make_draft(title, "\n\n".join(filter(None, (found, places))), incident.at_ms, severity,
                 tags=(incident.room, "incident"), context={"evidence": " ".join(incident.evidence)})  # fmt: skip


def draft_from_finding(pattern: Pattern, now_ms: int) -> DraftFile:
    """Make a draft of a finding; its evidence stays private, in the context. Seen as often, it is the same draft."""
    number = hashlib.sha256(f"{pattern.id}\0{pattern.count}".encode()).hexdigest()[:12]
    description = f"{pattern.label}\n\n{pattern.detail}"
    evidence = " ".join(each.address for each in pattern.evidence)
    return make_draft(f"{pattern.kind}: {pattern.label}", description, now_ms, "medium", category=pattern.kind,
                 tags=(FINDING,), id=number, context={"pattern": pattern.id, "evidence": evidence})  # fmt: skip


def worth_an_issue(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Return the findings that something can be done about."""
    return [pattern for pattern in patterns if pattern.kind in _WORTH and pattern.count > 1]


def file_name(one: DraftFile) -> str:
    """Name the file of a draft."""
    return f"draft_{datetime.fromtimestamp(one.created_ms / 1000, UTC):%Y%m%d_%H%M%S}_{one.id}.json"


def read_draft(name: str, data: bytes) -> DraftFile:
    """Read a draft; the id is that of its name."""
    named = DRAFT_NAME.fullmatch(name)
    if named is None:
        raise Invalid(f"not the name of a draft: {name[:60]!r}", hint="draft_<YYYYMMDD>_<HHMMSS>_<id>.json")
    try:
        return msgspec.structs.replace(msgspec.json.decode(data, type=DraftFile), id=named[1])
    except UNREADABLE as error:
        raise Invalid(f"the draft cannot be read: {error}: {name}", hint="correct the file or move it away") from None


def draft_event(one: DraftFile, noticed: Iterable[Incident] = ()) -> IssueDrafted:
    """Return what the journal notes of a draft; it is generated if it is exactly the draft of a noticed incident."""
    generated = any(one == draft_from_incident(each) for each in noticed)
    return IssueDrafted(one.id, one.title, one.description, one.created_ms, one.category, one.severity, one.tags,
                   one.affected_files, one.context, generated)  # fmt: skip


_ACCOUNTS |= {"app", "claude", "ubuntu", "user", "vscode"}
_NAME_CHARS = 3  # initials and particles ("de", "Li") would remove half of a sentence

_SPEAKER = r"(?:user|human|customer|assistant|claude|chatgpt|gpt|codex|gemini|prompt|you|me)"
_VERB = r"(?:said|says|asked|asks|wrote|writes|typed|replied|replies|answered|answers|mentioned|complained|requested)"
_QUOTED = r"(?:\"[^\"]*(?:\"|\Z)|\u201c[^\u201d]*(?:\u201d|\Z)|\u00ab[^\u00bb]*(?:\u00bb|\Z)|(?<!\w)'[^'\n]*'(?!\w))"
# A paragraph goes on until an empty line or an error text, which a report needs.
_PARAGRAPH = r".*(?:\n(?![ \t]*$|[ \t]+File |E\s{2}|Traceback|[\w.]*(?:Error|Exception)\b).+)*"
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_TURN = re.compile(
    rf"^[ \t]*(?:\[[^\]\n]*\][ \t]*)?[-*#_]*[ \t]*{_SPEAKER}[*_]*[ \t]*:{_PARAGRAPH}"
    rf"|^[^\n]*[\"'](?:role|sender|type)[\"']\s*:\s*[\"'](?:user|human|assistant)[\"'].*"
    rf"|^[ \t]*[>\u276f\u23fa]{_PARAGRAPH}",
    re.IGNORECASE | re.MULTILINE,
)
_SAID = re.compile(
    rf"(\b{_VERB}\b(?:\s+\w+){{0,4}}\s*[:,]?\s*|\b{_SPEAKER}(?:\s+[\w']+){{1,5}}\s*:\s*){_QUOTED}", re.IGNORECASE
)
_SAID_PLAINLY = re.compile(rf"(\b{_SPEAKER}s?\s+(?:\w+\s+)?{_VERB}\b[^\n:]{{0,40}}:\s*)[^\s<].*", re.IGNORECASE)
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


def triage_issue(issue: Issue, redactor: Redactor, now_ms: int, names: Iterable[str] = ()) -> IssueTriaged:
    """Return the public form of a draft; `names` are people known from the project and its sessions."""
    raw = [issue.title, issue.description, issue.category, *issue.tags, *issue.affected_files]
    public = public_texts(raw, redactor, names)
    title, description, category, *rest = public.value
    title, description = " ".join(title.split())[:TITLE_CHARS], description[:DESCRIPTION_CHARS]
    text = f"{title}\n{description}"
    named = (path.removeprefix("./") for path in _FILE.findall(text))
    files = tuple(dict.fromkeys((*rest[len(issue.tags) :], *named)))
    found = (name for name, pattern in _TAGS if pattern.search(text))
    errors = (error.lower() for error in _ERROR.findall(text))
    tags = tuple(dict.fromkeys((*rest[: len(issue.tags)], *found, *errors)))
    severity = issue.severity or _guess_severity(text)
    return IssueTriaged(
        issue.id,
        title,
        description,
        _issue_signature(text),
        now_ms,
        severity,
        _guess_complexity(tags, files),
        tags,
        files,
        category,
        public.secrets,
        public.personal,
    )


def public_texts(texts: Sequence[str], redactor: Redactor, names: Iterable[str]) -> Redacted[list[str]]:
    """Return `texts`, as one document, without conversation, addresses, names and secrets, and how many there were."""
    plain = [without_private_text(text, names).strip() for text in texts]
    marks = sum(new.count(each) - old.count(each) for old, new in zip(texts, plain, strict=True) for each in _MARKS)
    done = JsonRedactor(redactor).redact_document(plain)
    return replace(done, personal=done.personal + max(marks, 0))


def find_same_issue(new: IssueTriaged, known: Sequence[Issue]) -> Issue | None:
    """Return the issue that says what `new` says, the likest of those that do."""
    words = _issue_words(new.title, new.description)
    best: tuple[float, str, Issue] | None = None
    for issue in known:
        if issue.id == new.issue or not issue.signature:
            continue
        if "incident" in new.tags or "incident" in issue.tags:
            # Drafts of incidents differ by their kind alone, which is in the title.
            alike = float(new.title == issue.title)
        else:
            alike = word_overlap(words, _issue_words(issue.title, issue.description))
        failing = (
            bool(new.signature) and new.signature == issue.signature and _ERROR.search(new.description) is not None
        )
        score = 1.0 if failing else alike
        if score >= SAME and (best is None or (score, issue.id) > best[:2]):
            best = (score, issue.id, issue)
    return best[2] if best else None


def _issue_words(title: str, description: str) -> frozenset[str]:
    return frozenset(content_words(f"{title} {description[:600]}"))


def _issue_signature(text: str) -> str:
    return error_signature(text) or " ".join(sorted(content_words(text))[:12])


def _guess_severity(text: str) -> Severity:
    return next((name for name, pattern in _SEVERE if pattern.search(text)), "medium")


def _guess_complexity(tags: Sequence[str], files: Sequence[str]) -> Complexity:
    """Guess from what is touched: words only, one file, a few, many."""
    if "docs" in tags:
        return "trivial"
    return "small" if len(files) == 1 else "medium" if len(files) <= 3 else "large"


def without_private_text(text: str, names: Iterable[str] = ()) -> str:
    """Return `text` with marks in place of conversation, intranet and e-mail addresses, and `names`."""
    text = _FENCE.sub(lambda found: QUOTE if _TURN.search(found[2]) else found[0], text)
    text = _TURN.sub(QUOTE, text)
    text = _SAID.sub(rf"\1{QUOTE}", text)
    text = _SAID_PLAINLY.sub(rf"\1{QUOTE}", text)
    text = _ANY_QUOTED.sub(_unless_personal, text)
    text = _URL.sub(_public_url, text)
    text = _UNC.sub(ADDRESS, text)
    text = _EMAIL.sub(lambda found: found[0] if is_reserved(found[1]) else EMAIL, text)
    text = _HOST.sub(lambda found: ADDRESS if _is_inside(found[0]) else found[0], text)
    pattern = _names_pattern(names)
    return pattern.sub(NAME, text) if pattern else text


def is_reserved(domain: str) -> bool:
    """Whether `domain` is one that RFC 2606 keeps for documents, or below one."""
    labels = domain.lower().rstrip(".").split(".")
    return labels[-1] in _RESERVED or ".".join(labels[-2:]) in _RESERVED


def is_intranet(host: str) -> bool:
    """Whether `host` has no public suffix, or says that it is inside a network."""
    host = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        if is_reserved(host):
            return False
        return len(labels) == 1 or not _PUBLIC.fullmatch(labels[-1]) or not _INSIDE.isdisjoint(labels)
    return not address.is_global and not address.is_loopback


def _unless_personal(found: re.Match[str]) -> str:
    """A quotation of four words or more with a personal pronoun is speech; shorter ones are names and values."""
    return QUOTE if len(found[0].split()) >= 4 and _PERSONAL.search(found[0]) else found[0]


def _public_url(found: re.Match[str]) -> str:
    """A URL keeps its host and path; a query and a user may hold tokens."""
    try:
        parts = urlsplit(found[0])
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ADDRESS
    return ADDRESS if is_intranet(host) else f"{parts.scheme}://{host}{port}{parts.path}"


def _is_inside(written: str) -> bool:
    """Whether a host without a scheme is inside a network; without one, most dotted words are files or modules."""
    host = re.split(r"[:/]", written, maxsplit=1)[0] if "." in written else written
    labels = host.lower().split(".")
    is_word = labels[-1].isalpha() and labels[-1] not in _INSIDE and not _PUBLIC.fullmatch(labels[-1])
    return is_intranet(host) and not is_word


def _names_pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """Match whole names and their long words in any case, and their short words as they are written."""
    whole = {name.strip() for name in names if len(name.strip()) >= _NAME_CHARS} - _ACCOUNTS
    words = {word for name in whole for word in name.split() if len(word) >= _NAME_CHARS and word[0].isupper()}
    if not whole:
        return None
    # Six letters and more are seldom a word of the language too; "Mark" is.
    in_any_case = sorted(whole | {word for word in words if len(word) >= 6}, key=len, reverse=True)
    parts = [f"(?i:{'|'.join(map(re.escape, in_any_case))})", *map(re.escape, sorted(words))]
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)")
