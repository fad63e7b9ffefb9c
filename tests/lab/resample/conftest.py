"""A finished run to ask again: made once, copied for each test, with a key that is nobody's."""

import pytest

from support.sampled import KEY, copy_run, make_run


@pytest.fixture(scope="session")
def source_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("made"))


@pytest.fixture
def run(source_run, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    return copy_run(source_run, tmp_path)
