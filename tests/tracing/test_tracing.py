"""Tracing on a project where everything happened for real: from every kind to every kind, and what leads nowhere."""

import json
import shutil
import uuid

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.model.addresses import KINDS
from flightlog.model.errors import Invalid, NotFound
from flightlog.privacy.redactor import Redactor
from flightlog.retro.store import ROOT, RetroStore
from flightlog.tracing.blame import attribute_lines
from flightlog.tracing.providers import TraceContext
from flightlog.tracing.trace import build_trace, find_link
from retro.rooms import report_issue
from support.cli_runs import FLIGHTLOG
from support.real_agent import make_bench
from support.traced import SHOP, build, git, tool
from support.transcripts import assistant, stamp, user


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return build(make_bench(tmp_path_factory.mktemp("traced") / "machine"))


@pytest.fixture(scope="module")
def full_trace(project):
    return build_trace(project.commit, project.ground())


def test_trace_leads_from_every_kind_to_every_kind(project, full_trace):
    starts = {
        kind: f"{kind}:{full_trace.items_of_kind(kind)[0].address}"
        for kind in KINDS
        if kind != "commit"
    }
    starts["commit"] = project.commit[:10]
    reached = {
        kind: {link.kind for link in build_trace(written, project.ground()).links}
        for kind, written in starts.items()
    }

    missing = {kind: set(KINDS) - {kind} - others for kind, others in reached.items()}

    assert {kind: kinds for kind, kinds in missing.items() if kinds} == {}
    assert full_trace.broken_links == ()


def test_commit_traces_to_steps_that_wrote_its_lines_and_to_its_maker(project, full_trace):
    steps = {link.address for link in full_trace.items_of_kind("step")}

    assert steps == {f"{project.session}#1.1", f"{project.session}#1.2", f"{project.run}#1.1"}
    assert {link.address for link in full_trace.items_of_kind("hunk")} == {
        f"{project.session}#1.1:shop.py:1",
        f"{project.run}#1.1:work/tax.py:1",
    }


def test_the_nearest_of_each_kind_is_shown_with_its_distance(project):
    trace = build_trace(f"{project.session}#1.3", project.ground())

    assert {link.distance for link in trace.items_of_kind("task")} == {"here"}
    assert {link.distance for link in trace.items_of_kind("commit")} == {"same turn"}
    assert [link.distance for link in trace.items_of_kind("run")] == ["same commit"]
    (request,) = trace.items_of_kind("request")
    assert request.distance == "here"
    assert (
        build_trace(request.address, project.ground()).items_of_kind("step")[0].address
        == f"{project.session}#1.3"
    )


def test_broken_link_is_reported_with_its_reason(project):
    room = RetroStore(
        project.top / ROOT,
        Redactor(b"k" * 32),
        open_runtime().clock.now_ms,
        lambda: str(uuid.uuid4()),
    )
    gone = "00000000-0000-4000-8000-000000000000"
    evidence = f"{project.session}#1.1 {project.session}#9 {project.session}#1.77 {gone}#1.1"
    issue = report_issue(
        room,
        "Names what is not there",
        "x",
        context={"evidence": evidence, "pattern": "no-such-finding"},
    )

    trace = build_trace(f"issue:{issue}", project.ground())
    ran = project.flightlog("trace", f"issue:{issue}")

    why = {link.target: link.reason for link in trace.broken_links}
    assert why[f"{project.session}#9"] == "no such turn in the recording"
    assert why[f"{project.session}#1.77"] == "no such step in the recording"
    assert why[f"{gone}#1.1"].startswith("no session starts with")
    assert why["finding:no-such-finding"] == "missing"
    assert f"{project.session}#1.1" not in why
    assert ran.returncode == 3
    assert ran.stderr.count("broken: ") == 4


def test_a_recording_that_was_deleted_breaks_the_links_of_its_rows(project, tmp_path):
    shutil.copytree(project.top, tmp_path / "moved", symlinks=True)
    elsewhere = TraceContext(
        open_runtime(), tmp_path / "moved", Archive({"claude-code": (str(tmp_path / "nothing"),)})
    )

    trace = build_trace("row:chat-", elsewhere)

    assert next(
        link.reason for link in trace.broken_links if link.source.startswith("row:")
    ).startswith("no session starts with")


def test_a_copied_run_does_not_hide_the_run_it_was_copied_from(project, tmp_path):
    shutil.copytree(project.top, tmp_path / "moved", symlinks=True)
    runs = tmp_path / "moved" / "runs"
    shutil.copytree(runs / "tax", runs / "their-tax")
    context = TraceContext(
        open_runtime(), tmp_path / "moved", Archive({"claude-code": (str(project.config),)})
    )

    traces = [build_trace(f"run:{name}/session_01", context) for name in ("tax", "their-tax")]

    for trace in traces:
        runs = {link.address for link in trace.items_of_kind("run")}
        assert {"tax/session_01", "their-tax/session_01"} >= runs
        assert trace.items_of_kind("session")[0].address == project.run


def test_missing_or_ambiguous_address_is_refused(project):
    with pytest.raises(NotFound):
        find_link("nothing-of-the-kind", project.ground())
    with pytest.raises(Invalid, match="start with"):
        find_link("row:action-", project.ground())
    with pytest.raises(NotFound):
        find_link("issue:" + project.commit[:8], project.ground())


def test_the_json_holds_what_the_screen_shows(project):
    document = json.loads(project.flightlog("trace", "HEAD", "--json").stdout)
    shown = project.flightlog("trace", "HEAD", "--all").stdout

    assert document["start"]["address"] == project.commit
    assert all(link["address"] in shown for link in document["links"])


