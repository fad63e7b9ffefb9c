import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.addresses import check_id, is_safe, unique_prefixes
from flightlog.model.errors import Invalid

REFUSED = [
    "", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "-rf", "--help", ".hidden", "a b", "a\nb", "a\x00b",
    "a\x1b[31m", "a\n", "\uff41", "é", "x" * 129, "a'b", 'a"b', "a;b", "$(id)", "a#1", "a@b", "a:b", "~", "*",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_path_option_or_command_is_no_valid_id(name):
    assert not is_safe(name)
    with pytest.raises(Invalid) as refusal:
        check_id(name)
    assert refusal.value.hint
    assert "\x1b" not in refusal.value.message


@pytest.mark.parametrize(
    "name", ["a", "594c6bc1-d246-5547-b378-0a129fb1d46e", "agent-a18", "A.b_c-d", "x" * 128]
)
def test_ids_as_agents_make_them_are_fine(name):
    assert check_id(name) == name


@given(st.text())
def test_a_safe_name_is_one_plain_path_component(name):
    if is_safe(name):
        assert name.isascii()
        assert name.isprintable()
        assert "/" not in name
        assert name not in {".", ".."}
        assert name[0] not in "-."


@given(st.sets(st.text("ab1-", min_size=1, max_size=24), max_size=12))
def test_a_unique_prefix_begins_no_other_id(ids):
    prefixes = unique_prefixes(ids, 3)

    assert prefixes.keys() == ids
    for name, prefix in prefixes.items():
        assert name.startswith(prefix)
        others = {other for other in ids if other.startswith(prefix)}
        assert all(other.startswith(name) for other in others), "only what begins with all of it"


@given(st.sets(st.text("ab1-", min_size=1, max_size=24), max_size=12), st.data())
def test_prefixes_of_some_ids_are_unique_among_all(ids, data):
    some = data.draw(st.sets(st.sampled_from(sorted(ids)))) if ids else set()

    every = unique_prefixes(ids, 3)

    assert unique_prefixes(some, 3, ids) == {name: every[name] for name in some}


def test_unique_prefixes_are_short_where_ids_differ_early():
    ids = ["01a1e516-aaaa", "01a1e516-abbb", "2123f2df-0000"]

    assert list(unique_prefixes(ids).values()) == ["01a1e516-aa", "01a1e516-ab", "2123f2df"]
