import pytest

from flightlog.model.entries import Image
from flightlog.model.text import format_age
from flightlog.web.templates import (
    data_uri,
    format_bytes,
    format_count,
    format_duration,
    make_excerpt,
    short_model,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1_234, "1.23 k"), (5_600_000, "5.6 M"), (7_000_000_000, "7 G")],
)
def test_counts_are_short_and_carry_their_unit(number, text):
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "?"),
        (250, "0.2 s"),
        (59_000, "59 s"),
        (61_000, "1 min 1 s"),
        (7_260_000, "2 h 1 min"),
        (10**9, "11 days"),
    ],
)
def test_durations_use_the_unit_that_fits(ms, text):
    assert format_duration(ms) == text


def test_age_is_written_in_words():
    days = (86_400_000 * days for days in (1, 29, 165, 400))
    assert [format_age(ms) for ms in (0, 5_000, 60_000, 7_200_000, *days)] == [
        *("0 seconds", "5 seconds", "1 minute", "2 hours"),
        *("1 day", "29 days", "5 months", "1 year"),
    ]


def test_bytes_and_models_are_short():
    assert [format_bytes(count) for count in (12, 3_400, 5_000_000)] == [
        "12 bytes",
        "3.4 kB",
        "5 MB",
    ]
    assert short_model("claude-haiku-4-5-20251001") == "haiku-4-5"


def test_an_excerpt_says_how_many_lines_follow():
    cut = make_excerpt("a\nb\nc\n", 2)

    assert (str(cut), cut.more) == ("a\nb", 1)
    assert make_excerpt("\x1b[31mred\x1b[0m").more == 0
    assert make_excerpt("x" * 10_000).more == 1


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("image/png", "iVBORw0KGgo=", True),
        ("image/svg+xml", "PHN2Zz4=", False),
        ("text/html", "PHN2Zz4=", False),
        ("image/png", '"><script>', False),
        ("image/png", "", False),
        ("image/png", "A" * 9_000_000, False),
    ],
)
def test_only_small_raster_pictures_are_shown(kind, data, shown):
    assert bool(data_uri(Image(kind, len(data), data))) is shown
