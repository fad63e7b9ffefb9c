"""Trajectories of what real agents wrote."""

import pytest

from flightlog.views.atif.emit import step_ids, trajectory
from recordings import CASES, archive


def told(tmp_path, case):
    return list(archive(tmp_path, case).told())


@pytest.mark.parametrize("case", CASES)
def test_every_response_is_one_step_and_counted_once(tmp_path, case):
    for session in told(tmp_path, case):
        bundle = trajectory(session)
        threads = [session.turns, *(lane.turns for lane in session.lanes)]

        for document, turns in zip(bundle.documents.values(), threads, strict=True):
            responses = [step for turn in turns for step in turn.steps]
            assert list(step_ids(document)) == [step.message_id for step in responses]
            assert document.final_metrics.total_prompt_tokens == sum(step.usage.prompt for step in responses)
            assert document.final_metrics.total_completion_tokens == sum(step.usage.output for step in responses)
            assert [step.step_id for step in document.steps] == list(range(1, len(document.steps) + 1))
