"""The page that looks back: findings and issues, foreign words inert, and nothing written by looking."""

from datetime import UTC

from flightlog.retro import looking
from pages import running
from retro.planted import chats, written
from retro.rooms import make_room, reported


def test_findings_and_issues_stand_on_the_page_and_looking_writes_nothing(tmp_path, monkeypatch):
    room = make_room(tmp_path)
    export = tmp_path / "export.json"
    export.write_bytes(written(chats(4, 30)[0]))
    looking.read_export(room, export)
    analysis = looking.analyse(room, UTC)
    reported(room, "<script>alert(1)</script> in the title", "x")
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in room.root.rglob("*")}

    with running(tmp_path / "config") as served:
        answer = served.ask("/retro")

    assert answer.status == 200
    assert analysis.patterns[0].label[:20] in answer.text
    assert "&lt;script&gt;alert(1)" in answer.text
    assert "<script>alert" not in answer.text
    assert {path: path.stat().st_mtime_ns for path in room.root.rglob("*")} == before


def test_without_an_analysis_the_page_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with running(tmp_path / "config") as served:
        answer = served.ask("/retro")

    assert answer.status == 200
    assert "chat-retro EXPORT" in answer.text
    assert not (tmp_path / ".chat-retro-runtime").exists()
