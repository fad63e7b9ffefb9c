"""Retro on what people really have: odd exports, other programs' sessions, several commands at once."""

import itertools
import json
import os
import zipfile
from pathlib import Path

import pytest

from flightlog.loop.links import find_incidents
from flightlog.model.errors import Incident, NotFound
from flightlog.retro.issues import triage, workflow
from flightlog.retro.service import find_session
from flightlog.retro.state import Pattern
from flightlog.retro.store import ROOT
from flightlog.sources.chat_exports.conversation import Conversation
from flightlog.sources.chat_exports.reader import decode_element, iter_elements
from retro.rooms import make_room, report_issue
from retro.test_commands import run, run_json
from support.sources_exports import claude_conversation

SESSION = "11111111-2222-4333-8444-555555555555"


def write_session(folder, calls, cwd="/home/dev/shop", prompt="Fix the shop", session=SESSION):
    """Write a transcript whose one turn has these (name, input, output, is_error) calls."""
    clock = itertools.count(1)
    base = {"sessionId": session, "cwd": str(cwd), "version": "2.1.325", "isSidechain": False}

    def record(kind, message, number, parent):
        stamp = f"2026-11-01T10:00:{next(clock):02d}.000Z"
        link = {"uuid": f"u{number}", "parentUuid": parent, "timestamp": stamp}
        return base | {"type": kind, "message": message} | link

    records = [record("user", {"role": "user", "content": prompt}, 0, None)]
    for number, (name, arguments, output, is_error) in enumerate(calls, 1):
        use = {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
        usage = {"input_tokens": 10, "output_tokens": 5}
        reply = {"id": f"m{number}", "role": "assistant", "model": "claude-opus-5-5"}
        reply |= {"content": [use], "usage": usage, "type": "message"}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": output}
        result["is_error"] = is_error
        parent = "u0" if number == 1 else f"r{number - 1}"
        records.append(record("assistant", reply, f"a{number}", parent))
        records.append(record("user", {"role": "user", "content": [result]}, "", f"ua{number}"))
        records[-1]["uuid"] = f"r{number}"
    path = folder / "projects" / "-work-shop" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in records))
    return path


