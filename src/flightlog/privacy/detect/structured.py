"""Find secrets by their syntax: PEM keys, credentials in URLs, headers, flags, commands and calls.

Each syntax begins with a literal that is rare in other text and has one group, the secret.
`triggers` finds where one begins; it is matched again from there. No pattern crosses a NUL, the
mark between records, and every lookahead is bounded.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.privacy.detect import line_wraps, randomness, rules
from flightlog.privacy.detect.candidates import (
    LOW,
    MEDIUM,
    Candidate,
    TextForm,
    WorkBudget,
    search_in_stretches,
)

# Bytes in which a command, a call or a line with its secret must fit; keys are longer.
_REACH = 400
_REACHES = {"private-key": 4_000, "json-web-key": 1_000}  # 4096-bit keys in base64, RSA exponents
_SHORT = 4  # a shorter secret counts only at the end of its line, where it may be cut
# Parts of the patterns below. A secret as a word of a command, not a variable, an option or a path.
_WORD = r"[\"']?(?P<v>[^\s\x00\"'/*$%<{-][^\s\x00\"']{2,80})"
_QUOTE = r"\\{0,3}[\"']"  # also escaped in JSON, twice
_ARGUMENT = rf"{_QUOTE}[^\"'\n\x00]{{0,100}}{_QUOTE}\s*,\s*"  # of a call, before the secret
# A secret that is recognized by the text after it, so that a line end may cut it.
_CUT = rf"(?P<v>[^\s\x00\"'/*$%<{{-][^\s\x00\"'@]{{1,80}}(?:{line_wraps.LINE_END}[^\s\x00\"'@/]{{2,40}})?)"
_LAST = rf"{_QUOTE}(?P<v>[^\"'\x00]{{4,80}}?){_QUOTE}"  # the secret as an argument
# `password for x is y`
_SAID_WORD = r"(?:[\w.@-]{1,30} (?:is|was) )?[\"'`]?(?P<v>[\w!@#$%^&*+-]{5,40})"
# Three to twelve small words.
_WORDS_ALONE = r"(?P<v>[a-z]+(?: [a-z]+){2,11}) {0,2}(?:[\"'\\\n;]|\z)"
_LINE = r"[^\n\x00|;&]{0,120}?"  # other options of the same command
# Calls of libraries.
_BASIC_AUTH = r"\bHTTP(?:Basic|Digest)Auth|\b[sS]etBasicAuth|\bUsernamePasswordCredentials"
_SALTED = "(?:SECURE_|LOGGED_IN_|NONCE_)?(?:AUTH_)?(?:KEY|SALT)"  # constants of WordPress
_BASE64 = "[A-Za-z0-9+/]"  # one character
# The rest of a hash, perhaps on the next line.
_PADDED = rf"(?:{line_wraps.LINE_END})?{_BASE64}{{12,120}}={{1,2}}"
# A share of an unseal key of Vault has 44 or 88 characters.
_SHARE = (
    rf"(?:{_BASE64}{{40,88}}|{_BASE64}{{12,60}}(?:{line_wraps.LINE_END}){_BASE64}{{12,60}})={{0,2}}"
)
# What wallets call the 12 to 24 words of BIP 39.
_MNEMONIC = r"(?i:\bmnemonic|\b(?:seed|recovery|secret).?(?:phrase|words))"
_HASH, _SALT, _PHRASE = "password-hash", "wordpress-salt", "seed-phrase"
_FLAG, _UNSEAL, _SPOKEN = "command-password", "vault-unseal-key", "spoken-password"
_CALL = "credential-call"
_KEY, _JWK = "private-key", "json-web-key"
_AWS = "aws-secret-key"
# The 40 characters of a secret key, close after the id of the key.
_AWS_VALUE = r"[^A-Za-z0-9+/\x00]{1,8}(?P<v>[A-Za-z0-9+/]{40})(?:[^A-Za-z0-9+/=]|$)"
# Rule, opening, and the rest with the secret. Only the openings are searched in every text: with the
# counts of the rest, the automaton would have more states than its memory allows.
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
    (
        _PHRASE,
        r"(?i:\bpassphrase)",
        rf"(?:{_QUOTE})?\s{{0,2}}(?:[:=]|is )\s{{0,2}}(?:{_QUOTE})?{_WORDS_ALONE}",
    ),
    (_FLAG, r"\bhtpasswd +-", rf"[a-zA-Z]*b[a-zA-Z]* +[^\s\x00]+ +[^\s\x00]+ +{_WORD}"),
    (_FLAG, r"\b(?:un)?zip (?:-\w{1,6} ){0,3}-P ", rf" *{_WORD}"),
    (_FLAG, r"\brabbitmqctl +(?:add_user|change_password) ", rf" *[^\s\x00]+ +{_WORD}"),
    (_FLAG, r"\bsqlplus |\bjdbc:oracle:thin:", rf" *(?:-\w+ +)?[\w.]+/{_CUT}@"),
    (_FLAG, r"\brootpw --plaintext |\bsnmp-server community ", rf" *{_WORD}"),
    (_FLAG, r"\b(?:tacacs|radius)-server ", rf"{_LINE}key +(?:\d +)?{_WORD}"),
    (
        _UNSEAL,
        r"\b(?:[Uu]nseal|[Rr]ecovery) [Kk]ey [0-9]{1,2}: ?|\bvault operator unseal ",
        rf" *(?P<v>{_SHARE})",
    ),
    (_FLAG, r"\b(?:password|secret|key) 7 ", r"(?P<v>[0-9A-F]{8,60})\b"),
    (_AWS, r"[^A-Za-z0-9\x00]A[KS]IA[A-Z2-7]{16}\b", _AWS_VALUE),
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
    (
        "pgpass",
        ":(?:5432|5433|6432|3306):",
        r"[^\s\x00:]{1,40}:[^\s\x00:]{1,40}:(?P<v>[^\s\x00:\"'\\<$]{4,60})",
    ),
    (
        _CALL,
        r"\b(?:mysqli?_connect|new mysqli|new PDO|getConnection)\(",
        rf"\s*{_ARGUMENT}{_ARGUMENT}{_LAST}",
    ),
    (
        _CALL,
        r"\bDBI(?:->|\.)connect\(",
        rf"\s*(?:{_ARGUMENT}|[^\"',()\n\x00]{{1,60}},\s*){{2}}{_LAST}",
    ),
    (_CALL, rf"(?:\bauth ?= ?|{_BASIC_AUTH})\(", rf"\s*{_ARGUMENT}{_LAST}"),
    (_SALT, rf"\bdefine\(\s*{_QUOTE}{_SALTED}{_QUOTE}", r"\s*,\s*'(?P<v>[^'\x00]{20,120})'"),
    (
        _HASH,
        r"\{S?(?:SHA|MD5)(?:256|384|512)?\}",
        rf"(?P<v>{_BASE64}{{8,120}}(?:{_PADDED}|{_BASE64}{{12}}))",
    ),
    (
        _PHRASE,
        _MNEMONIC,
        rf"[^\n\x00]{{0,12}}?(?P<v>\b(?:[a-z]{{3,8}}(?: |{line_wraps.LINE_END} ?)){{11,23}}[a-z]{{3,8}})\b",
    ),
)
_PIPED = r"\|\s*ConvertTo-SecureString|--password-stdin"  # the secret is piped in
_FIELD = rf"\btype={_QUOTE}password{_QUOTE}"  # of an HTML form; its value comes before
_FOLLOWS = {_SALT: r"\s*,\s*'[^'\x00]{20}"}  # `define('AUTH_KEY'` alone is frequent in code
_OPENINGS = (opening + _FOLLOWS.get(rule, "") for rule, opening, _ in _SYNTAXES)
COMMAND_PATTERN = "|".join(dict.fromkeys([*_OPENINGS, _PIPED, _FIELD])).encode()
# Each syntax whole, and all openings.
_READERS = tuple(
    (rule, rules.linear_pattern(f"(?:{opening}){rest}".encode()))
    for rule, opening, rest in _SYNTAXES
)
_OPENING = rules.linear_pattern(COMMAND_PATTERN)  # any of them
# Secrets before their opening: a quoted string before a pipe, the argument of `echo`, the value of
# a form field.
_PIPED_BEFORE = rules.linear_pattern(rb"[\"']([^\"'\x00]{4,80}?)\\{0,3}[\"']\s*\z")
# `echo SECRET | docker login --password-stdin`
_ECHOED_BEFORE = rules.linear_pattern(
    rb"\b(?:echo|printf)(?: -\w+| '%s(?:\\+n)?')* (?:\\{0,3}[\"'])?([^\"'\x00|\s][^\"'\x00|]{3,80}?)"
    rb"(?:\\{0,3}[\"'])?\s*\|[^|\n\x00]*\z"
)
# What follows the last word of a sentence.
_TEXT_ENDS = (b"", b"\n", b"\r", b"\0", b'"', b"`")
_SENTENCE_ENDS = (b".", b".\n", b". ", b'."', b"\\n")
_TYPED = rules.quick_pattern(rb"[0-9!@#$%^&*+]")  # what passwords have and words do not
# `<input value="SECRET" type="password">`
_FIELD_BEFORE = rules.linear_pattern(
    rb"(?i)\svalue=\\{0,3}[\"']([^\s\"'<>\x00]{4,80}?)\\{0,3}[\"']\s[^<>\x00]*\z"
)
_BEFORE = {b"|": _PIPED_BEFORE, b"type=": _FIELD_BEFORE, b"--password": _ECHOED_BEFORE}
_BEFORE_REACH = 200  # a pipe, its command and the options before the flag fit
# Variables, masks, ranges of ports, and words for the secret itself.
_COMMAND_PLACEHOLDER = rules.linear_pattern(
    rb"(?i)^[$<{%*]|^\[|^x+$|^[0-9]+:[0-9]+$|\{\w+|^(?:passw(?:or)?d|pass|pwd|secret|word|public|private)\W*$"
)
_LINE_END = line_wraps.LINE_END.encode()
# A command that goes on in the next line: raw, as JSON writes it, and with that blanked out.
_CONTINUED = rb"(?:\\[ ]{0,2}\r?\n|\\{3}n)\+?"
# All syntaxes. One that a line end may cut also matches with only its first part on the line.
SPECIAL_PATTERN = (
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
    rb"|://[^\s/:@\"'<>\\\x00]*:(?:[^\s@\"'<>\\\x00]|\\{1,2}[0-9A-Za-mo-qsv-z!#$%&*+.-])+@"
    rb"|://[A-Za-z0-9_-]{30,}@|://[^\s/@\"'<>\\\x00]*"
    + _LINE_END
    + rb"|\bkind[\"']?: *[\"']?[Ss]ecret\b|\$ANSIBLE_VAULT;"
    rb"|(?i:\b(?:bearer|basic|ssws)[ ]+(?:[A-Za-z0-9._~+/=-]{12,}|[A-Za-z0-9._~+/=-]{2,11}"
    + _LINE_END
    + rb")"
    rb"|(?:[ ]|" + _CONTINUED + rb")(?:-u|--user|--proxy-user)[ =]{0,3}"
    rb"(?:[\"'][^\s\"'\x00]*(?:" + _LINE_END + rb"[^\s\"'\x00]*)?[\"']"
    rb"|[^\s:\"'\x00/]+):?[\"']?[^\s\"'\x00]*"
    rb"|\bsshpass -p *[^\s\x00]+"
    rb"|\bmachine\s+[^\s\x00]+\s+login\s+[^\s\x00]+\s+password\s+[^\s\x00]+)"
    rb"|\b(?:NetworkCredential|DirectoryEntry)\((?:\s*\\{0,3}\"[^\"\x00]{1,100}\"\s*,){1,2}\s*\\{0,3}\"[^\"\x00]{3,80}\""
    rb"|" + COMMAND_PATTERN
)
_TRIGGER = rules.linear_pattern(SPECIAL_PATTERN)  # the same, compiled
_USER_FLAG = rules.linear_pattern(rb"--?(?:user|u|proxy-user)[ =]*")  # of curl
_DIGIT = rules.linear_pattern(rb"[0-9]")  # a user's name with one may be a token
_MARKED = rules.linear_pattern(rb"[0-9#!@%^*]")  # what the rest of a value has and a word does not
_BASE64_PADDING = rules.linear_pattern(rb"[^=]==?$")  # `Basic` credentials are base64
# Bytes that one judgement may examine: the longest header, flag or URL.
_LOOK = 400
# English letter pairs: words have over half of them.
_WORD_PAIRS = 0.5
# Bits per character: headers hold tokens that are shorter than other keys.
_HEADER_ENTROPY = 2.8


class SecretCommand(NamedTuple):
    """A command, call or line with a position for a secret, and the secret unless it is a placeholder."""

    hit: Candidate | None


def judge_command(view: bytes, start: int) -> SecretCommand | None:
    """Return the command, call or line that begins at `start`, or None if none does."""
    if _OPENING.match(view, start, start + _REACH) is None:
        return None
    for mark, reader in _BEFORE.items():
        if view.startswith(mark, start):
            low = max(0, start - _BEFORE_REACH)
            before = reader.search(view[low:start])
            if before is None:
                return SecretCommand(None)
            begin, end = (low + at for at in before.span(1))
            return SecretCommand(_make_command_candidate(_FLAG, view, begin, end))
    for rule, reader in _READERS:
        match = reader.match(view, start, start + _REACHES.get(rule, _REACH))
        if match is not None and (
            rule != _JWK or b"kty" in view[max(0, start - _REACH) : match.end() + _REACH]
        ):
            begin, end = match.span(1)
            begin = start if rule == _HASH or begin == end else begin
            return SecretCommand(_make_command_candidate(rule, view, begin, end))
    return SecretCommand(None)


def _make_command_candidate(rule: str, view: bytes, start: int, end: int) -> Candidate | None:
    value = view[start:end]
    # A hash, a salt and a key may have any marks.
    plain = rule in (_HASH, _SALT, _KEY, _JWK)
    if (
        (rule == _SPOKEN and not _is_spoken(value, view[end : end + 2]))
        or (rule == _PHRASE and randomness.is_prose(value))
        or (not plain and (_COMMAND_PLACEHOLDER.search(value) or randomness.is_reference(value)))
        or (rule == _SALT and b"phrase" in value)
        or (len(value) < _SHORT and not line_wraps.ends_line(view, end))
    ):
        return None
    whole = b"".join(value.split()) if b"\n" in value else value
    weight = LOW if rule in (_FLAG, _CALL, _PHRASE, _SPOKEN) else MEDIUM
    return Candidate(start, end, rule, whole, weight)


def _is_spoken(value: bytes, after: bytes) -> bool:
    """Return whether `password is VALUE` gives the password: VALUE has a mark, or ends the sentence."""
    if _TYPED.search(value):
        return True
    ends = after[:1] in _TEXT_ENDS or after in _SENTENCE_ENDS
    return ends and not randomness.is_predicate(value)


def find_structured_secrets(
    view: bytes, meter: WorkBudget, form: TextForm = TextForm.RAW
) -> Iterator[Candidate]:
    """Yield private keys, and credentials in URLs, headers, flags and commands."""
    meter.reset(form)
    at, pem_end = 0, 0
    while (match := search_in_stretches(_TRIGGER, view, at)) is not None:
        start, text = match.start(), match.group()
        if not meter.try_spend(start, _LOOK):
            hit = meter.unjudged_rest(view, start)
            at = hit.end
            yield hit
            continue
        if text.startswith(b"kind"):
            yield from line_wraps.find_kubernetes_values(view, start)
            at = match.end()
            continue
        if text.startswith(b"$"):
            secret = line_wraps.judge_ansible_vault(view, start)
        elif text.startswith(b"-----BEGIN"):
            if pem_end <= start:  # searched once, however many blocks begin before it
                pem_end = view.find(line_wraps.PEM_END, start)
                pem_end = pem_end if pem_end >= 0 else len(view)
            secret = line_wraps.judge_pem_block(view, start, pem_end)
        else:
            secret = _judge_inline(view, match)
            if line_wraps.ends_line(view, secret.end if secret else match.end()) or b"\n" in text:
                secret = _choose_longer(secret, _judge_over_lines(view, start))
            if secret and text[:7].lower() == b"machine":
                secret = line_wraps.extend_to_last_word(view, secret)
        at = secret.end if secret else match.end() if not text.startswith(b"://") else start + 3
        # A piped secret is before the match. A match longer than any URL is not read again.
        at = max(at, start + 1, match.end() - _LOOK)
        if secret:
            yield secret


def _judge_inline(view: bytes, match: Any) -> Candidate | None:
    start, text = match.start(), bytes(match.group())
    if text.startswith(b"://"):
        with_host = line_wraps.extend_to_host(view, match) if text.endswith(b"@") else None
        return None if with_host is None else _judge_url(with_host, start)
    command = judge_command(view, start)
    if command is not None:
        return command.hit
    stripped = text.lstrip(b"\\ \r\n+")  # the continuation of the line before
    if b"\n" in stripped.strip():
        return None
    return _judge_header_or_flag(stripped.rstrip(b"\\"), start + len(text) - len(stripped))


def _judge_over_lines(view: bytes, start: int) -> Candidate | None:
    """Return the secret that begins at `start` and goes on in the next lines."""
    text, back = line_wraps.unwrap_lines(view, start, _LOOK)
    match = _TRIGGER.match(text)
    secret = _judge_inline(text, match) if match is not None else None
    if secret is None:
        return None
    return secret._replace(start=back(secret.start + 1) - 1, end=back(secret.end))


def _choose_longer(first: Candidate | None, second: Candidate | None) -> Candidate | None:
    """Return `second` if it is longer and its additional text is the end of a value, not a word."""
    if first is None or second is None:
        return first or second
    more = second.value[len(first.value) :]
    continues = _MARKED.search(more) or randomness.english_pair_share(more) < _WORD_PAIRS
    return second if len(second.value) > len(first.value) and continues else first


def _judge_url(text: bytes, start: int) -> Candidate | None:
    middle = text.find(b":", 3)
    if middle < 0:
        token = text[3:].split(b"@")[0]
        hit = Candidate(start + 3, start + 3 + len(token), "url-token", token, MEDIUM)
        return hit if randomness.is_random(token) else None
    password = text[middle + 1 : -1]
    if not 3 <= len(password) <= 200 or randomness.is_masked(password):
        return None
    port = password.split(b"/")[0]
    if b"/" in password and ((port.isdigit() and len(port) > 1) or b"//" in password):
        return None  # a port and a path with an `@`
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
        fine = randomness.is_password_like(value) and not value.isdigit()
    elif word.lower() in (b"bearer", b"basic", b"ssws"):
        rule = "auth-header"
        is_basic = word.lower() == b"basic"
        encoded = _BASE64_PADDING.search(value) if is_basic else randomness.is_dense(value)
        random = randomness.is_random(value, floor=_HEADER_ENTROPY)
        fine = random or (encoded and not randomness.is_reference(value))
    elif word.endswith(b'"') or b"(" in word:
        value, rule = text.rsplit(b'"', 2)[1].rstrip(b"\\"), "credential-call"
        fine = randomness.is_password_like(value)
    else:
        value, rule = value.removeprefix(b"-p").strip(b"\"'"), "password-flag"
        fine = randomness.is_password_like(value)
    at = start + text.rfind(value)
    if fine:
        return Candidate(at, at + len(value), rule, value, LOW if rule == "curl-user" else MEDIUM)
    return None


def _user_password(text: bytes) -> bytes:
    """Return the password of `-u name:password`, or a name with a digit that has no password."""
    flag = _USER_FLAG.match(text)
    name, mark, password = text[flag.end() if flag else 0 :].partition(b":")
    if name.startswith(b"<"):
        return b""
    password = password.strip(b"\"'{}")
    name = name.strip(b"\"'{}")
    return password or (name if mark and _DIGIT.search(name) and len(name) >= 10 else b"")
