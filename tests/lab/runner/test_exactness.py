"""Real sessions: what the changelog says of each step, applied in order, is what the directory became."""

import json

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.archive.trajectories import lint_path
from flightlog.views.atif.lint import is_sound
from support.labs import bash, config, lines, meta, proven, replies, run, script, tree

BYTES = r"printf '\000\001\377\n\r\n' "


def write(path, content):
    return {"tool": "Write", "input": {"file_path": str(path), "content": content}}


def agent(prompt, **more):
    given = {"description": "look", "prompt": prompt, "subagent_type": "general-purpose"}
    return {"tool": "Agent", "input": given | {"run_in_background": False} | more}


def both(own):
    """Write a line, and stay at it until the other subagent has written as many."""
    other = 3 - own
    wait = f"for _ in $(seq 200); do [ $(wc -l < s{other} || echo 0) -ge $(wc -l < s{own}) ] && break; sleep 0.05; done"
    return f"echo {own} >> s{own}; touch s{other}; {wait}; sleep 0.3"


def scenarios(work):
    """One script for each way files come to change."""
    return {
        "two tools in one step": script(
            [bash("echo one > one; echo two > two"), write(work / "b.txt", "b\n")], "done"
        ),
        "deleted, binary, renamed": script(
            [bash(f"rm old.txt; {BYTES} > new.bin")],
            [bash(f"{BYTES} >> data.bin; mv long.txt moved.txt")],
            "done",
        ),
        "modes, links, odd names": script(
            [
                bash(
                    "chmod +x run.sh; ln -s old.txt link; mkdir -p 'a dir/ü'; echo x > 'a dir/ü/sp ace.txt'"
                )
            ],
            [
                bash(
                    "rm link; echo now-a-file > link; : > empty; printf 'no end' > bare; printf '\\351\\n' > latin1.txt"
                )
            ],
            [
                bash(
                    """echo q > 'quo"te'; echo t > "$(printf 'tab\\there')"; rm empty; echo more >> latin1.txt"""
                )
            ],
            "done",
        ),
        "a tool that fails": script(
            [bash("echo before > before; exit 3")], [bash("echo after > after")], "done"
        ),
        "words only": script("nothing to do"),
        "an ignored file and a repository inside": script(
            [
                bash(
                    "echo build > ignored.log; git init -q inner; echo i > inner/i; echo more > .gitignore"
                )
            ],
            "done",
        ),
    }


def make_interleaved_scripts():
    """One script for each way requests come between others."""
    return {
        "a call that is tried again": {
            "rules": [
                {
                    "replies": [
                        {
                            "blocks": [bash("echo a > a")],
                            "errors": [{"status": 529, "retry_after_s": 0}],
                        },
                        {"text": "done", "errors": [{"cut_after": 3}]},
                    ]
                }
            ]
        },
        "a subagent that writes": {
            "rules": [
                {
                    "when": {"subagent": True, "prompt": "write a file"},
                    "replies": replies([bash("echo sub > sub.txt")], "sub done"),
                },
                {
                    "replies": replies(
                        [agent("write a file")], [bash("echo main > main.txt")], "done"
                    )
                },
            ]
        },
        "subagents side by side": {
            "rules": [
                {
                    "when": {"subagent": True, "prompt": "the first"},
                    "replies": replies([bash(both(1))], [bash(both(1))], "ok"),
                },
                {
                    "when": {"subagent": True, "prompt": "the second"},
                    "replies": replies([bash(both(2))], [bash(both(2))], "ok"),
                },
                {
                    "replies": replies(
                        [agent("the first"), agent("the second")], [bash("echo m > m")], "done"
                    )
                },
            ]
        },
    }


@pytest.fixture
def place(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "old.txt").write_text("old\n")
    (work / "long.txt").write_text("".join(f"line {n}\n" for n in range(50)))
    (work / "data.bin").write_bytes(bytes(range(256)))
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / ".gitignore").write_text("*.log\n")
    return tmp_path


def join_scenarios(scenarios):
    """One script for all: each rule answers only in the session that asks for its scenario."""
    rules = []
    for name, scenario in scenarios.items():
        for rule in scenario["rules"]:
            own = rule.get("when", {})
            main = {} if own.get("subagent") else {"prompt": name}
            rules.append({"when": own | main, "replies": rule["replies"]})
    return {"rules": rules}


def test_the_changes_of_each_step_in_order_give_the_final_tree(place):
    every = scenarios(place / "work") | make_interleaved_scripts()

    book = run(place, config(place, join_scenarios(every), *every, in_place="keep"))

    entries = proven(book, place)
    document = meta(book)
    assert [session["stop_reason"] for session in document["sessions"]] == ["completed"] * len(
        every
    ), document["errors"]
    final = tree(place / "work")
    assert tree(place / "final") == {
        path: what for path, what in final.items() if "/.git/" not in f"/{path}"
    }
    wrote = {list(every)[entry["session_index"] - 1] for entry in entries}
    assert set(every) - wrote == {"words only"}
    assert {entry["kind"] for entry in entries} >= {
        "added",
        "deleted",
        "modified",
        "renamed",
        "retyped",
    }
    assert all(is_sound(report.findings) for report in lint_path(open_runtime(), book.path))


