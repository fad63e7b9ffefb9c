"""What the tests of the dataset ask for."""

import pytest

from support.dataset_ground import Ground


@pytest.fixture
def ground(tmp_path):
    """A repository with sessions that began in it."""
    return Ground(tmp_path)
