"""Labelled texts, made at run time: secrets in the syntaxes people use, and what only looks like them."""

import base64
import json
import random
from typing import NamedTuple
from urllib.parse import quote

from tools.bench import token_examples

from flightlog.privacy.detect.rules import TokenRule, load_rules
from privacy.harmless import NEGATIVES

# {i} is a name, {s} the secret. Configuration, source, shell, tool output.
CONFIG = (
    '{i}Token="{s}"',
    '{i}Token = "{s}"',
    "{i}Token={s}",
    "{i}Token = {s}",
    '{{\n    "{i}_token": "{s}"\n}}',
    "<{i}Token>\n    {s}\n</{i}Token>",
    "<{i}Token>{s}</{i}Token>",
    "{i}_token: {s}",
    "{i}_token: '{s}'",
    '{i}_token: "{s}"',
    "{i}_token: |\n  {s}\n",
    'string {i}Token = "{s}";',
    'var {i}Token string = "{s}"',
    '{i}Token := "{s}"',
    "{i}Token := `{s}`",
    'String {i}Token = "{s}";',
    'var {i}Token: String = "{s}"',
    'val {i}Token = "{s}"',
    '${i}Token .= "{s}"',
    '${i}Token ??= "{s}"',
    "{i}Token = '{s}'",
    '"{i}Token" => "{s}"',
    '{i}_TOKEN ::= "{s}"',
    '{i}_TOKEN ?= "{s}"',
    "const {i}Key = '{s}'",
    'export const {i}Secret: string = "{s}";',
)
NEARBY = (
    "{i} {s}token = '{v}'",
    "{i} key: {v}",
    "{i}_api_key = '{v}'",
    "{i}: '{v}'",
    "# {i} settings\napi_key: {v}\n",
    "[INFO] {i} client started\n[DEBUG] using key={v}\n",
    "{i}:\n  auth: header\n  token: {v}\n",
    '{{"{i}": {{"token": "{v}"}}}}',
    'func main() {{\n\tclient := {i}.New("{v}")\n}}',
    'os.environ["{I}_API_KEY"] = "{v}"',
)
SHELL = (
    "export {I}_API_KEY={s}",
    "{I}_SECRET_KEY={s} ./deploy.sh",
    'curl -H "Authorization: Bearer {s}" https://api.example.com/v1',
    "curl -H 'X-Api-Key: {s}' https://api.example.com/{i}",
    "mytool --{i}-token={s} --verbose",
    "mytool --{i}-token {s} --verbose",
    "ENV {I}_TOKEN {s}",
    '  - name: {I}_API_TOKEN\n    value: "{s}"\n',
    'resource "x" "y" {{\n  {i}_token = "{s}"\n}}',
    '<add key="{i}ApiKey" value="{s}" />',
    'config.set("{i}_api_key", "{s}")',
    "     1\t{i}_api_key = {s}",
    "+{i}_api_key = '{s}'",
)
CONNECTIONS = (
    "postgres://app:{s}@db.internal.host:5432/app",
    "mysql://root:{s}@10.0.0.5/shop",
    "mongodb+srv://admin:{s}@cluster0.abcde.mongodb.net/test",
    "redis://:{s}@cache:6379/0",
    "amqp://guest:{s}@rabbit:5672/",
    "jdbc:postgresql://db:5432/app?user=app&password={s}",
    "Server=tcp:x.database.windows.net;Database=d;User ID=u;Password={s};Encrypt=true",
    "Driver={{ODBC}};Server=s;Uid=u;Pwd={s};",
    "https://user:{s}@git.example.com/x.git",
    "curl -u admin:{s} https://x.example.com",
    "machine api.example.com login me password {s}",
    "PGPASSWORD={s} psql -h db",
    'password = "{s}"',
    "password: {s}",
    '{{"auths": {{"registry": {{"auth": "{s}"}}}}}}',
    "Set-Cookie: sessionid={s}; HttpOnly",
    "Authorization: Basic {s}",
    "sshpass -p {s} ssh host",
)


class Labelled(NamedTuple):
    text: str
    start: int
    end: int
    rule: str

    @property
    def secret(self):
        return self.text[self.start : self.end]


def _place_secret(template, rule, secret, **fields):
    mark = "\x01"
    text = template.format(**{key: value.replace("\x02", mark) for key, value in fields.items()})
    at = text.index(mark)
    text = text.replace(mark, secret)
    return Labelled(text, at, at + len(secret), rule)


def _names(rule: TokenRule):
    return rule.near or (rule.provider.split()[0].lower().replace(".", ""),)


