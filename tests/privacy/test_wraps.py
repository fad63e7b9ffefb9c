"""Values that a line end cuts are found, however the lines are cut."""

import random

import pytest

from flightlog.privacy.detect.line_wraps import ends_line, unwrap_around, unwrap_lines
from privacy import labelled, vendors
from privacy.labelled import Labelled
from privacy.test_detect import is_covered, sample


def cut(one, share, between):
    at = one.start + max(1, int(len(one.secret) * share))
    return Labelled(
        one.text[:at] + between + one.text[at:], one.start, one.end + len(between), one.rule
    )


def quote_lines(one):
    lead = "> "
    before = one.text[: one.start].count("\n") + 1
    text = lead + one.text.replace("\n", "\n" + lead)
    start = one.start + before * len(lead)
    return cut(Labelled(text, start, start + len(one.secret), one.rule), 0.5, "\n" + lead)


def fold_lines(one, width):
    """Break every line at `width`, as a terminal does."""
    made, column, start, end = [], 0, 0, 0
    for index, letter in enumerate(one.text):
        if column == width and letter != "\n":
            made.append("\n")
            column = 0
        start = len(made) if index == one.start else start
        made.append(letter)
        end = len(made) if index == one.end - 1 else end
        column = 0 if letter == "\n" else column + 1
    return Labelled("".join(made), start, end, one.rule)


def fold_inside_secret(one, width):
    """Put words before the value, so that its line is broken inside it."""
    if "\n" in one.text[: one.start]:
        return fold_lines(one, width)
    inside = one.start + len(one.secret) * random.Random(one.text).choice((2, 4, 5, 6, 8)) // 10
    pad = (
        (("the parser read each line " * 9)[: max(0, width - inside - 1)] + " ")
        if inside < width
        else ""
    )
    return fold_lines(
        Labelled(pad + one.text, one.start + len(pad), one.end + len(pad), one.rule), width
    )


WAYS = {
    "a quarter": lambda one: cut(one, 0.25, "\n"),
    "the middle": lambda one: cut(one, 0.5, "\n"),
    "three quarters": lambda one: cut(one, 0.75, "\n"),
    "indented": lambda one: cut(one, 0.5, "\n    "),
    "returns": lambda one: cut(one, 0.5, "\r\n"),
    "backslashes": lambda one: cut(one, 0.4, "\\\n"),
    "quoted": quote_lines,
    **{
        f"folded at {width}": lambda one, width=width: fold_lines(one, width)
        for width in (40, 60, 76)
    },
    **{
        f"pushed over {width}": lambda one, width=width: fold_inside_secret(one, width)
        for width in (72, 80, 120)
    },
}
STYLES = {
    "config": lambda: sample(labelled.config_style, 60),
    "nearby": lambda: sample(labelled.nearby_style, 60),
    "tool": lambda: sample(labelled.tool_style, 100),
    "vendors": lambda: random.Random(7).sample(
        list(vendors.texts(vendors.BARE + vendors.NEAR)), 80
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_value_cut_by_line_ends_is_found_nearly_as_often_as_a_whole_one(style):
    plain = [one for one in STYLES[style]() if is_covered(one)]
    missed = {
        name: [one.text for one in map(way, plain) if not is_covered(one)]
        for name, way in WAYS.items()
    }

    wrong = {name: texts for name, texts in missed.items() if len(texts) > 0.05 * len(plain)}

    assert wrong == {}


LISTS = (
    "ASIA\nASSOCIATES\nATHLETA\nATTORNEY\nAUCTION\n",
    "MAILCAPFILE\nMAILCAPDICT = {\n",
    "Basic Usage\n===========\n",
    "see http://localhost\nfor more, or mail admin@example.com\n",
    "as-is\nas-expected\nas-usual\n",
)


@pytest.mark.parametrize("text", LISTS)
def test_lines_of_words_are_not_one_value(text):
    from privacy.test_detect import spans

    assert spans(text) == []


def test_positions_in_joined_lines_map_back_to_the_text():
    view = b"     1\tkey = abcdef\n     2\tghijkl\n     3\tmn\n"
    text, back = unwrap_lines(view, 13, 100)

    assert text.startswith(b"abcdefghijkl")
    assert [view[back(end) - 1 : back(end)] for end in range(1, 13)] == [
        b"%c" % byte for byte in b"abcdefghijkl"
    ]

    around, _, at = unwrap_around(view, view.index(b"ghi"), 20, 30)
    assert around[at:].startswith(b"ghijkl")
    assert around[at - 3 : at] == b"def"


def test_a_record_that_ends_with_its_line_is_reported():
    assert ends_line(b"abc\r\n", 3)
    assert ends_line(b"abc \\\n", 3)
    assert not ends_line(b"abc d\n", 3)
