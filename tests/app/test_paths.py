"""Where things are."""

import os

import platformdirs
import pytest

from flightlog.app.paths import home


@pytest.mark.parametrize("said", [None, "", "  ", "/somewhere/else", "not/absolute"])
def test_the_data_directory_is_where_the_system_keeps_data(said, tmp_path, monkeypatch):
    monkeypatch.delenv("FLIGHTLOG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if said is None:
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_DATA_HOME", said)
    assert str(home(os.environ)) == platformdirs.user_data_dir("flightlog", appauthor=False)
