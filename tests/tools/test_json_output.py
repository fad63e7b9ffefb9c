"""The JSON reference describes what commands print."""

import json
import re
from pathlib import Path

import pytest
from tools.docs.json_output import find_mismatches
from tools.docs.json_types import ELSEWHERE, OUTPUTS
from tools.docs.walk import commands

GOLDEN = Path(__file__).parents[1] / "golden" / "freeze"
RUN = re.compile(
    r"^\$ flightlog (.*? --json)\n\[exit 0\]\n(.*?)(?=^\$ flightlog |\Z)", re.DOTALL | re.MULTILINE
)


def read_printed_values(command):
    """Return every JSON value that the freeze of a command holds."""
    path = GOLDEN / f"{command.replace(' ', '-')}.txt"
    values = []
    for _, body in RUN.findall(path.read_text("utf-8")) if path.exists() else ():
        rest = body.partition("[stderr]")[0].strip()
        while rest:
            value, end = json.JSONDecoder().raw_decode(rest)
            values.append(value)
            rest = rest[end:].lstrip()
    return values


@pytest.mark.parametrize("command", OUTPUTS)
def test_command_prints_the_keys_of_its_type(command):
    mismatches = [
        place
        for value in read_printed_values(command)
        for place in find_mismatches(value, OUTPUTS[command])
    ]

    assert mismatches == []


def test_most_types_are_checked_against_printed_output():
    assert sum(1 for command in OUTPUTS if read_printed_values(command)) >= 0.8 * len(OUTPUTS)


def test_every_command_with_json_is_described():
    with_json = {
        " ".join(path[1:])
        for path, command in commands()
        if any("--json" in param.opts for param in command.params)
    }

    assert with_json == OUTPUTS.keys() | ELSEWHERE.keys()


def test_a_wrong_key_and_a_missing_key_are_named():
    wrong = {"line": "a", "text": "b"}

    assert sorted(find_mismatches(wrong, OUTPUTS["live statusline"])) == [
        ".template: missing",
        ".text: not described in StatusLineOutput",
    ]
