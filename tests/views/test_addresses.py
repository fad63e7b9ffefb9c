import pytest

from flightlog.model.address import parse
from flightlog.model.session import Session
from flightlog.views.addresses import addresses
from flightlog.views.parts import part_at
from recordings import archive


@pytest.mark.parametrize("case", ["2.1.325/multi-turn-tools", "2.1.325/subagents-background", "1.0.128/subagent"])
def test_every_record_of_the_story_has_an_address_that_opens(tmp_path, case):
    for session in archive(tmp_path, case).told():
        found = addresses(session)
        uuids = {uuid for step in session.steps for uuid in step.uuids}

        assert uuids <= found.keys()
        for address in set(found.values()):
            assert not isinstance(part_at(session, parse(address)), Session)
