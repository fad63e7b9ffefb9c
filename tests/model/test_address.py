import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.addresses import Address, parse_address
from flightlog.model.errors import Invalid

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
numbers = st.integers(1, 999_999_999)


@given(names, st.none() | numbers, st.none() | numbers, st.just("") | names)
def test_an_address_is_read_as_it_is_written(session, turn, step, subagent):
    address = Address(session, turn or 0, (step or 0) if turn else 0, subagent)

    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "written",
    ["", "#1", "a#", "a#0", "a#1.0", "a#1.", "a#x", "a#1.x", "a#-1", "a#1.2.3", "a@", "a@#1", "a@b@c", "a#1#2", "a#²",
     "a#1 ", "../a#1", "a/b", "a\x1b#1", "a@../b#1", "a@b/c", "a#9999999999", "a\n#1", "a#1\n"],
)  # fmt: skip
def test_invalid_address_is_refused_with_a_hint(written):
    with pytest.raises(Invalid) as refusal:
        parse_address(written)

    assert refusal.value.hint
    assert "\x1b" not in refusal.value.message


@given(st.from_regex(r"[ab._-]{1,3}(@[ab.]{0,2})?(#[0-9]{0,2}([.][0-9]{0,2})?)?", fullmatch=True))
def test_text_that_looks_like_an_address_is_one_or_is_refused(written):
    try:
        address = parse_address(written)
    except Invalid:
        return
    assert str(address) == written


@given(st.text())
def test_any_text_is_an_address_or_is_refused(written):
    try:
        address = parse_address(written)
    except Invalid:
        return
    assert parse_address(str(address)) == address
