"""How general the rules are: shapes written down apart from them, in syntaxes of their own."""

from privacy import vendors
from privacy.test_detect import is_covered


def find_missed(texts):
    judged = [(one, is_covered(one)) for one in texts]
    return [one.text for one, fine in judged if not fine], len(judged)


def test_tokens_that_begin_tellingly_are_found_with_nothing_beside_them():
    wrong, _ = find_missed(vendors.bare())

    assert wrong == []


def test_tokens_that_begin_tellingly_are_found_in_every_syntax():
    wrong, count = find_missed(vendors.texts(vendors.BARE))

    assert len(wrong) <= 0.01 * count, wrong


def test_values_without_a_beginning_are_found_beside_their_provider():
    wrong, count = find_missed(vendors.texts(vendors.NEAR))

    assert len(vendors.BARE) + len(vendors.NEAR) >= 140
    assert len(wrong) <= 0.03 * count, wrong
