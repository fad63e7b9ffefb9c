import json
import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.errors import Damage
from flightlog.model.usage import Cost, CostSource, Usage, usage_fields
from flightlog.views.json_output import as_json, as_json_line

TEXTS = st.text() | st.text(alphabet='\x1b\x9b\x7f\u202e\u2028\x00\udcff\\"ud8')


@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    )
)
def test_json_keeps_its_values_and_is_inert(value):
    for text in (as_json(value), as_json_line(value)):
        assert json.loads(text) == msgspec.json.decode(text)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\ud800-\udfff]", text)
    if "\\ud" not in json.dumps(value):
        assert json.loads(as_json(value)) == value
    assert "\n" not in as_json_line(value)


def test_a_file_name_that_is_no_text_is_written_with_a_mark():
    (document,) = json.loads(as_json([Damage("/x/\udcff.jsonl", 0, 0, "odd")]))

    assert document["path"] == "/x/\ufffd.jsonl"


def test_nan_and_infinity_are_null_and_large_numbers_stay():
    assert json.loads(as_json({"a": float("nan"), "b": float("inf"), "c": 10**30})) == {
        "a": None,
        "b": None,
        "c": 10**30,
    }


def test_counts_that_no_response_has_are_null_at_any_depth():
    unknown = usage_fields(Usage(), Cost(None, CostSource.UNKNOWN))
    unpriced = usage_fields(Usage(1, 2), Cost(None, CostSource.UNKNOWN))
    free = usage_fields(Usage(), Cost(0.0, CostSource.TABLE))

    printed = json.loads(as_json({"steps": [unknown, unpriced, free], "cost_usd": None}))

    assert [step["input_tokens"] for step in printed["steps"]] == [None, 1, 0]
    assert [step["cache_write_1h_tokens"] for step in printed["steps"]] == [None, 0, 0]
    assert printed.keys() == {"steps", "cost_usd"}