def read(place):
    text = (place / ROOT / "state" / "digests.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_evidence_of_a_step_opens_the_step(place):
    write_session(
        place / "config",
        [("Bash", {"command": "make"}, "fine", False), ("Bash", {"command": "ls"}, "gone", True)],
    )
    run_json(place, "retro", "analyze", "--no-draw")

    (step,) = run_json(place, "retro", "show", f"{SESSION}#1.2")
    turn = run_json(place, "retro", "show", f"{SESSION}#1")
    whole = run_json(place, "retro", "show", SESSION)
    missing = run(place, "retro", "show", f"{SESSION}#1.3")

    assert step["address"].endswith("#1.2")
    assert "gone" in step["text"]
    assert [row["address"].partition("#")[2] for row in turn] == ["1", "1.1", "1.2"]
    assert [row["text"] for row in whole] == ["Fix the shop"]
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"the conversation has nothing at {SESSION}#1.3" in missing.stderr


def test_a_tool_loop_names_the_number_of_calls(place):
    write_session(place / "config", [("Bash", {"command": "ls"}, "x", False)] * 6)

    run_json(place, "retro", "analyze", "--no-draw")

    (mark,) = [mark for mark in read(place)[0]["frictions"] if mark[0] == "tool loop"]
    assert mark[2] == "Bash called 6 times alike"
    assert mark[1].endswith("#1.1")


def test_sessions_of_the_analyst_and_prompts_of_a_loop_are_no_questions(place):
    own, looped = SESSION.replace("1", "2"), SESSION.replace("1", "3")
    config = place / "config"
    write_session(config, [("Bash", {"command": "ls"}, "x", False)], cwd=place)
    write_session(config, [], place / ROOT / "tmp", "You review a person's work", own)
    write_session(
        config, [("Bash", {"command": "ls"}, "Error: no", True)], place, "Do part one", looped
    )
    loop = place / "ralph-loop-sessions" / "session-001"
    loop.mkdir(parents=True)
    start = {"kind": "run_start", "task": "T1", "attempt": 1}
    start |= {"agent_session": looped, "id": "e1", "seq": 1, "ts": "2026-11-01T10:00:00.000Z"}
    (loop / "journal.jsonl").write_text(json.dumps(start) + "\n")

    analysis = run_json(place, "retro", "analyze", "--no-draw")

    digests = {digest["id"]: digest for digest in read(place)}
    assert analysis["meta"]["conversation_count"] == 2
    os.utime(config / "projects" / "-work-shop" / f"{own}.jsonl", (0, 0))
    assert digests[own]["is_own"] is True
    assert "prompts" not in digests[looped]
    assert digests[looped]["failures"]
    assert digests[SESSION]["prompts"]
    assert "Do part one" not in json.dumps(analysis)
    again = run(place, "retro", "analyze", "--no-draw")
    assert "0 new, 2 known" in again.stderr  # the analyst's own session has changed


@pytest.mark.parametrize(
    "label", [("rejected call", "rejected edit"), ("interruption", "compaction")]
)
def test_findings_with_other_names_are_other_issues(tmp_path, label):
    room = make_room(tmp_path)
    for name in label:
        detail = "2 times in 2 of 3 conversations"
        pattern = Pattern(f"friction-{name}", name, "behavioral", 0.5, kind="friction", count=2)
        pattern = type(pattern)(**{**_fields(pattern), "detail": detail})
        room.store_draft(triage.draft_from_finding(pattern, room.now_ms()))

    done = workflow.process_drafts(room)

    assert (len(done.imported_issues), done.duplicate_drafts) == (2, ())


def _fields(value):
    return {name: getattr(value, name) for name in value.__struct_fields__}


def test_a_breaker_trip_names_session_task_and_rule(tmp_path):
    loop = tmp_path / "session-001-shop"
    loop.mkdir()
    lines = []
    for number, (task, condition) in enumerate(
        [("T1", "no progress in 3 attempts"), ("T1", "no progress in 4 attempts"),
         ("T2", "permission denied in 2 attempts in a row"), ("T2", "secret words of a plan")]
    ):  # fmt: skip
        stamp = {"ts": f"2026-11-01T10:00:0{number}.000Z"}
        start = {"kind": "task_start", "task": task, "attempt": 1, "mode": "work"}
        lines.append(start | {"effect_id": "e", "id": "x", "seq": 2 * number} | stamp)
        trip = {"kind": "breaker", "from_state": "closed", "to_state": "open"}
        lines.append(trip | {"condition": condition, "id": "x", "seq": 2 * number + 1} | stamp)
    (loop / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    room = make_room(tmp_path)

    workflow.draft_incidents(room, find_incidents(loop))
    done = workflow.process_drafts(room)

    assert {issue.title for issue in done.board.issues.values()} == {
        "loop: breaker trip: session-001-shop/T1/no-progress",
        "loop: breaker trip: session-001-shop/T2/permission-denied",
        "loop: breaker trip: session-001-shop/T2/condition",
    }
    assert len(done.duplicate_drafts) == 1


def test_a_subject_that_may_be_text_becomes_a_digest():
    assert Incident("breaker trip", 1, "loop", subject="Jane's plan").subject.startswith("place-")


def chatgpt_conversation(**more):
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hello"]}}
    message["create_time"] = 1_790_000_000.5
    odd = {"author": {"role": "assistant"}, "create_time": "yesterday"}
    odd["content"] = {"content_type": "text", "text": {"a": 1}, "parts": ["Hi"]}
    mapping = {
        "a": {"message": message, "parent": None, "children": ["b"]},
        "b": {"message": odd, "parent": "a", "children": "none"},
        "c": "not a node",
    }
    return {"title": "Greeting", "mapping": mapping, "current_node": "b", "id": "chat-1"} | more


def test_an_odd_field_costs_the_field_and_is_named(tmp_path):
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt_conversation(create_time={"s": 1})]))

    (chat,) = [decode_element(element) for element in iter_elements(path)]

    assert isinstance(chat, Conversation)
    assert [message.text for message in chat.messages] == ["Hello", "Hi"]
    assert chat.started_ms == 1_790_000_000_500
    assert set(chat.left_out) == {
        "create_time", "mapping.b.message.create_time", "mapping.b.message.content.text",
        "mapping.b.children", "mapping.c",
    }  # fmt: skip


