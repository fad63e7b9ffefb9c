import pytest

from flightlog.views.transcript import RenderOptions
from flightlog.views.transcript_formats import export_session
from support.recordings import archive


@pytest.mark.parametrize(("form", "start"), [("md", "# "), ("json", "{")])
def test_a_session_is_exported_in_each_form(tmp_path, form, start):
    session = archive(tmp_path, "2.1.325/single-turn").read_session("dff270bc")

    assert export_session(session, form, RenderOptions()).startswith(start)
    assert export_session(session, form, RenderOptions()).endswith("\n")