def test_foreign_text_in_a_trace_is_inert(project):
    room = RetroStore(
        project.top / ROOT,
        Redactor(b"k" * 32),
        open_runtime().clock.now_ms,
        lambda: str(uuid.uuid4()),
    )
    context = {"evidence": f"{project.session}#1.1"}
    issue = report_issue(room, "\x1b[31mred\x07 \u202eback", "x", context=context)

    runs = [
        project.flightlog("trace", f"issue:{issue}"),
        project.flightlog("trace", project.session, "--all"),
    ]

    assert all(ran.returncode in {0, 3} for ran in runs), "another test leaves a broken link"
    assert "red" in runs[1].stdout
    assert not any(
        bad in ran.stdout + ran.stderr for ran in runs for bad in ("\x1b", "\x07", "\u202e")
    )


def test_sessions_that_did_not_change_are_not_read_again(project, tmp_path):
    class Counting(Archive):
        iter_sessions = 0

        def read_session(self, written):
            self.iter_sessions += 1
            return super().read_session(written)

    first, second = (
        Counting({"claude-code": (str(project.config),)}, str(tmp_path / "home")) for _ in range(2)
    )
    known, again = dict(first.iter_edits()), dict(second.iter_edits())

    assert known == again
    assert known[project.session]
    assert (first.iter_sessions, second.iter_sessions) == (1, 0)


def test_blame_names_the_prompt_of_a_committed_line(project):
    shop, tax = (
        attribute_lines(project.top / name, 1, 0, project.ground())
        for name in ("shop.py", "work/tax.py")
    )

    assert {line.step for line in shop} == {f"{project.session}#1.1"}
    assert {line.commit for line in shop} == {project.commit}
    assert shop[0].prompt.startswith("Write totals with tax")
    assert {line.step for line in tax} == {f"{project.run}#1.1"}, (
        "a command wrote it: the run's own trees say so"
    )


def test_blame_names_the_prompt_of_uncommitted_and_of_changed_lines(project, tmp_path):
    """Another session changes one line and adds one: only those are its own."""
    config = tmp_path / "config"
    shutil.copytree(project.config, config)
    top = tmp_path / "shop"
    shutil.copytree(project.top, top, symlinks=True)
    (top / "shop.py").write_text(
        SHOP.replace("net = sum(prices)", "net = sum(prices, 0)") + "# by hand\n"
    )
    patch = [
        {
            "newStart": 1,
            "lines": [
                " def total(prices, tax):",
                "-    net = sum(prices)",
                "+    net = sum(prices, 0)",
            ],
        }
    ]
    call = {
        "type": "tool_use",
        "id": "c1",
        "name": "Edit",
        "input": {"file_path": str(top / "shop.py")},
    }
    returned = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
    records = [
        user("Begin the sum at nought.", 1, uuid="p1", timestamp=stamp(10_000_000)),
        assistant("m1", 2, call, timestamp=stamp(10_000_001)),
        {
            **user([returned], 3, timestamp=stamp(10_000_002)),
            "toolUseResult": {"structuredPatch": patch},
        },
    ]
    session = "11111111-1111-4111-8111-111111111111"
    path = config / "projects" / "shop" / f"{session}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(
        "".join(
            json.dumps({**record, "cwd": str(top), "sessionId": session}) + "\n"
            for record in records
        )
    )

    lines = attribute_lines(
        top / "shop.py",
        1,
        0,
        TraceContext(open_runtime(), top, Archive({"claude-code": (str(config),)})),
    )

    assert lines[1].step == f"{session}#1.1"
    assert lines[1].prompt == "Begin the sum at nought."
    assert lines[1].commit == ""
    assert lines[0].step != lines[1].step
    assert (lines[3].step, lines[3].attribution) == ("", "no recorded edit holds this line")


def test_blame_says_no_more_than_it_knows(project, tmp_path):
    (project.top / "README").write_text("A shop.\nBy hand.\n")

    lines = attribute_lines(project.top / "README", 1, 2, project.ground())

    assert [(line.step, bool(line.commit)) for line in lines] == [("", True), ("", False)]
    with pytest.raises(Invalid, match="has 2 lines"):
        attribute_lines(project.top / "README", 1, 9, project.ground())
    with pytest.raises(NotFound):
        attribute_lines(tmp_path / "nothing", 1, 1, project.ground())


def test_blame_command_prints_each_line_with_its_prompt(project):
    one = project.flightlog("blame", "shop.py:2")
    all_ = project.flightlog("blame", "shop.py")
    lines = json.loads(project.flightlog("blame", "shop.py:1-2", "--json").stdout)

    assert "Write totals with tax" in one.stdout
    assert project.commit in one.stdout
    assert all_.stdout.count(f"{project.session[:8]}#1.1") == 3
    assert [line["line_number"] for line in lines] == [1, 2]


def test_outside_of_any_project_only_sessions_are_traced(tmp_path, project):
    env = project.environment()
    bench = project.bench
    done = tool(bench, env, "flightlog", "trace", "zzzz")

    assert done.returncode == 1
    assert "nothing here is called" in done.stderr
    assert (
        build_trace(
            project.session,
            TraceContext(open_runtime(), tmp_path, Archive({"claude-code": (str(bench.config),)})),
        ).items_of_kind("commit")
        == []
    )
    assert FLIGHTLOG.exists()
    assert git(project.top, "status", "--short", "shop.py") == ""