def test_half_an_emoji_and_an_impossible_time_cost_no_conversation(place):
    chats = [chatgpt_conversation(create_time=1.79e12), chatgpt_conversation(title="Half \ud83d")]
    chats[1]["id"] = "chat-2"
    (place / "chatgpt.json").write_text(json.dumps(chats))
    chats = json.dumps([claude_conversation("c1", "Hello there", created_at="0001-01-01")])
    (place / "claude.json").write_bytes(chats.encode().replace(b"there", b"\xff"))

    ran = [run(place, "retro", name, "--no-sessions") for name in ("chatgpt.json", "claude.json")]

    assert "2 new, 0 known, 0 damaged" in ran[0].stderr
    assert "chat-1: 5 fields of another type left out: create_time, " in ran[0].stderr
    assert "1 new, 0 known, 0 damaged" in ran[1].stderr
    titles = {digest["id"]: digest["title"] for digest in read(place)}
    assert titles["chat-2"] == "Half ?"


def test_analyze_says_what_was_damaged(place):
    chats = [chatgpt_conversation(), {"id": "x", "mapping": 3}]
    (place / "export.json").write_text(json.dumps(chats))

    ran = run(place, "retro", "export.json", "--no-draw", "--no-sessions")

    assert "1 new, 0 known, 1 damaged" in ran.stderr
    assert "chat-1: 4 fields of another type left out: mapping." in ran.stderr
    assert "no conversation: Expected `object`, got `int` - at `$.mapping`" in ran.stderr


def test_an_unzipped_export_is_the_same_as_the_zip(place):
    chats = json.dumps([claude_conversation("c1"), claude_conversation("c2")])
    folder = place / "export" / "data"
    folder.mkdir(parents=True)
    (folder / "conversations.json").write_text(chats)
    (folder / "users.json").write_text('[{"full_name": "Jane Roe"}]')
    (place / "elsewhere.json").write_text(chats)
    (folder / "conversations-linked.json").symlink_to(place / "elsewhere.json")
    (place / "empty").mkdir()

    ran = run(place, "retro", "export", "--no-draw", "--no-sessions")
    again = run(place, "retro", "export/", "--no-draw", "--no-sessions")
    shown = run_json(place, "retro", "show", "c1")
    empty = run(place, "retro", "empty")

    assert "2 new, 0 known, 0 damaged" in ran.stderr
    assert "0 new, 2 known, 0 damaged" in again.stderr
    assert len(shown) > 1
    assert empty.returncode == 2
    assert "no conversations in this directory: empty" in empty.stderr
    journal = (place / ROOT / "state" / "journal.jsonl").read_text()
    assert "Jane Roe" in journal


def test_the_evidence_of_an_export_elsewhere_opens_the_answer(place):
    downloads = place.parent / f"{place.name}-downloads"
    downloads.mkdir()
    export = downloads / "export.json"
    export.write_text(json.dumps([claude_conversation("c1", "How do I prune roses?")]))
    run(place, "retro", str(export), "--no-draw", "--no-sessions")

    answer = run_json(place, "retro", "show", "c1#1.1")
    missing = run(place, "retro", "show", "c1#1.2")
    export.unlink()
    nearest = run_json(place, "retro", "show", "c1#1.1")

    assert [row["text"] for row in answer] == ["An answer"]
    assert "the conversation has nothing at c1#1.2" in missing.stderr
    assert [row["text"] for row in nearest] == ["How do I prune roses?"]


def test_the_cost_of_a_program_that_states_none_is_unknown(place):
    (place / "export.json").write_text(json.dumps([claude_conversation()]))

    ran = run(
        place, "retro", "export.json", "--no-draw", "--no-sessions", "--analyst", "echo {prompt}"
    )

    line = json.loads((place / ROOT / "logs" / "metrics.jsonl").read_text())
    assert ran.returncode == 0, ran.stderr
    assert "cost unknown, saved in" in ran.stderr
    assert (line["cost_usd"], line["prompts"]) == (None, 1)


