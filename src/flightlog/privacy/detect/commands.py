"""Passwords by their place in a command, a call or a line of a file: `net use … /user:NAME PASSWORD`.

Each syntax begins with a literal that is rare in other text, and has one group, the secret.
`specials` finds where one begins; here it is read again from there.
"""

from typing import NamedTuple

from flightlog.privacy.detect import chance, lazily
from flightlog.privacy.detect.hits import LOW, MEDIUM, Candidate
from flightlog.privacy.detect.wraps import LINE_END, ends_line

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
PATTERN = "|".join(dict.fromkeys([*_OPENINGS, _PIPED, _FIELD])).encode()
_READERS = tuple((rule, lazily.linear_pattern(f"(?:{opening}){rest}".encode())) for rule, opening, rest in _SYNTAXES)
_OPENING = lazily.linear_pattern(PATTERN)
_PIPED_BEFORE = lazily.linear_pattern(rb"[\"']([^\"'\x00]{4,80}?)\\{0,3}[\"']\s*\z")
_ECHOED_BEFORE = lazily.linear_pattern(
    rb"\b(?:echo|printf)(?: -\w+| '%s(?:\\+n)?')* (?:\\{0,3}[\"'])?([^\"'\x00|\s][^\"'\x00|]{3,80}?)"
    rb"(?:\\{0,3}[\"'])?\s*\|[^|\n\x00]*\z"
)
_TYPED = lazily.quick_pattern(rb"[0-9!@#$%^&*+]")
_FIELD_BEFORE = lazily.linear_pattern(rb"(?i)\svalue=\\{0,3}[\"']([^\s\"'<>\x00]{4,80}?)\\{0,3}[\"']\s[^<>\x00]*\z")
# By what follows the secret; a pipe, its command and the options before the flag fit in 200 bytes.
_BEFORE = {b"|": _PIPED_BEFORE, b"type=": _FIELD_BEFORE, b"--password": _ECHOED_BEFORE}
_BEFORE_REACH = 200
_STAND_IN = lazily.linear_pattern(
    rb"(?i)^[$<{%*]|^\[|^x+$|^[0-9]+:[0-9]+$|\{\w+|^(?:passw(?:or)?d|pass|pwd|secret|word|public|private)\W*$"
)


# What prose says of a password: `is required`, `is not set`, `is hashed`.
_SAID = lazily.quick_pattern(
    rb"(?i)(?:not|now|never|always|also|only|being|still|stored|empty|wrong|incorrect|correct|valid|invalid|missing|optional"
    rb"|default|equal|safe|secure|weak|strong|blank|null|none|hidden|secret|known|unknown|longer|shorter|different|unique"
    rb"|temporary|about|their|there|these|those|where|which|given|shown|written|taken|\w*(?:ed|ing|able|ible))\Z"
)


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
    if (rule == _SPOKEN and not _is_spoken(value, view[end : end + 2])) or (rule == _PHRASE and chance.is_prose(value)):
        return None
    # A hash and a salt may hold any marks.
    if rule not in (_HASH, _SALT, _KEY, _JWK) and (_STAND_IN.search(value) or chance.is_reference(value)):
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
