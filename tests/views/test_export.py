import pytest

from flightlog.views.export import exported
from flightlog.views.story import Telling
from recordings import archive


@pytest.mark.parametrize(("form", "start"), [("md", "# "), ("html", "<!doctype html>"), ("json", "{")])
def test_a_session_is_exported_in_each_form(tmp_path, form, start):
    session = archive(tmp_path, "2.1.325/single-turn").session("dff270bc")

    assert exported(session, form, Telling()).startswith(start)
    assert exported(session, form, Telling()).endswith("\n")