def test_a_cut_zip_is_called_incomplete(place):
    with zipfile.ZipFile(place / "export.zip", "w") as box:
        box.writestr("conversations.json", json.dumps([claude_conversation()]))
    data = (place / "export.zip").read_bytes()
    (place / "export.zip").write_bytes(data[: len(data) // 2])

    ran = run(place, "retro", "export.zip")

    assert ran.returncode == 3
    assert "the zip is incomplete: export.zip" in ran.stderr
    assert "download the export again" in ran.stderr
    assert not (place / ROOT).exists()


def test_a_zip_with_damaged_data_is_refused(place):
    with zipfile.ZipFile(place / "export.zip", "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("conversations.json", json.dumps([claude_conversation()] * 9))
    data = bytearray((place / "export.zip").read_bytes())
    data[120] ^= 0xFF
    (place / "export.zip").write_bytes(data)

    ran = run(place, "retro", "export.zip")

    assert ran.returncode == 3
    assert "the zip is damaged: " in ran.stderr


def test_an_analysis_that_fails_leaves_no_directory(place):
    whole = json.dumps([claude_conversation("c1"), claude_conversation("c2")])
    (place / "export.json").write_text(whole[:-40])

    first = run(place, "retro", "export.json")
    left = (place / ROOT).exists()
    (place / "good.json").write_text(whole)
    run(place, "retro", "good.json", "--no-draw")
    second = run(place, "retro", "export.json")

    assert (first.returncode, second.returncode) == (3, 3)
    assert not left
    assert (place / ROOT / "state" / "analysis.json").exists()


def test_several_ratings_within_a_second_are_several_files(place):
    (place / "export.json").write_text(json.dumps([claude_conversation()]))
    run(place, "retro", "export.json", "--no-draw")

    paths = [run_json(place, "retro", "feedback", "gap", f"More {n}")["path"] for n in range(3)]

    stored = [json.loads(Path(path).read_text()) for path in paths]
    assert len(set(paths)) == 3
    assert [one["gaps"][0]["description"] for one in stored] == ["More 0", "More 1", "More 2"]


def test_feedback_of_the_same_moment_does_not_overwrite(tmp_path):
    from flightlog.retro.service import record_gap

    room = make_room(tmp_path)
    room.now_ms = lambda: 1_790_000_000_000

    paths = [record_gap(room, f"More {n}", "other", "low") for n in range(3)]

    assert len({path.read_text() for path in paths}) == 3


def test_every_run_adds_one_metrics_line_with_its_duration(place):
    (place / "export.json").write_text(json.dumps([claude_conversation()]))

    for _ in range(2):
        run(place, "retro", "export.json", "--no-draw")

    text = (place / ROOT / "logs" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == 2
    assert all(line["timing"]["session_duration_seconds"] > 0 for line in lines)


def test_an_unknown_session_is_not_resumed(place):
    (place / "export.json").write_text(json.dumps([claude_conversation()]))
    unknown = run(place, "retro", "export.json", "--resume", "nope")
    assert not (place / ROOT).exists()
    run(place, "retro", "export.json", "--no-draw")
    before = (place / ROOT / "resume-session.json").read_bytes()

    refused = run(place, "retro", "export.json", "--resume", "nope")

    assert (unknown.returncode, refused.returncode) == (1, 1)
    assert "no such retro session: nope" in refused.stderr
    assert (place / ROOT / "resume-session.json").read_bytes() == before
    current = json.loads(before)["session_id"]
    assert run(place, "retro", "export.json", "--resume", current).returncode == 0


def test_a_session_with_an_analyst_can_be_resumed_later(tmp_path):
    room = make_room(tmp_path)
    (room.root / "state" / f"analyst-{SESSION}").write_text("{}")

    assert find_session(room, SESSION) == SESSION
    with pytest.raises(NotFound):
        find_session(room, "other")


def test_the_changelog_says_that_a_resolved_problem_came_back(tmp_path):
    room = make_room(tmp_path)
    name = report_issue(room, "The parser crashes on empty files", "It fails at once.", "high")
    workflow.resolve_issue(room, name, "Fixed the parser")
    report_issue(room, "The parser crashes on empty files", "It fails at once.", "high")

    text = (room.root / "issues" / "CHANGELOG.md").read_text()

    assert "Fixed the parser (reopened on 2026-" in text
    workflow.resolve_issue(room, name, "Fixed it again")
    text = (room.root / "issues" / "CHANGELOG.md").read_text()
    assert text.count("(reopened") == 1
    assert "Fixed it again\n" in text
