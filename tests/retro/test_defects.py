"""The seventeen defects of the tool the source document describes: ours has none of them."""

import json
import subprocess
import zipfile

import msgspec
import pytest

from flightlog.app.runtime import open_runtime
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.output_files import Tier
from flightlog.privacy.tiers import kind_of
from flightlog.retro import logs, state
from flightlog.retro.analysis import analyze
from flightlog.retro.issues import workflow
from flightlog.retro.issues.board import MOVES, STATUSES
from flightlog.retro.layout import render_artifact
from flightlog.retro.state import VERSION, decode_analysis
from flightlog.retro.store import ROOT, RetroStore
from retro.rooms import DAY_MS, make_room, report, report_issue
from support.cli_runs import FLIGHTLOG, environment
from support.sources_exports import claude_conversation

SECRET = "gh" + "p_" + "A7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"


@pytest.fixture
def room(tmp_path):
    return make_room(tmp_path)


def run(folder, *words, **more):
    env = environment(folder / "config", **more)
    return subprocess.run([FLIGHTLOG, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120,
                          check=False, stdin=subprocess.DEVNULL)  # fmt: skip


def public(room):
    return {
        path.name: path.read_text()
        for path in (room.root / "issues").iterdir()
        if path.name != ".gitkeep"
    }


def test_1_the_workflow_publishes_and_writes_the_changelog(room):
    name = report_issue(room, "The total is wrong", "It adds twice")
    workflow.approve_clusters(room)
    workflow.publish_issues(room)
    assert json.loads(public(room)[f"issue_{name}.json"])["title"] == "The total is wrong"

    workflow.resolve_issue(room, name, "Each line is added once")

    assert list(public(room)) == ["CHANGELOG.md"]
    assert f"- **{name}**: Each line is added once" in public(room)["CHANGELOG.md"]
    assert public(room)["CHANGELOG.md"].startswith("# Changelog\n\n## 2026-11-0")


def test_2_import_keeps_severity_and_tags_so_corrupt_state_is_fast_tracked(room):
    (room.root / "state" / "analysis.json").write_text('{"schema_version": 1')
    assert room.load_analysis() is None

    done = workflow.process_drafts(room)

    (issue,) = done.board.issues.values()
    assert (issue.severity, set(issue.tags) >= {"retro", "incident"}) == ("critical", True)
    assert issue.priority_score >= 10
    assert done.board.clusters[issue.cluster_id].status == "approved"


def test_3_a_duplicate_raises_the_frequency(room):
    name = report_issue(room, "Search finds nothing after an update", "No hits for any word")
    before = room.load_board().issues[name].priority_score

    report(room, "After an update the search finds nothing", "No hits for any word")
    board = workflow.process_drafts(room).board

    assert list(board.issues) == [name]
    assert board.issues[name].frequency == 2
    assert board.issues[name].priority_score > before


def test_4_the_ranking_at_the_gate_has_the_numbers_of_now(tmp_path):
    room = make_room(tmp_path)
    name = report_issue(room, "Old but gold")
    fresh = room.load_board().issues[name].priority_score
    room.now_ms.ms += 8 * DAY_MS

    shown = workflow.process_drafts(room).board.issues[name].priority_score

    assert shown == pytest.approx(fresh / 1.5)


def test_5_yes_approves_and_publishes(tmp_path):
    (tmp_path / "config").mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert (
        run(
            tmp_path, "issue", "report-bug", "--title", "It stops", "--description", "Always"
        ).returncode
        == 0
    )

    waiting = run(tmp_path, "issue", "process")
    assert not list((tmp_path / ROOT / "issues").glob("issue_*.json"))
    assert "process --yes" in waiting.stderr
    done = run(tmp_path, "issue", "process", "--yes", "--json")

    assert json.loads(done.stdout)["published_files"], done.stderr
    assert list((tmp_path / ROOT / "issues").glob("issue_*.json"))
    listed = json.loads(run(tmp_path, "issue", "list", "--status", "prioritized", "--json").stdout)
    assert [issue["title"] for issue in listed] == ["It stops"]


def test_6_a_fresh_state_is_of_the_version_that_is_read(room, tmp_path):
    analyze.analyze(room)

    state = decode_analysis((room.root / "state" / "analysis.json").read_bytes())

    assert state.schema_version == VERSION == 1
    workflow.process_drafts(room)
    assert json.loads((room.root / "issue-state.json").read_text())["schema_version"] == 2


def test_7_the_threshold_and_every_status_are_used(room):
    one = report_issue(
        room,
        "Cart shows wrong sum",
        "in the basket view",
        affected_files=("src/cart.py", "src/sum.py"),
    )
    two = report_issue(
        room, "Basket loses entries", "when leaving", affected_files=("src/cart.py", "src/sum.py")
    )
    board = room.load_board()
    assert board.issues[one].cluster_id == board.issues[two].cluster_id
    strict = msgspec.structs.replace(board, cluster_threshold=1.01)
    from flightlog.retro.issues.workflow import cluster_issues

    assert len(cluster_issues(strict, room.now_ms()).clusters) == 2

    workflow.move_issue(room, one, "in_progress")
    assert room.load_board().issues[one].status == "in_progress"
    assert set(MOVES) == set(STATUSES)


def test_8_what_is_tracked_was_scrubbed_by_rules_before_it_was_written(room):
    name = report_issue(
        room,
        f"Token {SECRET} refused",
        "mail ada.lovelace@analytical-engines.net in /home/ada/shop\nuser: my private words",
    )
    workflow.approve_clusters(room)
    workflow.publish_issues(room)

    (body,) = public(room).values()

    assert "<secret:" in body
    for private in (SECRET, "lovelace", "/home/ada", "my private words"):
        assert private not in body
    with pytest.raises(Conflict):
        workflow.validate_issue(
            room, msgspec.structs.replace(room.load_board().issues[name], status="draft")
        )


def test_9_one_character_does_not_decide_privacy():
    tiers = {name: kind_of(f"{ROOT}/logs/{name}")[1].tier for name in
             ("debug.jsonl", "debug_audit.jsonl", "metrics.jsonl", "debug.jsonl.1", "anything.jsonl")}  # fmt: skip

    assert tiers.pop("metrics.jsonl") is Tier.TRACKED
    assert tiers.pop("debug_audit.jsonl") is Tier.SHAREABLE
    assert set(tiers.values()) == {Tier.PRIVATE}


def test_10_a_closing_script_tag_stays_text(room, tmp_path):
    export = tmp_path / "conversations.json"
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    export.write_text(json.dumps([claude_conversation("c1", hostile, name=hostile)]))
    analyze.read_export(room, export)
    analysis = analyze.analyze(room)

    page = render_artifact(
        analysis, list(analyze.load_digests(room).values()), __import__("datetime").UTC, "a"
    )

    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "onerror" in page


def test_11_each_artifact_keeps_its_own_notes(room):
    analysis = analyze.analyze(room)

    one, two = (
        render_artifact(analysis, [], __import__("datetime").UTC, name)
        for name in ("outputs/a.html", "outputs/b.html")
    )

    assert '"name":"outputs/a.html"' in one
    assert '"name":"outputs/b.html"' in two
    assert "flightlog:${kind}:${data.name}" in one


def test_12_session_resumes_without_its_id_even_after_an_early_crash(
    tmp_path,
):
    from flightlog.retro.service import current_session, start_session

    room = make_room(tmp_path)
    session = start_session(open_runtime(), room)  # and nothing more: the crash

    assert start_session(open_runtime(), room, "latest") == session == current_session(room)
    assert json.loads((room.root / "resume-session.json").read_text()) == {"session_id": session}


def test_13_a_second_corruption_does_not_destroy_the_first(room):
    state = room.root / "state" / "analysis.json"
    for body in ("{", "[1"):
        state.write_text(body)
        assert room.load_analysis() is None

    copies = {path.name: path.read_text() for path in (room.root / "state").glob("*.corrupt*")}

    assert copies == {"analysis.json.corrupt": "{", "analysis.json.corrupt-1": "[1"}
    assert len(list((room.root / "issue-drafts").glob("draft_*.json"))) == 2


def test_14_logs_have_a_bounded_size(room):
    first = logs.ToolLog(room.root, "s1", in_full=True)
    first.append_call("t", "Read", {"file_path": "/home/ada/x"}, "all of it")
    assert "all of it" in (room.root / logs.DEBUG).read_text()
    second = logs.ToolLog(room.root, "s2", in_full=True)
    second.append_call("t", "Grep", {"pattern": "x"}, "other")

    assert "all of it" not in (room.root / logs.DEBUG).read_text()
    audit = (room.root / logs.AUDIT).read_text()
    assert "ada" not in audit
    assert audit.count("\n") == 2
    with (room.root / logs.AUDIT).open("ab") as file:
        file.truncate(logs.LOG_BYTES_MAX + 1)
    logs.ToolLog(room.root, "s3", in_full=False)
    assert not (room.root / logs.AUDIT).exists()
    assert [path.name for path in (room.root / "logs").glob("debug_audit_*")] == [
        "debug_audit_1.jsonl"
    ]
    (room.root / "outputs" / "debug_mine.jsonl").write_text("mine")
    assert [move.item.name for move in logs.logs_due(room.root, room.now_ms() + 10_000 * DAY_MS)] == [
        "logs/debug_audit_1.jsonl"]  # fmt: skip


def test_15_the_tracked_log_can_hold_nothing_but_numbers(room):
    name = logs.pseudonymize_session("d72c97bd-953d-47f7-bfb0-86f9eed5e73a", b"k" * 32)
    logs.append_metrics(
        room.root,
        logs.SessionMetrics(name, 1.2, logs.SessionTokens(100, 1804), errors={"timeout": 1}),
    )

    line = json.loads((room.root / logs.METRICS).read_text())

    assert (line["cost_usd"], line["tokens"]["output"], line["errors"]) == (
        1.2,
        1804,
        {"timeout": 1},
    )
    assert "d72c97bd" not in name
    with pytest.raises((AssertionError, ValueError)):
        logs.append_metrics(
            room.root, logs.SessionMetrics("/home/ada: x!!!!", 0, logs.SessionTokens())
        )
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            {"session_id": name, "cost_usd": 1, "tokens": {}, "errors": {"/home/ada": 1}},
            logs.SessionMetrics,
        )


