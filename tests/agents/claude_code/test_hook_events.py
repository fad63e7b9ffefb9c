import json
import re

import pytest

from flightlog.agents.claude_code.hooks import COMMON, events_for
from flightlog.model.errors import Invalid
from support.real_agent import VERSIONS, agent_program

# Events that some version knows and that are never registered, with the reason.
LEFT_OUT = {
    "MessageDisplay": "one event per piece of text shown, which would slow the agent down",
    "PostToolBatch": "repeats every PostToolUse",
    "WorktreeCreate": "a hook replaces the client's own work",
    "WorktreeRemove": "a hook replaces the client's own work",
    "FileChanged": "makes the client watch files",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_event_registered_is_one_the_client_itself_lists(version):
    """The client's own list is in its code: nothing is registered that is not on it."""
    code = agent_program(version).resolve().read_bytes()
    lists = re.findall(rb'\["PreToolUse"(?:,"[A-Za-z]+"){3,60}\]', code)
    known = set(max((json.loads(text) for text in lists), key=len))

    assert set(events_for([version])) <= known
    assert known - set(events_for([version])) <= set(LEFT_OUT)


@pytest.mark.parametrize(
    "versions", [[], [""], ["2.1.325", "1.0.128"], ["2.1.325", ""], ["nightly"], ["2.x.1"]]
)
def test_unknown_version_registers_only_events_of_all_versions(versions):
    assert events_for(versions) == COMMON


def test_a_version_between_two_tried_ones_gets_what_the_older_knows():
    assert events_for(["2.0.99"]) == events_for(["2.0.76"])
    assert events_for(["2.1.100", "2.1.100"]) == events_for(["2.1.100"])
    assert events_for(["3.0.0"]) == events_for(["2.1.325"])


def test_a_client_older_than_the_oldest_tried_is_refused():
    with pytest.raises(Invalid, match=r"1\.0\.50 is older than 1\.0\.128"):
        events_for(["1.0.50"])


def test_events_that_would_disturb_the_agent_are_not_registered():
    assert not set(LEFT_OUT) & set(events_for(["2.1.325"]))
    assert "MessageDisplay" in LEFT_OUT
