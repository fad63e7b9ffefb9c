import pytest

from flightlog.live.state_file.yaml_document import YamlError, parse_chunks, resolve_scalar
from support.live_files import EXAMPLE


def keys(text):
    return [chunk.key for chunk in parse_chunks(text)]


def test_the_documents_example_is_cut_into_its_parts_and_no_byte_is_lost():
    chunks = parse_chunks(EXAMPLE)

    assert [chunk.key for chunk in chunks] == [
        "header",
        "r:authProfiles",
        "authProfiles:default",
        "r:sessions",
        "sessions:a8e855a4-1b42-4793-a1b8-0a533aba93f8",
    ]
    assert "".join(chunk.text for chunk in chunks) == EXAMPLE
    assert (
        chunks[2].node.to_python()["billing"]["resetTime"] == "13:00"
    )  # 780 to a reader of YAML 1.1


def test_every_location_holds_its_value():
    profile = parse_chunks(EXAMPLE)[2]

    def read_values(node):
        return {key: read_values(child) if child.keys is not None else profile.text[child.start : child.end]
                for key, child in node.keys.items()}  # fmt: skip

    assert read_values(profile.node)["billing"]["costToday"] == "17.03"
    assert read_values(profile.node)["label"] == "Primary Account"


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("a: 1\na: 2\n", 2, 1, "twice"),
        ("authProfiles:\n  - profileId: x\n    label: [oops\n", 4, 1, "expected"),
        ("sessions:\n  - label: x\n", 2, 3, "without `sessionId`"),
        ("authProfiles:\n  - profileId: [x]\n", 2, 3, "without `profileId`"),
        ("sessions:\n  - sessionId: x\n  - sessionId: x\n", 3, 3, "twice in `sessions`"),
        ("a: 1\n\tb: 2\n", 2, 1, "tab character"),
        ("sessions: [{sessionId: a}]\n", 1, 1, "its own lines"),
        ("{a: 1}\n", 1, 1, "block"),
        ("sessions: nothing\n", 1, 1, "not a list"),
        ("a: 1\n---\nb: 2\n", 1, 1, "one document"),
        ("? [a]\n: b\n", 1, 3, "not a word"),
        ("a: \x07\n", 1, 1, "character"),
    ],
)
def test_a_broken_edit_is_reported_with_its_location(text, line, column, why):
    with pytest.raises(YamlError) as error:
        parse_chunks(text)

    assert (error.value.line, error.value.column) == (line, column)
    assert why in error.value.message
    assert error.value.message.startswith(f"line {line}, column {column}: ")


def test_comments_above_an_item_go_with_it_and_comments_inside_stay_inside():
    text = "sessions:\n  # mine\n  - sessionId: a\n    # inside a\n  # above b\n  - sessionId: b\nother: 1\n"

    chunks = {chunk.key: chunk.text for chunk in parse_chunks(text)}

    assert chunks["sessions:a"] == "  # mine\n  - sessionId: a\n    # inside a\n"
    assert chunks["sessions:b"] == "  # above b\n  - sessionId: b\n"
    assert chunks["r:other"] == "other: 1\n"


def test_plain_words_mean_what_yaml_1_2_says():
    values = [
        resolve_scalar(word)
        for word in ("13:00", "no", "012", "1e3", "0x1f", "~", "true", "2026-01-31")
    ]

    assert values == ["13:00", "no", 12, 1000.0, 31, None, True, "2026-01-31"]


def test_an_empty_file_and_a_file_of_comments_are_whole():
    assert keys("") == ["header"]
    assert keys("# nothing yet\n") == ["header"]
    assert keys("---\n# nothing\nauthProfiles:\nsessions: []\n") == [
        "header",
        "r:authProfiles",
        "r:sessions",
    ]


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "- " * 5000, "a: &a [*a]"])
def test_file_beyond_a_limit_is_broken_instead_of_a_crash(text):
    with pytest.raises(YamlError):
        parse_chunks(text)
