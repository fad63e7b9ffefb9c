"""The plugin: its generated files, its validators, its hook, and sessions in the three real clients."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from tools.build_plugin import COMMAND, build

from flightlog.setup.install import apply_change, plan_install, plan_removal
from support.plugin_clients import CLIENTS, NAME, ROOT, make_plugin_machine
from support.real_agent import PINNED

PLUGIN = ROOT / "plugin"
PAYLOAD = {"session_id": "s-1", "cwd": "/x", "transcript_path": "/nowhere/t.jsonl"}


def files_below(folder):
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_generated_files_are_those_of_the_source(tmp_path):
    again = tmp_path / "plugin"
    shutil.copytree(PLUGIN, again, ignore=shutil.ignore_patterns("__pycache__"))

    build(again)

    assert files_below(again) == files_below(PLUGIN), "make plugin writes them again"


def test_no_part_of_the_plugin_downloads_or_looks_beside_the_cwd():
    texts = {
        name: body.decode() for name, body in files_below(PLUGIN).items() if name != "icon.png"
    }
    scripts = {name: text for name, text in texts.items() if name.endswith((".py", ".json"))}

    assert [
        name for name, text in scripts.items() if re.search(r"uvx|curl|wget|pip |npx|\./", text)
    ] == []
    assert '"${CLAUDE_PLUGIN_ROOT}/' in COMMAND
    assert (
        json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())["plugins"][0][
            "source"
        ]
        == "./plugin"
    )


def test_claude_validates_the_plugin_and_counts_few_tokens(tmp_path):
    machine = make_plugin_machine(tmp_path, "claude")
    machine.install()

    for words in ([str(ROOT)], [str(PLUGIN)], ["--profile", "directory", str(PLUGIN)]):
        done = machine.call(["plugin", "validate", "--strict", *words])
        assert done.returncode == 0, done.stdout
        assert "refuses" not in done.stdout
    details = machine.call(["plugin", "details", NAME]).stdout
    assert int(re.search(r"Always-on:\s+~(\d+) tok", details)[1]) <= 100
    assert "plugin:flightlog:flightlog" in (listed := machine.call(["mcp", "list"]).stdout)
    assert "Connected" in listed


@pytest.mark.parametrize("client", CLIENTS)
def test_a_session_of_each_client_gets_the_right_answers(client, tmp_path):
    machine = make_plugin_machine(tmp_path, client)
    machine.install()
    assert "flightlog" in machine.call(["mcp", "list"]).stdout
    assert "flightlog" in machine.call(["plugin", "list"]).stdout

    first = machine.run([], "Build the lantern of brass")
    names = [("search", {"query": "brass"}), ("sessions", {}), ("usage", {"scope": "project"})]
    names += [("file_history", {"path": "README.md"}), ("usage", {"scope": "this"})]
    second = machine.run(names, "What did we build?")

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    answers = second.last_request.split("[flightlog mcp] ")[1:]
    heads = [answer.split(r"\n")[0] for answer in answers]
    assert heads[0] == "Matches in 1 transcript, newest first; 1 shown.", second.last_request[
        -3000:
    ]
    assert "Build the lantern of brass</recorded" in answers[0]
    running = re.search(r"the running session ([\w-]+) is left out of searches", answers[0])[1]
    assert re.match(r"\d session", heads[1])
    assert re.match(r"(≥ )?\$[\d.]+ in all", heads[2])
    assert "0 steps changed this file" in heads[3]
    assert re.search(rf"This session, {running}: (≥ )?\$", second.last_request)
    address = re.search(r"([0-9a-f-]{36}#1)  ", answers[0])[1]
    third = machine.run([("open", {"address": address})], "Show it.")
    assert "Build the lantern of brass" in third.last_request.split("[flightlog mcp] ")[1]


def test_codex_records_each_event_once_after_the_person_trusted(tmp_path):
    machine = make_plugin_machine(tmp_path, "codex")
    machine.install()
    recorded = machine.home / ".local/share/flightlog/sessions/codex"

    untrusted = machine.run([], "Say hello")
    assert not recorded.exists(), untrusted.output
    machine.trust_hooks("Say hello in the terminal")
    headless = machine.run([], "Say hello")

    assert headless.exit_code == 0, headless.output
    config = tomllib.loads((machine.home / ".codex/config.toml").read_text())
    assert all(state["trusted_hash"] for state in config["hooks"]["state"].values())
    typed, ran = sorted(recorded.glob("*/hooks.jsonl"))  # their ids begin with the time
    for log in (typed, ran):
        lines = [json.loads(line) for line in log.read_bytes().splitlines()]
        assert {line["by"] for line in lines} == {"plugin"}
        events = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"]
        assert [line["event"] for line in lines] == events


def test_copilot_records_each_event_once_by_the_plugins_hook(tmp_path):
    machine = make_plugin_machine(tmp_path, "copilot")
    machine.install()

    run = machine.run([("sessions", {})], "Say hello")

    assert run.exit_code == 0, run.output
    (log,) = (machine.home / ".local/share/flightlog/sessions").glob("*/*/hooks.jsonl")
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert {line["agent"] for line in lines} == {log.parts[-3]} == {"copilot"}
    assert [line["event"] for line in lines] == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "permissionRequest", "PostToolUse", "Stop",
        "SessionEnd",
    ]  # fmt: skip


def test_claude_records_each_event_once_with_either_or_both_hooks(tmp_path):
    machine = make_plugin_machine(tmp_path, "claude", without_program=True)
    machine.install()
    settings = machine.home / ".claude" / "settings.json"

    def run_and_count():
        run = machine.run([], "Say hello")
        session = re.search(r'"session_id":"([\w-]+)"', run.output)[1]
        folder = machine.home / ".local/share/flightlog/sessions/claude-code" / session
        lines = [json.loads(line) for line in (folder / "hooks.jsonl").read_bytes().splitlines()]
        names = [line["event"] for line in lines]
        assert len(names) == len(set(names)), names
        return {line.get("by", "settings") for line in lines}, set(names)

    alone = run_and_count()
    apply_change(plan_install(settings, [PINNED], Path(sys.executable)))
    both = run_and_count()
    apply_change(plan_removal(settings))
    again = run_and_count()
    apply_change(plan_install(settings, [PINNED], Path(sys.executable)))
    assert machine.call(["plugin", "uninstall", NAME]).returncode == 0
    without = run_and_count()

    assert [origin for origin, _ in (alone, both, again, without)] == [
        {"plugin"}, {"settings"}, {"plugin"}, {"settings"},
    ]  # fmt: skip
    assert {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"} <= alone[1] & both[1]


def run_hook(home, stdin, **more):
    environ = {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "CLAUDE_PLUGIN_ROOT": str(PLUGIN),
        "FLIGHTLOG_HOME": str(home / "data"), **more,
    }  # fmt: skip
    return subprocess.run(
        ["/bin/sh", "-c", COMMAND],
        input=stdin,
        env=environ,
        cwd=home,
        capture_output=True,
        check=False,
    )


def test_the_hook_prints_nothing_and_succeeds_whatever_happens(tmp_path):
    event = json.dumps(PAYLOAD | {"hook_event_name": "PreToolUse"}).encode()
    results = [
        run_hook(tmp_path, event),
        run_hook(tmp_path, b"not json"),
        run_hook(tmp_path, event, PATH="/nowhere"),
        run_hook(tmp_path, event, CLAUDE_PLUGIN_ROOT="/nowhere"),
    ]

    assert [(done.returncode, done.stdout) for done in results] == [(0, b"")] * 4
    (line,) = (tmp_path / "data/sessions/claude-code/s-1/hooks.jsonl").read_bytes().splitlines()
    assert (json.loads(line)["by"], json.loads(line)["event"]) == ("plugin", "PreToolUse")


def test_the_hook_of_codex_is_recorded_under_its_agent(tmp_path):
    event = json.dumps(PAYLOAD | {"hook_event_name": "Stop"}).encode()

    run_hook(tmp_path, event, PLUGIN_ROOT=str(PLUGIN))

    assert (tmp_path / "data/sessions/codex/s-1/hooks.jsonl").exists()


def test_the_hook_ends_in_its_shell_line_if_the_settings_have_one(tmp_path):
    (tmp_path / ".claude").mkdir()
    apply_change(plan_install(tmp_path / ".claude/settings.json", [PINNED], Path(sys.executable)))
    event = json.dumps(PAYLOAD | {"hook_event_name": "Stop"}).encode()
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()

    for _ in range(50):
        run_hook(tmp_path, event)

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / 50
    assert not (tmp_path / "data").exists()
    assert cpu_ms < 3.0, f"{cpu_ms:.1f} ms, {(time.monotonic() - started) * 20:.1f} ms in all"


def test_without_the_program_the_server_says_how_to_install_it(tmp_path):
    server = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]["flightlog"]

    foreign = tmp_path / "flightlog"
    foreign.write_text("#!/bin/sh\necho from the working directory\n")
    foreign.chmod(0o755)
    done = subprocess.run(
        [shutil.which("python3", path="/usr/bin:/bin"), *server["args"]],
        env={"PATH": "/nowhere:.:"}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert server["command"] == "python3"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "flightlog is not installed; to install it: uv tool install flightlog\n"


def test_doctor_init_and_uninstall_notice_the_plugin(tmp_path):
    machine = make_plugin_machine(tmp_path, "claude")
    machine.install()
    (machine.home / ".claude" / "projects").mkdir()
    environ = machine.environment("http://127.0.0.1:9") | {"FLIGHTLOG_CLAUDE": "/nowhere"}

    def flightlog(*words):
        done = subprocess.run(
            [Path(sys.executable).with_name("flightlog"), *words], cwd=machine.project, env=environ,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    assert "registered by the plugin" in flightlog("doctor")
    assert "the plugin's own hook ends at once while this" in flightlog("init", "--yes")
    assert "the plugin is enabled too, and its hook ends at once" in flightlog("doctor")
    assert f"claude plugin uninstall {NAME}" in flightlog("uninstall", "--dry-run")
    assert "the plugin's own hook records from now on" in flightlog("init", "--remove", "--yes")
    assert os.path.exists(PLUGIN / "icon.png")  # noqa: PTH110 - part of the listing


@pytest.mark.parametrize(("client", "way"), [("codex", "remove"), ("copilot", "uninstall")])
def test_the_plugin_is_noticed_in_the_other_clients_too(client, way, tmp_path):
    machine = make_plugin_machine(tmp_path, client)
    machine.install()
    environ = machine.environment("http://127.0.0.1:9") | {"FLIGHTLOG_CLAUDE": "/nowhere"}

    def flightlog(*words):
        done = subprocess.run(
            [Path(sys.executable).with_name("flightlog"), *words], cwd=machine.project, env=environ,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    enabled = [flightlog("doctor"), flightlog("uninstall", "--dry-run")]
    enabled.append(flightlog("init", "--agent", client, "--dry-run"))
    assert machine.call(["plugin", way, NAME]).returncode == 0
    removed = [flightlog("doctor"), flightlog("uninstall", "--dry-run")]

    assert "registered by the plugin with " in enabled[0]
    for text in enabled[1:]:
        assert f"{client} plugin {way} {NAME}" in text
    assert [text for text in removed if re.search(r"by the plugin|'s plugin", text)] == []
