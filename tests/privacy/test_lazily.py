"""Patterns made late and in part find what those made whole find."""

import subprocess
import sys
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.privacy.detect import (
    assignments,
    candidates,
    named_values,
    provider_tokens,
    rules,
    triggers,
)
from flightlog.privacy.detect.candidates import WorkBudget
from privacy import hostile, labelled

TEXTS = [
    one.text
    for style in (labelled.config_style, labelled.tool_style)
    for one in list(style())[::41]
]


class Counted:
    """A pattern that counts how often it is called and the bytes it is given to search."""

    def __init__(self, pattern):
        self.pattern, self.bytes, self.calls = pattern, 0, 0

    def search(self, data, at, limit):
        self.bytes += min(limit, len(data)) - at
        self.calls += 1
        return self.pattern.search(data, at, limit)


def part_of(data):
    low = data.lower()
    words = assignments.find_words(low)
    return triggers._compile_tables(
        assignments.assignment_pattern(words) if words else "",
        provider_tokens.token_head_patterns(provider_tokens.find_forms(data)),
        named_values.provider_name_pattern(named_values.find_names(low)),
    )


def scan_text(data, tables):
    match_judge = triggers._MatchJudge(data, WorkBudget(), tables)
    places = []
    sightings = list(
        triggers._scan_pattern(
            data,
            tables.words,
            lambda start, end: match_judge.judge_word_or_person(start, end, persons=True),
        )
    )
    if tables.named is not None:
        sightings += triggers._scan_pattern(data, tables.named, match_judge.judge_token_or_name)
    sightings += triggers._scan_pattern(
        data,
        tables.shapes,
        lambda start, end: match_judge.judge_token_or_location(start, end, places),
    )
    return sightings, places


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map("\n".join))
def test_the_patterns_for_a_short_text_find_what_all_patterns_find(text):
    data = text.encode()

    assert scan_text(data, part_of(data)) == scan_text(data, triggers._full_tables())


def test_a_pattern_is_not_made_before_it_is_used():
    broken = rules.quick_pattern(b"(")
    fine = rules.linear_pattern(b"a+")

    assert vars(fine).keys() == {"_compile", "_arguments"}
    assert fine.search(b"xaay").group() == b"aa"
    assert "match" in vars(fine)
    assert vars(broken).keys() == {"_compile", "_arguments"}


def test_a_long_run_is_not_read_to_its_end_for_each_value_in_it():
    data = ("93.184.216.34-" * 40_000).encode()
    counted = Counted(triggers._full_tables().words)
    at, matches = 0, 0

    while (
        matches < 200 and (match := candidates.search_in_stretches(counted, data, at)) is not None
    ):
        at, matches = match.end(), matches + 1

    assert matches == 200
    assert counted.bytes <= 200 * (16 << 10)


def test_text_without_a_match_is_searched_in_few_stretches():
    data = b"the parser reads each line " * 40_000
    counted = Counted(triggers._full_tables().words)

    assert candidates.search_in_stretches(counted, data, 0) is None
    assert counted.calls <= 16
    assert counted.bytes <= len(data) * 1.01


def test_what_is_found_after_a_long_search_costs_no_more_than_that_search():
    data = (b"the parser reads each line " * 10_000 + b" 93.184.216.34-" * 30) * 4
    counted = Counted(triggers._full_tables().words)
    places = []

    assert (
        list(
            triggers._scan_pattern(
                data, counted, lambda start, end: (places.append(start) or end, None)
            )
        )
        == []
    )
    assert len(places) == 120
    assert counted.bytes <= 3 * len(data)


def test_matches_far_apart_are_found_with_few_calls():
    data = (b"the parser reads each line " * 1_000 + b" 93.184.216.34 ") * 40
    counted = Counted(triggers._full_tables().words)

    assert list(triggers._scan_pattern(data, counted, lambda _, end: (end, None))) == []
    assert counted.calls <= 2 * 40 + 8


def test_heads_and_names_that_begin_or_end_alike_make_small_patterns():
    whole = triggers._full_tables()
    names = [name.decode() for name in named_values._rules_by_name()]

    assert whole.shapes.programsize < 15_000
    assert whole.named.programsize < 13_000
    assert (
        triggers._compile_for_raw_json(
            f"(?i:{named_values.provider_name_pattern()})".encode()
        ).programsize
        < sum(map(len, names)) * 0.74
    )


def test_a_match_over_the_border_of_stretches_is_found_whole():
    data = b" " * 8_185 + b"bob.smith@mail.acme.io " + b"QUJD" * 6_000

    mail = candidates.search_in_stretches(triggers._full_tables().words, data, 0)
    run = candidates.search_in_stretches(rules.linear_pattern(b"(?:QUJD)+"), data, 0)

    assert mail.group() == b"bob.smith@mail.acme.io"
    assert run.end() - run.start() == 24_000


def test_redacting_a_few_lines_makes_few_patterns():
    script = (
        "from flightlog.privacy.redactor import Redactor\n"
        "from flightlog.privacy.detect import triggers\n"
        "text = 'the parser reads a line\\n' * 200 + 'mail bob@acme.io'\n"
        "assert 'acme' not in Redactor(bytes(32)).redact_string(text)\n"
        "print(triggers._full_tables.cache_info().currsize, len(triggers._short_text_tables()))\n"
    )
    began = time.monotonic()
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert completed.stdout.split() == ["0", "1"]
    assert time.monotonic() - began < 20
    assert len(dict(hostile.families(10))) > 140
