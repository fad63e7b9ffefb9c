"""Known values: found in every way they may be written, and ordinary words left alone."""

import base64
import html
import json
import string
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flightlog.privacy.detect.known_values import REMEMBERED_MAX, KnownSecrets, requires_whole_word
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from support.cpu_time import measure_cpu

KEY = bytes(range(32))
ALNUM = string.ascii_letters + string.digits
drawn = st.text(ALNUM, min_size=16, max_size=44).filter(
    lambda text: (
        any(c.isdigit() for c in text) and any(c.isalpha() for c in text) and len(set(text)) > 9
    )
)
marked = st.text(ALNUM + '/+=_-.!@#"&<>', min_size=14, max_size=30).filter(
    lambda text: len(set(text)) > 9
)
places = st.integers(1, 200)


def wrap_value(value, at, end="\n"):
    cut = 1 + at % (len(value) - 1)
    return f"{value[:cut]}{end}{value[cut:]}"


FORMS = {
    "bare": lambda value, _: f"it is {value}, really",
    "quoted": lambda value, _: f"it is '{value}' or \"{value}\"",
    "inside a longer text": lambda value, _: f"x9{value}Zq",
    "JSON": lambda value, _: json.dumps({"said": f"it is {value}"}),
    "JSON twice": lambda value, _: json.dumps({"said": json.dumps({"said": f"it is {value}"})}),
    "URL-encoded": lambda value, _: f"https://acme.io/?q={quote(value, safe='')}&x=1",
    "base64": lambda value, at: base64.b64encode(
        b"<>#"[: at % 3] + value.encode() + b"!!"[: at % 2]
    ).decode(),
    "URL base64": lambda value, at: base64.urlsafe_b64encode(
        b"\xff\xfe"[: at % 3] + value.encode()
    ).decode(),
    "HTML": lambda value, _: f"<p>{html.escape(value)}</p>",
    "escaped marks": lambda value, _: "".join(
        c if c.isalnum() else f"\\u{ord(c):04x}" for c in value
    ),
    "hard wrap": wrap_value,
    "numbered lines": lambda value, at: (
        f"     7\t{wrap_value(value, at, chr(10) + '     8' + chr(9))}"
    ),
    "arrows": lambda value, at: f"   7→{wrap_value(value, at, chr(10) + '   8→')}",
    "diff": lambda value, at: f"+{wrap_value(value, at, chr(10) + '+')}",
    "colors inside": lambda value, at: wrap_value(value, at, "\x1b[31m"),
    "wrapped base64": lambda value, at: wrap_value(
        base64.b64encode(value.encode()).decode(), 4 + at % 9
    ),
}
forms = st.sampled_from(sorted(FORMS))


def is_left(value, text):
    """Return whether the value, or most of it in base64, can still be read in `text`."""
    plain = html.unescape(text).replace("\\", "").replace("\n", "").replace("\x1b[31m", "")
    coded = base64.b64encode(value.encode()).decode()[:12]
    return (
        value in plain
        or quote(value, safe="") in plain
        or coded in plain.replace("-", "+").replace("_", "/")
    )


@settings(max_examples=250, deadline=None)
@given(drawn, forms, places)
def test_value_recognized_once_survives_in_no_other_record(value, form, at):
    assume(
        value not in Redactor(KEY).redact_string(f"ACME_TOKEN={value}")
    )  # a counting value is taken for a placeholder
    lines = [
        json.dumps({"text": FORMS[form](value, at)}).encode(),
        json.dumps({"a": f"ACME_TOKEN={value}"}).encode(),
    ]
    records = JsonRedactor(Redactor(KEY))

    records.collect_values(lines)
    clean = list(records.redact_lines(lines))

    assert len(clean) == len(lines)
    assert not is_left(value, json.loads(clean[0])["text"])
    assert list(JsonRedactor(Redactor(KEY)).redact_lines(clean)) == clean


@settings(max_examples=250, deadline=None)
@given(marked, forms, places)
def test_known_value_with_marks_is_found_in_every_form(value, form, at):
    # A value that could be a word is looked for as a whole word only.
    assume(form != "inside a longer text" or not requires_whole_word(value.encode()))
    text = FORMS[form](value, at)

    clean = Redactor(KEY, known=[value]).redact_string(text)

    assert not is_left(value, clean)
    assert Redactor(KEY, known=[value]).redact_string(clean) == clean


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(string.ascii_lowercase + " .,\n", max_size=40), max_size=6), drawn)
def test_records_without_a_known_value_stay_byte_for_byte(texts, value):
    lines = [json.dumps({"text": text, "n": 1}).encode() for text in texts]
    records = JsonRedactor(Redactor(KEY))

    records.collect_values([*lines, json.dumps({"a": f"ACME_TOKEN={value}"}).encode()])

    assert list(records.redact_lines(lines)) == lines


