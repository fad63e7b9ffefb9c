"""Rows as bytes, and the numbers of their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.usage import ClientTotals, ModelTotal, UsageLine
from flightlog.sources.usage_rows import (
    has_key,
    intersect_sorted,
    merge_sorted,
    pack_rows,
    response_keys,
    unpack_keys,
    unpack_rows,
)

NUMBERS = st.integers(0, 2**32 - 1)
WORDS = st.sampled_from(["", "a", "b", "ä\n", "msg_1"])
COUNTS = st.integers(0, 2**53 - 1)
ROWS = st.lists(
    st.builds(
        UsageLine,
        *[WORDS] * 3,
        *[COUNTS] * 7,
        *[WORDS] * 3,
        st.booleans(),
        quality=st.integers(0, 2),
    ),
    max_size=6,
)
TOTALS = st.lists(
    st.builds(
        ClientTotals,
        WORDS,
        st.floats(0, 1e6),
        COUNTS,
        st.just((ModelTotal("m", 0.5, input_tokens=1, output_tokens=2),)),
    ),
    max_size=2,
)


@given(ROWS, TOTALS)
def test_packed_rows_are_unpacked_unchanged(rows, totals):
    again, totals_again = unpack_rows(pack_rows(rows, totals))
    assert (again, totals_again) == (rows, totals)
    assert all(type(row) is UsageLine for row in again)


def test_value_that_all_rows_share_is_written_once():
    text = "a session with a name that is long enough to be seen"
    rows = [
        UsageLine(str(n), text, text, n, 0, 0, 0, 0, 0, n, text, str(n), "", is_aborted=False)
        for n in range(100)
    ]
    assert pack_rows(rows, []).count(text.encode()) == 3


@pytest.mark.parametrize("cut", range(9))
def test_columns_that_do_not_fit_together_are_refused(cut):
    rows = [
        UsageLine(
            str(n), "s", "m", n, n, n, n, n, n, n, str(n), str(n), str(n), is_aborted=bool(n % 2)
        )
        for n in range(3)
    ]
    packed = bytearray(pack_rows(rows, []))
    at = [place for place, byte in enumerate(packed) if byte == 0x93][
        cut
    ]  # where a column of three begins
    packed[at] = 0x92
    with pytest.raises(ValueError, match=r"\w"):
        unpack_rows(bytes(packed))


@given(st.sets(NUMBERS, max_size=20), st.sets(NUMBERS, max_size=20), NUMBERS)
def test_numbers_are_found_again_in_their_order(fresh, known, other):
    before = unpack_keys(merge_sorted(known, unpack_keys(b"")))
    assert list(before) == sorted(known)
    assert list(unpack_keys(merge_sorted(fresh, before))) == sorted(fresh | known)
    assert intersect_sorted({*fresh, other}, before) == {*fresh, other} & known
    assert has_key(other, before.tobytes()) == (other in known)


@given(ROWS)
def test_a_name_has_the_same_number_everywhere(rows):
    numbers = unpack_keys(response_keys(rows))
    assert [rows[0].message_id == row.message_id for row in rows] == [
        numbers[0] == number for number in numbers
    ]
