"""The look at raw lines misses nothing that the detectors find, in the line or in its decoded strings."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.privacy.detect import contexts, engine, suspects, tokens
from flightlog.privacy.detect.known import Known
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
    + [head.head.decode() for forms in tokens._tables().values() for head in forms[:1]]
)


def named(line):
    return [each.begin for each in suspects.lines_in(line, Known())] == [0]


def holds(line):
    leaf = json.loads(line)["text"]
    return bool(engine.find(line) or engine.find(leaf.encode("utf-8", "surrogatepass")))


def test_a_line_with_a_secret_is_named_however_it_is_written():
    missed = []
    for at, one in enumerate(LABELLED):
        text = WAYS[at % len(WAYS)](one).text
        for ascii_only in (True, False):
            line = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
            if holds(line) and not named(line):
                missed.append(line)

    assert missed == []


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), st.booleans(), st.booleans())
def test_a_line_that_is_not_named_holds_nothing(text, twice, ascii_only):
    inner = json.dumps(text, ensure_ascii=ascii_only) if twice else text
    line = json.dumps({"text": inner}, ensure_ascii=ascii_only).encode()

    assert named(line) or not holds(line)


def test_only_the_lines_that_hold_something_are_named():
    clean = b'{"text":"nothing here"}'
    secret = json.dumps({"text": LABELLED[0].text}).encode()

    begins = [each.begin for each in suspects.lines_in(b"\n".join((clean, secret, clean, secret)), Known())]

    assert begins == [len(clean) + 1, 2 * len(clean) + len(secret) + 3]


def test_a_known_value_names_its_line():
    assert [each.begin for each in suspects.lines_in(b'{}\n{"a":"plainword"}', Known(["plainword"]))] == [3]


def test_no_head_of_a_token_reads_as_a_name():
    for form in tokens._forms():
        assert not contexts.name_size(form.head + b"0")