def test_document_counts_each_removed_occurrence():
    value = "9fQ2xL7vKp3W" + "zR8tYb6N"
    document = {
        "a": f"ACME_TOKEN={value}",
        "b": [f"sent {value}", {value: "in /home/bo/x to bo@acme.io"}],
    }

    redacted = JsonRedactor(Redactor(KEY)).redact_document(document)

    assert value not in json.dumps(redacted.value)
    assert (redacted.secrets, redacted.personal) == (3, 2)
    assert JsonRedactor(Redactor(KEY)).redact_document(redacted.value).secrets == 0


def test_value_recognized_by_two_rules_has_one_tag():
    value = "9fQ2xL7vKp3W" + "zR8tYb6N"

    clean = Redactor(KEY).redact_string(
        f"ACME_TOKEN={value}\npassword: '{value}'\ncurl -u bo:{value} x\n{value}"
    )

    tags = {part.split(">")[0] for part in clean.split("<secret:")[1:]}
    assert len(tags) == 1
    assert clean.count("<secret:") == 4


@pytest.mark.parametrize(
    "word", ["test", "admin", "password", "changeme", "production", "secret", "dragon", "123456"]
)
def test_word_used_as_password_stays_elsewhere(word):
    prose = f"the {word} of a {word}er is {word}"

    clean = Redactor(KEY).redact_string(f'password = "{word}"\n{prose}\n')

    assert prose in clean


def test_long_word_counts_as_a_whole_word_only():
    clean = Redactor(KEY, known=["swordfish"]).redact_string(
        "swordfish, not swordfishes; a\\nswordfish"
    )

    assert "swordfishes" in clean
    assert clean.count("<secret:") == 2


@pytest.mark.parametrize(
    ("value", "reach"),
    [(b"9fQ2xL7v", False), (b"hunter2", True), (b"swordfish", True), (b"production", None), (b"short", None),
     (b"aaaaaaaaaaaa", None), (b"12345678901", True), (b"thisismy-password1", False)],
)  # fmt: skip
def test_reach_follows_from_how_common_a_value_is(value, reach):
    assert requires_whole_word(value) is reach


def test_short_name_counts_in_identity_positions_alone():
    redactor = Redactor(KEY, names=["bo", "hal9"])
    prose = "bo said that bo is there; the bot and hal9 wait"

    assert redactor.redact_string(prose) == prose
    for text in (
        "uid=1000(bo) gid=1000(bo)",
        "bo@hal9:~$ ls",
        "$ whoami\nbo\n",
        "-rw-r--r-- 1 bo bo 12 Jan 1 a.txt",
    ):
        assert "bo" not in redactor.redact_string(text)
        assert "hal9" not in redactor.redact_string(text)


def test_long_name_counts_anywhere_unless_it_is_a_word():
    redactor = Redactor(KEY, names=["mirabelle", "ubuntu"])

    assert redactor.redact_string("ask mirabelle about ubuntu").startswith("ask <person:name:")
    assert redactor.redact_string("ask mirabelle about ubuntu").endswith("> about ubuntu")


def test_tokens_cut_over_two_deltas_leave_no_half():
    value = "gh" + "p_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    pieces = [f"my key is {value[:14]}", value[14:30], f"{value[30:]} now"]
    events = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in pieces
    ]
    for written in (
        [
            json.dumps({"type": "stream_event", "event": event, "session_id": "s"})
            for event in events
        ],
        [f"data: {json.dumps(event)}" for event in events],
    ):
        clean = b"\n".join(
            JsonRedactor(Redactor(KEY)).redact_lines([line.encode() for line in written])
        ).decode()

        assert all(part not in clean for part in (value[4:14], value[14:30], value[30:]))
        assert clean.count("<secret:github-token:") == 1
        assert clean.count("\n") == 2


def test_growing_to_the_bound_forgets_the_oldest_and_stays_quick():
    known = KnownSecrets()

    with measure_cpu() as seconds:
        for number in range(3 * REMEMBERED_MAX):
            known.learn_value(b"k%08dQz%dXy" % (number * 7919 % 100_000_007, number), "secret", "x")
            if number % 1000 == 0:
                list(known.find_values(b"nothing here"))
    last = list(known.find_values(b"is k%08dQz%dXy here" % (number * 7919 % 100_000_007, number)))

    assert {(hit.start, hit.end) for hit in last} == {(3, 3 + len(b"k%08dQz%dXy" % (0, number)))}
    assert list(known.find_values(b"is k%08dQz%dXy here" % (0, 0))) == []
    assert seconds[0] < 20
