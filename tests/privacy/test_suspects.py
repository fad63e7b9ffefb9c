"""The look at raw lines misses nothing that the detectors find, in the line or in its decoded strings."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.privacy.detect import engine, named_values, provider_tokens
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from privacy import labelled

STYLES = (labelled.config_style, labelled.nearby_style, labelled.tool_style)
LABELLED = [one for style in STYLES for one in random.Random(11).sample(list(style()), 400)]
WAYS = (*labelled.TRANSFORMS, lambda one: one)
PIECES = st.sampled_from(
    [one.text for one in LABELLED[::3]]
    + [
        "\n",
        "\t",
        "\\",
        '"',
        " ",
        "key",
        "token=",
        "github",
        "&quot;",
        "\x1b[3m",
        "%3D",
        "data: {",
        "é",
        "<secret:a:00>",
    ]
    + [
        head.head.decode()
        for forms in provider_tokens._forms_by_head().values()
        for head in forms[:1]
    ]
)


def is_suspect(line):
    return [span.begin for span in engine.find_suspect_lines(line, KnownSecrets())] == [0]


def holds(line):
    leaf = json.loads(line)["text"]
    return bool(
        engine.find_private_values(line)
        or engine.find_private_values(leaf.encode("utf-8", "surrogatepass"))
    )


def test_line_with_a_secret_is_suspect_however_it_is_written():
    missed = []
    for at, one in enumerate(LABELLED):
        text = WAYS[at % len(WAYS)](one).text
        for ascii_only in (True, False):
            line = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
            if holds(line) and not is_suspect(line):
                missed.append(line)

    assert missed == []


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), st.booleans(), st.booleans())
def test_line_that_is_not_suspect_holds_no_secret(text, twice, ascii_only):
    inner = json.dumps(text, ensure_ascii=ascii_only) if twice else text
    line = json.dumps({"text": inner}, ensure_ascii=ascii_only).encode()

    assert not (holds(line) and not is_suspect(line))


def redact(line):
    return json.loads(next(iter(JsonRedactor(Redactor(bytes(32))).redact_lines([line.encode()]))))[
        "text"
    ]


def with_escaped_marks(text):
    """Return a line of JSON in which every mark, blank and character beyond ASCII is escaped as \\uXXXX."""
    plain = (c if c.isascii() and c.isalnum() else json.dumps(c)[1:-1] for c in text)
    return (
        '{"text":"'
        + "".join(c if len(c) != 1 or c.isalnum() else f"\\u{ord(c):04x}" for c in plain)
        + '"}'
    )


WIDE = st.sampled_from(["\u2192", "\u201c", "\u201d", "é", "ß", "漢", "\U0001f511", "\u2028"])
EVERYDAY = st.sampled_from(
    ["PASSWORD=", "correcthorse", "     2\u2192", "password: ", "jane@acme.io", "/home/jane/", "\n"]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        WIDE | EVERYDAY | st.sampled_from([one.text for one in LABELLED[::3]]), max_size=6
    ).map("".join)
)
def test_a_line_and_its_ascii_form_get_the_same_tags(text):
    assert redact(json.dumps({"text": text})) == redact(
        json.dumps({"text": text}, ensure_ascii=False)
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(EVERYDAY | st.sampled_from([one.text for one in LABELLED[::3]]), max_size=6).map(
        "".join
    )
)
def test_a_line_with_escaped_marks_gets_the_tags_of_its_text(text):
    assert redact(with_escaped_marks(text + ".")) == Redactor(bytes(32)).redact_string(text + ".")


@pytest.mark.parametrize(
    "text",
    ["     2\u2192PASSWORD=correcthorse\n", "\u201cpassword\u201d: \u201cthisismypassword1\u201d"],
)
def test_a_password_beside_an_escaped_character_is_found(text):
    assert "secret:password" in redact(json.dumps({"text": text}))


def test_a_clean_line_with_escaped_characters_stays_as_it_is():
    line = json.dumps({"text": "3\u2192 nothing \U0001f511 \\\\u2192"}).encode()

    assert list(JsonRedactor(Redactor(bytes(32))).redact_lines([line])) == [line]


def test_only_lines_that_hold_a_value_are_suspect():
    clean = b'{"text":"nothing here"}'
    secret = json.dumps({"text": LABELLED[0].text}).encode()

    begins = [
        span.begin
        for span in engine.find_suspect_lines(
            b"\n".join((clean, secret, clean, secret)), KnownSecrets()
        )
    ]

    assert begins == [len(clean) + 1, 2 * len(clean) + len(secret) + 3]


def test_line_with_a_known_value_is_suspect():
    assert [
        span.begin
        for span in engine.find_suspect_lines(b'{}\n{"a":"plainword"}', KnownSecrets(["plainword"]))
    ] == [3]


def test_no_head_of_a_token_reads_as_a_name():
    for form in provider_tokens._load_token_forms():
        assert not named_values.name_size(form.head + b"0")


@pytest.mark.parametrize("written", ["password: “{}”", "“password”: “{}”", "PASSWORD=“{}”"])
def test_curly_quotes_are_quotes_also_where_json_escapes_them(written):
    word = "correct" + "horse"
    text = written.format(word)

    assert word not in Redactor(b"k").redact_string(text)
    (line,) = JsonRedactor(Redactor(b"k")).redact_lines([json.dumps({"t": text}).encode()])
    assert word.encode() not in line
