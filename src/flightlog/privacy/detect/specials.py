"""Secrets with a syntax of their own: keys in PEM, credentials in addresses, headers and flags.

Each is found by a literal mark first. Nothing here reaches over a NUL, the mark between
records, and every look ahead is bounded.
"""

from collections.abc import Iterator
from typing import Any

from flightlog.privacy.detect import chance, commands, lazily
from flightlog.privacy.detect.hits import HIGH, LOW, MEDIUM, Candidate, search_in_stretches
from flightlog.privacy.detect.meter import WorkBudget
from flightlog.privacy.detect.wraps import LINE_END, ends_line, extend_with_lone_line, unwrap_lines

_PEM_MAX = 20_000
_CUT = LINE_END.encode()
# A line that goes on in the next: as it stands, as raw JSON writes it, and with that blanked out.
_CONTINUED = rb"(?:\\[ ]{0,2}\r?\n|\\{3}n)\+?"
# Each that may be cut by the end of a line is also found where only its first part stands there.
PATTERN = (
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|://[^\s/:@\"'<>\\\x00]*:(?:[^\s@\"'<>\\\x00]|\\{1,2}[0-9A-Za-mo-qsv-z!#$%&*+.-])+@"
    rb"|://[A-Za-z0-9_-]{30,}@|://[^\s/@\"'<>\\\x00]*" + _CUT + rb"|\bkind[\"']?: *[\"']?[Ss]ecret\b|\$ANSIBLE_VAULT;"
    rb"|(?i:\b(?:bearer|basic|ssws)[ ]+(?:[A-Za-z0-9._~+/=-]{12,}|[A-Za-z0-9._~+/=-]{2,11}" + _CUT + rb")"
    rb"|(?:[ ]|" + _CONTINUED + rb")(?:-u|--user|--proxy-user)[ =]{0,3}"
    rb"(?:[\"'][^\s\"'\x00]*(?:" + _CUT + rb"[^\s\"'\x00]*)?[\"']"
    rb"|[^\s:\"'\x00/]+):?[\"']?[^\s\"'\x00]*"
    rb"|\bsshpass -p *[^\s\x00]+"
    rb"|\bmachine\s+[^\s\x00]+\s+login\s+[^\s\x00]+\s+password\s+[^\s\x00]+)"
    rb"|\b(?:NetworkCredential|DirectoryEntry)\((?:\s*\\{0,3}\"[^\"\x00]{1,100}\"\s*,){1,2}\s*\\{0,3}\"[^\"\x00]{3,80}\""
    rb"|" + commands.PATTERN
)
_TRIGGER = lazily.linear_pattern(PATTERN)
_MANIFEST_MAX = 2_000
_FLAG = lazily.linear_pattern(rb"--?(?:user|u|proxy-user)[ =]*")
_DIGIT = lazily.linear_pattern(rb"[0-9]")
_MARKED = lazily.linear_pattern(rb"[0-9#!@%^*]")
_PADDED = lazily.linear_pattern(rb"[^=]==?$")
_LOOK = 400
_ENTRY = lazily.linear_pattern(
    rb"(?:\n|\\n|[{,])[ \t]*[\"']?[\w.-]+[\"']?:[ ]*[\"']?([A-Za-z0-9+/]{8,}={0,3})[\"']?[ \t\r]*(?:$|[\n\\,}#])"
)
_END = b"-----END "
_BODY = lazily.linear_pattern(rb"[A-Za-z0-9+/=\s\\nr:,\-|>\".0-9]*")
_SECOND_AT = lazily.linear_pattern(rb"[^\s/:@\"'<>\x00]{1,40}@")
_VAULT = lazily.linear_pattern(rb"\$ANSIBLE_VAULT;[0-9.]+;AES256[^\n\x00]{0,40}(?:\s*[0-9a-f]{16,80})+")
_STAND_IN = lazily.linear_pattern(rb"^[$<{%*]|^\[|^x+$|^:|^//|\{\w+|^[0-9]+:[0-9]+$")


