"""Any history of branches: no conflict, no row lost, none twice, none back (R6)."""

import pytest

from support.dataset_histories import History

STEPS = 30


def assert_nothing_went_wrong(tmp_path, seed):
    history = History(tmp_path, seed)
    history.run(STEPS)

    wrong = {what: evidence for what, evidence in history.finish().items() if evidence}

    assert wrong == {}, f"seed {seed}: {dict(history.did)}"
    return history


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1008))
def test_a_short_history_loses_nothing(tmp_path, seed):
    history = assert_nothing_went_wrong(tmp_path, seed)

    assert len(history.rows) > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_histories_lose_nothing(tmp_path, seed):
    assert_nothing_went_wrong(tmp_path, seed)
