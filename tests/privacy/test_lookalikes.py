"""Secrets beside what reads like them and is none: each must go whole, each of the others must stay."""

import json

import pytest
from tools.bench import token_examples

from flightlog.privacy.detect import engine
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.redactor import Redactor
from privacy.labelled import Labelled, add_diff_signs, escape_json, escape_twice
from privacy.test_detect import is_covered, spans

SECRETS = (
    ("§", "hvs.{url:24}", "hvs.{url:37}", "hvb.{url:60}", "hvr.{url:37}", "hvs.{url:200}"),
    ("apikey: §", "hvs.{url:37}", "hvb.{alnum:37}", "pre.{hex:36}"),
    ("host = 'a'\npassword = '§'\n", "`{digits:3}{ALPHA:4}{alpha:4}", "`{alnum:9}"),
    ('PASS = "§"\nnext = 1\n', "`{digits:3}{ALPHA:4}{alpha:4}"),
    ("Unseal Key 2: §\n", "{b64:44}", "{b64:43}="),
    ("Recovery Key 1: §", "{b64:44}"),
    ("kubectl exec vault-0 -- vault operator unseal §", "{b64:44}"),
    ("secret_id: §", "{uuid}"),
    ("client_secret_id=§", "{uuid}"),
    ('pinecone_key = "§"', "{uuid}"),
    ("§", "ATCTT3xFfGN0{url:90}={HEX:8}", "ATCTT3xFfGN0{url:180}={HEX:8}"),
    ("bitbucket_key=§", "{url:44}"),
    ("LIVEBLOCKS=§", "sk_prod_{alnum:40}_-{alnum:22}", "sk_dev_{url:64}"),
    ("ETSY_API_KEY=§", "{lower:24}:{lower:10}"),
    ("curl -X POST https://x.io/t \\\n-u client:§\n", "{alnum:40}"),
    ("curl https://x.io/t \\\n  --user client:§", "{alnum:40}"),
    ('DBI->connect("dbi:mysql:database=test", "root", "§");', "{alnum:6}#{lower:4}"),
    ('DBI.connect(dsn, "root", "§")', "{alnum:6}#{lower:4}"),
    ('<input class="a" value="§" type="password" name="b" />', "{alpha:6}_{ALPHA:3}!"),
    ("machine x.io login bob password §", "{digits:6}\nabcdef"),
    # Invented values: a secret name or a vendor's prefix vouches for them.
    (
        "aws_secret_access_key = §",
        "a" * 40,
        "{alnum:30}" + "EXAMPLE" + "KEY",
        "abcdef1234567890" * 2,
    ),
    ("api_key=§", "x" * 32, "1234567890" * 3, "abcdefghijklmnopqrstuvwxyz123456"),
    ('"client_secret": "§"', "1234567890abcdef" * 2, "{alnum:12}" + "fake" + "{alnum:12}"),
    ("SONAR_LOGIN := '§'", "12345678ABCDEFH1234567890ABCDEFH12345678"),
    (
        "used § here",
        "gh" + "p_" + "x" * 36,
        "gl" + "pat-" + "X" * 20,
        "xo" + "xb-0000000000-0000000000000-" + "x" * 24,
    ),
    ("vbout ACCESS §", "{hex:32}"),
    ("toggl_PRIVATE=§", "{hex:32}"),
    ("token: §", "/{b64:10}1a2B3c4D5e6F7g8H9i0J1k2L3m4N5o6P{b64:20}"),
    # Everyday passwords.
    ('"password": "§"', "thisismypassword", "changeme"),
    ("password: §\n", "changeme", "Blumenwiese"),
    ("https://user:§@git.corp.io/x", "sunshine", "password"),
    ("curl -u admin:§ https://x.io", "changeit", "letmein"),
    ("the root password is §", "hunter2", "Sommerregen"),
    ("The password for staging is §.", "correcthorse", "{alpha:5}{digits:2}"),
    ('passphrase: "§"', "correct horse battery staple"),
    ("passphrase: §\n", "correct horse battery staple"),
    ("*:*:*:postgres:§", "tigerlily"),
    ("db.corp.io:5432:app:app:§", "sesame99"),
    ("echo '§' | docker login --password-stdin -u bob", "Zebra!crossing9"),
    ("echo § | docker login registry.io -u bob --password-stdin", "swordfish99"),
    ("docker login -u bob -p § registry.io", "swordfish99"),
    ("CREATE USER app IDENTIFIED BY '§'", "tigger"),
    (
        "seed words: §",
        "legal winner thank year wave sausage worth useful legal winner thank yellow",
    ),
    ("BUNDLE_GEMS__CONTRIBSYS__COM=§", "cafebabe:deadbeef"),
)
HARMLESS = (
    "hvs.getRecommendedConfigurationValue(display)",
    "apikey: hvs.getRecommendedConfigurationValue2",
    "key = utils.base64EncodeSha256Hmac512Value",
    'PASSWORD="`cat file`"',
    'PASSWORD="`cat /run/keys/db1`"\n',
    "password = '`pass show db1`'\nuser = 'bob'\n",
    "Unseal Key 2: missing",
    "vault operator unseal -reset",
    "secret_id: my-database-1-prod",
    'secret_id = "projects/1234/secrets/db-password-2"',
    "secretId: {uuid}",
    "sk_dev_tools_for_the_team",
    "etsy {alpha:8}",
    "- item \\\n-u",
    "options:\n-u {alpha:4}:{alpha:4}\n",
    "DBI->connect($dsn, $user, $password)",
    'DBI->connect("dbi:SQLite:dbname=x.db", "", "")',
    '<input value="Password" type="password">',
    '<input value="{{{{ pw }}}}" type="password">',
    '<input value="Send" type="submit"><input type="password">',
    "<input value=\"Send it 12\" type='text'> <input name='x' type=\"password\">",
)  # fmt: skip


