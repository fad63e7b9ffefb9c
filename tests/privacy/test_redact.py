import json

from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.output_files import Clean
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor, mask_value
from flightlog.privacy.service import dotenv_values, secret_values
from privacy import hostile, labelled

KEY = bytes(range(32))
SOME = [
    one for style in (labelled.config_style, labelled.tool_style) for one in list(style())[::97]
]
pieces = st.one_of(
    st.sampled_from([one.text for one in SOME]),
    st.text(max_size=30),
    st.sampled_from(
        [
            "\n",
            " ",
            '"',
            "\\n",
            "password = ",
            "bob@acme.io",
            "/home/alice/x",
            "<secret:jwt:0a1b2c>",
            "\0",
            "=",
            "%3D",
        ]
    ),
)
HOMES = (
    "/home/alice",
    "-home-alice",
    "alice",
    "/",
    "-",
    '"',
    "'",
    ":",
    "x",
    "A",
    "9",
    ".",
    "_",
    "~",
    "\n",
    " ",
)
texts = st.lists(pieces, max_size=6).map("".join)
values = st.recursive(
    st.one_of(texts, st.integers(), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(texts)
def test_redacting_twice_changes_nothing(text):
    once = Redactor(KEY).redact_string(text)

    assert Redactor(KEY).redact_string(once) == once


@settings(max_examples=150, deadline=None)
@given(values)
def test_a_json_value_keeps_its_shape_and_is_redacted_once(value):
    once = JsonRedactor(Redactor(KEY)).redact_value(value)

    assert shape(once) == shape(value)
    assert JsonRedactor(Redactor(KEY)).redact_value(once) == once


def test_key_with_a_secret_in_its_name_is_redacted_once():
    token = "xoxb-" + "1872446700-8470472990-e0sgyjWlwYLflxvPuv6d"
    assignment = f'slack_TOKEN ?= "{token}"'

    once = JsonRedactor(Redactor(KEY)).redact_value({f"{assignment}PASS": assignment})

    assert JsonRedactor(Redactor(KEY)).redact_value(once) == once


def shape(value):
    if isinstance(value, dict):
        return [shape(member) for member in value.values()]
    return [shape(member) for member in value] if isinstance(value, list) else type(value)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, max_size=5))
def test_lines_of_json_stay_lines_of_json_one_for_one(records):
    lines = [json.dumps(record).encode() for record in records]

    clean = list(JsonRedactor(Redactor(KEY)).redact_lines(lines))

    assert len(clean) == len(lines)
    assert [shape(json.loads(line)) for line in clean] == [shape(record) for record in records]
    assert list(JsonRedactor(Redactor(KEY)).redact_lines(clean)) == clean


def test_one_value_has_one_tag_and_another_key_another():
    one = SOME[0]
    wrapped = f"first {one.text}\nthen {one.text}"

    tags = [
        word
        for word in Redactor(KEY).redact_string(wrapped).replace('"', " ").split()
        if word.startswith("<secret:")
    ]

    assert len(tags) == 2
    assert len(set(tags)) == 1
    assert Redactor(b"another").redact_string(wrapped) != Redactor(KEY).redact_string(wrapped)


def test_no_secret_is_left_in_what_is_redacted():
    for one in SOME:
        redacted, findings = (
            Redactor(KEY).redact_text(one.text),
            Redactor(KEY).find_in_text(one.text),
        )
        assert isinstance(redacted.value, Clean)
        assert redacted.secrets >= 1
        assert one.secret not in redacted.value.text
        assert all(one.secret not in finding.masked_value for finding in findings)


def test_known_values_are_taken_out_however_they_are_written():
    secret = 'correct "horse"/battery'
    known = Redactor(KEY, known=[secret])
    line = json.dumps({"note": f"it is {secret}."})

    assert "horse" not in known.redact_string(f"say {secret} twice")
    assert "horse" not in known.redact_string(line)
    assert "horse" not in known.redact_string(json.dumps(line))
    assert "horse" not in next(JsonRedactor(known).redact_lines([line.encode()])).decode()
    assert "correct+" not in known.redact_string("q=correct+%22horse%22%2Fbattery&x=1")


def test_known_values_come_from_names_that_look_secret_and_from_dotenv():
    environment = {
        "MY_API_KEY": "plainword",
        "PATH": "/usr/bin:/bin",
        "SSH_KEY": "/home/x/.ssh/id",
        "TOKEN": "true",
        "CLAUDE_CODE_SESSION_ID": "names-a-session",
    }

    assert secret_values(environment) == {"plainword"}
    assert dotenv_values("export DB_PASSWORD='hunter22'\n# A=b\nMODE=development\n") == {"hunter22"}