def find_structured_secrets(view: bytes, meter: WorkBudget, *, another: bool = False) -> Iterator[Candidate]:
    """Yield private keys, credentials in addresses, headers and flags."""
    meter.reset(another=another)
    at, pem_end = 0, 0
    while (found := search_in_stretches(_TRIGGER, view, at)) is not None:
        start, text = found.start(), found.group()
        if not meter.try_spend(start, _LOOK):
            hit = meter.unjudged_rest(view, start)
            at = hit.end
            yield hit
            continue
        if text.startswith(b"kind"):
            yield from _find_kubernetes_values(view, start)
            at = found.end()
            continue
        if text.startswith(b"$"):
            secret = _judge_ansible_vault(view, start)
        elif text.startswith(b"-----BEGIN"):
            pem_end = pem_end if pem_end > start else _find_pem_end(view, start)
            secret = _judge_pem_block(view, start, pem_end)
        else:
            secret = _judge_inline(view, found)
            if ends_line(view, secret.end if secret else found.end()) or b"\n" in text:
                secret = _choose_longer(secret, _judge_over_lines(view, start))
            if secret and text[:7].lower() == b"machine":
                secret = _extend_to_last_word(view, secret)
        at = secret.end if secret else found.end() if not text.startswith(b"://") else start + 3
        # What was piped stands before; what is longer than any address is not to be read again and again.
        at = max(at, start + 1, found.end() - _LOOK)
        if secret:
            yield secret


def _judge_inline(view: bytes, found: Any) -> Candidate | None:
    start, text = found.start(), bytes(found.group())
    if text.startswith(b"://"):
        return _judge_url(_extend_to_host(view, found), start) if text.endswith(b"@") else None
    command = commands.judge_command(view, start)
    if command is not None:
        return command.hit
    lead = len(text) - len(text.lstrip(b"\\ \r\n+"))  # of a command that goes on in the next line
    return _judge_header_or_flag(text[lead:].rstrip(b"\\"), start + lead) if b"\n" not in text[lead:].strip() else None


def _judge_over_lines(view: bytes, start: int) -> Candidate | None:
    """Return what begins at `start` and goes on in the next lines."""
    text, back = unwrap_lines(view, start, _LOOK)
    found = _TRIGGER.match(text)
    secret = _judge_inline(text, found) if found is not None else None
    if secret is None:
        return None
    return secret._replace(start=back(secret.start + 1) - 1, end=back(secret.end))


def _choose_longer(one: Candidate | None, other: Candidate | None) -> Candidate | None:
    if one is None or other is None:
        return one or other
    return other if len(other.value) > len(one.value) and _continues_value(other.value[len(one.value) :]) else one


def _continues_value(more: bytes) -> bool:
    """Say whether the beginning of a line reads as the end of a value, not as a word."""
    return bool(_MARKED.search(more)) or chance.english_pair_share(more) < 0.5


def _extend_to_last_word(view: bytes, secret: Candidate) -> Candidate:
    """Return the password with the next line, if that is one word and the last one."""
    end, value = extend_with_lone_line(view, secret.end, secret.value)
    last = view[end : end + 8].strip()[:1] in (b"", b"\0", b'"')
    return secret._replace(end=end, value=value) if last and b"\n" not in view[secret.start : secret.end] else secret


def _judge_ansible_vault(view: bytes, start: int) -> Candidate | None:
    """Return a file encrypted by Ansible: its key may be as weak as a password."""
    body = _VAULT.match(view, start, start + _PEM_MAX)
    return Candidate(start, body.end(), "ansible-vault", b"".join(body.group().split()), MEDIUM) if body else None


def _find_pem_end(view: bytes, start: int) -> int:
    """Return where the next private key ends; looked for once, however many begin before it."""
    end = view.find(_END, start)
    return end if end >= 0 else len(view)


def _judge_pem_block(view: bytes, start: int, end: int) -> Candidate | None:
    stop = view.find(b"\0", start, min(end, start + _PEM_MAX))
    limit = stop if stop >= 0 else min(len(view), max(end + 80, start + 80), start + _PEM_MAX)
    if end + len(_END) <= limit:
        close = view.find(b"-----", end + len(_END), min(limit, end + 80))
        end = close + 5 if close >= 0 else end
    else:
        # The end was cut off: what follows and reads as base64 still is the key.
        head = view.find(b"-----", start + 10, min(limit, start + 80))
        begin = head + 5 if head >= 0 else start + 10
        end = _BODY.match(view, begin, limit).end()
    if end - start < 90:
        return None
    return Candidate(start, end, "private-key", b"".join(view[start:end].split()), HIGH)


