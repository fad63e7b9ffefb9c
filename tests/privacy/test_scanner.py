"""Texts of any length: the same as in one go, in flat memory."""

import io
import json

import pytest

from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.scanner import find_in_lines, find_in_stream, redact_stream, secret_counts
from privacy import labelled

ONE = next(iter(labelled.tool_style()))
MEGABYTE = 1 << 20
AFTER = 32 << 10


class Counting(io.RawIOBase):
    """A long text made as it is read."""

    def __init__(self, size):
        self.left = size

    def read(self, size=-1):
        size = min(size, self.left)
        self.left -= size
        return (b"the parser reads each line\n" * (size // 27 + 1))[:size]


@pytest.mark.parametrize("shift", range(-60, 61, 12))
def test_a_secret_over_the_border_between_two_pieces_is_seen_whole(shift):
    text = (
        ("a line of prose\n" * 200_000)[: MEGABYTE - AFTER + shift]
        + f"\n{ONE.text}\n"
        + "more\n" * 20_000
    )

    clean = b"".join(redact_stream(Redactor(bytes(32)), io.BytesIO(text.encode())))
    (place,) = [
        one
        for one in find_in_stream(io.BytesIO(text.encode()), KnownSecrets())
        if one.detection.kind == "secret"
    ]

    assert ONE.secret not in clean.decode()
    assert clean.decode() == Redactor(bytes(32)).redact_string(text)
    assert text[place.start : place.end] == ONE.secret
    assert place.line == text.count("\n", 0, place.start) + 1


def test_never_more_than_a_few_pieces_are_held():
    most = max(len(piece) for piece in redact_stream(Redactor(bytes(32)), Counting(8 * MEGABYTE)))

    assert most <= 2 * MEGABYTE


def test_places_in_lines_of_json_count_characters_and_lines():
    lines = [
        json.dumps({"text": text}, ensure_ascii=False) + "\n"
        for text in ("é", ONE.text, "x", ONE.text)
    ]
    whole = "".join(lines)

    places = [
        one
        for one in find_in_lines([line.encode() for line in lines], KnownSecrets())
        if one.detection.kind == "secret"
    ]

    assert [one.line for one in places] == [2, 4]
    assert {whole[one.start : one.end] for one in places} == {ONE.secret}


def test_a_home_directory_is_reported_once():
    lines = [b'{"cwd":"/home/alice/x"}\n'] * 3

    assert [one.line for one in find_in_lines(lines, KnownSecrets())] == [1]


def test_a_stream_inside_a_string_is_put_together():
    line = json.dumps({"response": labelled.split_into_stream(ONE).text}).encode() + b"\n"

    assert ONE.secret.encode() in [
        one.detection.value for one in find_in_lines([line], KnownSecrets())
    ]
    assert secret_counts([line, line]) == {
        rule: 2 * count for rule, count in secret_counts([line]).items()
    }
