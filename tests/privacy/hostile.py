"""Texts made to cost much: runs of every class, near misses of every rule, nested escapes, piles of candidates."""

import base64
import json
import random
import string
from urllib.parse import quote

from tools.bench import token_examples

from flightlog.privacy.detect import rules
from flightlog.privacy.detect.assignments import WORDS
from flightlog.privacy.detect.rules import load_rules

_HEADS = sorted(
    {
        rules.form_head(form)
        for rule in load_rules()
        if not rule.near
        for form in rule.forms
        if rules.form_head(form)
    }
)
_NAMES = sorted({name for rule in load_rules() for name in rule.near})
# So much is new, then it comes again.
_FRESH = 150_000
_COMMANDS = (
    "mysql -u a ",
    "psexec ",
    "docker login ",
    "net use ",
    "ldapsearch ",
    "sqlcmd ",
    "zip -r ",
    "smbclient ",
)
_ALNUM = string.ascii_letters + string.digits


def _fill(size, seed, make):
    chance = random.Random(seed)
    parts, made = [], 0
    while made < min(size, _FRESH):
        parts.append(make(chance))
        made += len(parts[-1])
    text = "".join(parts)
    return (text * (size // len(text) + 1))[:size]


def _noise(chance, count, members=_ALNUM):
    return "".join(chance.choices(members, k=count))


def _near_miss(chance):
    rule = chance.choice(load_rules())
    form = chance.choice(rule.forms or ("{alnum:32}",))
    lead = f"{chance.choice(rule.near)}_key = " if rule.near else ""
    return (
        lead
        + token_examples.make_short_example(form, chance)
        + chance.choice(("\n", " ", '"', "_"))
    )


def _write_assignment(chance):
    rule = chance.choice(load_rules())
    value = token_examples.make_example(chance.choice(rule.forms or ("{alnum:32}",)), chance)
    return f"{chance.choice(rule.near or ('x',))}_token='{value}'\n"


def _cut(chance, text):
    at = chance.randrange(1, len(text))
    return text[:at] + chance.choice(("\n", "\r\n", "\\\n", "\n  ", "\n> ")) + text[at:]


def _base64(text):
    return base64.b64encode(text.encode()).decode()


def _pieces(chance, text):
    size = chance.randrange(1, 9)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _nest_json(text, times):
    for _ in range(times):
        text = json.dumps(text)
    return text


REPEATED = {
    "letters": "a",
    "capitals": "A",
    "digits": "7",
    "hex": "0a",
    "backslashes": "\\",
    "quotes": '"',
    "single quotes": "'",
    "equals": "=",
    "colons": ":",
    "dashes": "-",
    "underscores": "_",
    "dots": ".",
    "slashes": "/",
    "percents": "%41",
    "percent marks": "%3D",
    "spaces": " ",
    "newlines": "\n",
    "tabs": "\t",
    "ats": "a@",
    "mails": "a@b.c ",
    "angles": "<",
    "braces": "{",
    "dollars": "$",
    "escapes": "\\n",
    "double escapes": "\\\\n",
    "unicode escapes": "\\u003d",
    "quot": "&quot;",
    "ansi": "\x1b[3m",
    "written ansi": "\\u001b[3m",
    "keys": "key",
    "assigned keys": "key=",
    "key runs": "key_",
    "tokens": "token: ",
    "passwords": "password=",
    "quoted passwords": 'password="',
    "words and quotes": "secret'",
    "pem": "-----BEGIN PRIVATE KEY-----\n",
    "pem ends": "-----END ",
    "urls": "://a:b",
    "url passwords": "://a:b@",
    "bearers": "bearer abcdefghijklm1 ",
    "users": " -u a:",
    "kinds": "kind: Secret\n",
    "machines": "machine a login b password ",
    "vaults": "$ANSIBLE_VAULT;1.1;AES256\n",
    "base64": "aGVsbG8gd29ybGQg",
    "base64 keys": base64.b64encode(b"password=hunter22 ").decode(),
    "events": 'data: {"delta":{"text":"a"}}\n\n',
    "open events": "data: {",
    "anthropic heads": "sk-ant-",
    "aws heads": "AKIA",
    "jwt heads": "eyJ.",
    "jwts": "eyJhbGciOi.eyJ",
    "cards": "4111-1111-1111-1112 ",
    "ibans": "DE89 ",
    "addresses": "93.184.216.34 ",
    "sixes": "a:",
    "phones": "+1 415 555 2671 ",
    "homes": "/home/a",
    "uuids": "0a1b2c3d-0a1b-4c3d-8a1b-0a1b2c3d4e5f ",
    "lines of keys": "token=abcdef1234567890\n",
    "nul": "\0",
    "tags": "<secret:a:000000>",
    "half tags": "<secret:",
    "arrows": "1\u2192",
    "hosts": "a.corp ",
    "credentials": 'NetworkCredential("a", "',
    "names": "github token ",
    "ambiguous": "zoom api ",
    "fillers": "key: string ",
    "wraps": "key=abcdef12\n",
    "numbered": "     1\tkey: \n",
    "crypt": "$2a$12$",
    "hooks": "hooks.slack.com/services/",
    "slugs": "-home-a",
    "device": "device_id: ",
    "flags": "mysql -p",
    "later": "secret: a b ",
    "shares": "net use \\\\a ",
    "calls": "auth=('a', '",
    "salts": "define('KEY', '",
    "pipes": "'abcd' | ConvertTo-SecureString ",
    "phrases": "mnemonic abc def ",
    "hashes of passwords": "{SSHA}abcdefghijkl",
    "cut heads": "ghp_\n",
    "cut tokens": "AKIAQ4WDJH\n",
    "cut passwords": "password=ab\n",
    "cut addresses": "://ab:\n",
    "cut headers": "basic a1\n",
    "cut lines of returns": "token=abc123\\\r\n",
    "quoted lines": "> key=abcdef1234\n",
    "diff lines": "+ key=abcdef1234\n",
    "numbered lines": "    12\ttoken=abcd1234efgh\n",
    "returns": "\\r\\n",
    "middles": "8Q~\n",
    "long mail": "a.",
    "long host": "a-",
    "unicode": "\u043a\u043b\u044e\u0447=\u00e9",
    "wide": "\U0001f511key=",
    "percent words": "%20key%3Dabc123def456",
    "twice percent": "%253D",
    "twice base64": base64.b64encode(base64.b64encode(b"api_key=k3J9x2Lq8Zr5Tn1Vb7Wc4 ")).decode(),
    "short base64": "cGFzc3dvcmQ9aHVudGVyMjI ",
    "data addresses": "data:{",
    "github links": "[#11364](https://github.com/a/b/pull/11364) ",
    "hashes": '"aws": "8095f49d3b9d3b1a", ',
    "joined addresses": "93.184.216.34-",
    "joined cards": "4111111111111111-",
    "joined ibans": "DE89370400440532013000-",
    "joined numbers": "219-09-9999-",
    "joined users": "user_" + "0a" * 32 + "-",
    "keys and addresses": "key-93.184.216.34-",
    "homes and mails": "/home/bob/x bob@mail.io ",
}
SOUPS = {
    "heads": lambda chance: chance.choice(_HEADS),
    "heads and noise": lambda chance: f"\n{chance.choice(_HEADS)}{_noise(chance, 8)}",
    "heads in a run": lambda chance: f"{chance.choice(_HEADS)}{_noise(chance, 24)}",
    "names": lambda chance: f"{chance.choice(_NAMES)} {_noise(chance, 12)} ",
    "assigned names": lambda chance: f"{chance.choice(_NAMES)}={_noise(chance, 13)}#",
    "words": lambda chance: f"{chance.choice(WORDS)}={_noise(chance, 6)}",
    "passwords": lambda chance: f'{chance.choice(WORDS)}="{_noise(chance, 10)}"\n',
    "headers": lambda chance: f"bearer {_noise(chance, 13)} ",
    "addresses": lambda chance: f"{_noise(chance, 3)}@{_noise(chance, 3)}.io ",
    "colours": lambda chance: f"\x1b[3m{chance.choice(WORDS)}={_noise(chance, 6)}",
    "percents": lambda chance: f"%3D{chance.choice(WORDS)}%3D{_noise(chance, 6)}",
    "near misses": _near_miss,
    "secrets": _write_assignment,
    "noise": lambda chance: _noise(chance, 64),
    "bytes": lambda chance: _noise(chance, 64, [chr(code) for code in range(1, 256)]),
    "marks": lambda chance: _noise(chance, 64, string.punctuation + " \n"),
    "base64 of secrets": lambda chance: (
        base64.b64encode(_write_assignment(chance).encode()).decode() + " "
    ),
    "events": lambda chance: f'data: {{"delta":{{"text":"{_noise(chance, 5)}"}}}}\n',
    "wrapped": lambda chance: f"{chance.choice(WORDS)}={_noise(chance, 9)}\n{_noise(chance, 9)}\n",
    "numbers": lambda chance: f"{_noise(chance, 16, string.digits)} ",
    "cut secrets": lambda chance: _cut(chance, _write_assignment(chance)),
    "cut near misses": lambda chance: _cut(chance, _near_miss(chance)),
    "coloured letters": lambda chance: "".join(
        f"\x1b[3{chance.randrange(8)}m{char}" for char in _write_assignment(chance)
    ),
    "escaped secrets": lambda chance: quote(_write_assignment(chance), safe=""),
    "escapes everywhere": lambda chance: "".join(
        f"%{ord(char):02X}" for char in _write_assignment(chance)
    ),
    "unicode escapes": lambda chance: "".join(
        f"\\u{ord(char):04x}" for char in _write_assignment(chance)
    ),
    "near the floor": lambda chance: f"secret_key = {_noise(chance, 24, 'abcdeab1')}\n",
    "base64 of base64": lambda chance: _base64(_base64(_write_assignment(chance))) + "\n",
    "base64 of escapes": lambda chance: _base64(quote(_write_assignment(chance), safe="")) + "\n",
    "split events": lambda chance: "".join(
        f'data: {{"delta":{{"text":{json.dumps(piece)}}}}}\n\n'
        for piece in _pieces(chance, _write_assignment(chance))
    ),
    "deep events": lambda chance: (
        f'data: {{"a":{{"b":{{"c":{{"text":"{_noise(chance, 9)}"}}}}}}}}\n'
    ),
    "all at once": lambda chance: (
        f"{chance.choice(_NAMES)} {chance.choice(WORDS)}={_noise(chance, 12)} a@b.io "
    ),
    "addresses with passwords": lambda chance: (
        f"https://{_noise(chance, 4)}:{_noise(chance, 9)}@{_noise(chance, 5)}.io/\n"
    ),
    "flags": lambda chance: f"curl -u {_noise(chance, 4)}:{_noise(chance, 8)} x\n",
    "commands": lambda chance: (
        chance.choice(_COMMANDS) + chance.choice(("", " -p ", " -P a", " -w ", "a%b ", "\n"))
    ),
    "hosts": lambda chance: f"{_noise(chance, 8, string.ascii_lowercase)}.corp ",
    "homes": lambda chance: f"/home/{_noise(chance, 6, string.ascii_lowercase)}/ ",
    "sixes": lambda chance: ":".join(_noise(chance, 4, "0123456789abcdef") for _ in range(8)) + " ",
    "accounts": lambda chance: f"device_id={_noise(chance, 64, '0123456789abcdef')} ",
    "manifests": lambda chance: f"kind: Secret\ndata:\n  a: {_noise(chance, 24)}\n---\n",
    "nested": lambda chance: _nest_json(
        f'{{"{chance.choice(WORDS)}": "{_noise(chance, 12)}"}}', chance.randrange(1, 5)
    ),
}


def families(size):
    """Yield the name and the text of each family, `size` characters long."""
    for name, piece in REPEATED.items():
        yield name, (piece * (size // len(piece) + 1))[:size]
    for name, make in SOUPS.items():
        yield f"soup of {name}", _fill(size, 3, make)
    yield "nested JSON", _nest_json("key=" * (size // 4096), 11)[:size]
    yield "one password in addresses", ("://a:b" * (size // 6 + 1))[: size - 1] + "@"
    yield "one string in brackets", '["' * (size // 2)
