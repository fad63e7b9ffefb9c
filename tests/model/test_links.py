"""Kinds of things that can be traced."""

from flightlog.model.addresses import KINDS, NEARNESS


def test_every_kind_says_how_it_is_written_and_the_nearest_comes_first():
    assert all(KINDS.values())
    assert NEARNESS[0] == "here"
    assert len(set(NEARNESS)) == len(NEARNESS)