def test_16_feedback_is_given_on_the_command_line_and_counts(tmp_path):
    (tmp_path / "config").mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    chats = [
        claude_conversation(f"c{number}", f"How do I bake a rye bread, take {number}?")
        for number in range(3)
    ]
    (tmp_path / "conversations.json").write_text(json.dumps(chats))
    patterns = json.loads(
        run(tmp_path, "retro", "conversations.json", "--json", "--no-draw").stdout
    )["patterns"]
    first = next(pattern for pattern in patterns if pattern["kind"] == "question again")

    assert run(tmp_path, "retro", "feedback", "rate", first["id"], "down").returncode == 0

    summary = json.loads(run(tmp_path, "retro", "feedback", "summary", "--json").stdout)
    assert summary["low_rated_patterns"] == {first["id"]: 1.0}
    after = json.loads(run(tmp_path, "retro", "analyze", "--json", "--no-draw").stdout)["patterns"]
    assert (
        next(pattern for pattern in after if pattern["id"] == first["id"])["confidence"]
        < first["confidence"]
    )
    assert state.parse_rating("up") == 5
    with pytest.raises(Invalid):
        state.parse_rating("7")


def test_17_a_claude_export_is_read(room, tmp_path):
    export = tmp_path / "claude.zip"
    with zipfile.ZipFile(export, "w") as box:
        box.writestr(
            "conversations.json", json.dumps([claude_conversation("c1", "How do I prune roses?")])
        )
        box.writestr("users.json", "[]")

    read = analyze.read_export(room, export)

    assert read.new == 1
    (digest,) = analyze.load_digests(room).values()
    assert (digest.source, digest.prompts[0].text) == ("claude", "How do I prune roses?")
    assert isinstance(room, RetroStore)