def test_offsets_count_characters():
    text = "héé → " + SOME[0].text

    (finding, *_) = Redactor(KEY).find_in_text(text)

    assert text[finding.start : finding.end] == SOME[0].secret


def test_home_directories_lose_their_owner_and_the_repository_its_place():
    redactor = Redactor(KEY, homes={"/srv/shop/repo": "."})

    assert (
        redactor.redact_string("in /home/alice/x and /srv/shop/repo/src/a.py")
        == "in ~/x and ./src/a.py"
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(HOMES), max_size=8).map("".join))
def test_a_known_home_directory_is_renamed_only_where_it_would_be_found(text):
    met = Redactor(KEY)
    met.redact_string('"/home/alice/x" /-home-alice-x')

    assert met.redact_string(text) == Redactor(KEY).redact_string(text)


class Counting(Redactor):
    """A redactor that counts what it replaces one by one."""

    replacements = 0

    def replace_detections(self, data, detections):
        self.replacements += len(detections)
        return super().replace_detections(data, detections)


def test_a_home_directory_in_every_record_is_detected_only_once():
    line = json.dumps({"cwd": "/home/alice/x", "text": "the parser reads each line " * 20}).encode()
    redactor = Counting(KEY)

    done = list(JsonRedactor(redactor).redact_lines([line] * 2_000))

    assert set(done) == {line.replace(b"/home/alice", b"~")}
    assert redactor.replacements < 200


def test_a_line_with_a_nul_hides_nothing_in_itself_or_beside_it():
    lines = [
        b'{"a":"bob@acme.io"}',
        b'{"a":"eve@acme.io\0 ann@acme.io"}',
        b'{"a":1}',
        b"\0",
        b'{"a":"/home/alice/x"}',
    ]

    done = list(JsonRedactor(Redactor(KEY)).redact_lines(lines))

    assert len(done) == len(lines)
    assert (done[2], done[3], done[4]) == (lines[2], lines[3], b'{"a":"~/x"}')
    assert not any(name in line for line in done for name in (b"acme", b"bob", b"eve", b"ann"))


class Reaching(Redactor):
    """A redactor that finds one value across the end of a document, as for wrapped values."""

    def redact_once(self, data):
        return super().redact_once(data.replace(b"begin\0end", b"<secret:x:0a1b2c>"))


def test_a_value_across_two_documents_loses_and_moves_no_other():
    documents = [b"/home/alice/a", b"begin", b"end", b"a\0b", b"/home/alice/b", b"last"]

    done = Reaching(KEY).redact_each_once(documents)

    assert done == [b"~/a", b"begin", b"end", b"a\0b", b"~/b", b"last"]


def test_a_masked_value_shows_at_most_four_characters():
    assert mask_value(b"abcdefghijklmnopqrstuvwxyz") == "abcd" + "*" * 12
    assert mask_value(b"hunter2") == "*******"


def test_every_container_of_a_value_is_looked_into():
    one = SOME[0]

    clean = JsonRedactor(Redactor(KEY)).redact_value({"a": ({"b": [one.text]},), one.text: 1})

    assert one.secret not in json.dumps(clean)


FAMILIES = dict(hostile.families(6_000))


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 3_000), texts)
def test_hostile_line_stays_one_line_of_json_and_is_redacted_once(name, at, text):
    line = json.dumps({"a": FAMILIES[name][at : at + 2_000], "b": text}).encode()

    once = list(JsonRedactor(Redactor(KEY)).redact_lines([line]))

    assert len(once) == 1
    assert isinstance(json.loads(once[0]), dict)
    assert list(JsonRedactor(Redactor(KEY)).redact_lines(once)) == once


def test_strings_that_use_up_the_budget_are_redacted_once():
    picked = [
        ("soup of near the floor", 607),
        ("cut heads", 853),
        ("cut heads", 1395),
        ("ansi", 2501),
    ]
    line = json.dumps([FAMILIES[name][at : at + 2_000] for name, at in picked]).encode()

    once = list(JsonRedactor(Redactor(KEY)).redact_lines([line]))

    assert b"<secret:unjudged:" in once[0], "nothing was used up: choose other strings"
    assert list(JsonRedactor(Redactor(KEY)).redact_lines(once)) == once