def read_attributions(book, place):
    return {
        entry["file_path"]: (entry["attribution"], entry["step_id"])
        for entry in proven(book, place)
    }


def test_changes_of_two_tools_in_one_step_belong_to_that_step(place):
    work = place / "work"
    scenario = script(
        [bash("rm old.txt"), write(work / "b.txt", "b\n")], [bash(f"{BYTES} > c.bin")], "done"
    )

    book = run(place, config(place, scenario, "do it"))

    changes = read_attributions(book, place)
    steps = json.loads((book.path / "session_01" / "trajectory.json").read_bytes())["steps"]
    tools = {
        step["step_id"]: [call["function_name"] for call in step.get("tool_calls", [])]
        for step in steps
    }
    assert {path: (how, tools[step]) for path, (how, step) in changes.items()} == {
        "old.txt": ("exact", ["Bash", "Write"]),
        "b.txt": ("exact", ["Bash", "Write"]),
        "c.bin": ("exact", ["Bash"]),
    }


def test_a_shell_left_running_is_named_as_the_one_that_may_have_written(place):
    late = bash("sleep 0.7; echo late > late.txt", run_in_background=True)
    scenario = script([bash("echo first > first.txt")], [late], [bash("sleep 1.2")], "done")

    book = run(place, config(place, scenario, "do it"))

    changes = read_attributions(book, place)
    assert changes["first.txt"][0] == "exact"
    assert changes["late.txt"][0] == "background"


def test_a_subagents_change_is_its_own_and_two_at_once_share_theirs(place):
    alone = run(
        place,
        config(place, make_interleaved_scripts()["a subagent that writes"], "do it"),
        "alone",
    )
    (place / "one").mkdir()
    one = {entry["file_path"]: entry for entry in proven(alone, place / "one")}

    both = run(
        place, config(place, make_interleaved_scripts()["subagents side by side"], "do it"), "both"
    )
    (place / "two").mkdir()
    two = {entry["file_path"]: entry for entry in proven(both, place / "two")}

    assert (one["sub.txt"]["attribution"], one["main.txt"]["attribution"]) == ("exact", "exact")
    assert one["sub.txt"]["subagent"]
    assert "subagent" not in one["main.txt"]
    assert two["s1"]["attribution"] == two["s2"]["attribution"] == "shared"
    assert two["m"]["attribution"] == "exact"


def test_without_capture_the_tree_is_saved_after_each_tool_call(place):
    failing = bash("echo failed > failed; exit 3")
    late = bash("sleep 0.5; echo late > late", run_in_background=True)
    scenario = script(
        [bash("echo one > one")],
        [failing],
        [late],
        [bash("sleep 0.9")],
        [bash("echo end > end")],
        "done",
    )

    book = run(place, config(place, scenario, "do it", capture_api_requests=False))

    changes = {entry["file_path"]: entry for entry in proven(book, place)}
    assert {path: entry["attribution"] for path, entry in changes.items()} == {
        "one": "exact",
        "failed": "exact",
        "late": "background",
        "end": "background",
    }
    steps = json.loads((book.path / "session_01" / "trajectory.json").read_bytes())["steps"]
    calls = {step["step_id"]: str(step.get("tool_calls")) for step in steps}
    assert "echo one" in calls[changes["one"]["step_id"]]
    assert "echo failed" in calls[changes["failed"]["step_id"]]
    turns = json.loads((book.path / "session_01" / "uuid_map.json").read_bytes())["turns"]
    assert turns[0]["shadow_git_tag"] == "_step_01_001"
    assert not (book.path / "session_01" / ".exchanges").exists()


def test_uncaptured_requests_are_rebuilt_with_their_fidelity(place):
    every = script([bash("echo one > one")], [bash("echo two > two")], "done")
    book = run(place, config(place, every, "do it", capture_api_requests=False))

    rows = lines(book.path / "session_01" / "api_captures.jsonl")

    assert [row["rebuilt"] for row in rows] == [{"fidelity": "exact", "missing": []}] * 3
    asked = json.loads((book.path / "session_01/raw_dumps/request_003.json").read_bytes())
    assert len(asked["messages"]) == rows[2]["message_count"]
    assert "echo two > two" in json.dumps(asked["messages"])


def test_a_compacted_conversation_keeps_its_changes_and_is_counted(place):
    scenario = {
        "rules": [
            {"when": {"prompt": "do it"}, "replies": replies([bash("echo a > a")], "done")},
            {"when": {"prompt": "do more"}, "replies": replies([bash("echo b > b")], "done")},
        ]
    }
    sessions = ("do it", "/compact be brief", "do more")

    book = run(place, config(place, scenario, *sessions, session_mode="chained"))

    document = meta(book)
    assert [session["stop_reason"] for session in document["sessions"]] == ["completed"] * 3, (
        document["errors"]
    )
    assert {entry["file_path"]: entry["attribution"] for entry in proven(book, place)} == {
        "a": "exact",
        "b": "exact",
    }
    rows = [
        json.loads(line)
        for line in (book.path / "session_02/api_captures.jsonl").read_bytes().splitlines()
    ]
    assert [row["is_compaction"] for row in rows] == [True]
    assert [session["compaction_count"] for session in document["sessions"]] == [0, 1, 0]
    assert all(is_sound(report.findings) for report in lint_path(open_runtime(), book.path))
