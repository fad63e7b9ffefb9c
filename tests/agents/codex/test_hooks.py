"""Hooks of Codex: what `init --agent` writes, and what the real client then records through them."""

import json
import shutil
from pathlib import Path

from msgspec import Raw

from flightlog.agents.claude_code.hooks import HookReader
from flightlog.model.entries import HookRecord, PromptSubmitted
from support.cli_runs import flightlog, within
from support.real_clients import make_machine

RECORDINGS = Path(__file__).parents[2] / "recordings" / "codex"
TRUSTED = "--dangerously-bypass-hook-trust"  # in place of a person who trusts the hook


def codex_home(tmp_path):
    home = tmp_path / "codex"
    home.mkdir()
    return home


def test_init_registers_and_removes_the_hook(tmp_path):
    home = codex_home(tmp_path)
    own = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
    (home / "hooks.json").write_text(json.dumps(own))
    place = {"CODEX_HOME": str(home)}

    dry = within(tmp_path, "init", "--agent", "codex", "--dry-run", "--keep-days", "9", **place)
    unchanged = json.loads((home / "hooks.json").read_text())
    done = within(tmp_path, "init", "--agent", "codex", "--yes", **place)
    hooks = json.loads((home / "hooks.json").read_text())["hooks"]
    removed = within(tmp_path, "init", "--agent", "codex", "--remove", "--yes", **place)

    assert (dry.code, done.code, removed.code) == (0, 0, 0)
    assert unchanged == own
    assert dry.out.endswith("flightlog init --agent codex --dry-run --keep-days 9 --json\n")
    assert dry.err == "--keep-days does not apply to Codex\n"
    assert "asks you to trust the hook" in done.err
    assert len(hooks) == 11
    assert "record.py codex >/dev/null" in hooks["Stop"][-1]["hooks"][0]["command"]
    assert json.loads((home / "hooks.json").read_text()) == own


def test_init_for_all_registers_with_each_agent_here(tmp_path):
    home = codex_home(tmp_path)

    ran = within(tmp_path, "init", "--agent", "all", "--yes", "--json", CODEX_HOME=str(home))

    paths = [json.loads(line)["settings_path"] for line in ran.out.splitlines()]
    assert paths == [str(tmp_path / "settings.json"), str(home / "hooks.json")]
    undone = within(tmp_path, "uninstall", "--yes", CODEX_HOME=str(home))
    assert undone.code == 0
    assert not (home / "hooks.json").exists()


def test_init_needs_a_directory_of_the_agent(tmp_path):
    ran = within(tmp_path, "init", "--agent", "codex", "--yes", CODEX_HOME=str(tmp_path / "no"))

    assert ran.code != 0
    assert "Codex has no directory here" in ran.err


def test_the_real_client_calls_the_hook_and_its_session_is_archived(tmp_path):
    machine = make_machine(tmp_path, "codex")
    home, data = machine.home / ".codex", machine.home / "flightlog"
    home.mkdir()
    place = {"CODEX_HOME": str(home), "FLIGHTLOG_HOME": str(data)}
    flightlog(tmp_path, "init", "--agent", "codex", "--inline", "--yes", **place)
    machine.extra["FLIGHTLOG_HOME"] = str(data)
    look = {"blocks": [machine.shell_call("echo hello")]}

    run = machine.run({"rules": [{"replies": [look, {"text": "Done."}]}]}, "Say hello", TRUSTED)

    session = run.records[0]["thread_id"]
    folder = data / "sessions" / "codex" / session
    lines = (folder / "hooks.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events[:4] == ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"]
    assert "Stop" in events
    assert (folder / "transcript.jsonl").exists()
    shown = json.loads(flightlog(tmp_path, "session", "show", session, "--json", **place).out)
    (call,) = [call for step in shown["turns"][0]["items"] for call in step["tool_calls"]]
    assert call["permission_decision"] == "allow"


def test_the_prompt_of_a_subagent_is_not_that_of_the_session():
    payloads = [{"prompt": "Delegate it"}, {"prompt": "Count the files", "agent_id": "b"}]
    records = [
        HookRecord(at_ms, "UserPromptSubmit", payload=Raw(json.dumps(payload).encode()))
        for at_ms, payload in enumerate(payloads)
    ]

    assert list(HookReader().read(records)) == [PromptSubmitted(0, "Delegate it")]


def test_commands_list_show_count_and_search_its_sessions(tmp_path):
    for case in RECORDINGS.glob("*/*/session"):
        shutil.copytree(case, tmp_path / "codex", dirs_exist_ok=True)
    place = {"CODEX_HOME": str(tmp_path / "codex")}

    rows = json.loads(within(tmp_path, "session", "list", "--json", **place).out)
    searched = within(tmp_path, "session", "search", "agent:codex", "helper", **place)
    shown = within(tmp_path, "session", "show", rows[0]["session"], **place)
    usage = json.loads(within(tmp_path, "session", "usage", "--by", "agent", "--json", **place).out)

    assert {row["agent"] for row in rows} == {"codex"}
    assert "I start a helper." in searched.out
    assert f"codex {rows[0]['version']}, /home/dev/project" in shown.out
    wires = [path.read_text().splitlines() for path in RECORDINGS.rglob("wire.jsonl")]
    assert [row["agent"] for row in usage["rows"]] == ["codex"]
    assert usage["total"]["responses"] == sum(map(len, wires))
