from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.events import Entry, Kept
from flightlog.views.order import in_order


def entry(uuid, parent="", at=0, key=""):
    return Entry(Kept("x"), "s", uuid, parent, order_ms=at, key=key or f"{uuid}:0")


entries = st.lists(
    st.builds(
        entry,
        st.sampled_from(["", "a", "b", "c", "d"]),
        st.sampled_from(["", "a", "b", "c", "d", "gone"]),
        st.integers(0, 2),
        st.uuids().map(str),
    ),
    max_size=10,
    unique_by=lambda each: each.key,
)


@given(entries, st.randoms())
def test_the_order_read_in_does_not_matter(said, chance):
    shuffled = chance.sample(said, len(said))

    assert in_order(shuffled) == in_order(said)


@given(entries)
def test_nothing_is_lost_and_nothing_is_told_twice_even_in_circles(said):
    assert sorted(each.key for each in in_order(said)) == sorted(each.key for each in said)


def test_a_record_comes_after_the_one_it_replies_to_whatever_the_clock_says():
    said = [entry("a", "b", 1), entry("b", "c", 2), entry("c", "", 3)]

    assert [each.uuid for each in in_order(said)] == ["c", "b", "a"]


def test_between_free_choices_the_earlier_then_the_smaller_key_comes_first():
    said = [entry("c", at=2), entry("b", at=1), entry("a", at=1)]

    assert [each.uuid for each in in_order(said)] == ["a", "b", "c"]


def test_a_missing_parent_makes_a_root_and_a_circle_goes_to_the_end_by_time():
    said = [entry("x", "y", 1), entry("y", "x", 0), entry("self", "self", 3), entry("child", "gone", 4)]

    assert [each.uuid for each in in_order(said)] == ["self", "child", "y", "x"]


def test_ten_thousand_replies_in_a_row_are_no_problem():
    said = [entry(f"u{place:05}", f"u{place - 1:05}") for place in range(10_000)]

    assert in_order(reversed(said)) == said
