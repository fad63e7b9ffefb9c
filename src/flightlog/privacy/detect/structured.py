"""PEM keys, credentials in URLs, headers, flags and command positions.

Each syntax begins with a literal that is rare in other text, and has one group, the secret.
`specials` finds where one begins; here it is read again from there.

Each is found by a literal mark first. Nothing here reaches over a NUL, the mark between
records, and every look ahead is bounded.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.privacy.detect import randomness, rules
from flightlog.privacy.detect.candidates import HIGH, LOW, MEDIUM, Candidate, WorkBudget, search_in_stretches
from flightlog.privacy.detect.line_wraps import LINE_END, ends_line, extend_with_lone_line, unwrap_lines

_REACH = 400
_SHORT = 4
_REACHES = {"private-key": 4_000, "json-web-key": 1_000}
_WORD = r"[\"']?(?P<v>[^\s\x00\"'/*$%<{-][^\s\x00\"']{2,80})"
_QUOTE = r"\\{0,3}[\"']"
_ARGUMENT = rf"{_QUOTE}[^\"'\n\x00]{{0,100}}{_QUOTE}\s*,\s*"
# Where the place of the secret is told by what stands after it, a line may end in it.
_CUT = rf"(?P<v>[^\s\x00\"'/*$%<{{-][^\s\x00\"'@]{{1,80}}(?:{LINE_END}[^\s\x00\"'@/]{{2,40}})?)"
_LAST = rf"{_QUOTE}(?P<v>[^\"'\x00]{{4,80}}?){_QUOTE}"
_SAID_WORD = r"(?:[\w.@-]{1,30} (?:is|was) )?[\"'`]?(?P<v>[\w!@#$%^&*+-]{5,40})"
_WORDS_ALONE = r"(?P<v>[a-z]+(?: [a-z]+){2,11}) {0,2}(?:[\"'\\\n;]|\z)"
_LINE = r"[^\n\x00|;&]{0,120}?"
_BASIC_AUTH = r"\bHTTP(?:Basic|Digest)Auth|\b[sS]etBasicAuth|\bUsernamePasswordCredentials"
_SALTED = "(?:SECURE_|LOGGED_IN_|NONCE_)?(?:AUTH_)?(?:KEY|SALT)"
_BASE64 = "[A-Za-z0-9+/]"
_PADDED = rf"(?:{LINE_END})?{_BASE64}{{12,120}}={{1,2}}"
_SHARE = rf"(?:{_BASE64}{{40,88}}|{_BASE64}{{12,60}}(?:{LINE_END}){_BASE64}{{12,60}})={{0,2}}"
_MNEMONIC = r"(?i:\bmnemonic|\b(?:seed|recovery|secret).?(?:phrase|words))"
_HASH, _SALT, _PHRASE = "password-hash", "wordpress-salt", "seed-phrase"
_FLAG, _UNSEAL, _SPOKEN = "command-password", "vault-unseal-key", "spoken-password"
_CALL = "credential-call"
_KEY, _JWK = "private-key", "json-web-key"
# What is looked for in every text, and what follows it: counted there, that would have more states than there is room.
_SYNTAXES = (
    (_FLAG, r"(?i:\bnet use )", rf"(?i:(?:[a-z*]:? +)?\\+[^\s\x00]+ +{_CUT} +/u)"),
    (_FLAG, r"(?i:\bnet use )", rf"{_LINE}(?i:/user:)[^\s\x00]+[ ]+{_WORD}"),
    (_FLAG, r"(?i:\bnet user )", rf"[\w.\\-]+ +{_CUT} +/[a-z]"),
    (_FLAG, r"\bschtasks ", rf"{_LINE} /rp +{_WORD}"),
    (_FLAG, r"\b[xw]freerdp ", rf"{_LINE}/p:{_WORD}"),
    (_FLAG, r"\bldap(?:search|add|modify|delete|passwd|whoami) ", rf"{_LINE}-w +{_WORD}"),
    (_FLAG, r"\b(?:sqlcmd|bcp|osql|isql) ", rf"{_LINE}-P ?{_WORD}"),
    (_FLAG, r"\b(?:smbclient|rpcclient|smbget) ", rf"{_LINE}-U +[^\s\x00%]+%{_WORD}"),
    (_FLAG, r"\b(?:mysql|mysqldump|mysqladmin) +-", rf"(?:{_LINE} -)?p{_WORD}"),
    (_FLAG, r"\bredis-cli +-", rf"(?:{_LINE} -)?a +{_WORD}"),
    (_FLAG, r"(?i:\b(?:docker login|psexec(?:\.exe)?) )", rf"(?:{_LINE} )?-p ?{_WORD}"),
    (_FLAG, r"(?i:\bidentified by )", rf" *{_LAST}"),
    (_SPOKEN, r"(?i:\bpass(?:word|phrase|code) (?:for|is|was) )", _SAID_WORD),
    (_PHRASE, r"(?i:\bpassphrase)", rf"(?:{_QUOTE})?\s{{0,2}}(?:[:=]|is )\s{{0,2}}(?:{_QUOTE})?{_WORDS_ALONE}"),
    (_FLAG, r"\bhtpasswd +-", rf"[a-zA-Z]*b[a-zA-Z]* +[^\s\x00]+ +[^\s\x00]+ +{_WORD}"),
    (_FLAG, r"\b(?:un)?zip (?:-\w{1,6} ){0,3}-P ", rf" *{_WORD}"),
    (_FLAG, r"\brabbitmqctl +(?:add_user|change_password) ", rf" *[^\s\x00]+ +{_WORD}"),
    (_FLAG, r"\bsqlplus |\bjdbc:oracle:thin:", rf" *(?:-\w+ +)?[\w.]+/{_CUT}@"),
    (_FLAG, r"\brootpw --plaintext |\bsnmp-server community ", rf" *{_WORD}"),
    (_FLAG, r"\b(?:tacacs|radius)-server ", rf"{_LINE}key +(?:\d +)?{_WORD}"),
    (_UNSEAL, r"\b(?:[Uu]nseal|[Rr]ecovery) [Kk]ey [0-9]{1,2}: ?|\bvault operator unseal ", rf" *(?P<v>{_SHARE})"),
    (_FLAG, r"\b(?:password|secret|key) 7 ", r"(?P<v>[0-9A-F]{8,60})\b"),
    (
        "aws-secret-key",
        r"[^A-Za-z0-9\x00]A[KS]IA[A-Z2-7]{16}\b",
        r"[^A-Za-z0-9+/\x00]{1,8}(?P<v>[A-Za-z0-9+/]{40})(?:[^A-Za-z0-9+/=]|$)",
    ),
    (_KEY, r"\bPrivate-Lines: ", rf"[0-9]+\s+(?P<v>(?:{_BASE64}{{20,64}}=*\s*)+)"),
    (_KEY, "---- BEGIN SSH2 (?:ENCRYPTED )?PRIVATE KEY", r"[^\x00]*?---- END SSH2(?P<v>)"),
    (_KEY, "<D>", r"(?P<v>[A-Za-z0-9+/\s]{80,800}={0,2})</D>"),
    (_JWK, r"\\{0,3}\"d\\{0,3}\" ?: ?", r"\\{0,3}\"(?P<v>[A-Za-z0-9_-]{40,900})\\{0,3}\""),
    (
        _FLAG,
        r"\bBUNDLE_[A-Z]",
        rf"[A-Z0-9_]{{1,60}}__[A-Z]{{2,8}} *[=:] *{_QUOTE}?(?P<v>[^\s\x00\"':/]{{3,60}}:[^\s\x00\"';]{{3,60}})",
    ),
    ("pgpass", r"\*:\*:\*:", r"[^\s\x00:]{1,40}:(?P<v>[^\s\x00:\"'\\<$]{4,60})"),
    ("pgpass", ":(?:5432|5433|6432|3306):", r"[^\s\x00:]{1,40}:[^\s\x00:]{1,40}:(?P<v>[^\s\x00:\"'\\<$]{4,60})"),
    (_CALL, r"\b(?:mysqli?_connect|new mysqli|new PDO|getConnection)\(", rf"\s*{_ARGUMENT}{_ARGUMENT}{_LAST}"),
    (_CALL, r"\bDBI(?:->|\.)connect\(", rf"\s*(?:{_ARGUMENT}|[^\"',()\n\x00]{{1,60}},\s*){{2}}{_LAST}"),
    (_CALL, rf"(?:\bauth ?= ?|{_BASIC_AUTH})\(", rf"\s*{_ARGUMENT}{_LAST}"),
    (_SALT, rf"\bdefine\(\s*{_QUOTE}{_SALTED}{_QUOTE}", r"\s*,\s*'(?P<v>[^'\x00]{20,120})'"),
    (_HASH, r"\{S?(?:SHA|MD5)(?:256|384|512)?\}", rf"(?P<v>{_BASE64}{{8,120}}(?:{_PADDED}|{_BASE64}{{12}}))"),
    (_PHRASE, _MNEMONIC, rf"[^\n\x00]{{0,12}}?(?P<v>\b(?:[a-z]{{3,8}}(?: |{LINE_END} ?)){{11,23}}[a-z]{{3,8}})\b"),
)
_PIPED = r"\|\s*ConvertTo-SecureString|--password-stdin"
_FIELD = rf"\btype={_QUOTE}password{_QUOTE}"
_FOLLOWS = {_SALT: r"\s*,\s*'[^'\x00]{20}"}
_OPENINGS = (opening + _FOLLOWS.get(rule, "") for rule, opening, _ in _SYNTAXES)
COMMAND_PATTERN = "|".join(dict.fromkeys([*_OPENINGS, _PIPED, _FIELD])).encode()
_READERS = tuple((rule, rules.linear_pattern(f"(?:{opening}){rest}".encode())) for rule, opening, rest in _SYNTAXES)
_OPENING = rules.linear_pattern(COMMAND_PATTERN)
_PIPED_BEFORE = rules.linear_pattern(rb"[\"']([^\"'\x00]{4,80}?)\\{0,3}[\"']\s*\z")
_ECHOED_BEFORE = rules.linear_pattern(
    rb"\b(?:echo|printf)(?: -\w+| '%s(?:\\+n)?')* (?:\\{0,3}[\"'])?([^\"'\x00|\s][^\"'\x00|]{3,80}?)"
    rb"(?:\\{0,3}[\"'])?\s*\|[^|\n\x00]*\z"
)
_TYPED = rules.quick_pattern(rb"[0-9!@#$%^&*+]")
_FIELD_BEFORE = rules.linear_pattern(rb"(?i)\svalue=\\{0,3}[\"']([^\s\"'<>\x00]{4,80}?)\\{0,3}[\"']\s[^<>\x00]*\z")
# By what follows the secret; a pipe, its command and the options before the flag fit in 200 bytes.
_BEFORE = {b"|": _PIPED_BEFORE, b"type=": _FIELD_BEFORE, b"--password": _ECHOED_BEFORE}
_BEFORE_REACH = 200
_COMMAND_PLACEHOLDER = rules.linear_pattern(
    rb"(?i)^[$<{%*]|^\[|^x+$|^[0-9]+:[0-9]+$|\{\w+|^(?:passw(?:or)?d|pass|pwd|secret|word|public|private)\W*$"
)
# What prose says of a password: `is required`, `is not set`, `is hashed`.
_SAID = rules.quick_pattern(
    rb"(?i)(?:not|now|never|always|also|only|being|still|stored|empty|wrong|incorrect|correct|valid|invalid|missing|optional"
    rb"|default|equal|safe|secure|weak|strong|blank|null|none|hidden|secret|known|unknown|longer|shorter|different|unique"
    rb"|temporary|about|their|there|these|those|where|which|given|shown|written|taken|\w*(?:ed|ing|able|ible))\Z"
)
_PEM_MAX = 20_000
_LINE_END = LINE_END.encode()
# A line that goes on in the next: as it stands, as raw JSON writes it, and with that blanked out.
_CONTINUED = rb"(?:\\[ ]{0,2}\r?\n|\\{3}n)\+?"
# Each that may be cut by the end of a line is also found where only its first part stands there.
SPECIAL_PATTERN = (
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|://[^\s/:@\"'<>\\\x00]*:(?:[^\s@\"'<>\\\x00]|\\{1,2}[0-9A-Za-mo-qsv-z!#$%&*+.-])+@"
    rb"|://[A-Za-z0-9_-]{30,}@|://[^\s/@\"'<>\\\x00]*"
    + _LINE_END
    + rb"|\bkind[\"']?: *[\"']?[Ss]ecret\b|\$ANSIBLE_VAULT;"
    rb"|(?i:\b(?:bearer|basic|ssws)[ ]+(?:[A-Za-z0-9._~+/=-]{12,}|[A-Za-z0-9._~+/=-]{2,11}" + _LINE_END + rb")"
    rb"|(?:[ ]|" + _CONTINUED + rb")(?:-u|--user|--proxy-user)[ =]{0,3}"
    rb"(?:[\"'][^\s\"'\x00]*(?:" + _LINE_END + rb"[^\s\"'\x00]*)?[\"']"
    rb"|[^\s:\"'\x00/]+):?[\"']?[^\s\"'\x00]*"
    rb"|\bsshpass -p *[^\s\x00]+"
    rb"|\bmachine\s+[^\s\x00]+\s+login\s+[^\s\x00]+\s+password\s+[^\s\x00]+)"
    rb"|\b(?:NetworkCredential|DirectoryEntry)\((?:\s*\\{0,3}\"[^\"\x00]{1,100}\"\s*,){1,2}\s*\\{0,3}\"[^\"\x00]{3,80}\""
    rb"|" + COMMAND_PATTERN
)
_TRIGGER = rules.linear_pattern(SPECIAL_PATTERN)
_MANIFEST_MAX = 2_000
_USER_FLAG = rules.linear_pattern(rb"--?(?:user|u|proxy-user)[ =]*")
_DIGIT = rules.linear_pattern(rb"[0-9]")
_MARKED = rules.linear_pattern(rb"[0-9#!@%^*]")
_BASE64_PADDING = rules.linear_pattern(rb"[^=]==?$")
_LOOK = 400
_ENTRY = rules.linear_pattern(
    rb"(?:\n|\\n|[{,])[ \t]*[\"']?[\w.-]+[\"']?:[ ]*[\"']?([A-Za-z0-9+/]{8,}={0,3})[\"']?[ \t\r]*(?:$|[\n\\,}#])"
)
_END = b"-----END "
_BODY = rules.linear_pattern(rb"[A-Za-z0-9+/=\s\\nr:,\-|>\".0-9]*")
_SECOND_AT = rules.linear_pattern(rb"[^\s/:@\"'<>\x00]{1,40}@")
_VAULT = rules.linear_pattern(rb"\$ANSIBLE_VAULT;[0-9.]+;AES256[^\n\x00]{0,40}(?:\s*[0-9a-f]{16,80})+")
_URL_PLACEHOLDER = rules.linear_pattern(rb"^[$<{%*]|^\[|^x+$|^:|^//|\{\w+|^[0-9]+:[0-9]+$")


class SecretCommand(NamedTuple):
    """A command, call or line that holds a secret by its place, and the secret unless something stands in for it."""

    hit: Candidate | None


def judge_command(view: bytes, start: int) -> SecretCommand | None:
    """Return the command, call or line that begins at `start`, if one does."""
    if _OPENING.match(view, start, start + _REACH) is None:
        return None
    for mark, reader in _BEFORE.items():  # what was piped, or is the value of a field, comes before
        if view.startswith(mark, start):
            low = max(0, start - _BEFORE_REACH)
            before = reader.search(view[low:start])
            return SecretCommand(
                _make_command_candidate(_FLAG, view, low + before.start(1), low + before.end(1)) if before else None
            )
    for rule, reader in _READERS:
        found = reader.match(view, start, start + _REACHES.get(rule, _REACH))
        if found is not None and (rule != _JWK or b"kty" in view[max(0, start - _REACH) : found.end() + _REACH]):
            begin, end = found.span(1)
            return SecretCommand(
                _make_command_candidate(rule, view, start if rule == _HASH or begin == end else begin, end)
            )
    return SecretCommand(None)


def _make_command_candidate(rule: str, view: bytes, start: int, end: int) -> Candidate | None:
    value = view[start:end]
    if (rule == _SPOKEN and not _is_spoken(value, view[end : end + 2])) or (
        rule == _PHRASE and randomness.is_prose(value)
    ):
        return None
    # A hash and a salt may hold any marks.
    if rule not in (_HASH, _SALT, _KEY, _JWK) and (
        _COMMAND_PLACEHOLDER.search(value) or randomness.is_reference(value)
    ):
        return None
    if rule == _SALT and b"phrase" in value:
        return None
    if len(value) < _SHORT and not ends_line(view, end):
        return None
    whole = b"".join(value.split()) if b"\n" in value else value
    return Candidate(start, end, rule, whole, LOW if rule in (_FLAG, _CALL, _PHRASE, _SPOKEN) else MEDIUM)


def _is_spoken(value: bytes, after: bytes) -> bool:
    """Return whether `password is VALUE` gives the password: it has a digit or a mark, or ends the sentence."""
    if _TYPED.search(value):
        return True
    ends = after[:1] in (b"", b"\n", b"\r", b"\0", b'"', b"`") or after in (b".", b".\n", b". ", b'."', b"\\n")
    return ends and _SAID.match(value) is None


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
    command = judge_command(view, start)
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
    return bool(_MARKED.search(more)) or randomness.english_pair_share(more) < 0.5


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
            if randomness.is_random(token)
            else None
        )
    password = text[middle + 1 : -1]
    if not password or len(password) < 3 or len(password) > 200 or _URL_PLACEHOLDER.search(password):
        return None
    port = password.split(b"/")[0]
    if b"/" in password and ((port.isdigit() and len(port) > 1) or b"//" in password):
        return None  # a port and a path that holds an @
    if password == b"x-oauth-basic" and randomness.is_random(text[3:middle]):
        return Candidate(start + 3, start + middle, "url-token", text[3:middle], MEDIUM)
    if randomness.is_reference(password):
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
        fine = randomness.is_random(value, floor=2.8) or (
            (_BASE64_PADDING.search(value) if word.lower() == b"basic" else _is_dense(value))
            and not randomness.is_reference(value)
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
    flag = _USER_FLAG.match(text)
    name, mark, password = text[flag.end() if flag else 0 :].partition(b":")
    if name.startswith(b"<"):
        return b""
    password = password.strip(b"\"'{}")
    name = name.strip(b"\"'{}")
    return password or (name if mark and _DIGIT.search(name) and len(name) >= 10 else b"")


def _is_dense(value: bytes) -> bool:
    return (
        randomness.shannon_entropy(value) >= 3 and randomness.count_digits(value) >= 2 and not randomness.is_code(value)
    )


def _is_password_like(value: bytes) -> bool:
    return len(value) >= 4 and not randomness.is_reference(value) and _URL_PLACEHOLDER.search(value) is None
