"""One recorded session for all tests of replay."""

import pytest

from support.replays import recording_ground


@pytest.fixture(scope="package")
def ground(tmp_path_factory):
    with recording_ground(tmp_path_factory.mktemp("replay")) as made:
        yield made