def _make_secrets():
    chance = token_examples.make_random("lookalikes")
    for template, *shapes in SECRETS:
        before, _, after = template.partition("§")
        for shape in shapes:
            secret = token_examples.make_example(shape, chance)
            yield Labelled(
                before + secret + after, len(before), len(before) + len(secret), template
            )


@pytest.mark.parametrize(
    "way",
    [lambda one: one, escape_json, escape_twice, add_diff_signs],
    ids=["plain", "escaped", "twice", "diff"],
)
def test_each_secret_is_removed_completely(way):
    assert [one.text for one in map(way, _make_secrets()) if not is_covered(one)] == []


def test_text_that_resembles_a_secret_stays():
    chance = token_examples.make_random("lookalikes/not")
    texts = [
        token_examples.make_example(text.replace("{{", "\3").replace("}}", "\4"), chance)
        for text in HARMLESS
    ]
    texts = [text.replace("\3", "{").replace("\4", "}") for text in texts]

    assert [(text, spans(text)) for text in texts if spans(text)] == []


def test_redacted_text_is_not_redacted_again():
    redactor = Redactor(bytes(32))
    once = [redactor.redact_string(one.text) for one in _make_secrets()]

    assert [redactor.redact_string(text) for text in once] == once


@pytest.mark.parametrize("word", ["machine", "default", "account"])
def test_a_word_of_its_own_after_a_password_in_a_netrc_stays(word):
    text = f"machine x.io login bob password 81{'x9q' * 2}\n{word}"

    assert Redactor(bytes(32)).redact_string(text).endswith(f"\n{word}")


@pytest.mark.parametrize("call", ["backlog.New(", "neon.Configure(", "linear "])
def test_a_line_that_holds_a_call_escaped_twice_is_named(call):
    secret = token_examples.make_example("{alnum:24}", token_examples.make_random(call))
    text = f'client := {call}"{secret}")\n'
    for _ in range(2):
        text = json.dumps(text)[1:-1]

    line = json.dumps({"text": text}).encode()

    assert [span.begin for span in engine.find_suspect_lines(line, KnownSecrets())] == [0]