def config_style(seed=1):
    """Every rule's values in configuration and source syntaxes."""
    chance = random.Random(seed)
    for rule in load_rules():
        for form in rule.forms or ("{alnum:32}", "{hex:32}"):
            secret = token_examples.make_example(form, chance)
            for template in chance.sample(CONFIG, 6):
                yield _place_secret(
                    template, rule.id, secret, i=chance.choice(_names(rule)), s="\x02"
                )


def nearby_style(seed=2):
    """Every rule's values somewhere after a provider's name."""
    chance = random.Random(seed)
    for rule in load_rules():
        for form in rule.forms or ("{alnum:32}", "{lower:40}", "{url:24}"):
            secret = token_examples.make_example(form, chance)
            name = chance.choice(_names(rule))
            for template in chance.sample(NEARBY, 4):
                yield _place_secret(
                    template,
                    rule.id,
                    secret,
                    i=name,
                    I=name.upper().replace("-", "_"),
                    s="",
                    v="\x02",
                )


def tool_style(seed=3):
    """Values in shells, manifests, tool output and connection strings; some bare."""
    chance = random.Random(seed)
    for rule in load_rules():
        for form in rule.forms[:3] or ("{alnum:40}",):
            secret = token_examples.make_example(form, chance)
            name = chance.choice(_names(rule)).replace(".", "")
            for template in chance.sample(SHELL, 3):
                yield _place_secret(
                    template, rule.id, secret, i=name, I=name.upper().replace("-", "_"), s="\x02"
                )
            if not rule.near:
                yield Labelled(secret, 0, len(secret), rule.id)
    for template in CONNECTIONS * 6:
        password = token_examples.make_example(
            chance.choice(("{alnum:16}", "{alnum:12}!", "{url:20}", "{b64:24}")), chance
        )
        yield _place_secret(template, "connection", password, s="\x02")


def negatives(seed=4, rounds=6):
    """Texts that hold no secret, though they look like it."""
    chance = random.Random(seed)
    texts = [
        text.replace("{{", "\x03").replace("}}", "\x04")
        for _ in range(rounds)
        for text in NEGATIVES
    ]
    return [
        token_examples.make_example(text, chance).replace("\x03", "{").replace("\x04", "}")
        for text in texts
    ]


def escape_json(one):
    return _map_parts(one, lambda part: json.dumps(part)[1:-1])


def escape_twice(one):
    return _map_parts(one, lambda part: json.dumps(json.dumps(part)[1:-1])[1:-1])


def add_color(one):
    return _map_parts(one, lambda part: part, before="\x1b[32m", after="\x1b[0m")


def add_diff_signs(one):
    return _prefix_lines(one, lambda _: "+")


def number_lines(one):
    return _prefix_lines(one, lambda number: f"{number:6d}\t")


def url_encoded(one):
    return _map_parts(one, lambda part: quote(part, safe=""))


def wrap_secret(one):
    middle = (one.start + one.end) // 2
    return Labelled(one.text[:middle] + "\n" + one.text[middle:], one.start, one.end + 1, one.rule)


def in_base64(one):
    text = base64.b64encode(one.text.encode()).decode()
    return Labelled(text, (one.start // 3) * 4, min(len(text), -(-one.end // 3) * 4), one.rule)


def split_into_stream(one):
    middle = (one.start + one.end) // 2
    lead = 'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
    first, second = (json.dumps(part)[1:-1] for part in (one.text[:middle], one.text[middle:]))
    text = f'{lead}{first}"}}}}\n\n{lead}{second}"}}}}\n\n'
    return Labelled(text, text.index(first), text.index(second) + len(second), one.rule)


TRANSFORMS = (
    escape_json,
    escape_twice,
    add_color,
    add_diff_signs,
    number_lines,
    url_encoded,
    wrap_secret,
    split_into_stream,
    in_base64,
)


def _map_parts(one, way, *, before="", after=""):
    head, secret, tail = (
        way(part) for part in (one.text[: one.start], one.secret, one.text[one.end :])
    )
    start = len(head) + len(before)
    return Labelled(head + before + secret + after + tail, start, start + len(secret), one.rule)


def _prefix_lines(one, prefix):
    lines, start = [], one.start
    at = 0
    for number, line in enumerate(one.text.split("\n"), 1):
        lead = prefix(number)
        if at <= one.start:
            start = one.start + sum(len(prefix(k)) for k in range(1, number + 1))
        lines.append(lead + line)
        at += len(line) + 1
    extra = sum(len(prefix(1)) for _ in one.secret.split("\n")[1:])
    return Labelled("\n".join(lines), start, start + len(one.secret) + extra, one.rule)
