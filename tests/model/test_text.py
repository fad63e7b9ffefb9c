import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.output_files import Redacted
from flightlog.model.text import (
    describe_redaction,
    folder_name,
    make_inert,
    one_line,
    pluralize,
    shorten_text,
    suggest_name,
)
from support.cpu_time import measure_cpu

ATTACKS = {
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "clipboard, other end": "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "link": "\x1b]8;;https://example.test\x1b\\here\x1b]8;;\x1b\\",
    "title": "\x1b]0;owned\x07",
    "clear": "\x1b[2J\x1b[H",
    "colour": "\x1b[31mred\x1b[0m",
    "query": "\x1b[6n\x1b[c",
    "device string": "\x1bP+q544e\x1b\\",
    "charset": "\x1b(0\x1b)B",
    "reset": "\x1bc",
    "one byte": "\x9b31m\x9d0;owned\x9c\x90q\x9c",
    "unfinished": "\x1b]52;c;",
    "half": "\x1b[",
    "lone": "\x1b",
    "overwrite": "safe\rEVIL",
    "backspace": "safe\b\b\b\bEVIL",
    "nul": "a\x00b",
    "delete": "a\x7fb",
    "right to left": "a\u202eb\u2066c\u200fd\u061ce",
    "line separators": "a\u2028b\u2029c\x85d",
    "half an emoji": "a\ud83db",
    "nested": "\x1b\x1b[31m]52;c;x\x07",
}
DANGEROUS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
hostile = st.lists(
    st.one_of(
        st.sampled_from(list(ATTACKS.values())),
        st.text(),
        st.text(alphabet="\x1b[]\\P^_;0m\x07\x9b\x9d\x9c\n\r"),
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_nothing_that_acts_on_a_terminal_is_left(attack):
    assert not DANGEROUS.search(make_inert(attack))


@given(hostile)
def test_no_text_whatever_leaves_a_control_character(text):
    assert not DANGEROUS.search(make_inert(text))


@given(hostile)
def test_text_made_inert_twice_is_the_same(text):
    assert make_inert(make_inert(text)) == make_inert(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_plain_text_in_any_script_stays_as_it_is(text):
    assert make_inert(text) == text


def test_newlines_and_tabs_stay_and_windows_line_ends_are_newlines():
    assert make_inert("a\tb\nc\r\nd") == "a\tb\nc\nd"


def test_sequences_go_whole_and_their_text_stays():
    assert make_inert(ATTACKS["colour"]) == "red"
    assert make_inert(ATTACKS["link"]) == "here"
    assert make_inert("\x1b[1;38;5;200mloud\x1b[m") == "loud"


@pytest.mark.parametrize("start", ["\x1b]52;c;", "\x1bP", "\x1b_", "\x9d", "\x90", "\x98"])
def test_a_sequence_that_never_ends_cannot_hide_what_follows(start):
    assert make_inert(f"before {start}\nrm -rf ~").endswith("\nrm -rf ~")
    assert make_inert(f"{start}rm -rf ~").endswith("rm -rf ~")


def test_quotes_of_a_wrong_encoding_do_not_swallow_the_rest():
    garbled = "it said “yes” and went on".encode().decode("latin-1")

    assert "and went on" in make_inert(garbled)


def test_control_characters_become_visible_symbols():
    assert make_inert("a\x00b\x07c\x7f") == "a␀b␇c␡"
    assert make_inert("\u202e") == "<U+202E>"


@given(hostile, st.integers(0, 60))
def test_one_line_is_one_line_of_at_most_the_width(text, width):
    line = one_line(text, width)

    assert len(line) <= max(width, 1)
    assert not DANGEROUS.search(line)
    assert "\n" not in line
    assert "\t" not in line


def test_one_line_says_where_it_was_cut():
    assert one_line("one  two\n three", 20) == "one two three"
    assert one_line("x" * 30, 10) == "x" * 9 + "…"


def test_a_long_hostile_text_takes_linear_time():
    with measure_cpu() as seconds:
        for piece in ("\x1b]", "\x1b[", "\x1b", "\x1b[0", "\x1b]\x9c", "\x1bP\x1b"):
            make_inert(piece * 40_000)

    assert seconds[0] < 5


def test_every_control_and_format_character_that_reorders_is_covered():
    reorders = {"AL", "RLE", "LRE", "PDF", "RLO", "LRO", "LRI", "RLI", "FSI", "PDI"} - {"AL"}
    marks = [
        chr(code) for code in range(0x110000) if unicodedata.bidirectional(chr(code)) in reorders
    ]

    assert [mark for mark in marks if make_inert(mark) == mark] == []


def test_numbers_agree_with_their_nouns():
    assert [pluralize(number, "row") for number in (0, 1, 2, 1000)] == [
        "0 rows",
        "1 row",
        "2 rows",
        "1,000 rows",
    ]


def test_a_word_that_is_not_known_gets_the_nearest_one_or_the_way_on():
    assert suggest_name("sesions", ["sessions", "model"]) == "did you mean `sessions`?"
    assert suggest_name("zzz", ["sessions", "model"]) == "one of: sessions, model"
    assert suggest_name("zzz", ["sessions"], "flightlog loop schema") == "flightlog loop schema"


TAG = "<secret:github-token:9a5b01>"


@given(before=st.text(max_size=60), after=st.text(max_size=60), limit=st.integers(1, 120))
def test_shortened_text_fits_and_holds_no_part_of_a_tag(before, after, limit):
    text = Redacted(before + TAG + after, 1, 0)

    for keep in ("start", "end"):
        short = shorten_text(text, limit, keep)

        assert len(short.value) <= limit
        assert len(short.value.replace(TAG, "").replace("…", "")) <= len(before) + len(after)
        assert (short.secrets, short.personal) == (1, 0)


def test_shortened_text_says_where_it_was_cut():
    text = Redacted("one two three", 0, 0)

    assert shorten_text(text, 8).value == "one two…"
    assert shorten_text(text, 6, "end").value == "…three"
    assert shorten_text(text, 13).value == "one two three"
    assert shorten_text(Redacted(f"use {TAG}", 1, 0), 20).value == "use …"


def test_redaction_counts_agree_with_their_nouns():
    assert describe_redaction(9, 2) == "9 secrets and 2 personal details removed"
    assert describe_redaction(1, 0) == "1 secret and 0 personal details removed"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("C:\\Users\\ada\\shop", "shop"),
        ("\\\\host\\shop\\", "shop"),
        ("/a/x\\y/", "x\\y"),
        ("/", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_folder_is_its_last_part_on_windows_too(path, name):
    assert folder_name(path) == name
