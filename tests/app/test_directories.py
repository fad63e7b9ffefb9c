"""Where things are."""

import os
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.app.runtime import data_dir
from flightlog.model.errors import Misconfigured


@pytest.mark.parametrize("data_home", [None, "", "  ", "/somewhere/else", "not/absolute"])
def test_the_data_directory_is_where_the_system_keeps_data(data_home, tmp_path, monkeypatch):
    monkeypatch.delenv("FLIGHTLOG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if data_home is None:
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_DATA_HOME", data_home)
    assert data_dir(os.environ) == platformdirs.user_data_dir("flightlog", appauthor=False)


@given(st.text(alphabet="/.a~ é", min_size=1, max_size=12).map(lambda rest: f"/{rest}"))
def test_data_directory_is_normalized_as_by_pathlib(home):
    if not home.startswith("//"):  # two slashes mean something else to it
        assert data_dir({"FLIGHTLOG_HOME": home}) == str(Path(home))


def test_invalid_data_directory_is_refused_with_the_next_step():
    with pytest.raises(Misconfigured, match="not an absolute path") as refused:
        data_dir({"FLIGHTLOG_HOME": "here"})
    assert refused.value.hint == 'export FLIGHTLOG_HOME="$PWD/here"'
    with pytest.raises(Misconfigured, match="no such home directory"):
        data_dir({"FLIGHTLOG_HOME": "~no-such-user/x"})