def _find_kubernetes_values(view: bytes, at: int) -> Iterator[Candidate]:
    """Yield the values of a Kubernetes secret, which are base64 of anything."""
    low = max(
        view.rfind(b"\n---", max(0, at - _MANIFEST_MAX), at), view.rfind(b"\0", max(0, at - _MANIFEST_MAX), at), 0
    )
    stops = (view.find(mark, at, at + _MANIFEST_MAX) for mark in (b"\n---", b"\0"))
    high = min([stop for stop in stops if stop >= 0], default=at + _MANIFEST_MAX)
    for entry in _ENTRY.finditer(view, low, high):
        start, end = entry.span(1)
        value = view[start:end]
        if not value.isalpha() or len(value) >= 16:
            yield Candidate(start, end, "kubernetes-secret", value, MEDIUM)


def _extend_to_host(view: bytes, found: Any) -> bytes:
    """Return the address up to its host: a password may hold an `@` itself."""
    more = _SECOND_AT.match(view, found.end(), found.end() + 80)
    return bytes(view[found.start() : more.end()]) if more else bytes(found.group())


def _judge_url(text: bytes, start: int) -> Candidate | None:
    middle = text.find(b":", 3)
    if middle < 0:
        token = text[3:].split(b"@")[0]
        return (
            Candidate(start + 3, start + 3 + len(token), "url-token", token, MEDIUM)
            if chance.is_random(token)
            else None
        )
    password = text[middle + 1 : -1]
    if not password or len(password) < 3 or len(password) > 200 or _STAND_IN.search(password):
        return None
    port = password.split(b"/")[0]
    if b"/" in password and ((port.isdigit() and len(port) > 1) or b"//" in password):
        return None  # a port and a path that holds an @
    if password == b"x-oauth-basic" and chance.is_random(text[3:middle]):
        return Candidate(start + 3, start + middle, "url-token", text[3:middle], MEDIUM)
    if chance.is_reference(password):
        return None
    return Candidate(start + middle + 1, start + len(text) - 1, "url-password", password, MEDIUM)


def _judge_header_or_flag(text: bytes, start: int) -> Candidate | None:
    text, start = text.lstrip(), start + len(text) - len(text.lstrip())
    word, _, rest = text.partition(b" ")
    words = rest.strip(b"\"' ").split()
    value = words[-1] if words else b""
    if word.startswith(b"-"):
        value, rule = _user_password(text), "curl-user"
        fine = _is_password_like(value) and not value.isdigit()
    elif word.lower() in (b"bearer", b"basic", b"ssws"):
        rule = "auth-header"
        fine = chance.is_random(value, floor=2.8) or (
            (_PADDED.search(value) if word.lower() == b"basic" else _is_dense(value)) and not chance.is_reference(value)
        )
    elif word.endswith(b'"') or b"(" in word:
        value, rule = text.rsplit(b'"', 2)[1].rstrip(b"\\"), "credential-call"
        fine = _is_password_like(value)
    else:
        value, rule = value.removeprefix(b"-p").strip(b"\"'"), "password-flag"
        fine = _is_password_like(value)
    at = start + text.rfind(value)
    return Candidate(at, at + len(value), rule, value, LOW if rule == "curl-user" else MEDIUM) if fine else None


def _user_password(text: bytes) -> bytes:
    """Return the password of `-u name:password`, however quoted; the name where there is no password."""
    flag = _FLAG.match(text)
    name, mark, password = text[flag.end() if flag else 0 :].partition(b":")
    if name.startswith(b"<"):
        return b""
    password = password.strip(b"\"'{}")
    name = name.strip(b"\"'{}")
    return password or (name if mark and _DIGIT.search(name) and len(name) >= 10 else b"")


def _is_dense(value: bytes) -> bool:
    return chance.shannon_entropy(value) >= 3 and chance.count_digits(value) >= 2 and not chance.is_code(value)


def _is_password_like(value: bytes) -> bool:
    return len(value) >= 4 and not chance.is_reference(value) and _STAND_IN.search(value) is None
