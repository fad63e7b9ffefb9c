"""Secrets that nothing but their place tells: each place written down apart from the rules."""

import pytest

from flightlog.privacy.redactor import Redactor
from privacy import labelled, places
from privacy.test_detect import is_covered, share


def test_secrets_are_found_by_their_place():
    judged = [(one.text, is_covered(one)) for one in places.texts()]

    wrong = [text for text, fine in judged if not fine]

    assert len(judged) >= 500
    assert len(wrong) <= 0.02 * len(judged), wrong


@pytest.mark.parametrize("way", labelled.TRANSFORMS[:-2], ids=lambda way: way.__name__)
def test_secrets_are_found_by_their_place_however_they_are_written(way):
    plain = [one for one in places.texts(seed=32, copies=1) if is_covered(one)]

    assert share([way(one) for one in plain]) >= 0.95


def test_the_tag_of_a_secret_stays_after_redacting_twice():
    redactor = Redactor(bytes(32))
    once = [redactor.redact_string(one.text) for one in places.texts(seed=33, copies=1)]

    assert [redactor.redact_string(text) for text in once] == once
