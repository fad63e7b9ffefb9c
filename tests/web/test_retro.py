"""The page that looks back: findings and issues, foreign words inert, and nothing written by looking."""

from urllib.parse import quote

from markupsafe import escape

from flightlog.retro.analysis import analyze
from flightlog.retro.issues import workflow
from retro.rooms import make_room, report_issue
from support.pages import running
from support.retro_archive import write_chats


def test_findings_and_issues_stand_on_the_page_and_looking_writes_nothing(tmp_path, monkeypatch):
    room = make_room(tmp_path)
    export = tmp_path / "export.json"
    write_chats(export, 4, 60)
    analyze.read_export(room, export)
    analysis = analyze.analyze(room)
    report_issue(room, "<script>alert(1)</script> in the title", "x")
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in room.root.rglob("*")}

    with running(tmp_path / "config") as served:
        answer = served.ask("/retro")

    assert answer.status == 200
    assert len(analysis.summary) == 5
    assert str(escape(" ".join(analysis.summary))) in answer.text
    assert len(analysis.recommendations) > 3
    assert all(
        str(escape(recommendation.title)) in answer.text
        for recommendation in analysis.recommendations
    )
    assert "&lt;!-- flightlog retro instruction-" in answer.text
    assert "&lt;script&gt;alert(1)" in answer.text
    assert "<script>alert" not in answer.text
    assert {path: path.stat().st_mtime_ns for path in room.root.rglob("*")} == before


def test_without_an_analysis_the_page_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with running(tmp_path / "config") as served:
        answer = served.ask("/retro")

    assert answer.status == 200
    assert "flightlog retro EXPORT" in answer.text
    assert not (tmp_path / ".chat-retro-runtime").exists()


def test_an_issue_is_previewed_redacted_and_published_only_by_our_write(tmp_path, monkeypatch):
    secret = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    room = make_room(tmp_path)
    name = report_issue(room, "Fails with a key", f"It fails with {secret} in the header")
    public = room.root / "issues" / f"issue_{name}.json"
    monkeypatch.chdir(tmp_path)

    with running(tmp_path / "config", read_only=True) as served:
        ours = {"Origin": f"http://127.0.0.1:{served.port}", "X_Flightlog": "1"}
        only_read = served.ask(f"/retro/issues/{name}/publish", "POST", **ours)
        shown = served.ask(f"/retro/issues/{name}")
    with running(tmp_path / "config") as served:
        ours = {"Origin": f"http://127.0.0.1:{served.port}", "X_Flightlog": "1"}
        foreign = served.ask(f"/retro/issues/{name}/publish", "POST")
        preview = served.ask(f"/retro/issues/{name}")
        refused_so_far = not public.exists()
        done = served.ask(f"/retro/issues/{name}/publish", "POST", **ours)
        missing = served.ask("/retro/issues/abcdef123456")

    assert (only_read.status, foreign.status, refused_so_far) == (403, 403, True)
    assert "Publish this" not in shown.text
    assert "Publish this" in preview.text
    assert "Fails with a key" in preview.text
    assert secret not in preview.text
    assert done.status == 303
    assert secret not in public.read_text()
    assert workflow.preview_issues(room) == []
    assert missing.status == 404


def test_evidence_opens_and_artifacts_are_handed_over(tmp_path, monkeypatch):
    room = make_room(tmp_path)
    export = tmp_path / "export.json"
    write_chats(export, 4, 60)
    analyze.read_export(room, export)
    analysis = analyze.analyze(room)
    (room.root / "outputs" / "retro_1.html").write_text("<p>pictures</p>")
    monkeypatch.chdir(tmp_path)
    first = analysis.recommendations[0]

    with running(tmp_path / "config") as served:
        page = served.ask("/retro")
        opened = served.ask(f"/retro/place?at={quote(first.evidence[0])}")
        handed = served.ask("/retro/outputs/retro_1.html")
        outside = served.ask("/retro/outputs/..%2Fstate%2Fjournal.jsonl")

    assert f"/retro/place?at={quote(first.evidence[0])}" in page.text
    assert str(escape(first.quotes[0][:20])) in opened.text
    assert handed.headers["Content-Disposition"] == 'attachment; filename="retro_1.html"'
    assert outside.status == 404
