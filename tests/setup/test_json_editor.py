import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.errors import Misconfigured
from flightlog.store import json_editor

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a"\\{}[],: é\n', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('ab"\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text('ab"\\é', max_size=3), values, max_size=4)
indents = st.sampled_from([None, 1, 2, 4, "\t"])


@given(document=objects, value=values, indent=indents)
def test_added_member_is_read_and_all_other_bytes_stay(document, value, indent):
    text = json.dumps(document, indent=indent, ensure_ascii=False) + "\n"

    more = json_editor.add_member(
        text, json_editor.root_offset(text), ("new key", value), json_editor.style_of(text)
    )

    assert json.loads(more) == {**document, "new key": value}
    assert list(json.loads(more)) == [*document, "new key"]
    cut = json_editor.remove_part(more, json_editor.root_offset(more), len(document))
    assert cut == text


@given(document=objects.filter(bool), indent=indents, data=st.data())
def test_cutting_one_part_leaves_the_others(document, indent, data):
    text = json.dumps(document, indent=indent)
    index = data.draw(st.integers(0, len(document) - 1))

    cut = json_editor.remove_part(text, 0, index)

    assert list(json.loads(cut).items()) == [
        pair for at, pair in enumerate(document.items()) if at != index
    ]


@given(items=st.lists(values, max_size=4), value=values, indent=indents)
def test_arrays_grow_at_their_end(items, value, indent):
    text = json.dumps({"list": items}, indent=indent)
    part = json_editor.find_part(text, 0, "list")

    assert json.loads(
        json_editor.add_member(text, part.value_start, ("", value), json_editor.style_of(text))
    ) == {"list": [*items, value]}


def test_an_addition_is_written_in_the_style_of_the_file():
    tabs = '{\r\n\t"a": {\r\n\t\t"b": []\r\n\t}\r\n}\r\n'
    inner = json_editor.find_part(tabs, 0, "a")

    more = json_editor.add_member(
        tabs, inner.value_start, ("c", {"d": 1}), json_editor.style_of(tabs)
    )

    assert (
        more
        == '{\r\n\t"a": {\r\n\t\t"b": [],\r\n\t\t"c": {\r\n\t\t\t"d": 1\r\n\t\t}\r\n\t}\r\n}\r\n'
    )


def test_a_value_is_replaced_in_its_place():
    text = '{"a": 1,  "b":30 , "c": 3}'

    assert (
        json_editor.replace_value(text, json_editor.find_part(text, 0, "b"), 3650)
        == '{"a": 1,  "b":3650 , "c": 3}'
    )
    assert json_editor.find_part(text, 0, "absent") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{\n  "a": 1,\n  // no\n}', "line 3, column 3"),
        ("", "line 1, column 1"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("[]", "not a JSON object"),
    ],
)
def test_text_that_is_no_object_is_refused_with_its_place(text, why):
    with pytest.raises(Misconfigured, match=why) as caught:
        json_editor.parse_object(text, "settings.json")

    assert caught.value.message.endswith("settings.json")
