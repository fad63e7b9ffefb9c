import json

import pytest

from flightlog.agents.scripted.scenario import load_scenario, parse_scenario
from flightlog.model.errors import Invalid, NotFound

HELLO = {"rules": [{"replies": [{"text": "Hello."}]}]}


def test_a_yaml_file_and_a_json_file_say_the_same(tmp_path):
    (tmp_path / "hello.json").write_text(json.dumps(HELLO))
    (tmp_path / "hello.yaml").write_text("rules:\n  - replies:\n      - text: Hello.\n")

    assert (
        load_scenario(tmp_path / "hello.json")
        == load_scenario(tmp_path / "hello.yaml")
        == parse_scenario(HELLO)
    )


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="no such scenario"):
        load_scenario(tmp_path / "absent.yaml")


@pytest.mark.parametrize("text", ["rules: [", "{", "rules: &a [*b]"])
def test_a_file_that_cannot_be_parsed_is_refused(tmp_path, text):
    (tmp_path / "broken.yaml").write_text(text)

    with pytest.raises(Invalid, match="cannot be read"):
        load_scenario(tmp_path / "broken.yaml")


def test_an_unknown_key_is_refused_with_the_nearest_known_name():
    with pytest.raises(Invalid, match="unknown field `delay`") as caught:
        parse_scenario({"rules": [{"replies": [{"text": "x", "delay": 2}]}]})

    assert caught.value.hint == "did you mean `delay_s`?"


def test_a_key_like_no_other_lists_the_known_ones():
    with pytest.raises(Invalid) as caught:
        parse_scenario({"rules": [], "zzzzzz": 1})

    assert caught.value.hint.startswith("one of: blocks,")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"replies": []}, "at least one reply"),
        ({"replies": [{}]}, "text, blocks or errors"),
        ({"replies": [{"blocks": [{"text": "a", "tool": "Bash"}]}]}, "a block is one of"),
        ({"replies": [{"blocks": [{}]}]}, "a block is one of"),
        ({"replies": [{"text": "a", "chunk_chars": 0}]}, "at least 1"),
        ({"replies": [{"text": "a"}], "when": {"prompt": "("}}, "not a regular expression"),
        ({"replies": [{"text": 1}]}, "Expected `str"),
    ],
)
def test_a_script_that_could_not_play_is_refused(rule, why):
    with pytest.raises(Invalid, match=why):
        parse_scenario({"rules": [rule]})


def test_the_short_form_is_one_text_block():
    reply = parse_scenario(HELLO).rules[0].replies[0]

    assert [block.text for block in reply.content] == ["Hello."]
